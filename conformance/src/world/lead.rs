//! Steps that lead to one operation: what a schedule rarely comes to by itself is met all the same.
//!
//! Half of the schedules get some, in their middle, and then a death at a point of that operation.

use super::{
    action::{Action, Configured, Hand, Schedule, Step},
    cover::{operations, points_of},
    generate::{ACTORS, Draw, Slots, death, install_of},
};

/// Adds to a schedule what leads to some operation.
pub(super) fn lead(draw: &mut Draw, schedule: &mut Schedule, slots: &Slots) {
    let actor = draw.pick([0, ACTORS - 1]);
    let known = slots.of_install(install_of(actor, schedule.shape.installs));
    if known.is_empty() {
        return;
    }
    let (slot, operation) = (draw.of(known), draw.of(&operations()));
    let actions = actions(draw, operation, slot, slots.next());
    let at = schedule.steps.len() / 2 + usize::try_from(draw.to(6)).unwrap_or(0);
    let at = at.min(schedule.steps.len());
    let steps = actions.into_iter().map(|action| Step { actor, pause_ms: draw.of(&[0, 40, 2_000]), action });
    let steps: Vec<Step> = steps.collect();
    schedule.steps.splice(at..at, steps);
    if draw.one_in(2) {
        let point = draw.of(&points_of(operation)).to_owned();
        let again = draw.one_in(2).then(|| draw.to(4));
        schedule.deaths.push(death(point, draw.of(&[0, 0, 0, 1, 1, 2]), again));
    }
}

/// What leads to `operation` on the box of `slot`. Where two are begun at once, one waits for its turn.
fn actions(draw: &mut Draw, operation: &str, slot: usize, new: usize) -> Vec<Action> {
    let (force, memory_gib) = (draw.one_in(2), draw.of(&[2, 3, 4]));
    let acquire = Action::Acquire { slot: new, memory_gib, on: None, waits: draw.one_in(2) };
    let other = draw.pick([
        Action::Stop { slot, force },
        Action::Check { slot },
        Action::Rename { slot, name: "other".to_owned() },
    ]);
    match operation {
        "acquire" => vec![
            both(acquire, Action::ByHand { slot, deed: Hand::Copy }),
            draw.pick([Action::Cancel { slot: new }, Action::Again { slot: new }]),
        ],
        "adopt" => vec![Action::LoseStore, both(Action::Sweep, Action::Sweep), other],
        "release-stray" => vec![
            Action::ByHand { slot, deed: draw.pick([Hand::Copy, Hand::Relabel]) },
            both(other, Action::Sweep),
            Action::Sweep,
        ],
        "forget" => vec![
            Action::Configure { backend: draw.to(2), to: Configured::Out },
            both(Action::Forget { slot }, other),
            Action::Forget { slot },
        ],
        "check" => vec![
            both(Action::Resize { slot, memory_gib }, Action::Check { slot }),
            Action::GuestEnds { slot, by_guest: force },
            both(Action::Check { slot }, Action::Sweep),
        ],
        "start" => vec![Action::Stop { slot, force }, both(other, Action::Start { slot })],
        "stop" => vec![both(Action::Start { slot }, Action::Stop { slot, force }), Action::Start { slot }],
        "resize" => vec![both(other, Action::Resize { slot, memory_gib }), Action::Check { slot }],
        "rename" => vec![both(other, Action::Rename { slot, name: "next".to_owned() })],
        _ => vec![both(other, Action::Release { slot, force }), Action::Sweep],
    }
}

pub(super) fn both(first: Action, second: Action) -> Action {
    Action::Both { first: Box::new(first), second: Box::new(second) }
}
