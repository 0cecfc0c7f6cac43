//! The sweep: records and guests are brought together again, and nothing that is another's is touched.

use std::{sync::Arc, time::Duration};

use bbbox::{
    boxes::BoxHandle,
    embed::ThreadState,
    error::ErrorKind,
    guest::Power,
    id::{BoxName, ThreadId},
    kind::Feature,
    record::BoxState,
    run::JobSpec,
};

use crate::{
    ability,
    case::{Case, Cost, Stop, Verdict, ensure, ensure_eq},
    faulty::{Fault, Faulty, Method, Plan},
    home::{Home, guest_of, out, refused, state_of},
    lab::{Lab, Quiet},
};

const LIMIT: Duration = Duration::from_secs(180);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a-lost-record-is-rebuilt-from-its-guest",
        promise: "sweep-rebuilds-records",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(rebuilt(lab)),
    },
    Case {
        name: "a-stopped-box-whose-record-is-lost-stays-stopped",
        promise: "sweep-rebuilds-records",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(rebuilt_stopped(lab)),
    },
    Case {
        name: "a-restored-box-that-does-not-answer-is-said-to-be-silent",
        promise: "sweep-rebuilds-records",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(rebuilt_silent(lab)),
    },
    Case {
        name: "a-box-gets-what-its-kind-is-offered-with-now",
        promise: "sweep-refreshes-what-boxes-can-do",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(refreshed(lab)),
    },
    Case {
        name: "a-guest-deleted-by-hand-is-gone-and-stays-gone",
        promise: "gone-stays-gone",
        needs: ability::sh,
        cost: Cost::Boxes(2),
        limit: LIMIT,
        body: |lab| Box::pin(gone_stays_gone(lab)),
    },
    Case {
        name: "a-box-that-stopped-by-itself-is-started-again-once",
        promise: "sweep-starts-again-once",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(started_again_once(lab)),
    },
    Case {
        name: "a-box-stopped-on-purpose-stays-stopped",
        promise: "sweep-starts-again-once",
        needs: ability::switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(stays_stopped(lab)),
    },
    Case {
        name: "another-installs-guests-are-left-alone",
        promise: "sweep-acts-on-its-own",
        needs: ability::sh,
        cost: Cost::Boxes(2),
        limit: LIMIT,
        body: |lab| Box::pin(others_left_alone(lab)),
    },
    Case {
        name: "two-installs-on-one-provider",
        promise: "sweep-acts-on-its-own",
        needs: ability::sh,
        cost: Cost::Boxes(2),
        limit: LIMIT,
        body: |lab| Box::pin(two_installs(lab)),
    },
    Case {
        name: "a-second-guest-of-a-box-is-released",
        promise: "sweep-leaves-one-guest-a-box",
        needs: ability::sh,
        cost: Cost::Boxes(2),
        limit: LIMIT,
        body: |lab| Box::pin(second_guest(lab)),
    },
    Case {
        name: "a-thread-must-be-found-ended-twice",
        promise: "sweep-never-ends-a-box-on-one-answer",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(ended_twice(lab)),
    },
    Case {
        name: "a-silent-program-ends-no-box",
        promise: "sweep-never-ends-a-box-on-one-answer",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(silent_program(lab)),
    },
];

async fn rebuilt(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let thread = ThreadId::parse("a-thread")?;
    let ask = home.request().name(BoxName::parse("the-name")?).thread(thread.clone());
    let handle = home.boxes().acquire(ask).await?;
    out(&handle, "echo work >work").await?;
    let record = handle.record()?;
    drop(handle);
    home.lose_everything().await?;
    ensure!(home.boxes().list()?.is_empty(), "there is a record although all was lost");
    home.sweep().await?;
    let again = home.boxes().get("the-name")?;
    let rebuilt = again.record()?;
    ensure_eq!(rebuilt.id, record.id, "the box's ID");
    ensure_eq!(rebuilt.thread, Some(thread), "the box's thread");
    ensure_eq!((rebuilt.kind, rebuilt.size), (record.kind, record.size), "the box's kind and size");
    ensure_eq!(rebuilt.state, BoxState::Ready, "the box's state");
    ensure_eq!(rebuilt.backend, record.backend, "the box's backend");
    ensure_eq!(rebuilt.features, record.features, "what the box was asked to have");
    ensure_eq!(rebuilt.capabilities, record.capabilities, "what the box can do");
    ensure_eq!(rebuilt.unanswered, None, "whether the box answers, which it was asked");
    ensure_eq!(out(&again, "cat work").await?, "work", "the file in the box");
    home.is_quiet().await?;
    again.release(false).await?;
    home.is_quiet().await
}

