//! Threads for what blocks: files here are read and written on them.

use crate::error::{Error, Result};

/// Runs what blocks on a thread for it, and waits for that.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    #[cfg(feature = "simulation")]
    if crate::simulation::alone() {
        return work();
    }
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(Error::failed("the copy's thread ended").because(error)))
}

/// Runs what blocks on a thread for it.
pub(super) fn on_a_thread(work: impl FnOnce() + Send + 'static) {
    #[cfg(feature = "simulation")]
    if crate::simulation::alone() {
        return work();
    }
    tokio::task::spawn_blocking(work);
}
