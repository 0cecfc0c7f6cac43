//! The core over a provider that fails: answers that are lost, deeds that break at their end, silence.

use std::{path::Path, sync::Arc, time::Duration};

use bbbox::{
    error::ErrorKind,
    guest::Power,
    id::{BoxName, JobId},
    record::BoxState,
    run::{JobSpec, Stream},
    size::Size,
};
use tokio::io::sink;

use crate::{
    ability,
    case::{Case, Cost, Verdict, ensure, ensure_eq, failed},
    faulty::{Fault, Faulty, Method, Plan},
    home::{Home, guest_of, out, refused, resize, state_of},
    lab::{Lab, random},
};

const LIMIT: Duration = Duration::from_secs(180);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "an-acquire-whose-answer-is-lost-makes-one-guest",
        promise: "a-lost-answer-is-looked-after",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(acquire_lost(lab)),
    },
    Case {
        name: "a-release-whose-answer-is-lost-is-done-once",
        promise: "a-lost-answer-is-looked-after",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(release_lost(lab)),
    },
    Case {
        name: "a-stop-and-a-start-whose-answers-are-lost-are-done",
        promise: "a-lost-answer-is-looked-after",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(switch_lost(lab)),
    },
    Case {
        name: "a-guest-between-two-states-settles-nothing",
        promise: "a-lost-answer-is-looked-after",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(between_settles_nothing(lab)),
    },
    Case {
        name: "a-resize-and-a-rename-whose-answers-are-lost-are-done",
        promise: "a-lost-answer-is-looked-after",
        needs: |a| ability::sh_resize(a).or_else(|| ability::relabel(a)),
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(changes_lost(lab)),
    },
    Case {
        name: "an-acquire-that-breaks-at-its-end-is-taken-back",
        promise: "nothing-is-left-behind",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(acquire_breaks(lab)),
    },
    Case {
        name: "an-acquire-past-its-time-is-taken-back",
        promise: "nothing-is-left-behind",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(acquire_too_slow(lab)),
    },
    Case {
        name: "a-provider-that-is-down-is-said-to-be",
        promise: "a-silent-provider-loses-nothing",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(provider_down(lab)),
    },
    Case {
        name: "a-box-that-does-not-answer-is-noted-by-each-call",
        promise: "a-silent-box-is-noted",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(silent_box(lab)),
    },
    Case {
        name: "a-release-that-fails-is-tried-again-by-the-sweep",
        promise: "a-release-is-done-when-confirmed",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(release_fails(lab)),
    },
    Case {
        name: "a-life-full-of-faults-leaves-nothing",
        promise: "a-lost-answer-is-looked-after",
        needs: ability::sh,
        cost: Cost::Boxes(2),
        limit: Duration::from_secs(240),
        body: |lab| Box::pin(life_full_of_faults(lab)),
    },
];

/// An install over a faulty handle on the provider.
fn faulty(lab: &Lab, plan: Plan) -> Verdict<(Arc<Faulty>, Home)> {
    let faulty = Arc::new(Faulty::new(lab.fresh()?, plan));
    let home = Home::over(lab, Arc::clone(&faulty) as _)?;
    Ok((faulty, home))
}

async fn acquire_lost(lab: Lab) -> Verdict {
    let plan = Plan::calm().at(Method::Acquire, 0, Fault::Lost).at(Method::Acquire, 1, Fault::Before);
    let (faulty, home) = faulty(&lab, plan)?;
    let handle = home.acquire().await?;
    ensure!(faulty.answers(Method::Acquire).len() >= 2, "it was not asked again after the answer was lost");
    ensure_eq!(lab.held().await?.len(), 1, "how many guests there are");
    ensure_eq!(out(&handle, "echo here").await?, "here", "a command in the box");
    home.is_quiet().await?;
    handle.release(false).await?;
    home.is_quiet().await
}

async fn release_lost(lab: Lab) -> Verdict {
    let (faulty, home) = faulty(&lab, Plan::calm().at(Method::Release, 0, Fault::Lost))?;
    let handle = home.acquire().await?;
    handle.release(false).await?;
    let removed = faulty.answers(Method::Release).iter().filter(|answer| *answer == "Removed").count();
    ensure_eq!(removed, 1, "how often a guest was removed");
    refused(handle.record(), ErrorKind::Gone, "the record after the release")?;
    home.is_quiet().await
}

