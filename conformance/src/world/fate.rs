//! What each box was meant to be: what was asked for it, what its callers were told, and what may have ended it.
//!
//! It is the oracle's memory. It only ever grows towards more being possible, so that a fault in it hides a problem
//! and never makes one up.

use std::collections::{BTreeMap, BTreeSet};

use bbbox::{
    error::ErrorKind,
    id::{BoxId, JobId, OperationId},
    size::Size,
};

/// What the callers of one acquire were told in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Ready,
    Failed(ErrorKind),
}

/// One box.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    pub(super) slot: usize,
    pub(super) install: usize,
    pub(super) id: BoxId,
    pub(super) operation: OperationId,
    pub(super) size: Size,
    pub(super) on: Option<String>,
    /// The thread that acquired it, which says the request again.
    pub(super) by: Option<u64>,
    /// Threads that it may belong to.
    pub(super) threads: BTreeSet<String>,
    pub(super) told: Option<Told>,
    pub(super) told_at: Option<u64>,
    /// What may have ended it, and how often.
    pub(super) may_end: BTreeMap<&'static str, u32>,
    /// Whether its release was confirmed to somebody.
    pub(super) released: bool,
    /// Whether it may have been off at some time after it was ready.
    pub(super) may_be_off: bool,
    /// When somebody last began or ended to change it.
    pub(super) changed: u64,
    /// How many changes are under way.
    pub(super) changing: u32,
    pub(super) names: BTreeSet<String>,
    pub(super) jobs: Vec<Job>,
    /// Whether it was touched by hand at the provider, beyond its being on or off.
    pub(super) by_hand: bool,
    /// The largest size it may have.
    pub(super) most_mib: u64,
}

/// One job that was launched in it.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) id: JobId,
    pub(super) script: String,
    pub(super) signalled: bool,
}

impl Fate {
    /// Whether it must be there and work now.
    pub(super) fn must_live(&self) -> bool {
        self.told == Some(Told::Ready) && self.may_end.is_empty()
    }

    /// Notes that `why` may end it from now on.
    pub(super) fn may_end_by(&mut self, why: &'static str) {
        *self.may_end.entry(why).or_insert(0) += 1;
    }

    /// Takes one such note back: it turned out that nothing was begun.
    pub(super) fn not_ended_by(&mut self, why: &'static str) {
        if let Some(times) = self.may_end.get_mut(why) {
            *times -= 1;
        }
        self.may_end.retain(|_, times| *times > 0);
    }

    /// Whether nothing of it may be left.
    pub(super) fn must_be_gone(&self) -> bool {
        // Forgetting deletes nothing: when its backend is configured again, the guest gets its record back.
        !self.may_end.contains_key("forget") && (self.released || matches!(self.told, Some(Told::Failed(_))))
    }
}

/// Every box of a run, by its slot.
#[derive(Debug, Default)]
pub(super) struct Fates {
    pub(super) all: BTreeMap<usize, Fate>,
    by_id: BTreeMap<BoxId, usize>,
    /// How often each script was launched: each stands once in a schedule.
    pub(super) launches: BTreeMap<String, u32>,
}

impl Fates {
    pub(super) fn add(&mut self, fate: Fate) {
        self.by_id.insert(fate.id.clone(), fate.slot);
        self.all.insert(fate.slot, fate);
    }

    pub(super) fn of(&self, id: &BoxId) -> Option<&Fate> {
        self.all.get(self.by_id.get(id)?)
    }

    pub(super) fn label(&self, id: &BoxId) -> String {
        self.by_id.get(id).map_or_else(|| id.to_string(), |slot| format!("b{slot}"))
    }
}
