//! What a sweep should do about what it saw: a pure function.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    backend::Offer,
    embed::ThreadState,
    guest::{Guest, Held, Power},
    id::{BackendId, BoxId, ThreadId},
    kind::Capabilities,
    life::{Adopt, If, Stray},
    record::{BoxRecord, BoxState},
    size::Size,
};

/// Within this time after bb-box started a box again, it does not do so once more.
const START_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Two answers about a thread count as two only this far apart: a sweep that is asked for by hand may follow another at
/// once.
const BETWEEN_ANSWERS: Duration = Duration::from_secs(90);

/// The guests of each backend that answered.
pub(super) type Listings = BTreeMap<BackendId, Vec<Held>>;

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
    /// Boxes whose guest is known to come from what its kind is offered from now.
    pub(super) as_offered: BTreeSet<BoxId>,
    /// How each thread stands, where that is known.
    pub(super) threads: BTreeMap<ThreadId, ThreadState>,
}

impl Inventory {
    /// What `record`'s kind is offered with now, and its guest, where its record says something else.
    pub(super) fn differing<'a>(&'a self, record: &'a BoxRecord) -> Option<(&'a Offer, &'a Guest)> {
        let settled = matches!(record.state, BoxState::Ready | BoxState::Stopped);
        let (guest, backend) = (record.guest.as_ref().filter(|_| settled)?, record.backend.as_ref()?);
        let offer = self.offers.get(backend)?.iter().find(|offer| offer.kind == record.kind)?;
        (record.capabilities.as_ref() != Some(&offer.capabilities)).then_some((offer, guest))
    }

    /// Whether the box's guest is listed at another size than its record knows of, or it was left unknown which it has.
    fn other_size(&self, record: &BoxRecord) -> bool {
        let (Some(guest), Some(backend)) = (&record.guest, &record.backend) else { return false };
        let held = self.held.get(backend).into_iter().flatten();
        let mut its = held.filter(|h| h.owner.box_id == record.id && h.guest.reference == guest.reference);
        let of = |size: &Size| (size.cores, size.memory_mib);
        record.resize_to.is_some() || its.any(|h| of(&h.guest.size) != of(&guest.size))
    }
}

