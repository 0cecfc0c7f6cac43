//! Time, chance and crash points of one simulated process.

use std::{sync::Arc, time::Duration};

use bbbox::env::Env;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};

use super::{World, pause};

/// 2030-01-01T00:00:00Z, where every world begins.
const BEGIN: i64 = 1_893_456_000;

/// The environment of one install's process.
pub(super) struct Clock {
    pub(super) world: Arc<World>,
    pub(super) install: usize,
}

/// What the wall clock says `ms` after the world began.
pub(super) fn wall(ms: u64, skew: i64) -> Timestamp {
    let begin = Timestamp::from_second(BEGIN).unwrap_or_default();
    begin + SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX).saturating_add(skew))
}

impl Env for Clock {
    fn now(&self) -> Timestamp {
        self.world.glance(|p| wall(p.now, p.skew))
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.world.glance(|p| p.now))
    }

    fn random(&self) -> u64 {
        self.world.glance(|p| p.chance.draw(["random 0", "random 1"][self.install]).0)
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn point(&self, at: &str) -> BoxFuture<'static, ()> {
        let (world, at) = (Arc::clone(&self.world), at.to_owned());
        Box::pin(async move {
            let (dies, jitter) = world.with(|p| p.at_point(&at));
            if dies {
                world.die(&at);
                return std::future::pending().await;
            }
            pause(jitter).await;
        })
    }
}
