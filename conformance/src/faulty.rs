//! A wrapper around any backend that makes its calls fail: before the deed, after it, or late.
//!
//! It stands directly on the backend, below every other wrapper, so that what is above it meets the faults as a
//! provider's own. It changes nothing else: what gets through is the backend's own work. Which calls fail is a
//! [`Plan`]: a script for a case, chance from a seed for a long run. What each call came to is noted.

mod plan;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bbbox::{
    Result,
    backend::{
        AcquireHooks, Backend, Check, Images, Machines, Nature, Offer, Order, Reach, Relabel, ReleaseHooks,
        Released, Resize, Switch, Switched, Upkeep,
    },
    capacity::Capacity,
    error::{Effect, Error},
    guest::{Guest, Held, Owner, Power, StopCause},
    id::{BackendId, InstallId, KindId},
    kind::Feature,
    size::Size,
};

pub use plan::{Fault, Method, Plan};

/// One call as it came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What was called.
    pub method: Method,
    /// The fault that it met.
    pub fault: Option<Fault>,
    /// What the backend itself answered, in words; `None` when it was never asked.
    pub answer: Option<String>,
}

/// A backend whose calls fail as planned.
pub struct Faulty {
    inner: Arc<dyn Backend>,
    plan: Mutex<Plan>,
    calls: Mutex<Vec<Call>>,
    ready_timeout: Option<Duration>,
    feature: Option<Feature>,
    closed: Option<String>,
    between: AtomicBool,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "faulty {}", self.inner.id())
    }
}

impl Faulty {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, plan: Plan) -> Self {
        Self {
            inner,
            plan: Mutex::new(plan),
            calls: Mutex::default(),
            ready_timeout: None,
            feature: None,
            closed: None,
            between: AtomicBool::new(false),
        }
    }

    /// Says of no guest whether it runs, as while it is on its way from one to the other.
    pub fn set_between(&self, between: bool) {
        self.between.store(between, Ordering::Relaxed);
    }

    /// Gives boxes another time to get ready than the backend does.
    #[must_use]
    pub fn ready_within(mut self, time: Duration) -> Self {
        self.ready_timeout = Some(time);
        self
    }

    /// Offers one feature more than the backend does.
    #[must_use]
    pub fn offering(mut self, feature: Feature) -> Self {
        self.feature = Some(feature);
        self
    }

    /// Takes no new box on any host, and says `why`.
    #[must_use]
    pub fn closed(mut self, why: impl Into<String>) -> Self {
        self.closed = Some(why.into());
        self
    }

    /// Puts another plan in place, its script from the beginning.
    pub fn set_plan(&self, plan: Plan) {
        *self.plan.lock().unwrap_or_else(PoisonError::into_inner) = plan;
    }

    /// Every call so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the backend itself answered to each call of `method` that got through.
    #[must_use]
    pub fn answers(&self, method: Method) -> Vec<String> {
        self.calls().into_iter().filter(|call| call.method == method).filter_map(|call| call.answer).collect()
    }

    async fn call<T: std::fmt::Debug>(
        &self,
        method: Method,
        deed: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let fault = self.plan.lock().unwrap_or_else(PoisonError::into_inner).next(method);
        let note = |answer: Option<String>| {
            self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(Call { method, fault, answer });
        };
        if let Some(Fault::Before) = fault {
            note(None);
            return Err(Error::unavailable(format!("the provider refused the {method:?} (planned)")));
        }
        if let Some(Fault::Late(time)) = fault {
            tokio::time::sleep(time).await;
        }
        let answer = deed.await;
        note(Some(match &answer {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => error.chain(),
        }));
        match (answer, fault) {
            (Ok(_), Some(Fault::Lost)) => {
                Err(Error::unavailable(format!("the answer to the {method:?} was lost (planned)"))
                    .effect(Effect::Unknown))
            }
            (Ok(_), Some(Fault::Broken)) => {
                Err(Error::failed(format!("the {method:?} went wrong at its end (planned)"))
                    .effect(Effect::Applied))
            }
            (answer, _) => answer,
        }
    }
}

