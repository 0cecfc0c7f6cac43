//! A backend that misbehaves in one way, around one that does not.

use std::sync::Arc;

use async_trait::async_trait;
use bbbox::{
    Error, Result,
    backend::{
        AcquireHooks, Backend, Check, Nature, Offer, Order, Reach, Relabel, ReleaseHooks, Released, Resize,
        Switch,
    },
    capacity::Capacity,
    guest::{Guest, Held, Power},
    id::{BackendId, InstallId, KindId},
};

/// In which way it misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It makes each guest and then fails, as when a step after the creation goes wrong.
    FailsOnceMade,
    /// It says that a guest was released, and keeps it.
    KeepsWhatItReleases,
}

/// A backend with a fault.
pub(super) struct Misbehaving {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) fault: Fault,
}

#[async_trait]
impl Backend for Misbehaving {
    fn id(&self) -> &BackendId {
        self.backend.id()
    }

    fn nature(&self) -> Nature {
        self.backend.nature()
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        self.backend.offers().await
    }

    async fn capacity(&self, kind: &KindId, install: &InstallId) -> Result<Capacity> {
        self.backend.capacity(kind, install).await
    }

    async fn power(&self, guest: &Guest) -> Result<Option<Power>> {
        self.backend.power(guest).await
    }

    async fn held(&self, install: &InstallId) -> Result<Vec<Held>> {
        self.backend.held(install).await
    }

    async fn as_offered(&self, guest: &Guest) -> Result<Option<bool>> {
        self.backend.as_offered(guest).await
    }

    async fn reach(&self, guest: &Guest) -> Result<Reach> {
        self.backend.reach(guest).await
    }

    async fn doctor(&self) -> Vec<Check> {
        self.backend.doctor().await
    }

    fn switch(&self) -> Option<&dyn Switch> {
        self.backend.switch()
    }

    fn resize(&self) -> Option<&dyn Resize> {
        self.backend.resize()
    }

    fn relabel(&self) -> Option<&dyn Relabel> {
        self.backend.relabel()
    }

    async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        let guest = self.backend.acquire(order, hooks).await?;
        match self.fault {
            Fault::FailsOnceMade => Err(Error::failed("a step after the creation went wrong")),
            Fault::KeepsWhatItReleases => Ok(guest),
        }
    }

    async fn release(&self, guest: &Guest, hooks: &dyn ReleaseHooks) -> Result<Released> {
        match self.fault {
            Fault::FailsOnceMade => self.backend.release(guest, hooks).await,
            Fault::KeepsWhatItReleases => Ok(Released::Removed),
        }
    }
}
