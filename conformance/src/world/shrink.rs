//! Making a failing schedule shorter: leave out actions, deaths, kinds of faults and single faults while it still fails.

use super::{
    action::{Action, Schedule, Weather},
    generate,
    run::{Played, run},
};

/// How many runs a shortening may take.
const RUNS: usize = 400;

/// The shortest run found that fails as `seed` does, and what its schedule is, a line for each part.
#[must_use]
pub fn shorten(seed: u64) -> Option<(Played, Vec<String>)> {
    let schedule = generate::schedule(seed);
    let played = run(&schedule);
    let like = kind(played.problems.first()?);
    let mut search = Search { schedule, played, like, left: RUNS };
    search.steps();
    search.halves();
    search.deaths();
    search.weather();
    search.faults();
    search.steps();
    let Search { schedule, played, .. } = search;
    let mut lines = vec![format!("{:?}", schedule.shape), format!("{:?}", schedule.weather)];
    lines.extend(schedule.deaths.iter().map(|death| format!("{death:?}")));
    lines.extend(
        schedule.steps.iter().map(|s| format!("a{} after {} ms: {:?}", s.actor, s.pause_ms, s.action)),
    );
    // As the corpus keeps it.
    lines.extend(serde_json::to_string(&schedule).ok());
    Some((played, lines))
}

/// The shortest failing schedule so far, and how many runs are left to find a shorter one.
struct Search {
    schedule: Schedule,
    played: Played,
    like: String,
    left: usize,
}

impl Search {
    /// Takes `smaller` if it fails in the same way.
    fn take(&mut self, smaller: Schedule) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let played = run(&smaller);
        let same = played.problems.first().is_some_and(|problem| kind(problem) == self.like);
        if same {
            (self.schedule, self.played) = (smaller, played);
        }
        same
    }

    fn steps(&mut self) {
        let mut chunk = self.schedule.steps.len() / 2;
        while chunk > 0 {
            let mut begin = 0;
            while begin < self.schedule.steps.len() {
                let mut smaller = self.schedule.clone();
                let end = (begin + chunk).min(smaller.steps.len());
                smaller.steps.drain(begin..end);
                if !self.take(smaller) {
                    begin += chunk;
                }
            }
            chunk /= 2;
        }
    }

    /// Leaves out one of two things that are done at once.
    fn halves(&mut self) {
        for n in 0..self.schedule.steps.len() {
            let Action::Both { first, second } = self.schedule.steps[n].action.clone() else { continue };
            for half in [first, second] {
                let mut smaller = self.schedule.clone();
                smaller.steps[n].action = *half;
                if self.take(smaller) {
                    break;
                }
            }
        }
    }

    fn deaths(&mut self) {
        for n in (0..self.schedule.deaths.len()).rev() {
            let mut smaller = self.schedule.clone();
            smaller.deaths.remove(n);
            self.take(smaller);
        }
    }

    fn weather(&mut self) {
        for clear in CLEAR {
            let mut smaller = self.schedule.clone();
            clear(&mut smaller.weather);
            self.take(smaller);
        }
    }

    /// Leaves out single faults, by the names that they have in the trace.
    fn faults(&mut self) {
        let named = |line: &String| {
            let (_, fault) = line.split_once(" fault  ")?;
            Some(fault.split_once(": ")?.0.to_owned())
        };
        let met: Vec<String> = self.played.trace.iter().filter_map(named).collect();
        for name in met {
            let mut smaller = self.schedule.clone();
            smaller.mute.push(name);
            self.take(smaller);
        }
    }
}

const CLEAR: [fn(&mut Weather); 8] = [
    |w| w.refused = 0,
    |w| w.lost = 0,
    |w| w.late = 0,
    |w| w.slow = 0,
    |w| w.broken = 0,
    |w| w.partial = 0,
    |w| w.line = 0,
    |w| w.misreported = 0,
];

/// A problem without what differs from run to run: the names and numbers in it.
fn kind(problem: &str) -> String {
    problem.chars().filter(|c| !c.is_ascii_digit()).take(40).collect()
}
