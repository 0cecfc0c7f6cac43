//! The state of the world, and its bookkeeping: time, trace, crash points, problems.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
    sync::Arc,
};

use bbbox::{
    guest::{Guest, Owner},
    id::InstallId,
    simulation::Memory,
};
use tokio::{task, time::Instant};

use super::{action::Schedule, chance::Chance, cloud::Cloud, fate::Fates, threads::Threads};

/// One install: what of it outlives its process.
pub(super) struct Install {
    pub(super) id: InstallId,
    pub(super) store: Memory,
    /// Whether its store was ever lost: then it may not know what it gave up.
    pub(super) lost: bool,
    /// Whether its store is full now.
    pub(super) full: bool,
}

pub(super) struct Parts {
    /// True milliseconds since the world began.
    pub(super) now: u64,
    base: u64,
    began: Option<Instant>,
    /// What the wall clock is ahead of the truth, in milliseconds.
    pub(super) skew: i64,
    pub(super) schedule: Arc<Schedule>,
    pub(super) chance: Chance,
    /// Once true, nothing fails any more.
    pub(super) calm: bool,
    pub(super) clouds: Vec<Cloud>,
    pub(super) threads: Threads,
    pub(super) installs: Vec<Install>,
    /// Who has the guest that is nobody's here.
    pub(super) stranger: Option<Owner>,
    pub(super) fates: Fates,
    /// The steps of the schedule that were begun, in whichever life.
    pub(super) begun: BTreeSet<usize>,
    pub(super) trace: Vec<String>,
    pub(super) problems: Vec<String>,
    /// Operation, step and fault of each fault that was met.
    pub(super) met: BTreeSet<String>,
    /// When the last fault fired.
    pub(super) last_fault: Option<u64>,
    pub(super) life: u32,
    pub(super) dying: bool,
    /// The process is to die at its next point.
    pub(super) die_now: bool,
    /// After how many more points the process is to die once more.
    die_again: Option<u64>,
    /// Where copies come from and go to.
    pub(super) here: Option<tempfile::TempDir>,
    /// Counts what cuts every line into boxes.
    pub(super) cuts: u64,
    /// The crash points that were passed.
    pub(super) points: BTreeSet<String>,
    /// How often each crash point was passed, in all lives.
    passed: BTreeMap<String, u64>,
    /// What each task of this life is at.
    at: HashMap<task::Id, String>,
}

impl Parts {
    pub(super) fn new(schedule: Arc<Schedule>, clouds: Vec<Cloud>, installs: Vec<Install>) -> Self {
        Self {
            now: 0,
            base: 0,
            began: None,
            skew: 0,
            chance: Chance::new(schedule.seed),
            threads: Threads::new(schedule.shape.threads),
            schedule,
            calm: false,
            clouds,
            installs,
            stranger: None,
            fates: Fates::default(),
            begun: BTreeSet::new(),
            trace: Vec::new(),
            problems: Vec::new(),
            met: BTreeSet::new(),
            last_fault: None,
            life: 0,
            dying: false,
            die_now: false,
            die_again: None,
            here: None,
            cuts: 0,
            points: BTreeSet::new(),
            passed: BTreeMap::new(),
            at: HashMap::new(),
        }
    }

    /// Brings time and what was due by now up to date.
    pub(super) fn catch_up(&mut self) {
        self.tick();
        for cloud in 0..self.clouds.len() {
            while let Some(deed) = self.clouds[cloud].due(self.now) {
                deed(self);
            }
        }
    }

    /// Brings the time up to date.
    pub(super) fn tick(&mut self) {
        if let Some(began) = self.began {
            let life = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.now = self.base + life;
        }
    }

    pub(super) fn begin_life(&mut self) {
        self.base = self.now;
        self.began = Some(Instant::now());
        self.life += 1;
        self.dying = false;
        self.die_now = false;
        self.at.clear();
        self.cuts += 1;
    }

    /// Time stands still between two lives.
    pub(super) fn end_life(&mut self) {
        self.base = self.now;
        self.began = None;
    }

    /// A line of the trace.
    pub(super) fn note(&mut self, who: &str, what: &str) {
        let (s, ms) = (self.now / 1000, self.now % 1000);
        self.trace.push(format!("{s:>6}.{ms:03} {who:<6} {what}"));
    }

