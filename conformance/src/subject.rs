//! What the suite is run on: how a handle on one provider is made.

use std::sync::Arc;

use async_trait::async_trait;
use bbbox::{Result, backend::Backend, guest::Guest};

/// A case that is known to fail. It must go on failing: a pass takes it off the list.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The case.
    pub case: &'static str,
    /// Why it fails.
    pub reason: &'static str,
}

/// One provider under test.
#[async_trait]
pub trait Subject: Send + Sync {
    /// A handle on the provider that shares no memory with earlier ones, as a program has it after a restart.
    ///
    /// # Errors
    /// When the provider cannot be set up.
    fn backend(&self) -> Result<Arc<dyn Backend>>;

    /// Makes the provider ready, such as by building what its boxes come from. Safe to repeat.
    ///
    /// # Errors
    /// When it cannot be made ready: no case runs then.
    async fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// Ends a guest as a fault of its host would, behind the backend's back; whether that was possible.
    ///
    /// # Errors
    /// When it was tried and failed.
    async fn crash(&self, guest: &Guest) -> Result<bool> {
        let _ = guest;
        Ok(false)
    }

    /// Makes another guest that bears the box's marks as `guest` does, with the provider's own means and behind the
    /// backend's back, as a person who copies a guest does. `None` where there can be no such guest.
    ///
    /// # Errors
    /// When it was tried and failed.
    async fn twin(&self, guest: &Guest) -> Result<Option<Guest>> {
        let _ = guest;
        Ok(None)
    }

    /// How many boxes there may be at once.
    fn boxes_at_once(&self) -> u32 {
        4
    }

    /// The cases that are known to fail.
    fn known(&self) -> &[Known] {
        &[]
    }
}

/// The trait stays usable as an object.
const _: fn(&dyn Subject) = |_| {};
