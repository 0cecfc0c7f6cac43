//! A schedule from a seed: how the world is, what fails how often, who does what.

use super::{
    action::{Action, Configured, Death, Hand, Schedule, Shape, Step, Weather},
    chance::Chance,
    cover::{points, points_of},
    lead::{both, lead},
    verdict::slot_of,
};

/// How many actors there are; each is of one install and either the person or an agent.
pub(super) const ACTORS: usize = 4;

/// Draws from one stream.
pub(super) struct Draw(Chance);

impl Draw {
    pub(super) fn to(&mut self, most: u64) -> u64 {
        self.0.draw("schedule").0 % most
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.to(n) == 0
    }

    pub(super) fn pick<T, const N: usize>(&mut self, all: [T; N]) -> T {
        let n = usize::try_from(self.to(N as u64)).unwrap_or(0);
        let mut all = all.into_iter();
        all.nth(n).unwrap_or_else(|| unreachable!("{n} is below {N}"))
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        let n = usize::try_from(self.to(all.len() as u64)).unwrap_or(0);
        all[n]
    }
}

/// The schedule of `seed`.
pub(super) fn schedule(seed: u64) -> Schedule {
    let mut draw = Draw(Chance::new(seed ^ 0x005e_ed0f_0a11));
    let shape = Shape {
        memory_gib: draw.of(&[4, 6, 8, 16]),
        hosts: draw.of(&[1, 1, 2]),
        enforces: draw.one_in(2),
        lag_ms: draw.of(&[0, 200, 3_000]),
        make_ms: draw.of(&[50, 1_500, 8_000]),
        boot_ms: draw.of(&[0, 700, 4_000]),
        needs_stop: draw.one_in(2),
        second: draw.one_in(3),
        upkeep: !draw.one_in(3),
        threads: 2,
        installs: if draw.one_in(4) { 2 } else { 1 },
    };
    let weather = weather(&mut draw);
    let mut slots = Slots { rush: draw.one_in(3), ..Slots::default() };
    let count = 20 + draw.to(16);
    let steps: Vec<Step> = (0..count).map(|n| step(&mut draw, &shape, &mut slots, n)).collect();
    let deaths = if draw.one_in(2) { deaths(&mut draw, &steps) } else { Vec::new() };
    let mut schedule = Schedule { seed, shape, weather, steps, deaths, mute: Vec::new() };
    if draw.one_in(2) {
        lead(&mut draw, &mut schedule, &slots);
    }
    schedule
}

/// A quarter of the seeds has no faults: then nothing may fail.
fn weather(draw: &mut Draw) -> Weather {
    if draw.one_in(4) {
        return Weather::default();
    }
    let mut share = |most: u64| {
        // Now and then, all of a kind.
        let most = if draw.one_in(12) { most * 4 } else { most };
        if draw.one_in(2) { 0 } else { draw.to(most) }
    };
    Weather {
        refused: share(120),
        lost: share(120),
        late: share(80),
        slow: share(40),
        broken: share(40),
        partial: share(400),
        line: share(400),
        misreported: share(250),
    }
}

/// Most of them are where what is done comes by.
fn deaths(draw: &mut Draw, steps: &[Step]) -> Vec<Death> {
    let led: Vec<&str> = steps.iter().map(|step| leads_to(&step.action)).collect();
    let rare: Vec<&str> = led
        .iter()
        .copied()
        .filter(|name| ["adopt", "release-stray", "forget", "check"].contains(name))
        .collect();
    let deaths = 0..1 + draw.to(3);
    deaths
        .map(|_| {
            let name = if rare.is_empty() || draw.one_in(2) { draw.of(&led) } else { draw.of(&rare) };
            let of = points_of(name);
            let (at, nth) = match draw.to(3) {
                0 if !of.is_empty() => (name, draw.to(14)),
                1 if !of.is_empty() => (draw.of(&of), draw.of(&[0, 0, 0, 1, 2])),
                _ => {
                    let all: Vec<_> = points().iter().collect();
                    (draw.of(&all).as_str(), draw.of(&[0, 0, 0, 1, 1, 2, 4]))
                }
            };
            death(at.to_owned(), nth, draw.one_in(3).then(|| draw.to(30)))
        })
        .collect()
}

