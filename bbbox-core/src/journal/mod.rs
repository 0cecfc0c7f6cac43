//! Durable operations: everything that changes something is one.
//!
//! An operation is an async function over a `Context`. What it does is recorded in the store before and after it
//! happens, so recovery is calling the function again: what is recorded is returned, and what was under way is run
//! again. An operation that fails or is cancelled is taken back by its undos, which are recorded too. Operations on
//! one box run one at a time. Nothing here knows what an operation does, and time, chance and crash points come
//! from [`Env`](crate::env::Env) alone.

mod builder;
mod context;
mod drive;
mod engine;
mod event;
mod halt;
mod model;
mod queue;
mod replay;
mod rows;
mod step;
mod summary;
#[cfg(test)]
mod tests;
mod undo;

pub use event::{Event, What};
pub use model::{State, StepSummary, Summary, UndoSummary};

pub(crate) use builder::JournalBuilder;
pub(crate) use context::Context;
pub(crate) use engine::Journal;
pub(crate) use halt::Halt;
pub(crate) use model::{Begin, Begun, Ended};
pub(crate) use step::Attempt;
