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
    ("delete-by-reference", Planted::BlindDelete, 16),
    ("one-listing", Planted::Core(Bug::OneListing), 1),
    ("reservation-kept", Planted::Core(Bug::ReservationKept), 73),
    ("last-room-shared", Planted::Core(Bug::SharedRoom), 82),
    ("cancel-too-late", Planted::Core(Bug::LateCancel), 241),
    ("request-twice", Planted::Core(Bug::RequestTwice), 3),
    ("reaching-starts-a-box", Planted::Core(Bug::ReachStarts), 0),
    ("ended-on-one-answer", Planted::Core(Bug::OneAnswer), 1),
    ("exit-guessed", Planted::Core(Bug::GuessedExit), 6),
    ("nothing-undone", Planted::Core(Bug::NothingUndone), 109),
    ("silence-is-gone", Planted::Core(Bug::SilenceIsGone), 55),
    ("lost-is-done", Planted::Core(Bug::LostIsDone), 24),
    ("resize-counted-at-its-end", Planted::Core(Bug::ResizeAtEnd), 1169),
    ("unsure-copy-is-none", Planted::Core(Bug::UnsureIsNone), 11),
    ("the-future-is-waited-for", Planted::Core(Bug::FutureWaits), 266),
    ("nothing-unmade-on-the-way", Planted::Core(Bug::NothingUnmade), 872),
    ("forgets-unconfirmed", Planted::Core(Bug::ForgetsAnyway), 16),
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

#[cfg(test)]
mod tests {
    use bbbox::simulation::Bug;

    use super::{
        super::{
            action::{Action, Step},
            generate,
            lead::both,
            run,
        },
        *,
    };

    #[test]
    fn what_a_resize_takes_is_not_given_away() {
        let mut schedule = generate::schedule(0);
        (schedule.weather, schedule.steps, schedule.deaths) = Default::default();
        let shape = &mut schedule.shape;
        (shape.memory_gib, shape.hosts, shape.installs, shape.make_ms) = (4, 1, 1, 8_000);
        (shape.enforces, shape.needs_stop, shape.second) = (false, false, false);
        let acquire = |slot| Action::Acquire { slot, memory_gib: 2, on: None, waits: true };
        let grows = both(Action::Resize { slot: 0, memory_gib: 4 }, acquire(1));
        for action in [acquire(0), grows] {
            schedule.steps.push(Step { actor: 0, pause_ms: 0, action });
        }
        set(Some(Planted::Core(Bug::ResizeAtEnd)));
        let found = run::run(&schedule).problems;
        set(None);
        assert!(found.iter().any(|words| words.contains("MiB run on host 0")), "{found:?}");
        assert_eq!(run::run(&schedule).problems, Vec::<String>::new());
    }
}
