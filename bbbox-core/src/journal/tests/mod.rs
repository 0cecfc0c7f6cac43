//! The journal's tests: an environment whose process can die at any point, and a toy provider.

mod cancel;
mod close;
mod crash;
mod queue;
mod replay;
mod retry;
mod seeds;
mod toy;
mod undo;

use std::{
    future::Future,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    env::Env,
    error::{Error, Result},
    id::{BoxId, OperationId},
    store::Store,
};

/// The clock and chance of a whole test, over all its lives.
#[derive(Debug)]
pub(super) struct World {
    now: AtomicI64,
    random: AtomicU64,
}

impl World {
    pub(super) fn new() -> Arc<Self> {
        Self::of(1)
    }

    pub(super) fn of(seed: u64) -> Arc<Self> {
        Arc::new(Self { now: AtomicI64::new(1_800_000_000_000), random: AtomicU64::new(seed) })
    }

    /// A number below `below`.
    pub(super) fn pick(&self, below: usize) -> usize {
        usize::try_from(self.random() >> 33).unwrap() % below
    }

    pub(super) fn random(&self) -> u64 {
        let next = |n: u64| n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.random.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| Some(next(n))).unwrap_or(0)
    }

    pub(super) fn box_id(&self) -> BoxId {
        BoxId::draw(|| self.random())
    }
}

type AtPoint = Box<dyn Fn(usize, &str) + Send + Sync>;

/// One life of a process: it may die at a point, and then nothing of it goes on.
pub(super) struct Life {
    world: Arc<World>,
    seen: AtomicUsize,
    die_at: Option<usize>,
    dead: CancellationToken,
    pub(super) names: Mutex<Vec<String>>,
    pub(super) at_point: OnceLock<AtPoint>,
}

impl Life {
    pub(super) fn new(world: &Arc<World>, die_at: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            world: world.clone(),
            seen: AtomicUsize::new(0),
            die_at,
            dead: CancellationToken::new(),
            names: Mutex::new(Vec::new()),
            at_point: OnceLock::new(),
        })
    }

    /// How many points were met.
    pub(super) fn points(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }

    /// Lives `life` in a runtime of its own; `None` when it died. Nothing of it is left then but the store's file.
    pub(super) fn live<T>(&self, life: impl Future<Output = T>) -> Option<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            tokio::select! { biased; () = self.dead.cancelled() => None, value = life => Some(value) }
        })
    }
}

impl Env for Life {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.world.now.load(Ordering::Relaxed)).unwrap()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.world.now.load(Ordering::Relaxed).unsigned_abs())
    }

    fn random(&self) -> u64 {
        self.world.random()
    }

    /// Time passes at once: the tests wait for nothing. The longest time never passes.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        if time == Duration::MAX {
            return Box::pin(std::future::pending());
        }
        self.world.now.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::Relaxed);
        Box::pin(tokio::task::yield_now())
    }

    fn point(&self, at: &str) -> BoxFuture<'static, ()> {
        let n = self.seen.fetch_add(1, Ordering::Relaxed);
        self.names.lock().unwrap().push(at.to_owned());
        if self.die_at.is_some_and(|k| n >= k) {
            self.dead.cancel();
            return Box::pin(std::future::pending());
        }
        if let Some(at_point) = self.at_point.get() {
            at_point(n, at);
        }
        Box::pin(tokio::task::yield_now())
    }
}

/// What to begin on `boxes`.
pub(super) fn begin(kind: &'static str, boxes: &[BoxId], args: Value) -> Begin {
    Begin {
        kind,
        version: 1,
        request: None,
        asked: None,
        boxes: boxes.to_vec(),
        by: "a test".to_owned(),
        args,
        over_unknown: false,
    }
}

/// Begins an operation without writes of the caller's.
pub(super) fn start(journal: &Journal, begin: Begin) -> OperationId {
    journal.begin(begin, |_, _| Ok(())).unwrap().id().clone()
}

pub(super) fn state_of(journal: &Journal, id: &OperationId) -> State {
    journal.show(id).unwrap().unwrap().state
}

/// A journal in memory whose operations a test registers, with its environment.
pub(super) fn journal(register: impl FnOnce(JournalBuilder) -> JournalBuilder) -> (Arc<Journal>, Arc<Life>) {
    let world = World::new();
    let life = Life::new(&world, None);
    let store = Arc::new(Store::memory().unwrap());
    (register(Journal::builder(store, life.clone())).build(), life)
}

/// The same store with other operations, as after an upgrade.
pub(super) fn upgraded(
    journal: &Journal,
    life: &Arc<Life>,
    register: impl FnOnce(JournalBuilder) -> JournalBuilder,
) -> Arc<Journal> {
    register(Journal::builder(journal.inner.store.clone(), life.clone())).build()
}

/// One thing a test saw happen.
pub(super) type Seen = Arc<Mutex<Vec<String>>>;

pub(super) fn note(seen: &Seen, what: impl Into<String>) {
    seen.lock().unwrap().push(what.into());
}

pub(super) fn noted(seen: &Seen) -> Vec<String> {
    seen.lock().unwrap().clone()
}
