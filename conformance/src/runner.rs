//! Running the cases: side by side where they allow it, each killed at its limit, none ever tried twice.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bbbox::{backend::Backend, id::InstallId};
use futures::{StreamExt, stream::FuturesUnordered};
use tokio::sync::Semaphore;

use crate::{
    ability::Abilities,
    case::{Case, Cost, Stop, Verdict},
    cases,
    lab::Lab,
    report::{Outcome, Report, Told},
    subject::Subject,
};

/// How long clearing up after one case may take.
const CLEARING: Duration = Duration::from_secs(120);

/// Is told of each case as it ends.
pub type Listener = Arc<dyn Fn(&Told) + Send + Sync>;

/// What to run, and who is told.
#[derive(Clone, Default)]
pub struct Options {
    /// Only the cases whose name or promise holds this.
    pub only: Option<String>,
    /// None of the cases whose name holds this.
    pub without: Option<String>,
    /// Is told of each case as it ends.
    pub told: Option<Listener>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("only", &self.only)
            .field("without", &self.without)
            .finish_non_exhaustive()
    }
}

impl Options {
    fn takes(&self, case: &Case) -> bool {
        let holds = |word: &String| case.name.contains(word);
        self.only.as_ref().is_none_or(|only| holds(only) || case.promise.contains(only))
            && !self.without.as_ref().is_some_and(holds)
    }
}

/// Runs the suite on `subject`. Its last case looks for anything that the others left.
pub async fn run(subject: Arc<dyn Subject>, options: Options) -> Report {
    let tell = |told: Told| {
        if let Some(listener) = &options.told {
            listener(&told);
        }
        told
    };
    let ready = async {
        subject.prepare().await?;
        let backend = subject.backend()?;
        Ok::<_, Stop>((Abilities::of(&*backend).await?, backend))
    };
    let (abilities, backend) = match ready.await {
        Ok(ready) => ready,
        Err(stop) => {
            return Report {
                cases: vec![tell(told("the-provider-is-ready", "offers-are-of-known-kinds", Err(stop), 0))],
                secrets: Vec::new(),
            };
        }
    };
    let permits = subject.boxes_at_once().max(1);
    let room = Arc::new(Semaphore::new(permits as usize));
    let (mut running, mut cases_told, mut installs) = (FuturesUnordered::new(), Vec::new(), Vec::new());
    let secrets = crate::lab::Secrets::default();
    let taken = || cases::all().enumerate().filter(|(_, case)| options.takes(case));
    // Those that need the provider for themselves come last: nothing then waits for them.
    let (shared, alone): (Vec<_>, Vec<_>) = taken().partition(|(_, case)| case.cost != Cost::Alone);
    for (at, case) in shared.into_iter().chain(alone) {
        if let Some(reason) = (case.needs)(&abilities) {
            cases_told.push((at, tell(told(case.name, case.promise, Err(Stop::Skipped(reason)), 0))));
            continue;
        }
        let lab =
            Lab::new(Arc::clone(&subject), Arc::clone(&backend), abilities.clone(), Arc::clone(&secrets));
        installs.extend(lab.installs());
        let room = Arc::clone(&room);
        let known = subject.known().iter().find(|known| known.case == case.name).map(|known| known.reason);
        running.push(async move {
            let need = if let Cost::Boxes(boxes) = case.cost { boxes.clamp(1, permits) } else { permits };
            // Cannot fail: nobody closes it.
            let permit = room.acquire_many(need).await.unwrap_or_else(|_| unreachable!("it stays open"));
            let (verdict, ms) = one(case, lab).await;
            drop(permit);
            (at, as_known(told(case.name, case.promise, verdict, ms), known))
        });
    }
    while let Some((at, told)) = running.next().await {
        cases_told.push((at, tell(told)));
    }
    cases_told.sort_by_key(|(at, _)| *at);
    let mut report =
        Report { cases: cases_told.into_iter().map(|(_, told)| told).collect(), secrets: Vec::new() };
    let began = Instant::now();
    let left = nothing_is_left(&*backend, &installs).await;
    report.cases.push(tell(told("nothing-is-left", "release-confirms", left, ms_since(began))));
    report.secrets.clone_from(&crate::lab::lock(&secrets));
    report
}