pub(super) fn death(at: String, nth: u64, again: Option<u64>) -> Death {
    Death { at, nth, again }
}

/// The operation that an action leads to.
fn leads_to(action: &Action) -> &'static str {
    match action {
        Action::LoseStore => "adopt",
        Action::ByHand { deed: Hand::Copy | Hand::Relabel, .. } => "release-stray",
        Action::ByHand { .. } | Action::GuestEnds { .. } => "check",
        Action::Both { first, .. } => leads_to(first),
        other => other.name(),
    }
}

/// What is worth doing after another thing.
enum Then {
    /// A box whose backend was taken out of the configuration can be forgotten.
    Forget,
    /// Whoever has a job in a box must reach it anew.
    AskAgain,
}

/// Which slots each install has.
#[derive(Default)]
pub(super) struct Slots {
    of: [Vec<usize>; 2],
    /// Those of each actor.
    own: [Vec<usize>; ACTORS],
    next: usize,
    /// Whether everybody is in a hurry: then more happens at once.
    rush: bool,
    /// What the last step makes worth doing.
    then: Option<Then>,
}

impl Slots {
    pub(super) fn of_install(&self, install: usize) -> &[usize] {
        &self.of[install]
    }

    /// One that is not taken yet.
    pub(super) fn next(&self) -> usize {
        self.next
    }
}

/// The install of an actor: the last one is of the second, where there is one.
pub(super) fn install_of(actor: usize, installs: u64) -> usize {
    usize::from(installs == 2 && actor == ACTORS - 1)
}

fn step(draw: &mut Draw, shape: &Shape, slots: &mut Slots, n: u64) -> Step {
    let actor = usize::try_from(draw.to(ACTORS as u64)).unwrap_or(0);
    let pauses = [0, 5, 40, 300, 2_000, 9_000, 40_000, 150_000];
    let pause_ms = if slots.rush { draw.of(&pauses[..5]) } else { draw.of(&pauses) };
    let install = install_of(actor, shape.installs);
    // An agent sees no other's boxes, and tries all the same now and then.
    let own = (actor == 1 || actor == 2) && !draw.one_in(12);
    let then = slots.then.take().filter(|_| draw.one_in(2));
    let known = if own { &slots.own[actor] } else { &slots.of[install] };
    let action = match known.as_slice() {
        some if then.is_some() && !some.is_empty() => {
            let slot = draw.of(some);
            match then {
                Some(Then::Forget) => Action::Forget { slot },
                _ => draw.pick([
                    Action::Wait { slot },
                    Action::Look { slot },
                    Action::Signal { slot },
                    Action::Follow { slot },
                ]),
            }
        }
        [] => acquire(draw, shape, slots, install, actor),
        _ if n < 3 && draw.one_in(2) => acquire(draw, shape, slots, install, actor),
        some => {
            let slot = draw.of(some);
            let first = on_slot(draw, shape, slots, (install, actor), slot, n);
            match beside(draw, shape, slots, (install, actor), &first, n) {
                Some(second) => both(first, second),
                None => first,
            }
        }
    };
    slots.then = match action {
        Action::Configure { to: Configured::Out, .. } => Some(Then::Forget),
        Action::CutLines => Some(Then::AskAgain),
        _ => None,
    };
    Step { actor, pause_ms, action }
}

fn acquire(draw: &mut Draw, shape: &Shape, slots: &mut Slots, install: usize, actor: usize) -> Action {
    let slot = slots.next;
    slots.next += 1;
    slots.of[install].push(slot);
    slots.own[actor].push(slot);
    let on = draw
        .one_in(5)
        .then(|| draw.of(&["alpha", if shape.hosts > 1 { "host0" } else { "alpha" }]).to_owned());
    Action::Acquire { slot, memory_gib: draw.of(&[2, 2, 3, 4]), on, waits: !draw.one_in(3) }
}