    /// Something that bb-box promised does not hold.
    pub(super) fn problem(&mut self, what: String) {
        self.note("ORACLE", &what);
        self.problems.push(what);
    }

    /// Notes that a fault was met at what the present task is at.
    pub(super) fn fault(&mut self, fault: &str) {
        self.last_fault = Some(self.now);
        let at = self.here();
        self.met.insert(format!("{at}: {fault}"));
    }

    /// What the present task is at, as operation and step.
    pub(super) fn here(&self) -> String {
        let at = task::try_id().and_then(|id| self.at.get(&id));
        at.map_or_else(|| "upkeep".to_owned(), |at| step_of(at))
    }

    /// What the present task is at from now on.
    pub(super) fn set_here(&mut self, at: &str) {
        if let Some(id) = task::try_id() {
            self.at.insert(id, at.to_owned());
        }
    }

    /// The present task came to a crash point: whether the process dies there, and for how long the task is held up.
    pub(super) fn at_point(&mut self, at: &str) -> (bool, u64) {
        if self.dying {
            return (true, 0);
        }
        self.set_here(at);
        self.points.insert(point_of(at));
        let operation = at.split(' ').next().unwrap_or(at);
        let passes = [(at, self.pass(at)), (operation, self.pass(operation))];
        let jitter = self.chance.draw(at).0 % 8;
        if self.calm {
            return (false, jitter);
        }
        match &mut self.die_again {
            Some(0) => {
                self.die_again = None;
                self.fault("dies again");
                return (true, 0);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let due = self.schedule.deaths.iter().find(|d| passes.contains(&(d.at.as_str(), d.nth)));
        let again = due.and_then(|death| death.again);
        if due.is_some() || self.die_now {
            self.die_again = again.or(self.die_again);
            self.fault(&format!("dies at {}", phase_of(at)));
            return (true, 0);
        }
        (false, jitter)
    }

    /// How often this was passed before.
    fn pass(&mut self, at: &str) -> u64 {
        if let Some(n) = self.passed.get_mut(at) {
            *n += 1;
            return *n;
        }
        self.passed.insert(at.to_owned(), 0);
        0
    }

    /// The directory that copies come from and go to.
    pub(super) fn local(&mut self) -> Option<PathBuf> {
        if self.here.is_none() {
            match tempfile::tempdir() {
                Ok(dir) => self.here = Some(dir),
                Err(error) => self.problem(format!("there is no directory for copies: {error}")),
            }
        }
        Some(self.here.as_ref()?.path().to_owned())
    }

    /// A box for people: its slot, or its ID when no slot has it.
    pub(super) fn label(&self, guest: &Guest) -> String {
        self.fates.label(&guest.box_id)
    }
}

/// Operation and step of a crash point: `acquire make` of `acquire make#1 intended`.
pub(super) fn step_of(at: &str) -> String {
    let mut words = at.split(' ');
    let operation = words.next().unwrap_or_default();
    let step = match words.next() {
        Some("undo") => "undo",
        Some("turn" | "end" | "ended" | "undoing") | None => return operation.to_owned(),
        Some(step) => step.split('#').next().unwrap_or_default(),
    };
    format!("{operation} {step}")
}

/// A crash point without how often its step was begun: `acquire make intended` of `acquire make#1 intended`.
fn point_of(at: &str) -> String {
    let words = at.split(' ').map(|word| word.split('#').next().unwrap_or(word));
    words.collect::<Vec<_>>().join(" ")
}

/// The last words of a crash point: `intended`, `save task`.
pub(super) fn phase_of(at: &str) -> &str {
    for two in ["save task", "saved task", "write within", "wrote within"] {
        if at.ends_with(two) {
            return two;
        }
    }
    at.rsplit(' ').next().unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_point_is_an_operation_a_step_and_a_phase() {
        for (at, step, phase) in [
            ("acquire make intended", "acquire make", "intended"),
            ("acquire place#1 look", "acquire place", "look"),
            ("acquire make saved task", "acquire make", "saved task"),
            ("acquire undo release-guest of make acted", "acquire undo", "acted"),
            ("release end", "release", "end"),
        ] {
            assert_eq!((step_of(at).as_str(), phase_of(at)), (step, phase));
            assert_eq!(point_of(at), at.replace("#1", ""));
        }
    }
}
