//! The inside of a simulated guest: its jobs, which go on whoever is connected, and what is on its disk.

use std::collections::BTreeMap;

use bbbox::transport::Exit;

use super::shell::{Course, course};

/// What one guest holds.
#[derive(Clone, Debug)]
pub(super) struct Inside {
    /// From when on its shell answers.
    pub(super) up_at: u64,
    /// Which boot this is.
    pub(super) boot: u32,
    pub(super) jobs: BTreeMap<String, Job>,
    /// What its files ever were, by name: since when, and their bytes.
    files: BTreeMap<String, Vec<(u64, Vec<u8>)>>,
    next_pid: u32,
}

/// One job as the guest's files tell of it.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) pid: u32,
    began: u64,
    course: Course,
    /// When it was ended by a signal, and which.
    killed: Option<(u64, u8)>,
    /// When its guest went off under it.
    cut: Option<u64>,
}

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    Runs,
    Ended(Exit),
    Lost,
}

impl Job {
    /// When it ends by itself or ended.
    pub(super) fn ends(&self) -> u64 {
        let by_itself = self.began + self.course.runs_ms;
        self.killed.map_or(by_itself, |(at, _)| at.min(by_itself))
    }

    pub(super) fn stand(&self, now: u64) -> Stand {
        match self.cut {
            Some(cut) if cut < self.ends() => Stand::Lost,
            _ if now < self.ends() => Stand::Runs,
            _ => match self.killed {
                Some((at, signal)) if at < self.began + self.course.runs_ms => {
                    Stand::Ended(Exit::Signal(signal))
                }
                _ => Stand::Ended(self.course.exit),
            },
        }
    }

    /// What it has written by now: in this model all of it when it ends.
    pub(super) fn output(&self, now: u64) -> (&[u8], &[u8]) {
        let whole =
            matches!(self.stand(now), Stand::Ended(_)) && self.killed.is_none_or(|(at, _)| at >= self.ends());
        if whole && self.killed.is_none() { (&self.course.out, &self.course.err) } else { (&[], &[]) }
    }
}

impl Inside {
    pub(super) fn new(up_at: u64) -> Self {
        Self { up_at, boot: 1, jobs: BTreeMap::new(), files: BTreeMap::new(), next_pid: 100 }
    }

    pub(super) fn power_on(&mut self, up_at: u64) {
        self.up_at = up_at;
        self.boot += 1;
    }

    pub(super) fn power_off(&mut self, now: u64) {
        self.boot += 1;
        for job in self.jobs.values_mut() {
            job.cut.get_or_insert(now);
        }
    }

    /// Launches a job; `false` when its ID is taken.
    pub(super) fn launch(&mut self, id: &str, script: &str, now: u64) -> bool {
        if self.jobs.contains_key(id) {
            return false;
        }
        self.next_pid += 1;
        let job = Job { pid: self.next_pid, began: now, course: course(script), killed: None, cut: None };
        self.jobs.insert(id.to_owned(), job);
        true
    }

    /// Sends a signal: `None` when there is no such job or it has ended.
    pub(super) fn kill(&mut self, id: &str, signal: u8, now: u64) -> bool {
        match self.jobs.get_mut(id) {
            Some(job) if job.stand(now) == Stand::Runs => {
                job.killed.get_or_insert((now, signal));
                true
            }
            _ => false,
        }
    }

    /// Puts a file in place of what has its name.
    pub(super) fn put(&mut self, name: &str, bytes: Vec<u8>, now: u64) {
        self.files.entry(name.to_owned()).or_default().push((now, bytes));
    }

    /// A file as it is now.
    pub(super) fn file(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name)?.last().map(|(_, bytes)| bytes.as_slice())
    }

    /// The names of the files in a directory.
    pub(super) fn below(&self, dir: &str) -> Vec<String> {
        let within = |name: &&String| name.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
        self.files.keys().filter(within).cloned().collect()
    }

    /// Whether anything of that name, or in the directory of that name, was put there since `since`.
    pub(super) fn changed(&self, name: &str, since: u64) -> bool {
        let its = self.files.iter().filter(|(file, _)| file.starts_with(name));
        its.flat_map(|(_, all)| all).any(|(at, _)| *at >= since)
    }

    /// Whether a file was once this.
    pub(super) fn was_put(&self, name: &str, bytes: &[u8]) -> bool {
        self.files.get(name).into_iter().flatten().any(|(_, was)| was == bytes)
    }

    /// Whether a file was this at some time since `since`.
    pub(super) fn has_been(&self, name: &str, bytes: &[u8], since: u64) -> bool {
        let Some(all) = self.files.get(name) else { return false };
        let mut until = all.iter().skip(1).map(|(at, _)| *at).chain([u64::MAX]);
        all.iter().any(|(_, was)| until.next().is_some_and(|until| until >= since) && was == bytes)
    }

    pub(super) fn forget(&mut self, id: &str) {
        self.jobs.remove(id);
    }
}
