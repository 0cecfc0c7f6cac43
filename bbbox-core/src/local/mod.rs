//! The reference backend: boxes as processes on this machine (Linux only).
//!
//! For trying bb-box and testing it, **not for code that you do not trust**. What a box gets depends on what the
//! machine grants, is recorded when it is made, and is never less later:
//!
//! | | with namespaces | with none |
//! |---|---|---|
//! | processes | its own; PID 1 takes orphans, and a stop ends all | this machine's; a stop ends those whose environment names the box |
//! | files | `/usr`, `/etc`, `/opt` of this machine, read-only; all else in memory, gone when it stops | this machine's |
//! | home, kept until release | `/home/box` | a folder |
//! | user | root: without dangerous capabilities where bb-box is root, else only over the box itself | the user that bb-box runs as |
//! | network | this machine's, its loopback and abstract sockets too | this machine's |
//!
//! Sizes are counted, **never enforced**. Namespaces come from util-linux; made by root, they leave `/etc` readable.
//! A guest is a folder that runs while its *keeper*, its first process, lives; `kill 1` shuts it down from inside.

mod backend;
mod client;
mod config;
mod folder;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod map;
mod running;
mod transport;

pub use backend::Local;
pub use config::{Isolation, LocalConfig};