async fn rebuilt_silent(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let id = home.acquire().await?.id().clone();
    home.lose_everything().await?;
    let silent = Faulty::new(lab.fresh()?, Plan::calm().always(Method::Reach, Fault::Before));
    let silent = Arc::new(silent);
    home.restart_with(Some(Arc::clone(&silent) as _)).await?;
    home.sweep().await?;
    let again = home.boxes().get(id.as_str())?;
    let unanswered = again.record()?.unanswered;
    let words = unanswered.ok_or_else(|| Stop::Failed("it counts as one that answers".to_owned()))?.words;
    ensure!(words.contains("planned"), "its record does not say what was seen: {words}");
    silent.set_plan(Plan::calm());
    ensure_eq!(out(&again, "echo here").await?, "here", "a command once it answers");
    ensure_eq!(again.record()?.unanswered, None, "what is noted once it answers");
    again.release(false).await?;
    home.is_quiet().await
}

async fn refreshed(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    let id = handle.id().to_string();
    let told = lab.backend().as_offered(&guest_of(&handle)?).await?;
    drop(handle);
    let more = Faulty::new(lab.fresh()?, Plan::calm()).offering(Feature::parse("something-more")?);
    home.restart_with(Some(Arc::new(more))).await?;
    home.sweep().await?;
    let handle = home.boxes().get(&id)?;
    let can = handle.record()?.capabilities;
    let refreshed = can.is_some_and(|can| can.has("something-more"));
    ensure_eq!(refreshed, told == Some(true), "whether the box got the feature that is offered now");
    ensure_eq!(handle.record()?.features.len(), 0, "what the box was asked to have");
    home.is_quiet().await?;
    handle.release(false).await?;
    Ok(())
}

async fn rebuilt_stopped(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    out(&handle, "echo work >work").await?;
    handle.stop(false).await?;
    let id = handle.id().clone();
    drop(handle);
    home.lose_everything().await?;
    home.sweep().await?;
    let again = home.boxes().get(id.as_str())?;
    ensure_eq!(state_of(&again)?, BoxState::Stopped, "the rebuilt record's state");
    home.is_quiet().await?;
    again.start().await?;
    ensure_eq!(out(&again, "cat work").await?, "work", "the file in the box");
    again.release(false).await?;
    Ok(())
}

async fn gone_stays_gone(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    let guest = guest_of(&handle)?;
    lab.backend().release(&guest, &Quiet).await?;
    home.sweep().await?;
    ensure_eq!(state_of(&handle)?, BoxState::Gone, "the state after its guest was deleted");
    refused(handle.run(JobSpec::script("true")).await, ErrorKind::Gone, "a command in a box that is gone")?;
    if lab.abilities().switch {
        refused(handle.start().await, ErrorKind::Gone, "a start of a box that is gone")?;
    }
    // Where references are used again, the next box has it.
    let next = home.acquire().await?;
    home.is_quiet().await?;
    ensure_eq!(state_of(&handle)?, BoxState::Gone, "the state once its reference may be another's");
    ensure!(
        handle.log(100)?.iter().any(|logged| logged.event.kind == "gone"),
        "the log does not tell that it is gone"
    );
    handle.release(false).await?;
    ensure_eq!(out(&next, "echo here").await?, "here", "the other box after the release");
    next.release(false).await?;
    home.is_quiet().await
}

async fn started_again_once(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    out(&handle, "echo work >work").await?;
    end(&lab, &handle).await?;
    let known = lab.switch()?.stopped(&guest_of(&handle)?).await?;
    home.sweep().await?;
    let (right, why) = match known {
        Some(cause) if !cause.by_guest => (BoxState::Ready, "it did not choose to stop"),
        _ => (BoxState::Stopped, "nobody knows that it did not choose to stop"),
    };
    ensure_eq!(state_of(&handle)?, right, "the state after a sweep, as {why}");
    if right == BoxState::Ready {
        ensure_eq!(out(&handle, "cat work").await?, "work", "the file in the box that was started again");
        end(&lab, &handle).await?;
        home.sweep().await?;
        ensure_eq!(state_of(&handle)?, BoxState::Stopped, "the state when it stops again at once");
        home.is_quiet().await?;
        handle.start().await?;
        home.pass(Duration::from_secs(11 * 60));
        end(&lab, &handle).await?;
        home.sweep().await?;
        ensure_eq!(state_of(&handle)?, BoxState::Ready, "the state when it stops again eleven minutes later");
    }
    handle.release(true).await?;
    Ok(())
}

