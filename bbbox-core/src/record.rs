//! A box's record: what bb-box knows about one box, from the request until its release is confirmed.
//!
//! The record is also the reservation: from the moment it names a backend it takes room there, whether or not the
//! backend can see the guest yet ([`BoxRecord::holding`]).

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    capacity::Holding,
    guest::{Guest, Owner, StopCause},
    id::{BackendId, BoxId, BoxName, InstallId, KindId, ThreadId},
    kind::{Capabilities, Feature},
    size::Size,
};

/// Where a box is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxState {
    /// Asked for; no backend was chosen yet.
    Requested,
    /// A backend was chosen and is claiming or making the guest.
    Acquiring,
    /// The guest boots; its commands do not answer yet.
    Starting,
    /// Commands answer.
    Ready,
    /// Being stopped.
    Stopping,
    /// Stopped; its disk is kept.
    Stopped,
    /// Being released; the guest may still be there.
    Releasing,
    /// Its guest was deleted outside bb-box.
    Gone,
}

impl BoxState {
    /// The state as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Acquiring => "acquiring",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Releasing => "releasing",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for BoxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How long one step of making a box took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// The step, in words.
    pub step: String,
    /// Milliseconds.
    pub ms: u64,
}

/// Since when a box does not answer, and when it is asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// When the first command found it so.
    pub since: Timestamp,
    /// How often it was asked again.
    pub tries: u32,
    /// When it is asked next.
    pub next: Timestamp,
    /// What was seen last.
    pub words: String,
}

/// What bb-box knows about one box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxRecord {
    /// The box's ID.
    pub id: BoxId,
    /// The box's name.
    pub name: BoxName,
    /// The thread that has it, if one has.
    pub thread: Option<ThreadId>,
    /// Its kind.
    pub kind: KindId,
    /// What it was asked to have beyond its kind.
    #[serde(default)]
    pub features: BTreeSet<Feature>,
    /// Its size.
    pub size: Size,
    /// The size it is being given. Until that is settled it takes the larger of both.
    #[serde(default)]
    pub resize_to: Option<Size>,
    /// Where it is in its life.
    pub state: BoxState,
    /// The backend that has it, once one was chosen.
    #[serde(default)]
    pub backend: Option<BackendId>,
    /// The backend's host that was chosen.
    #[serde(default)]
    pub host: Option<String>,
    /// The guest, once it was claimed.
    #[serde(default)]
    pub guest: Option<Guest>,
    /// What it can do, once a backend was chosen.
    #[serde(default)]
    pub capabilities: Option<Capabilities>,
    /// What was tried before its backend, and why it was not taken, in words.
    #[serde(default)]
    pub passed_over: Vec<String>,
    /// When it was asked for.
    pub made: Timestamp,
    /// How long each step of making it took.
    #[serde(default)]
    pub timings: Vec<Timing>,
    /// What is wrong with it, in words.
    #[serde(default)]
    pub trouble: Option<String>,
    /// What it was before the operation that changes it now: given back when that comes to nothing.
    #[serde(default)]
    pub before: Option<BoxState>,
    /// Why it is stopped, when bb-box did not stop it.
    #[serde(default)]
    pub stopped_by: Option<StopCause>,
    /// When bb-box last started it because it had stopped by itself.
    #[serde(default)]
    pub started_again: Option<Timestamp>,
    /// When a sweep first found its thread ended.
    #[serde(default)]
    pub thread_ended: Option<Timestamp>,
    /// Since when it does not answer.
    #[serde(default)]
    pub unanswered: Option<Unanswered>,
}

/// What is known about a box from its first moment on.
#[derive(Clone, Debug)]
pub(crate) struct Beginning {
    pub(crate) id: BoxId,
    pub(crate) name: BoxName,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) kind: KindId,
    pub(crate) size: Size,
    pub(crate) made: Timestamp,
}

impl BoxRecord {
    /// The record of a box that was only asked for.
    #[must_use]
    pub(crate) fn new(beginning: Beginning) -> Self {
        let Beginning { id, name, thread, kind, size, made } = beginning;
        Self {
            id,
            name,
            thread,
            kind,
            features: BTreeSet::new(),
            size,
            resize_to: None,
            state: BoxState::Requested,
            backend: None,
            host: None,
            guest: None,
            capabilities: None,
            passed_over: Vec::new(),
            made,
            timings: Vec::new(),
            trouble: None,
            before: None,
            stopped_by: None,
            started_again: None,
            thread_ended: None,
            unanswered: None,
        }
    }

    /// Says that an operation begins to change the box's state to `state`.
    pub(crate) fn turn(&mut self, state: BoxState) {
        if self.before.is_none() {
            self.before = Some(self.state);
        }
        self.state = state;
    }

    /// Says that the box is `state` now and nothing is changing it.
    pub(crate) fn settle(&mut self, state: BoxState) {
        self.state = state;
        self.before = None;
    }

    /// Gives the box the state back that it had before an operation that came to nothing.
    pub(crate) fn turn_back(&mut self) {
        if let Some(before) = self.before.take() {
            self.state = before;
        }
    }

    /// Says that the box's commands answer: what was told of its start is over.
    pub(crate) fn answered(&mut self) {
        self.unanswered = None;
        self.mended("start");
    }

    /// Says that what `kind` of operation had left wrong is over: trouble that tells of one goes.
    pub(crate) fn mended(&mut self, kind: &str) {
        let tells_of_it =
            |words: &String| words.strip_prefix(kind).is_some_and(|rest| rest.starts_with(": "));
        if self.trouble.as_ref().is_some_and(tells_of_it) {
            self.trouble = None;
        }
    }

    /// What the box takes of its backend's room now; `None` while no backend has it and once its guest is gone.
    #[must_use]
    pub fn holding(&self) -> Option<Holding> {
        let running = match self.state {
            BoxState::Requested | BoxState::Gone => return None,
            BoxState::Stopped => false,
            // A release may take a while to free what a running guest had.
            BoxState::Acquiring
            | BoxState::Starting
            | BoxState::Ready
            | BoxState::Stopping
            | BoxState::Releasing => true,
        };
        self.backend.as_ref()?;
        let size = self.resize_to.map_or(self.size, |to| Size {
            cores: self.size.cores.max(to.cores),
            memory_mib: self.size.memory_mib.max(to.memory_mib),
            disk_mib: self.size.disk_mib.max(to.disk_mib),
        });
        Some(Holding { size, running })
    }

    /// What the provider records about its guest.
    #[must_use]
    pub fn owner(&self, install: &InstallId) -> Owner {
        Owner {
            install: install.clone(),
            box_id: self.id.clone(),
            thread: self.thread.clone(),
            name: self.name.clone(),
            kind: self.kind.clone(),
            features: self.features.clone(),
        }
    }
}
