//! What an operation is, as callers and people see it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    error::{Error, Result},
    id::{BoxId, OperationId, RequestId},
    store::damaged,
};

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// An earlier operation on one of its boxes goes first.
    Queued,
    /// It is under way.
    Running,
    /// It failed or was cancelled, and what it did is being taken back.
    Undoing,
    /// It stands still until it is resumed, after a restart or an upgrade, or cancelled: its error says why.
    Suspended,
    /// It did what was asked.
    Done,
    /// It failed, and nothing of it is left.
    Failed,
    /// It was cancelled, and nothing of it is left.
    Cancelled,
    /// It ended, and what it did or may have done could not be taken back. It keeps its boxes.
    Unknown,
}

impl State {
    pub(super) const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::Undoing,
        Self::Suspended,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
        Self::Unknown,
    ];

    /// The state as one word, the same in the database, in JSON and in text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Undoing => "undoing",
            Self::Suspended => "suspended",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it will not change by itself any more.
    #[must_use]
    pub const fn ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled | Self::Unknown)
    }

    pub(super) fn parse(word: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|state| state.as_str() == word)
            .ok_or_else(|| damaged("the journal is damaged", format!("{word:?} is no state")))
    }
}

/// What to begin.
#[derive(Clone, Debug)]
pub(crate) struct Begin {
    /// The kind, as registered.
    pub(crate) kind: &'static str,
    /// The version of the kind's function.
    pub(crate) version: u32,
    /// The caller's own ID for the request: the same one again is the same operation.
    pub(crate) request: Option<RequestId>,
    /// What a repeat of `request` must ask again to be the same. `None` compares `args`; give it where `args` holds
    /// something drawn by chance, such as a new box's ID.
    pub(crate) asked: Option<Value>,
    /// The boxes it is about. It runs when it is the earliest on each of them.
    pub(crate) boxes: Vec<BoxId>,
    /// Who asked, for people.
    pub(crate) by: String,
    /// What its function is given. Kept in the journal: never a secret.
    pub(crate) args: Value,
    /// Whether it may run on a box whose last operation ended unknown, as a release may.
    pub(crate) over_unknown: bool,
}

/// What a begin did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Begun<T> {
    /// It began a new operation.
    New {
        /// The operation.
        id: OperationId,
        /// What the caller's own writes returned.
        value: T,
    },
    /// The same request had begun it before; nothing was written.
    Repeat {
        /// The operation.
        id: OperationId,
    },
}

impl<T> Begun<T> {
    /// The operation.
    pub(crate) fn id(&self) -> &OperationId {
        match self {
            Self::New { id, .. } | Self::Repeat { id } => id,
        }
    }
}

/// An operation's end, as the one who registered its kinds sees it in the transaction that ends it.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// The operation.
    pub(crate) id: OperationId,
    /// Its kind.
    pub(crate) kind: String,
    /// What its function was given.
    pub(crate) args: Value,
    /// How it ended: done, failed, cancelled or unknown.
    pub(crate) state: State,
    /// Whether it ever got its turn. One that was cancelled or refused in the queue did not: it changed nothing, and
    /// its boxes may be in the hands of the operation that runs on them.
    pub(crate) ran: bool,
    /// Why, unless it is done.
    pub(crate) error: Option<Error>,
    /// What its function returned, if it is done.
    pub(crate) result: Option<Value>,
}

/// One operation.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Its ID.
    pub id: OperationId,
    /// Its kind.
    pub kind: String,
    /// The version of its function.
    pub version: u32,
    /// Its boxes.
    pub boxes: Vec<BoxId>,
    /// Who asked.
    pub by: String,
    /// What its function was given.
    pub args: Value,
    /// How it stands.
    pub state: State,
    /// Whether somebody asked to cancel it in time.
    pub cancel: bool,
    /// Why it failed, is being undone, or is suspended.
    pub error: Option<Error>,
    /// What its function returned.
    pub result: Option<Value>,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Its steps, in the order in which they began. Only `show` reads them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepSummary>,
    /// Its undos, oldest first. Only `show` reads them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub undos: Vec<UndoSummary>,
}

/// One step of an operation.
#[derive(Clone, Debug, Serialize)]
pub struct StepSummary {
    /// Its name, with its branches before it.
    pub key: String,
    /// `started`, `waiting` (to be tried again), `done` or `failed`.
    pub state: String,
    /// How many runs of it began.
    pub tries: u32,
    /// The provider's task that was recorded last.
    pub task: Option<String>,
    /// Its last error.
    pub error: Option<Error>,
    /// When it first began.
    pub began: Timestamp,
    /// When its last run ended.
    pub ended: Option<Timestamp>,
}

/// One undo of an operation: what takes a step back.
#[derive(Clone, Debug, Serialize)]
pub struct UndoSummary {
    /// The step that armed it.
    pub step: String,
    /// What kind of undo.
    pub kind: String,
    /// What it is given.
    pub payload: Value,
    /// `armed`, `undone` or `stuck`.
    pub state: String,
    /// How many runs of it ended in an error that may pass.
    pub failures: u32,
    /// Its last error.
    pub error: Option<Error>,
}
