//! What an operation tells while it runs: progress, timings, the box log and traces all come from it.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;

use super::State;
use crate::{
    error::Error,
    id::{BoxId, OperationId},
};

/// One thing that happened in an operation. It was recorded before it is told, except for progress.
#[derive(Clone, Debug)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// The operation.
    pub operation: OperationId,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its boxes.
    pub boxes: Arc<[BoxId]>,
    /// Who asked for it, in words for people.
    pub by: Arc<str>,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum What {
    /// It was recorded. `queued` says whether it waits for an earlier one.
    Began {
        /// Whether it waits for an earlier one on the same box.
        queued: bool,
    },
    /// A run of a step began.
    StepStarted {
        /// The step's name, with its branches before it.
        step: String,
        /// How many runs began before this one.
        tries: u32,
    },
    /// A run of a step ended.
    StepEnded {
        /// The step's name, with its branches before it.
        step: String,
        /// How long the run took.
        took: Duration,
        /// Why it did not succeed.
        error: Option<Error>,
        /// In how long it is tried again.
        again: Option<Duration>,
    },
    /// What goes on.
    Progress {
        /// The step that says so, if one does.
        step: Option<String>,
        /// What goes on.
        text: String,
        /// The share that is done, 0 to 1, where that is known.
        fraction: Option<f64>,
    },
    /// It is being taken back.
    Undoing {
        /// Why.
        cause: Error,
    },
    /// A run of an undo ended.
    Undo {
        /// What kind of undo.
        kind: String,
        /// The step that armed it.
        step: String,
        /// Why it did not succeed.
        error: Option<Error>,
        /// In how long it is tried again. `None` with an error: it is stuck.
        again: Option<Duration>,
    },
    /// It stands still.
    Suspended {
        /// Why, and what to do.
        error: Error,
    },
    /// It ended.
    Ended {
        /// How.
        state: State,
        /// Why, unless it is done.
        error: Option<Error>,
    },
}
