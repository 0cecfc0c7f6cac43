//! The simulated world: the whole core on a clock that stands still, over providers, boxes, threads and people that
//! are models, from a seed.
//!
//! `World` is what outlives the process: time, chance, providers with their guests, threads, the stores, and what
//! each caller was told. A process is a runtime; its death is the end of that runtime, wherever it was. Nothing here
//! knows how an operation works: an oracle compares what callers were told, and what is at the providers, with what
//! bb-box promises. `run` plays a seed, `shrink` makes a failing one shorter, `cover` counts what was met.

mod action;
mod actor;
mod backend;
mod chance;
mod clock;
mod cloud;
mod copies;
mod corpus;
mod cover;
mod fate;
mod fault;
mod follow;
mod generate;
mod hand;
mod inside;
mod lead;
mod life;
mod line;
mod observe;
mod parts;
mod planted;
mod run;
#[cfg(test)]
mod same;
mod settle;
mod shell;
mod shrink;
mod swarm;
mod threads;
mod transfer;
mod verdict;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use parts::Parts;
use tokio_util::sync::CancellationToken;

pub use corpus::replay;
pub use planted::{Planted, finds, planted};
pub use run::{Failure, Played, play};
pub use shrink::shorten;
pub use swarm::{Amount, Caught, Progress, Swarm, hunt, swarm};

/// Everything that outlives the process.
pub(crate) struct World {
    parts: Mutex<Parts>,
    /// Cancelled when the process of this life dies.
    dead: Mutex<CancellationToken>,
}

impl World {
    fn new(parts: Parts) -> Arc<Self> {
        Arc::new(Self { parts: Mutex::new(parts), dead: Mutex::default() })
    }

    /// Looks at the world, or changes it, at one moment.
    fn with<T>(&self, f: impl FnOnce(&mut Parts) -> T) -> T {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.catch_up();
        f(&mut parts)
    }

    /// The time alone: what is due happens when somebody looks. For calls from within a store's transaction.
    fn glance<T>(&self, f: impl FnOnce(&mut Parts) -> T) -> T {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.tick();
        f(&mut parts)
    }

    /// A new process begins: its clock goes on where the last one's stood.
    fn begin_life(&self) -> CancellationToken {
        self.with(Parts::begin_life);
        let token = CancellationToken::new();
        *self.dead.lock().unwrap_or_else(PoisonError::into_inner) = token.clone();
        token
    }

    /// The process ends here: its tasks are dropped as soon as nothing else of this moment is left.
    fn die(&self, why: &str) {
        self.with(|p| {
            p.dying = true;
            p.note("world", &format!("the process dies: {why}"));
        });
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).cancel();
    }
}

async fn pause(ms: u64) {
    if ms == 0 {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}