/// What is done at the same time, now and then: another thing to the same box, or another box that wants its room.
fn beside(
    draw: &mut Draw,
    shape: &Shape,
    slots: &mut Slots,
    (install, actor): (usize, usize),
    first: &Action,
    n: u64,
) -> Option<Action> {
    let slot = slot_of(first)?;
    let grows = matches!(first, Action::Resize { .. } | Action::Start { .. });
    if grows && draw.one_in(3) {
        return Some(acquire(draw, shape, slots, install, actor));
    }
    if !draw.one_in(10) {
        return None;
    }
    // What it copies or runs is its own.
    let second = on_slot(draw, shape, slots, (install, actor), slot, 100 + n);
    let ends = matches!(second, Action::Restart | Action::Configure { .. });
    (!ends && !second.is_nature()).then_some(second)
}

fn on_slot(
    draw: &mut Draw,
    shape: &Shape,
    slots: &mut Slots,
    (install, actor): (usize, usize),
    slot: usize,
    n: u64,
) -> Action {
    let force = draw.one_in(2);
    let thread = draw.to(shape.threads);
    let memory_gib = draw.of(&[2, 3, 4, 4]);
    match draw.to(120) {
        107..=109 => Action::Stream { slot, script: script(draw, n) },
        110..=111 => Action::Follow { slot },
        112..=114 => Action::CopyTreeIn { slot, tag: n },
        115..=116 => Action::CopyTreeOut { slot },
        117..=119 => Action::Check { slot },
        100..=103 => Action::CopyIn {
            slot,
            to: if draw.one_in(8) { "nowhere/file" } else { "file" }.to_owned(),
            tag: n,
            len: draw.of(&[0, 30, 5_000, 300_000]),
        },
        104..=106 => Action::CopyOut { slot },
        0..=12 => acquire(draw, shape, slots, install, actor),
        13..=16 => Action::Again { slot },
        17..=20 => Action::Cancel { slot },
        21..=30 => Action::Run { slot, script: script(draw, n) },
        31..=35 => Action::Launch { slot, script: script(draw, n) },
        36..=41 => Action::Wait { slot },
        42..=44 => Action::Look { slot },
        45..=46 => Action::Signal { slot },
        47..=51 => Action::Start { slot },
        52..=58 => Action::Stop { slot, force },
        59..=63 => Action::Resize { slot, memory_gib },
        64..=66 => Action::Rename { slot, name: format!("name-{}", draw.to(3)) },
        67 => Action::HandTo { slot, thread: draw.one_in(2).then_some(thread) },
        68..=73 => Action::Release { slot, force },
        74..=76 => Action::Forget { slot },
        77 => Action::Check { slot },
        78 => Action::List,
        79..=82 => Action::Sweep,
        83..=84 => Action::Configure {
            backend: draw.to(2),
            to: draw.of(&[Configured::On, Configured::Off, Configured::Out]),
        },
        85 => Action::Restart,
        86 => Action::Die,
        87 if draw.one_in(2) => Action::LoseStore,
        87..=88 => Action::FillStore { ms: draw.of(&[100, 4_000, 60_000]) },
        89 => Action::JumpClock { ms: draw.of(&[-3_600_000, -20_000, 100_000, 900_000]) },
        90..=91 => Action::GuestEnds { slot, by_guest: force },
        92..=94 => Action::ByHand {
            slot,
            deed: draw.of(&[
                Hand::Delete,
                Hand::Delete,
                Hand::Copy,
                Hand::Copy,
                Hand::Stop,
                Hand::Start,
                Hand::Rename,
                Hand::Disown,
                Hand::Relabel,
            ]),
        },
        95 => Action::HostDown {
            backend: draw.to(2),
            host: draw.to(2),
            ms: draw.of(&[2_000, 30_000, 200_000]),
            crash: draw.one_in(2),
        },
        96..=97 => Action::ThreadEnds { thread },
        98 => Action::ThreadWorks { thread, works: !draw.one_in(3) },
        _ => Action::CutLines,
    }
}

fn script(draw: &mut Draw, n: u64) -> String {
    let token = format!("token{n}");
    match draw.to(6) {
        0 => format!("echo {token}"),
        1 => format!("sleep 2;echo {token}"),
        2 => format!("sleep 0.3;echo {token} >&2;exit 3"),
        3 => format!("sleep 45;echo {token}"),
        4 => format!("echo {token};head -c 5000 /dev/zero | tr '\\0' x"),
        _ => format!("sleep 400;echo {token};kill -9 $$"),
    }
}