/// Ends the box's guest as a fault of its host would.
async fn end(lab: &Lab, handle: &BoxHandle) -> Verdict {
    let guest = guest_of(handle)?;
    if let Err(stop) = lab.crash(&guest).await {
        handle.release(true).await?;
        return Err(stop);
    }
    let stopped = || async {
        let power = lab.backend().power(&guest).await;
        (!matches!(power, Ok(Some(Power::Stopped)))).then(|| format!("its power is {power:?}"))
    };
    lab.until("it is stopped", stopped).await
}

async fn stays_stopped(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    handle.stop(false).await?;
    for _ in 0..2 {
        home.is_quiet().await?;
        ensure_eq!(state_of(&handle)?, BoxState::Stopped, "the state after a sweep");
        ensure_eq!(lab.backend().power(&guest_of(&handle)?).await?, Some(Power::Stopped), "its power");
    }
    handle.release(false).await?;
    Ok(())
}

async fn others_left_alone(lab: Lab) -> Verdict {
    let theirs = lab.make_from(&lab.order_of(lab.other())?).await?;
    let home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    for _ in 0..3 {
        home.is_quiet().await?;
    }
    ensure_eq!(home.boxes().list()?.len(), 1, "how many boxes this install has");
    handle.release(false).await?;
    home.is_quiet().await?;
    ensure_eq!(lab.backend().power(&theirs).await?, Some(Power::Running), "the other install's guest");
    lab.backend().release(&theirs, &Quiet).await?;
    Ok(())
}

async fn two_installs(lab: Lab) -> Verdict {
    let (one, two) = (Home::new(&lab)?, Home::other(&lab)?);
    // The same name in both: names are an install's own.
    let ask = |home: &Home| Ok::<_, Stop>(home.request().name(BoxName::parse("the-name")?));
    let (first, second) = tokio::join!(one.boxes().acquire(ask(&one)?), two.boxes().acquire(ask(&two)?));
    let (first, second) = (first?, second?);
    one.is_quiet().await?;
    two.is_quiet().await?;
    first.release(false).await?;
    one.is_quiet().await?;
    ensure_eq!(out(&second, "echo here").await?, "here", "the other install's box");
    second.release(false).await?;
    two.is_quiet().await
}

async fn second_guest(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    out(&handle, "echo work >work").await?;
    let mine = guest_of(&handle)?;
    // Somebody made another guest in this box's name.
    let second = match lab.twin(&mine).await {
        Ok(second) => second,
        Err(stop) => {
            handle.release(true).await?;
            return Err(stop);
        }
    };
    ensure_eq!(lab.held_of(handle.id()).await?.len(), 2, "how many guests the box has before a sweep");
    home.sweep().await?;
    ensure_eq!(lab.backend().power(&second).await?, None, "the second guest after a sweep");
    ensure_eq!(lab.backend().power(&mine).await?, Some(Power::Running), "the box's own guest after it");
    home.is_quiet().await?;
    ensure_eq!(guest_of(&handle)?.reference, mine.reference, "which guest the box has");
    ensure_eq!(out(&handle, "cat work").await?, "work", "the file in the box's own guest");
    handle.release(false).await?;
    home.is_quiet().await
}

async fn ended_twice(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let thread = ThreadId::parse("a-thread")?;
    let handle = home.boxes().acquire(home.request().thread(thread.clone())).await?;
    home.threads().say(&thread, ThreadState::Ended);
    home.sweep().await?;
    ensure_eq!(state_of(&handle)?, BoxState::Ready, "the state after one answer");
    // The answer was wrong, so the count begins anew.
    home.threads().say(&thread, ThreadState::Live);
    home.sweep().await?;
    home.threads().say(&thread, ThreadState::Ended);
    home.sweep().await?;
    home.sweep().await?;
    ensure_eq!(state_of(&handle)?, BoxState::Ready, "the state after answers that came all at once");
    home.pass(bbbox::sweep::EVERY);
    home.sweep().await?;
    refused(handle.record(), ErrorKind::Gone, "the record after two answers")?;
    home.is_quiet().await
}

async fn silent_program(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let thread = ThreadId::parse("a-thread")?;
    let handle = home.boxes().acquire(home.request().thread(thread.clone())).await?;
    let id = handle.id().clone();
    home.threads().be_silent(true);
    for _ in 0..3 {
        home.boxes().sweep().await?;
    }
    ensure_eq!(state_of(&handle)?, BoxState::Ready, "the state when nobody says how its thread stands");
    drop(handle);
    // Without a record it is kept too.
    home.lose_everything().await?;
    for _ in 0..3 {
        home.boxes().sweep().await?;
    }
    ensure_eq!(lab.held_of(&id).await?.len(), 1, "how many guests the box has");
    home.threads().be_silent(false);
    home.sweep().await?;
    home.boxes().get(id.as_str())?.release(true).await?;
    home.is_quiet().await
}
