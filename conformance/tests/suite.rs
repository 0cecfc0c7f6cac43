//! The suite itself: it passes on a provider that keeps its promises, and finds each one that is broken.

use std::sync::Arc;

use async_trait::async_trait;
use bbbox::{
    Result,
    backend::{
        AcquireHooks, Backend, Check, Nature, Offer, Order, Reach, Relabel, ReleaseHooks, Released, Resize,
        Switch,
    },
    capacity::Capacity,
    guest::{Guest, Held, Power},
    id::{BackendId, InstallId, KindId},
};
use conformance::{
    Known, Options, Outcome, Report, Subject,
    sim::{Provider, Shape},
};

struct Simulated(Arc<Provider>);

#[async_trait]
impl Subject for Simulated {
    fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(self.0.backend())
    }
    async fn twin(&self, guest: &Guest) -> Result<Option<Guest>> {
        self.0.twin(guest)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_simulated_provider_keeps_every_promise_it_declares() {
    let provider = Provider::new(Shape::default()).unwrap();
    // A gibibyte says more about this machine's disk than about the suite.
    let options = Options { without: Some("gibibyte".to_owned()), ..Options::default() };
    let report = conformance::run(Arc::new(Simulated(Arc::clone(&provider))), options).await;
    assert!(report.is_good(), "{report}");
    assert_eq!(provider.guests(), 0);
    assert!(report.cases.iter().all(|case| case.outcome != Outcome::Skipped || case.reason.is_some()));
}

/// Which promise a provider breaks.
#[derive(Clone, Copy)]
enum Lie {
    /// It claims a guest once it is made.
    ClaimsLate,
    /// It says that a guest is released, and keeps it.
    KeepsGuests,
    /// It says that every guest runs.
    AlwaysRuns,
    /// It counts nobody's guests.
    CountsNothing,
    /// It releases every guest of the box that the guest is of.
    ReleasesWholeBoxes,
    /// It finds no guest but the first that a box has.
    ReleasesFirst,
}

struct Liar(Arc<dyn Backend>, Lie);

/// Hooks that a liar does not call.
struct Unheard;

#[async_trait]
impl AcquireHooks for Unheard {
    async fn claim(&self, _: &Guest) -> Result<()> {
        Ok(())
    }
    async fn task(&self, _: &str) -> Result<()> {
        Ok(())
    }
    fn timing(&self, _: &str, _: std::time::Duration) {}
    fn progress(&self, _: &str, _: Option<f64>) {}
}

#[async_trait]
impl Backend for Liar {
    fn id(&self) -> &BackendId {
        self.0.id()
    }
    fn nature(&self) -> Nature {
        self.0.nature()
    }
    async fn offers(&self) -> Result<Vec<Offer>> {
        self.0.offers().await
    }
    async fn capacity(&self, kind: &KindId, install: &InstallId) -> Result<Capacity> {
        let mut capacity = self.0.capacity(kind, install).await?;
        if matches!(self.1, Lie::CountsNothing) {
            capacity.hosts.iter_mut().for_each(|host| host.counted.clear());
        }
        Ok(capacity)
    }
    async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        if !matches!(self.1, Lie::ClaimsLate) {
            return self.0.acquire(order, hooks).await;
        }
        let guest = self.0.acquire(order, &Unheard).await?;
        hooks.claim(&guest).await?;
        Ok(guest)
    }
    async fn release(&self, guest: &Guest, hooks: &dyn ReleaseHooks) -> Result<Released> {
        match self.1 {
            Lie::KeepsGuests => Ok(Released::Removed),
            Lie::ReleasesWholeBoxes | Lie::ReleasesFirst => {
                let held = self.0.held(&guest.install).await?;
                let of_box = held.iter().filter(|held| held.owner.box_id == guest.box_id);
                let most = if matches!(self.1, Lie::ReleasesFirst) { 1 } else { usize::MAX };
                let mut released = Released::AlreadyGone;
                for held in of_box.take(most) {
                    released = self.0.release(&held.guest, hooks).await?;
                }
                Ok(released)
            }
            _ => self.0.release(guest, hooks).await,
        }
    }
    async fn power(&self, guest: &Guest) -> Result<Option<Power>> {
        let power = self.0.power(guest).await?;
        Ok(power.map(|power| if matches!(self.1, Lie::AlwaysRuns) { Power::Running } else { power }))
    }
    async fn held(&self, install: &InstallId) -> Result<Vec<Held>> {
        self.0.held(install).await
    }
    async fn as_offered(&self, guest: &Guest) -> Result<Option<bool>> {
        self.0.as_offered(guest).await
    }
    async fn reach(&self, guest: &Guest) -> Result<Reach> {
        self.0.reach(guest).await
    }
    async fn doctor(&self) -> Vec<Check> {
        self.0.doctor().await
    }
    fn switch(&self) -> Option<&dyn Switch> {
        self.0.switch()
    }
    fn resize(&self) -> Option<&dyn Resize> {
        self.0.resize()
    }
    fn relabel(&self) -> Option<&dyn Relabel> {
        self.0.relabel()
    }
}