/// One case to its end, and what it made cleared away.
async fn one(case: &Case, lab: Lab) -> (Verdict, u64) {
    let began = Instant::now();
    let mut task = tokio::spawn((case.body)(lab.clone()));
    let verdict = match tokio::time::timeout(case.limit, &mut task).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(broken)) => Err(Stop::Failed(format!("it broke: {}", panic_words(broken)))),
        Err(_) => {
            task.abort();
            // Ended before its boxes are taken away.
            drop(task.await);
            Err(Stop::Failed(format!("it was killed after {} s; {}", case.limit.as_secs(), lab.last_seen())))
        }
    };
    let ms = ms_since(began);
    let cleared = match tokio::time::timeout(CLEARING, lab.clear()).await {
        Ok(cleared) => cleared,
        Err(_) => Err(Stop::Failed(format!("its boxes were not released after {} s", CLEARING.as_secs()))),
    };
    (verdict.and(cleared), ms)
}

fn panic_words(broken: tokio::task::JoinError) -> String {
    match broken.try_into_panic() {
        Ok(panic) => panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()))
            .unwrap_or_else(|| "a panic without words".to_owned()),
        Err(error) => error.to_string(),
    }
}

/// Lists by every install of the run, releases what is found and fails for it.
async fn nothing_is_left(backend: &dyn Backend, installs: &[InstallId]) -> Verdict {
    let mut left = Vec::new();
    for install in installs {
        for held in backend.held(install).await? {
            left.push(format!("{} of box {}", held.guest.reference, held.owner.name));
            backend.release(&held.guest, &crate::lab::Quiet).await?;
        }
    }
    if left.is_empty() { Ok(()) } else { Err(Stop::Failed(format!("the run left {}", left.join(", ")))) }
}

fn ms_since(began: Instant) -> u64 {
    began.elapsed().as_millis().try_into().unwrap_or(u64::MAX)
}

fn told(name: &str, promise: &str, verdict: Verdict, ms: u64) -> Told {
    let (outcome, reason) = match verdict {
        Ok(()) => (Outcome::Passed, None),
        Err(Stop::Skipped(reason)) => (Outcome::Skipped, Some(reason)),
        Err(Stop::Failed(reason)) => (Outcome::Failed, Some(reason)),
    };
    Told { name: name.to_owned(), promise: promise.to_owned(), outcome, reason, ms }
}

/// A case that is known to fail must go on failing.
fn as_known(told: Told, known: Option<&str>) -> Told {
    match (known, told.outcome) {
        (Some(why), Outcome::Failed) => {
            let seen = told.reason.as_deref().unwrap_or_default();
            Told { outcome: Outcome::Known, reason: Some(format!("{why} ({seen})")), ..told }
        }
        (Some(why), Outcome::Passed) => {
            let reason = format!("it passes, and is known to fail ({why}): take it off the list");
            Told { outcome: Outcome::Failed, reason: Some(reason), ..told }
        }
        _ => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_failure_must_go_on_failing() {
        let fails = told("a", "p", Err(Stop::Failed("seen".into())), 1);
        assert_eq!(as_known(fails.clone(), Some("why")).outcome, Outcome::Known);
        assert_eq!(as_known(fails, None).outcome, Outcome::Failed);
        assert_eq!(as_known(told("a", "p", Ok(()), 1), Some("why")).outcome, Outcome::Failed);
        let skipped = told("a", "p", Err(Stop::Skipped("no".into())), 1);
        assert_eq!(as_known(skipped, Some("why")).outcome, Outcome::Skipped);
    }
}
