//! The only door to time, chance and crash points.
//!
//! Everything in this crate takes them from an [`Env`], so that a whole run can be played again from a seed on a
//! clock that stands still, and so that a test can end the process at any point it names.

use std::{
    fmt,
    sync::LazyLock,
    time::{Duration, Instant},
};

use futures::future::BoxFuture;
use jiff::Timestamp;

/// Time, chance and the points at which a run may end or another task may go first.
pub trait Env: Send + Sync {
    /// The time now, for what is stored and for people. It may jump, so nothing is measured by it.
    fn now(&self) -> Timestamp;
    /// The time since some moment before the first call. It goes as [`Self::sleep`] waits and never jumps: every
    /// deadline and every duration within one process is measured by it.
    fn elapsed(&self) -> Duration;
    /// A random number.
    fn random(&self) -> u64;
    /// Waits.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;
    /// A crash point, named for what is about to happen or has just happened. In production it does nothing.
    fn point(&self, at: &str) -> BoxFuture<'static, ()>;
}

/// What [`SystemEnv::elapsed`](Env::elapsed) counts from.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The machine's own clocks and random numbers.
#[derive(Clone, Copy, Default)]
pub struct SystemEnv;

impl fmt::Debug for SystemEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemEnv")
    }
}

impl Env for SystemEnv {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn elapsed(&self) -> Duration {
        BEGAN.elapsed()
    }

    fn random(&self) -> u64 {
        // The operating system's generator fails only where nothing else would work either.
        getrandom::u64().unwrap_or_else(|error| panic!("the system has no random numbers: {error}"))
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn point(&self, _at: &str) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}