struct Lying(Arc<Provider>, Lie, &'static [Known]);

#[async_trait]
impl Subject for Lying {
    fn backend(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Liar(self.0.backend(), self.1)))
    }
    async fn twin(&self, guest: &Guest) -> Result<Option<Guest>> {
        self.0.twin(guest)
    }
    fn known(&self) -> &[Known] {
        self.2
    }
}

/// How the cases came out whose names hold `only`.
async fn with(lie: Lie, only: &str, known: &'static [Known]) -> Report {
    let provider = Provider::new(Shape::default()).unwrap_or_else(|error| panic!("{error:?}"));
    let subject = Lying(provider, lie, known);
    let options = Options { only: Some(only.to_owned()), ..Options::default() };
    conformance::run(Arc::new(subject), options).await
}

fn outcome(report: &Report, name: &str) -> Outcome {
    report
        .cases
        .iter()
        .find(|case| case.name == name)
        .unwrap_or_else(|| panic!("no {name} in {report}"))
        .outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_broken_promise_is_found() {
    for (lie, case) in [
        (Lie::ClaimsLate, "acquire-claims-before-it-makes"),
        (Lie::ClaimsLate, "acquire-makes-nothing-when-the-claim-fails"),
        (Lie::KeepsGuests, "release-is-confirmed"),
        (Lie::AlwaysRuns, "power-is-what-the-provider-says-now"),
        (Lie::CountsNothing, "capacity-counts-every-installs-guests"),
        (Lie::ReleasesWholeBoxes, "a-second-guest-of-a-box-is-released"),
        (Lie::ReleasesFirst, "a-second-guest-of-a-box-is-released"),
    ] {
        let report = with(lie, case, &[]).await;
        assert_eq!(outcome(&report, case), Outcome::Failed, "{report}");
        assert!(!report.is_good(), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_run_leaves_is_found_by_its_last_case() {
    let report = with(Lie::KeepsGuests, "commands-run-at-home", &[]).await;
    assert_eq!(outcome(&report, "commands-run-at-home"), Outcome::Passed, "{report}");
    assert_eq!(outcome(&report, "nothing-is-left"), Outcome::Failed, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_known_failure_is_no_failure_until_it_passes() {
    const CASE: &str = "power-is-what-the-provider-says-now";
    const KNOWN: &[Known] = &[Known { case: CASE, reason: "its listing lags" }];
    assert_eq!(outcome(&with(Lie::AlwaysRuns, CASE, KNOWN).await, CASE), Outcome::Known);
    assert_eq!(outcome(&with(Lie::CountsNothing, CASE, KNOWN).await, CASE), Outcome::Failed);
}