async fn switch_lost(lab: Lab) -> Verdict {
    let plan = Plan::calm().at(Method::Stop, 0, Fault::Lost).at(Method::Start, 0, Fault::Lost);
    let (_faulty, home) = faulty(&lab, plan)?;
    let handle = home.acquire().await?;
    handle.stop(false).await?;
    ensure_eq!(state_of(&handle)?, BoxState::Stopped, "the state after the stop");
    ensure_eq!(
        lab.backend().power(&guest_of(&handle)?).await?,
        Some(Power::Stopped),
        "the power after the stop"
    );
    home.is_quiet().await?;
    handle.start().await?;
    ensure_eq!(state_of(&handle)?, BoxState::Ready, "the state after the start");
    ensure_eq!(out(&handle, "echo here").await?, "here", "a command after the start");
    home.is_quiet().await?;
    handle.release(false).await?;
    Ok(())
}

async fn between_settles_nothing(lab: Lab) -> Verdict {
    let (faulty, home) = faulty(&lab, Plan::calm().at(Method::Stop, 0, Fault::Broken))?;
    let handle = home.acquire().await?;
    faulty.set_between(true);
    refused(handle.stop(false).await, ErrorKind::Failed, "a stop whose end is not known")?;
    refused(handle.check().await, ErrorKind::Failed, "a check of a guest between two states")?;
    faulty.set_between(false);
    handle.check().await?;
    ensure_eq!(state_of(&handle)?, BoxState::Stopped, "the state after the check");
    handle.release(false).await?;
    Ok(())
}

async fn changes_lost(lab: Lab) -> Verdict {
    let plan = Plan::calm().at(Method::Resize, 0, Fault::Lost).at(Method::Relabel, 0, Fault::Lost);
    let (_faulty, home) = faulty(&lab, plan)?;
    let handle = home.acquire().await?;
    let size = Size { memory_mib: lab.abilities().size.memory_mib + 1024, ..lab.abilities().size };
    resize(&lab, &handle, size).await?;
    handle.rename(BoxName::parse("another-name")?).await?;
    let record = handle.record()?;
    ensure_eq!((record.size, record.name.as_str()), (size, "another-name"), "the record's size and name");
    let held = lab.held_of(handle.id()).await?;
    ensure_eq!(held.len(), 1, "how many guests the box has");
    ensure_eq!(held[0].guest.size, size, "the size at the provider");
    ensure_eq!(held[0].owner.name.as_str(), "another-name", "the name at the provider");
    home.is_quiet().await?;
    handle.release(false).await?;
    Ok(())
}

async fn acquire_breaks(lab: Lab) -> Verdict {
    let (faulty, home) = faulty(&lab, Plan::calm().always(Method::Acquire, Fault::Broken))?;
    refused(home.boxes().acquire(home.request()).await, ErrorKind::Failed, "an acquire that breaks")?;
    ensure!(!faulty.answers(Method::Release).is_empty(), "what was made was not released");
    ensure!(home.boxes().list()?.is_empty(), "a record is left");
    home.is_quiet().await
}

async fn acquire_too_slow(lab: Lab) -> Verdict {
    let late = Plan::calm().always(Method::Acquire, Fault::Late(Duration::from_secs(60)));
    let slow = Faulty::new(lab.fresh()?, late).ready_within(Duration::from_millis(300));
    let home = Home::over(&lab, Arc::new(slow))?;
    let began = std::time::Instant::now();
    let error =
        refused(home.boxes().acquire(home.request()).await, ErrorKind::Failed, "an acquire past its time")?;
    ensure!(began.elapsed() < Duration::from_secs(30), "it was given up only after {:?}", began.elapsed());
    ensure!(error.chain().contains("within its time"), "it does not say why: {}", error.chain());
    ensure!(home.boxes().list()?.is_empty(), "a record is left");
    home.is_quiet().await
}

async fn provider_down(lab: Lab) -> Verdict {
    let (faulty, home) = faulty(&lab, Plan::calm())?;
    let handle = home.acquire().await?;
    let down = [Method::Offers, Method::Capacity, Method::Power, Method::Held, Method::Reach]
        .into_iter()
        .chain(Method::CHANGES)
        .fold(Plan::calm(), |plan, method| plan.always(method, Fault::Before));
    faulty.set_plan(down);
    refused(
        home.boxes().acquire(home.request()).await,
        ErrorKind::Unavailable,
        "an acquire when it is down",
    )?;
    for _ in 0..2 {
        let report = home.boxes().sweep().await?;
        ensure!(!report.troubles.is_empty(), "a sweep does not say that it saw nothing");
        ensure!(report.done.is_empty(), "a sweep acted on what it could not see: {:?}", report.done);
    }
    ensure_eq!(state_of(&handle)?, BoxState::Ready, "the box's state while nobody can look");
    let status = handle.status().await?;
    ensure!(status.power_trouble.is_some(), "its status does not say that the provider is silent");
    faulty.set_plan(Plan::calm());
    home.is_quiet().await?;
    ensure_eq!(out(&handle, "echo here").await?, "here", "the box once the provider answers again");
    handle.release(false).await?;
    home.is_quiet().await
}

