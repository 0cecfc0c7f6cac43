//! The program around bb-box: threads that live, work and end, and answers about them that may be wrong.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use bbbox::{
    Result,
    embed::{Embedder, ThreadState},
    error::Error,
    id::ThreadId,
};

use super::{World, pause};

/// How every thread really stands, and what was said about it.
#[derive(Debug)]
pub(super) struct Threads {
    pub(super) truth: BTreeMap<String, ThreadState>,
    /// How often in a row each install was told that a thread has ended.
    ended: BTreeMap<(usize, String), u32>,
    /// Threads that each install was ever told so twice: their boxes may go from then on.
    twice: BTreeSet<(usize, String)>,
}

/// A thread's name.
pub(super) fn thread(n: u64) -> ThreadId {
    ThreadId::parse(format!("t{n}")).unwrap_or_else(|_| unreachable!("t and a number is a thread's ID"))
}

impl Threads {
    pub(super) fn new(count: u64) -> Self {
        let truth = (0..count).map(|n| (thread(n).to_string(), ThreadState::Live)).collect();
        Self { truth, ended: BTreeMap::new(), twice: BTreeSet::new() }
    }

    pub(super) fn of(&self, id: &str) -> ThreadState {
        self.truth.get(id).copied().unwrap_or(ThreadState::Ended)
    }

    /// Whether the thread was said to have ended often enough that its boxes may go.
    pub(super) fn found_ended(&self, install: usize, id: &str) -> bool {
        self.twice.contains(&(install, id.to_owned()))
    }

    /// Notes what an install was told.
    fn told(&mut self, install: usize, id: String, said: Option<ThreadState>) {
        let key = (install, id);
        match said {
            Some(ThreadState::Ended) => {
                let times = self.ended.entry(key.clone()).or_insert(0);
                *times += 1;
                if *times >= 2 {
                    self.twice.insert(key);
                }
            }
            Some(_) => drop(self.ended.remove(&key)),
            None => {}
        }
    }
}

/// The program as one install's process sees it.
pub(super) struct Around {
    pub(super) world: Arc<World>,
    pub(super) install: usize,
}

#[async_trait]
impl Embedder for Around {
    async fn thread(&self, id: &ThreadId) -> Result<ThreadState> {
        let id = id.as_str().to_owned();
        let (ms, install) = (self.world.with(|p| p.chance.between("embedder", 1, 20)), self.install);
        pause(ms).await;
        self.world.with(|p| {
            let about = format!("answer about {id}");
            let (chance, nth) = p.chance.draw(&about);
            let wrong = !p.calm
                && chance % 1000 < p.schedule.weather.misreported
                && !p.schedule.mute.contains(&format!("{about} #{nth}"));
            let truth = p.threads.of(&id);
            let said = match (wrong, chance / 1000 % 2, truth) {
                (false, ..) => Some(truth),
                (true, 0, _) => None,
                (true, _, ThreadState::Ended) => Some(ThreadState::Live),
                (true, ..) => Some(ThreadState::Ended),
            };
            if wrong {
                let words = if said.is_none() { "thread not reported" } else { "thread misreported" };
                p.fault(words);
                p.note("fault", &format!("{about} #{nth}: said {said:?}, is {truth:?}"));
            }
            p.threads.told(install, id, said);
            said.ok_or_else(|| Error::unavailable("the program does not answer"))
        })
    }

    async fn tell(&self, _: &ThreadId, _: &str) -> Result<()> {
        Ok(())
    }
}