/// One thing to do.
#[derive(Debug)]
pub(super) enum Action {
    /// Record when a box's thread was first found ended, or that it is not.
    ThreadEnded { box_id: BoxId, thread: ThreadId, first: Option<Timestamp> },
    /// Release a box, if that is still so when its turn comes.
    Release { box_id: BoxId, only: If, why: String },
    /// Start a box again that stopped without choosing to.
    StartAgain { box_id: BoxId },
    /// Record that a box can do what its kind is offered with now.
    Refresh { box_id: BoxId, guest: String, capabilities: Box<Capabilities> },
    /// Look how a box's guest is and record it.
    Check {
        box_id: BoxId,
        /// Whether its size is in doubt.
        size: bool,
    },
    /// Give a guest its record back.
    Adopt(Box<Adopt>),
    /// Release a guest that no record wants.
    Stray(Box<Stray>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ThreadEnded { box_id, .. } => write!(f, "noted how the thread of box {box_id} stands"),
            Self::Release { box_id, why, .. } => write!(f, "released box {box_id}: {why}"),
            Self::StartAgain { box_id } => write!(f, "started box {box_id} again"),
            Self::Refresh { box_id, .. } => write!(f, "recorded what box {box_id} can do now"),
            Self::Check { box_id, .. } => write!(f, "checked box {box_id}"),
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

/// What a sweep should do.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Boxes first, then guests without a record.
    pub(super) actions: Vec<Action>,
    /// Guests without a record that are left as they are, and why.
    pub(super) kept: Vec<String>,
}

/// What to do about what was seen.
pub(super) fn plan(inventory: &Inventory) -> Plan {
    let mut plan = Plan::default();
    // What is under way keeps all else from a box, and not what was heard of its thread.
    let busy = inventory.records.iter().filter(|r| inventory.busy.contains(&r.id));
    plan.actions.extend(busy.filter_map(|record| lives_after_all(inventory, record)));
    for record in inventory.records.iter().filter(|r| !inventory.busy.contains(&r.id)) {
        about_box(inventory, record, &mut plan.actions);
    }
    for (backend, held) in &inventory.held {
        for guest in held.iter().filter(|h| !inventory.busy.contains(&h.owner.box_id)) {
            match about_guest(inventory, backend, guest) {
                About::Fine => {}
                About::Do(action) => plan.actions.push(action),
                About::Keep(why) => {
                    let (guest, box_id) = (&guest.guest.reference, &guest.owner.box_id);
                    plan.kept.push(format!("kept guest {guest} of box {box_id} on {backend}: {why}"));
                }
            }
        }
    }
    plan
}

/// What to do about one guest.
enum About {
    /// It is its box's.
    Fine,
    Do(Action),
    /// What to do is not known now.
    Keep(String),
}

/// Takes back that a record's thread was found ended: the next answer that says so is a first one again.
fn lives_after_all(inventory: &Inventory, record: &BoxRecord) -> Option<Action> {
    let thread = record.thread.as_ref().filter(|_| record.thread_ended.is_some())?;
    let lives = inventory.threads.get(thread).is_some_and(|state| *state != ThreadState::Ended);
    lives.then(|| Action::ThreadEnded { box_id: record.id.clone(), thread: thread.clone(), first: None })
}

fn about_box(inventory: &Inventory, record: &BoxRecord, actions: &mut Vec<Action>) {
    let box_id = record.id.clone();
    if let Some(thread) = &record.thread {
        let mark = |first| Action::ThreadEnded { box_id: box_id.clone(), thread: thread.clone(), first };
        let ended = inventory.threads.get(thread).map(|state| *state == ThreadState::Ended);
        match (ended, record.thread_ended) {
            // Two sweeps in a row: one answer may be wrong.
            (Some(true), Some(first)) if inventory.now >= first + BETWEEN_ANSWERS => {
                let only = If::ThreadEnded(thread.clone());
                actions.push(Action::Release { box_id, only, why: "its thread ended".to_owned() });
                return;
            }
            #[cfg(feature = "simulation")]
            (Some(true), Some(_)) if crate::simulation::is(crate::simulation::Bug::FutureWaits) => {}
            // A clock that was set back must not keep a box for ever.
            (Some(true), Some(first)) if first > inventory.now => actions.push(mark(Some(inventory.now))),
            #[cfg(feature = "simulation")]
            (Some(true), None) if crate::simulation::is(crate::simulation::Bug::OneAnswer) => {
                let why = "its thread ended".to_owned();
                actions.push(Action::Release { box_id, only: If::Always, why });
                return;
            }
            (Some(true), None) => actions.push(mark(Some(inventory.now))),
            (Some(false), Some(_)) => actions.extend(lives_after_all(inventory, record)),
            _ => {}
        }
    }
    if let Some((offer, guest)) =
        inventory.differing(record).filter(|_| inventory.as_offered.contains(&box_id))
    {
        let (guest, capabilities) = (guest.reference.clone(), Box::new(offer.capabilities.clone()));
        actions.push(Action::Refresh { box_id: box_id.clone(), guest, capabilities });
    }
    // A backend that did not list its guests just now would only be waited for.
    let answers = record.backend.as_ref().is_some_and(|backend| inventory.held.contains_key(backend));
    let power = inventory.powers.get(&record.id);
    let size = inventory.other_size(record);
    match record.state {
        BoxState::Releasing if answers || record.guest.is_none() => {
            let why = "its release was not finished".to_owned();
            actions.push(Action::Release { box_id, only: If::Releasing, why });
        }
        // An acquire that is under way is the journal's.
        BoxState::Releasing | BoxState::Gone | BoxState::Requested | BoxState::Acquiring => {}
        _ if inventory.unknown.contains(&record.id) => actions.push(Action::Check { box_id, size }),
        BoxState::Starting | BoxState::Stopping => actions.push(Action::Check { box_id, size }),
        BoxState::Ready if matches!(power, Some(None | Some(Power::Stopped))) => {
            actions.push(Action::Check { box_id, size })
        }
        BoxState::Stopped if matches!(power, Some(None | Some(Power::Running))) => {
            actions.push(Action::Check { box_id, size });
        }
        BoxState::Ready | BoxState::Stopped if size => actions.push(Action::Check { box_id, size }),
        BoxState::Stopped if may_start_again(record, inventory.now) => {
            actions.push(Action::StartAgain { box_id })
        }
        BoxState::Ready | BoxState::Stopped => {}
    }
}

fn about_guest(inventory: &Inventory, backend: &BackendId, held: &Held) -> About {
    let stray = |why: &str| {
        About::Do(Action::Stray(Box::new(Stray {
            backend: backend.clone(),
            guest: held.guest.clone(),
            why: why.to_owned(),
        })))
    };
    if let Some(record) = inventory.records.iter().find(|r| r.id == held.owner.box_id) {
        let is_its = record.backend.as_ref() == Some(backend)
            && record.guest.as_ref().is_some_and(|guest| guest.reference == held.guest.reference);
        return match &record.guest {
            // Made late, or put back by hand: what is gone stays gone. A listing that lags shows the old one as well.
            _ if is_its
                && record.state == BoxState::Gone
                && matches!(inventory.powers.get(&record.id), Some(Some(_))) =>
            {
                stray("its box's guest was deleted, and this is another")
            }
            _ if is_its => About::Fine,
            // Its own release finds it by its box, whatever it is called.
            _ if record.state == BoxState::Releasing && record.backend.as_ref() == Some(backend) => {
                About::Fine
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
    let state = match &held.owner.thread {
        Some(thread) => match inventory.threads.get(thread) {
            Some(state) => Some(*state),
            None => return About::Keep(format!("how thread {thread} stands is not known now")),
        },
        None => None,
    };
    let Some(offers) = inventory.offers.get(backend) else {
        return About::Keep("what its backend offers is not known now".to_owned());
    };
    let kind = &held.owner.kind;
    let Some(offer) = offers.iter().find(|offer| offer.kind == *kind) else {
        return About::Keep(format!(
            "its backend does not offer {kind} any more; put that back, or remove the guest there"
        ));
    };
    About::Do(Action::Adopt(Box::new(Adopt {
        backend: backend.clone(),
        owner: held.owner.clone(),
        guest: held.guest.clone(),
        offered: offer.capabilities.clone(),
        // One answer may be wrong: the next sweep decides.
        thread_ended: (state == Some(ThreadState::Ended)).then_some(inventory.now),
    })))
}

/// Whether bb-box may start a box again: it stopped without choosing to, and was not started for that within the last
/// ten minutes.
pub(crate) fn may_start_again(record: &BoxRecord, now: Timestamp) -> bool {
    let long_ago = |at: Timestamp| now >= at + START_AGAIN_AFTER || at > now;
    record.state == BoxState::Stopped
        && record.stopped_by.as_ref().is_some_and(|cause| !cause.by_guest)
        && record.started_again.is_none_or(long_ago)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
