//! The faults that are planted to see whether the world finds them.

use bbbox::simulation::{Bug, plant};
use std::cell::Cell;

use super::run::play;

/// One planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A backend claims a guest only after it has made it.
    ClaimAfterCreate,
    /// A backend deletes whatever has the reference.
    BlindDelete,
    /// A fault in the core.
    Core(Bug),
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// With each, a seed that finds it.
const ALL: &[(&str, Planted, u64)] = &[
    ("claim-after-create", Planted::ClaimAfterCreate, 0),
    ("delete-by-reference", Planted::BlindDelete, 6),
    ("one-listing", Planted::Core(Bug::OneListing), 53),
    ("reservation-kept", Planted::Core(Bug::ReservationKept), 26),
    ("last-room-shared", Planted::Core(Bug::SharedRoom), 45),
    ("cancel-too-late", Planted::Core(Bug::LateCancel), 630),
    ("request-twice", Planted::Core(Bug::RequestTwice), 1),
    ("reaching-starts-a-box", Planted::Core(Bug::ReachStarts), 0),
    ("ended-on-one-answer", Planted::Core(Bug::OneAnswer), 3),
    ("exit-guessed", Planted::Core(Bug::GuessedExit), 1),
    ("nothing-undone", Planted::Core(Bug::NothingUndone), 201),
    ("silence-is-gone", Planted::Core(Bug::SilenceIsGone), 16),
    ("lost-is-done", Planted::Core(Bug::LostIsDone), 13),
    ("resize-counted-at-its-end", Planted::Core(Bug::ResizeAtEnd), 0),
    ("unsure-copy-is-none", Planted::Core(Bug::UnsureIsNone), 141),
    ("the-future-is-waited-for", Planted::Core(Bug::FutureWaits), 106),
    ("nothing-unmade-on-the-way", Planted::Core(Bug::NothingUnmade), 427),
    ("forgets-unconfirmed", Planted::Core(Bug::ForgetsAnyway), 4),
];

/// Every planted fault, by its name, with a seed that finds it.
#[must_use]
pub fn planted() -> &'static [(&'static str, Planted, u64)] {
    ALL
}

/// Whether `seed` finds `fault`, and finds nothing without it.
#[must_use]
pub fn finds(fault: Planted, seed: u64) -> bool {
    set(Some(fault));
    let found = !play(seed).problems.is_empty();
    set(None);
    found && play(seed).problems.is_empty()
}

/// Plants a fault in this thread, or takes it out.
pub(super) fn set(which: Option<Planted>) {
    PLANTED.set(which);
    plant(match which {
        Some(Planted::Core(bug)) => Some(bug),
        _ => None,
    });
}

/// Whether `which` is planted in this thread.
pub(super) fn is(which: Planted) -> bool {
    PLANTED.get() == Some(which)
}
