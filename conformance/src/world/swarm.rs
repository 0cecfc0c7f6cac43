//! Many seeds: side by side on every core, counted, and with a table of what they met.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    corpus::corpus,
    cover::{Covered, covered},
    planted::{self, Planted},
    run::{Failure, play, run},
};

/// After so many failures a swarm has enough to tell.
const ENOUGH: usize = 20;

/// How much to play.
#[derive(Clone, Copy, Debug)]
pub enum Amount {
    /// So many seeds, from 0.
    Seeds(u64),
    /// For so long, from this seed on.
    Time(Duration, u64),
}

/// How far a swarm is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Seeds that were played.
    pub seeds: u64,
    /// Seeds that failed.
    pub failed: usize,
    /// Seeds a second so far.
    pub seeds_per_s: f64,
}

/// What a swarm came to.
#[derive(Debug)]
pub struct Swarm {
    /// Seeds that were played.
    pub seeds: u64,
    /// Those that did not hold, by seed.
    pub failures: Vec<Failure>,
    /// Seeds a second, on all cores together.
    pub seeds_per_s: f64,
    /// How many cells of operation, step and fault were hit at least once.
    pub cells_hit: usize,
    /// How many cells there are.
    pub cells: usize,
    /// Those that were not hit.
    pub missed: Vec<String>,
    /// Those that cannot be hit, with why; they are not counted.
    pub never: Vec<String>,
    /// What was met and is not in the table.
    pub beyond: Vec<String>,
}

/// Whether a planted fault was caught.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Caught {
    /// The fault.
    pub planted: String,
    /// The first seed that caught it.
    pub seed: Option<u64>,
    /// What was seen then.
    pub problem: Option<String>,
}

#[derive(Default)]
struct Tally {
    seeds: u64,
    failures: Vec<Failure>,
    met: BTreeSet<String>,
    points: BTreeSet<String>,
}

fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Plays seeds on every core.
pub fn swarm(amount: Amount, tell: impl Fn(Progress) + Sync) -> Swarm {
    let began = Instant::now();
    let (tally, next) = (Mutex::new(Tally::default()), AtomicU64::new(0));
    let seed_of = |n: u64| match amount {
        Amount::Seeds(count) => (n < count).then_some(n),
        Amount::Time(time, first) => (began.elapsed() < time).then_some(first + n),
    };
    let rate = |seeds: u64| seeds as f64 / began.elapsed().as_secs_f64().max(0.001);
    let known = corpus();
    // What once failed is played first.
    let nth = |n: u64| match usize::try_from(n).ok().and_then(|n| known.get(n)) {
        Some((name, schedule)) => Some((Some(*name), run(schedule))),
        None => seed_of(n - known.len() as u64).map(|seed| (None, play(seed))),
    };
    let work = || {
        while let Some((name, played)) = nth(next.fetch_add(1, Ordering::Relaxed)) {
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            tally.seeds += 1;
            tally.met.extend(played.met);
            tally.points.extend(played.points);
            if let Some(problem) = played.problems.into_iter().next() {
                let corpus = name.map(str::to_owned);
                tally.failures.push(Failure { seed: played.seed, corpus, problem });
            }
            let (seeds, failed) = (tally.seeds, tally.failures.len());
            tell(Progress { seeds, failed, seeds_per_s: rate(seeds) });
            if failed >= ENOUGH {
                return;
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers() {
            scope.spawn(work);
        }
    });
    let Tally { seeds, mut failures, met, points } =
        tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort_by_key(|failure| failure.seed);
    let Covered { cells, missed, never, beyond } = covered(&met, &points);
    let cells_hit = cells - missed.len();
    Swarm { seeds, failures, seeds_per_s: rate(seeds), cells_hit, cells, missed, never, beyond }
}

/// Plants a fault and plays up to `most` seeds until one of them catches it.
#[must_use]
pub fn hunt(name: &str, fault: Planted, most: u64) -> Caught {
    let (found, next) = (Mutex::new(None::<(u64, String)>), AtomicU64::new(0));
    let caught = AtomicBool::new(false);
    let work = || {
        while !caught.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= most {
                return;
            }
            planted::set(Some(fault));
            if let Some(problem) = play(seed).problems.into_iter().next() {
                // What the seed finds without it as well is another fault's.
                planted::set(None);
                if !play(seed).problems.is_empty() {
                    continue;
                }
                caught.store(true, Ordering::Relaxed);
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                if found.as_ref().is_none_or(|(first, _)| seed < *first) {
                    *found = Some((seed, problem));
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers() {
            scope.spawn(work);
        }
    });
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let (seed, problem) = found.unzip();
    Caught { planted: name.to_owned(), seed, problem }
}
