//! What a sweep should do about what it saw: a pure function.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use jiff::Timestamp;

use super::Listings;
use crate::{
    backend::Offer,
    embed::ThreadState,
    guest::{Held, Power, StopCause},
    id::{BackendId, BoxId, ThreadId},
    life::{Adopt, Stray},
    record::{BoxRecord, BoxState},
};

/// Within this time after bb-box started a box again, it does not do so once more.
const START_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// What a sweep saw.
pub(super) struct Inventory {
    pub(super) now: Timestamp,
    pub(super) records: Vec<BoxRecord>,
    /// The guests of each backend that answered.
    pub(super) held: Listings,
    pub(super) offers: BTreeMap<BackendId, Vec<Offer>>,
    /// Boxes with an operation under way: they are left alone.
    pub(super) busy: BTreeSet<BoxId>,
    /// Boxes with an operation whose outcome is unknown.
    pub(super) unknown: BTreeSet<BoxId>,
    /// Boxes whose acquire or release has ended: without a record, nobody wants their guest.
    pub(super) given_up: BTreeSet<BoxId>,
    /// What each record's backend said about its guest.
    pub(super) powers: BTreeMap<BoxId, Option<Power>>,
    /// How each thread stands, where that is known.
    pub(super) threads: BTreeMap<ThreadId, ThreadState>,
}

/// One thing to do.
#[derive(Debug)]
pub(super) enum Action {
    /// Record when a box's thread was first found ended, or that it is not.
    ThreadEnded { box_id: BoxId, first: Option<Timestamp> },
    /// Release a box.
    Release { box_id: BoxId, why: String },
    /// Look how a box's guest is and record it.
    Check { box_id: BoxId },
    /// Give a guest its record back.
    Adopt(Box<Adopt>),
    /// Release a guest that no record wants.
    Stray(Box<Stray>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThreadEnded { box_id, .. } => write!(f, "noted how the thread of box {box_id} stands"),
            Self::Release { box_id, why } => write!(f, "released box {box_id}: {why}"),
            Self::Check { box_id } => write!(f, "checked box {box_id}"),
            Self::Adopt(adopt) => write!(f, "restored the record of box {}", adopt.owner.box_id),
            Self::Stray(stray) => {
                write!(
                    f,
                    "released the guest {} of box {}: {}",
                    stray.guest.reference, stray.guest.box_id, stray.why
                )
            }
        }
    }
}

/// What to do, boxes first, then guests without a record.
pub(super) fn plan(inventory: &Inventory) -> Vec<Action> {
    let mut actions = Vec::new();
    for record in inventory.records.iter().filter(|r| !inventory.busy.contains(&r.id)) {
        about_box(inventory, record, &mut actions);
    }
    for (backend, held) in &inventory.held {
        for guest in held.iter().filter(|h| !inventory.busy.contains(&h.owner.box_id)) {
            actions.extend(about_guest(inventory, backend, guest));
        }
    }
    actions
}

fn about_box(inventory: &Inventory, record: &BoxRecord, actions: &mut Vec<Action>) {
    let box_id = record.id.clone();
    let ended =
        record.thread.as_ref().and_then(|t| inventory.threads.get(t)).map(|s| *s == ThreadState::Ended);
    match (ended, record.thread_ended) {
        // Two sweeps in a row: one answer may be wrong.
        (Some(true), Some(_)) => {
            actions.push(Action::Release { box_id, why: "its thread ended".to_owned() });
            return;
        }
        (Some(true), None) => {
            actions.push(Action::ThreadEnded { box_id: box_id.clone(), first: Some(inventory.now) });
        }
        (Some(false), Some(_)) => actions.push(Action::ThreadEnded { box_id: box_id.clone(), first: None }),
        (Some(false) | None, _) => {}
    }
    let power = inventory.powers.get(&record.id);
    match record.state {
        BoxState::Releasing => {
            actions.push(Action::Release { box_id, why: "its release was not finished".to_owned() });
        }
        BoxState::Gone => {}
        // Nothing is under way on it, so whoever asked for it has gone.
        BoxState::Requested | BoxState::Acquiring => {
            actions.push(Action::Release { box_id, why: "its acquire was not finished".to_owned() });
        }
        _ if inventory.unknown.contains(&record.id) => actions.push(Action::Check { box_id }),
        BoxState::Starting | BoxState::Stopping => actions.push(Action::Check { box_id }),
        BoxState::Ready if matches!(power, Some(None | Some(Power::Stopped))) => {
            actions.push(Action::Check { box_id })
        }
        BoxState::Stopped if matches!(power, Some(None | Some(Power::Running))) => {
            actions.push(Action::Check { box_id });
        }
        BoxState::Ready | BoxState::Stopped => {}
    }
}

fn about_guest(inventory: &Inventory, backend: &BackendId, held: &Held) -> Option<Action> {
    let stray = |why: &str| {
        Some(Action::Stray(Box::new(Stray {
            backend: backend.clone(),
            guest: held.guest.clone(),
            why: why.to_owned(),
        })))
    };
    if let Some(record) = inventory.records.iter().find(|r| r.id == held.owner.box_id) {
        return match &record.guest {
            Some(guest) if guest.reference == held.guest.reference => None,
            // Its record will go with a release, or it has another guest.
            _ if record.state == BoxState::Releasing && record.guest.is_none() => {
                stray("its box is being released")
            }
            Some(_) if record.state == BoxState::Gone => {
                stray("its box's guest was deleted, and this is another")
            }
            Some(_) => stray("its box has another guest"),
            None => stray("its box has no guest"),
        };
    }
    if inventory.given_up.contains(&held.owner.box_id) {
        return stray("its box was released");
    }
    match held.owner.thread.as_ref().map(|t| inventory.threads.get(t)) {
        Some(Some(ThreadState::Ended)) => stray("its thread ended"),
        // Not known now: it is kept until it is.
        Some(None) => None,
        None | Some(Some(_)) => {
            let offers = inventory.offers.get(backend);
            let capabilities = offers
                .and_then(|offers| offers.iter().find(|o| o.kind == held.owner.kind))
                .map(|o| o.capabilities.clone());
            Some(Action::Adopt(Box::new(Adopt {
                backend: backend.clone(),
                owner: held.owner.clone(),
                guest: held.guest.clone(),
                capabilities,
            })))
        }
    }
}

/// Whether bb-box may start a box again that stopped without its request.
pub(super) fn may_start_again(record: &BoxRecord, cause: Option<&StopCause>, now: Timestamp) -> bool {
    cause.is_some_and(|c| !c.by_guest) && record.started_again.is_none_or(|at| now >= at + START_AGAIN_AFTER)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
