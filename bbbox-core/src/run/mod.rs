//! Commands, jobs and files in a box.
//!
//! Written once, on [`crate::transport::Transport::spawn`]. Every command is a job from the start: its output and
//! its status live in files in the box, so it outlives this process and a lost connection. `Runners` keeps one
//! shell open for each box in use, which launches jobs and tells how they ended; [`Session`] is the handle on one
//! box. Nothing here knows a provider, and nothing is installed in a box.

pub mod posix;
pub mod powershell;

mod copy;
mod fault;
mod follow;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod job;
mod message;
mod open;
mod runner;
mod runners;
mod session;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use copy::{Copied, Progress};
pub use job::{
    Command, Ended, JobSpec, JobState, KEPT, Kept, LONGEST_SCRIPT, RunResult, Signal, Signalled, Stream,
};
pub(crate) use runners::{Dial, Runners, needs_sh};
pub use session::{DEFAULT_WAIT, Session};