#[async_trait]
impl Backend for Faulty {
    fn id(&self) -> &BackendId {
        self.inner.id()
    }

    fn nature(&self) -> Nature {
        self.inner.nature()
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        let mut offers = self.call(Method::Offers, self.inner.offers()).await?;
        for offer in &mut offers {
            offer.ready_timeout = self.ready_timeout.unwrap_or(offer.ready_timeout);
            offer.capabilities.features.extend(self.feature.clone());
        }
        Ok(offers)
    }

    async fn capacity(&self, kind: &KindId, install: &InstallId) -> Result<Capacity> {
        let mut capacity = self.call(Method::Capacity, self.inner.capacity(kind, install)).await?;
        if let Some(why) = &self.closed {
            capacity.hosts.iter_mut().for_each(|host| host.closed = Some(why.clone()));
        }
        Ok(capacity)
    }

    async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        self.call(Method::Acquire, self.inner.acquire(order, hooks)).await
    }

    async fn release(&self, guest: &Guest, hooks: &dyn ReleaseHooks) -> Result<Released> {
        self.call(Method::Release, self.inner.release(guest, hooks)).await
    }

    async fn power(&self, guest: &Guest) -> Result<Option<Power>> {
        let power = self.call(Method::Power, self.inner.power(guest)).await?;
        Ok(if self.between.load(Ordering::Relaxed) { power.map(|_| Power::Unknown) } else { power })
    }

    async fn held(&self, install: &InstallId) -> Result<Vec<Held>> {
        self.call(Method::Held, self.inner.held(install)).await
    }

    async fn as_offered(&self, guest: &Guest) -> Result<Option<bool>> {
        self.inner.as_offered(guest).await
    }

    async fn reach(&self, guest: &Guest) -> Result<Reach> {
        self.call(Method::Reach, self.inner.reach(guest)).await
    }

    async fn doctor(&self) -> Vec<Check> {
        self.inner.doctor().await
    }

    fn switch(&self) -> Option<&dyn Switch> {
        self.inner.switch().is_some().then_some(self)
    }

    fn resize(&self) -> Option<&dyn Resize> {
        self.inner.resize().is_some().then_some(self)
    }

    fn relabel(&self) -> Option<&dyn Relabel> {
        self.inner.relabel().is_some().then_some(self)
    }

    fn upkeep(&self) -> Option<&dyn Upkeep> {
        self.inner.upkeep()
    }

    fn machines(&self) -> Option<&dyn Machines> {
        self.inner.machines()
    }

    fn images(&self) -> Option<&dyn Images> {
        self.inner.images()
    }
}

/// The wrapper has an ability only where the backend has it.
fn lost_ability() -> Error {
    Error::failed("the backend gave up an ability that it had")
}

#[async_trait]
impl Switch for Faulty {
    async fn start(&self, guest: &Guest) -> Result<Switched> {
        let inner = self.inner.switch().ok_or_else(lost_ability)?;
        self.call(Method::Start, inner.start(guest)).await
    }

    async fn stop(&self, guest: &Guest) -> Result<Switched> {
        let inner = self.inner.switch().ok_or_else(lost_ability)?;
        self.call(Method::Stop, inner.stop(guest)).await
    }

    async fn stopped(&self, guest: &Guest) -> Result<Option<StopCause>> {
        self.inner.switch().ok_or_else(lost_ability)?.stopped(guest).await
    }
}

#[async_trait]
impl Resize for Faulty {
    async fn resize(&self, guest: &Guest, size: &Size) -> Result<Guest> {
        let inner = self.inner.resize().ok_or_else(lost_ability)?;
        self.call(Method::Resize, inner.resize(guest, size)).await
    }

    fn needs_stop(&self) -> bool {
        self.inner.resize().is_some_and(|inner| inner.needs_stop())
    }
}

#[async_trait]
impl Relabel for Faulty {
    async fn relabel(&self, guest: &Guest, owner: &Owner) -> Result<Guest> {
        let inner = self.inner.relabel().ok_or_else(lost_ability)?;
        self.call(Method::Relabel, inner.relabel(guest, owner)).await
    }
}
