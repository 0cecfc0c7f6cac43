//! What the program around bb-box knows and can do.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{error::Result, id::ThreadId};

/// How a thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadState {
    /// It is at work now.
    Working,
    /// It exists and is idle.
    Live,
    /// It was archived or deleted.
    Ended,
}

/// The program around bb-box.
#[async_trait]
pub trait Embedder: Send + Sync {
    /// How `thread` stands. The answer may be wrong: two sweeps must agree before anything is released.
    ///
    /// - *Errors*: `Unavailable` when it is not known now. Nothing is released then.
    async fn thread(&self, thread: &ThreadId) -> Result<ThreadState>;

    /// Tells `thread` something that it should know, such as that its box is gone.
    async fn tell(&self, thread: &ThreadId, message: &str) -> Result<()>;
}

/// No program around bb-box: threads are names, and a box lives until it is released.
#[derive(Clone, Copy, Debug, Default)]
pub struct Standalone;

#[async_trait]
impl Embedder for Standalone {
    async fn thread(&self, _thread: &ThreadId) -> Result<ThreadState> {
        Ok(ThreadState::Live)
    }

    async fn tell(&self, thread: &ThreadId, message: &str) -> Result<()> {
        tracing::info!(%thread, message, "message for a thread");
        Ok(())
    }
}

const _: fn(&dyn Embedder) = |_| {};
