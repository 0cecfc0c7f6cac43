//! The faults that are planted to see whether the world finds them.

use bbbox::simulation::{Bug, plant};
use std::cell::Cell;

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

const ALL: &[(&str, Planted)] = &[
    ("claim-after-create", Planted::ClaimAfterCreate),
    ("delete-by-reference", Planted::BlindDelete),
    ("one-listing", Planted::Core(Bug::OneListing)),
    ("reservation-kept", Planted::Core(Bug::ReservationKept)),
    ("last-room-shared", Planted::Core(Bug::SharedRoom)),
    ("cancel-too-late", Planted::Core(Bug::LateCancel)),
    ("request-twice", Planted::Core(Bug::RequestTwice)),
    ("reaching-starts-a-box", Planted::Core(Bug::ReachStarts)),
    ("ended-on-one-answer", Planted::Core(Bug::OneAnswer)),
    ("exit-guessed", Planted::Core(Bug::GuessedExit)),
    ("nothing-undone", Planted::Core(Bug::NothingUndone)),
    ("silence-is-gone", Planted::Core(Bug::SilenceIsGone)),
    ("lost-is-done", Planted::Core(Bug::LostIsDone)),
    ("resize-counted-at-its-end", Planted::Core(Bug::ResizeAtEnd)),
    ("unsure-copy-is-none", Planted::Core(Bug::UnsureIsNone)),
    ("the-future-is-waited-for", Planted::Core(Bug::FutureWaits)),
    ("nothing-unmade-on-the-way", Planted::Core(Bug::NothingUnmade)),
    ("forgets-unconfirmed", Planted::Core(Bug::ForgetsAnyway)),
];

/// Every planted fault, by its name.
#[must_use]
pub fn planted() -> &'static [(&'static str, Planted)] {
    ALL
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