async fn silent_box(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    let (spec, id) = (JobSpec::script("sleep 60").id(JobId::draw(random)), handle.id().to_string());
    let job = handle.session()?.start(&spec).await?;
    drop(handle);
    for nth in 0..6 {
        let faulty = Faulty::new(lab.fresh()?, Plan::calm().always(Method::Reach, Fault::Before));
        let faulty = Arc::new(faulty);
        // Another process has no runner yet, so each call has to reach the box.
        home.restart_with(Some(Arc::clone(&faulty) as _)).await?;
        let handle = home.boxes().get(&id)?;
        let session = handle.session()?;
        let (what, answer) = match nth {
            0 => ("a run", session.run(&JobSpec::script("true"), LIMIT).await.map(drop)),
            1 => ("a look at a job", session.job(&job).await.map(drop)),
            2 => ("a wait", session.wait(&job, Duration::ZERO).await.map(drop)),
            3 => ("following", session.follow(&job, Stream::Stdout, 0, &mut sink()).await.map(drop)),
            4 => ("a copy", session.copy_out("bb-file", Path::new("/nowhere"), &|_, _| ()).await.map(drop)),
            _ => ("a run that is streamed", {
                let spec = JobSpec::script("true");
                session.stream(&spec, None, &mut sink(), &mut sink()).await.map(drop)
            }),
        };
        refused(answer, ErrorKind::Unavailable, what)?;
        let noted = handle.record()?.unanswered;
        ensure!(noted.is_some_and(|noted| noted.tries == 0), "{what} did not note that the box is silent");
        faulty.set_plan(Plan::calm());
        session.jobs().await?;
        ensure_eq!(handle.record()?.unanswered, None, "what is noted once the box answers, after {what}");
    }
    let handle = home.boxes().get(&id)?;
    let kinds: Vec<_> = handle.log(100)?.into_iter().map(|logged| logged.event.kind).collect();
    for kind in ["does-not-answer", "answers-again"] {
        ensure_eq!(
            kinds.iter().filter(|k| *k == kind).count(),
            6,
            "how often the log says {kind}: {kinds:?}"
        );
    }
    handle.release(true).await?;
    home.is_quiet().await
}

async fn release_fails(lab: Lab) -> Verdict {
    let (faulty, home) = faulty(&lab, Plan::calm())?;
    let handle = home.acquire().await?;
    faulty.set_plan(Plan::calm().always(Method::Release, Fault::Before));
    if handle.release(false).await.is_ok() {
        return failed("a release was done that the provider never confirmed");
    }
    ensure_eq!(state_of(&handle)?, BoxState::Releasing, "the state after a release that failed");
    ensure!(handle.record()?.trouble.is_some(), "the record does not say what went wrong");
    ensure_eq!(lab.held_of(handle.id()).await?.len(), 1, "how many guests the box has");
    faulty.set_plan(Plan::calm());
    home.sweep().await?;
    refused(handle.record(), ErrorKind::Gone, "the record after the sweep")?;
    let events: Vec<_> = handle.log(100)?.into_iter().map(|logged| logged.event.kind).collect();
    ensure_eq!(events.last().map(String::as_str), Some("released"), "the last event of {events:?}");
    home.is_quiet().await
}

/// Boxes live and end while chance breaks a fifth of all changes; once it is calm, all is as it is recorded.
async fn life_full_of_faults(lab: Lab) -> Verdict {
    for seed in 1..=4 {
        let (faulty, home) = faulty(&lab, Plan::seeded(seed, 200))?;
        let lives = (0..2).map(|n| {
            let home = &home;
            async move {
                let Ok(handle) = home.boxes().acquire(home.request()).await else { return };
                // Each may fail: what holds afterwards is what counts.
                drop(handle.stop(true).await);
                drop(handle.start().await);
                if let Ok(name) = BoxName::parse(format!("renamed-{n}")) {
                    drop(handle.rename(name).await);
                }
                if n == 0 {
                    drop(handle.release(true).await);
                }
            }
        });
        futures::future::join_all(lives).await;
        faulty.set_plan(Plan::calm());
        for _ in 0..3 {
            home.boxes().sweep().await?;
        }
        home.is_quiet().await?;
        for record in home.boxes().list()? {
            home.boxes().get(record.id.as_str())?.release(true).await?;
        }
        home.is_quiet().await?;
        ensure!(lab.held().await?.is_empty(), "a guest is left by seed {seed}: {:?}", faulty.calls());
    }
    Ok(())
}
