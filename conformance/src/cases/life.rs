//! The core over the backend: a box from acquire to release, as a program sees it.

use std::time::Duration;

use bbbox::{
    boxes::{Acquire, Boxes},
    embed::ThreadState,
    error::ErrorKind,
    id::{BoxName, RequestId, ThreadId},
    record::BoxState,
    run::{JobSpec, RunResult},
    size::{Size, SizeChoice},
};
use futures::future::join_all;

use crate::{
    ability,
    case::{Case, Cost, Verdict, ensure, ensure_eq, failed},
    home::{Home, guest_of, out, refused, resize, state_of},
    lab::{Lab, random},
};

const LIMIT: Duration = Duration::from_secs(180);

pub(super) const CASES: &[Case] = &[
    Case {
        name: "a-box-from-acquire-to-release",
        promise: "a-box-lives-as-it-is-asked",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(acquire_to_release(lab)),
    },
    Case {
        name: "a-box-is-the-same-after-a-restart",
        promise: "a-box-lives-as-it-is-asked",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(same_after_a_restart(lab)),
    },
    Case {
        name: "a-job-outlives-its-caller",
        promise: "a-job-outlives-its-caller",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(job_outlives(lab)),
    },
    Case {
        name: "a-request-said-again-is-the-same-box",
        promise: "a-request-is-one-box",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(request_is_one_box(lab)),
    },
    Case {
        name: "a-release-ends-an-acquire-under-way",
        promise: "nothing-is-left-behind",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(release_while_acquiring(lab)),
    },
    Case {
        name: "an-acquire-taken-back-leaves-nothing",
        promise: "nothing-is-left-behind",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(taken_back(lab)),
    },
    Case {
        name: "what-is-refused-leaves-nothing",
        promise: "nothing-is-left-behind",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(what_is_refused(lab)),
    },
    Case {
        name: "a-name-is-one-boxs",
        promise: "a-name-is-one-boxs",
        needs: ability::sh,
        cost: Cost::Boxes(2),
        limit: LIMIT,
        body: |lab| Box::pin(name_is_one_boxs(lab)),
    },
    Case {
        name: "operations-on-one-box-take-turns",
        promise: "a-box-lives-as-it-is-asked",
        needs: ability::sh_switch,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(take_turns(lab)),
    },
    Case {
        name: "an-agent-sees-its-own-threads-boxes",
        promise: "an-agent-sees-its-own",
        needs: ability::sh,
        cost: Cost::Boxes(2),
        limit: LIMIT,
        body: |lab| Box::pin(agent_sees_its_own(lab)),
    },
    Case {
        name: "a-box-at-work-is-not-taken-from-its-thread",
        promise: "an-agent-sees-its-own",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(not_taken_at_work(lab)),
    },
    Case {
        name: "forgetting-deletes-nothing",
        promise: "forgetting-deletes-nothing",
        needs: ability::sh,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(forgetting(lab)),
    },
    Case {
        name: "a-folder-has-one-owner",
        promise: "a-folder-has-one-owner",
        needs: ability::nothing,
        cost: Cost::Boxes(1),
        limit: LIMIT,
        body: |lab| Box::pin(one_owner(lab)),
    },
];

async fn acquire_to_release(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    ensure_eq!(state_of(&handle)?, BoxState::Ready, "the state after an acquire");
    ensure_eq!(out(&handle, "echo kept >kept; cat kept").await?, "kept", "a first command");
    if lab.abilities().switch {
        handle.stop(false).await?;
        ensure_eq!(state_of(&handle)?, BoxState::Stopped, "the state after a stop");
        refused(handle.run(JobSpec::script("true")).await, ErrorKind::Refused, "a command in a stopped box")?;
        handle.start().await?;
        ensure_eq!(out(&handle, "cat kept").await?, "kept", "the file after stop and start");
    }
    if lab.abilities().resize {
        let size = Size { memory_mib: lab.abilities().size.memory_mib + 1024, ..lab.abilities().size };
        resize(&lab, &handle, size).await?;
        ensure_eq!(handle.record()?.size, size, "the size in the record");
        ensure_eq!(guest_of(&handle)?.size, size, "the size of the guest");
        ensure_eq!(out(&handle, "cat kept").await?, "kept", "the file after a resize");
    }
    handle.rename(BoxName::parse("another-name")?).await?;
    ensure_eq!(home.boxes().get("another-name")?.id(), handle.id(), "the box by its new name");
    if lab.abilities().relabel {
        let held = lab.held_of(handle.id()).await?;
        ensure_eq!(
            held.first().map(|h| h.owner.name.as_str()),
            Some("another-name"),
            "the name at the provider"
        );
    }
    home.is_quiet().await?;
    handle.release(false).await?;
    refused(handle.record(), ErrorKind::Gone, "a record after a release")?;
    let events: Vec<_> = handle.log(1000)?.into_iter().map(|logged| logged.event.kind).collect();
    ensure_eq!(events.first().map(String::as_str), Some("acquire-asked"), "the first event of {events:?}");
    ensure_eq!(events.last().map(String::as_str), Some("released"), "the last event of {events:?}");
    ensure!(
        events.iter().any(|event| event == "release-asked"),
        "the log does not say that it was asked: {events:?}"
    );
    home.is_quiet().await
}

async fn same_after_a_restart(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    out(&handle, "echo kept >kept").await?;
    let record = handle.record()?;
    drop(handle);
    home.restart().await?;
    let again = home.boxes().get(record.name.as_str())?;
    ensure_eq!(again.record()?, record, "the record after a restart");
    ensure_eq!(out(&again, "cat kept").await?, "kept", "the file after a restart");
    home.is_quiet().await?;
    again.release(false).await?;
    Ok(())
}

async fn job_outlives(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    let id = handle.id().clone();
    let script = "echo begun; until [ -e go ]; do sleep 0.1; done; echo went on; exit 9";
    let session = handle.session()?;
    let job = session.start(&JobSpec::script(script)).await?;
    let brief = session.wait(&job, Duration::from_millis(200)).await?;
    ensure_eq!(brief, RunResult::Running(job.clone()), "a job that waits");
    drop((session, handle));
    home.restart().await?;
    let again = home.boxes().get(id.as_str())?;
    out(&again, "touch go").await?;
    let Some(ended) = again.session()?.wait(&job, Duration::from_secs(60)).await?.ended() else {
        return failed("the job does not end");
    };
    ensure_eq!(ended.exit.shell_status(), 9, "how the job ended");
    let text = ended.stdout.whole().map(|text| String::from_utf8_lossy(&text).into_owned());
    ensure_eq!(text.as_deref(), Some("begun\nwent on\n"), "what the job wrote");
    again.release(false).await?;
    Ok(())
}

async fn request_is_one_box(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let request = RequestId::parse(format!("r{}", random()))?;
    let ask = |home: &Home| home.request().request(request.clone());
    let answers = join_all((0..4).map(|_| home.boxes().acquire(ask(&home)))).await;
    let mut ids = Vec::new();
    for answer in answers {
        ids.push(answer?.id().clone());
    }
    ids.dedup();
    ensure_eq!(ids.len(), 1, "how many boxes one request made");
    home.restart().await?;
    let again = home.boxes().acquire(ask(&home)).await?;
    ensure_eq!(*again.id(), ids[0], "the box of the request after a restart");
    let other = ask(&home).name(BoxName::parse("something-else")?);
    let answer = home.boxes().acquire(other).await;
    ensure!(answer.is_err(), "the request's ID was taken for something else");
    ensure_eq!(home.boxes().list()?.len(), 1, "how many boxes there are");
    again.release(false).await?;
    home.is_quiet().await
}

async fn release_while_acquiring(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    for after in [0, 10, 50, 200] {
        let (operation, handle) = home.boxes().begin_acquire(home.request())?;
        tokio::time::sleep(Duration::from_millis(after)).await;
        handle.release(true).await?;
        if let Err(error) = home.boxes().wait(&operation).await {
            ensure_eq!(error.kind(), ErrorKind::Cancelled, "how the acquire ended ({:?})", error.chain());
        }
        ensure!(home.boxes().list()?.is_empty(), "a record is left, released after {after} ms");
    }
    home.is_quiet().await
}

async fn taken_back(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    for after in [0, 10, 50, 200] {
        let (operation, handle) = home.boxes().begin_acquire(home.request())?;
        tokio::time::sleep(Duration::from_millis(after)).await;
        home.boxes().cancel(&operation)?;
        match home.boxes().wait(&operation).await {
            // It was done first.
            Ok(()) => handle.release(false).await?,
            Err(error) => {
                ensure_eq!(error.kind(), ErrorKind::Cancelled, "how it ended ({:?})", error.chain())
            }
        }
        ensure!(home.boxes().list()?.is_empty(), "a record is left, taken back after {after} ms");
    }
    home.is_quiet().await
}

async fn what_is_refused(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let small = Size { memory_mib: 1024, ..lab.abilities().size };
    let huge = Size { cores: 10_000, ..lab.abilities().size };
    let asks: [(&str, Acquire, ErrorKind); 5] = [
        ("an unknown kind", Acquire::kind("beos"), ErrorKind::Invalid),
        ("a size above the largest", home.request().size(SizeChoice::Custom(huge)), ErrorKind::Invalid),
        ("an unknown preset", home.request().size(SizeChoice::Preset("enormous".into())), ErrorKind::Invalid),
        (
            "too little memory for Linux",
            Acquire::kind("linux").size(SizeChoice::Custom(small)),
            ErrorKind::Invalid,
        ),
        ("an unknown provider", home.request().on("nowhere"), ErrorKind::Invalid),
    ];
    for (what, ask, kind) in asks {
        let error = refused(home.boxes().acquire(ask).await, kind, what)?;
        ensure!(error.how_to_fix().is_some(), "{what}: it does not say what to do: {}", error.chain());
    }
    ensure!(home.boxes().list()?.is_empty(), "a record is left of something refused");
    for word in ["no-such-box", "bxaaaaaaaaaaaa", "../etc", "-x", ""] {
        refused(home.boxes().get(word), ErrorKind::Gone, "a look-up of what is no box")?;
    }
    home.is_quiet().await
}

async fn name_is_one_boxs(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let name = BoxName::parse("the-name")?;
    let first = home.boxes().acquire(home.request().name(name.clone())).await?;
    refused(home.boxes().acquire(home.request().name(name.clone())).await, ErrorKind::Busy, "a name twice")?;
    let second = home.acquire().await?;
    refused(second.rename(name.clone()).await, ErrorKind::Busy, "a rename to a name that is taken")?;
    first.rename(BoxName::parse("another-name")?).await?;
    second.rename(name.clone()).await?;
    ensure_eq!(home.boxes().get("the-name")?.id(), second.id(), "the box of the name after both renames");
    ensure_eq!(home.boxes().get("another-name")?.id(), first.id(), "the box of the other name");
    second.release(false).await?;
    first.rename(name).await?;
    first.release(false).await?;
    home.is_quiet().await
}

async fn take_turns(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    // Asked for at once, each is done in its turn or refused; none is lost and none mixes with another.
    let (stop, start, stop_again) = tokio::join!(handle.stop(true), handle.start(), handle.stop(true));
    for (what, answer) in [("stop", stop), ("start", start), ("second stop", stop_again)] {
        if let Err(error) = answer {
            ensure_eq!(error.kind(), ErrorKind::Busy, "how the {what} ended ({:?})", error.chain());
        }
    }
    home.is_quiet().await?;
    handle.release(true).await?;
    home.is_quiet().await
}

async fn agent_sees_its_own(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let (one, two) = (ThreadId::parse("thread-one")?, ThreadId::parse("thread-two")?);
    let agents: [Boxes; 2] = [home.boxes().for_thread(one.clone()), home.boxes().for_thread(two.clone())];
    let mine = agents[0].acquire(home.request()).await?;
    let theirs = agents[1].acquire(home.request()).await?;
    ensure_eq!(mine.record()?.thread, Some(one), "the thread of an agent's box");
    ensure_eq!(agents[0].list()?.len(), 1, "how many boxes an agent sees");
    ensure_eq!(home.boxes().list()?.len(), 2, "how many boxes a person sees");
    refused(agents[0].get(theirs.id().as_str()), ErrorKind::Gone, "a look at another thread's box")?;
    let other = home.request().thread(two);
    refused(agents[0].acquire(other).await, ErrorKind::Refused, "an acquire for another thread")?;
    refused(mine.hand_to(None).await, ErrorKind::Refused, "an agent's handing on of its box")?;
    mine.release(false).await?;
    theirs.release(false).await?;
    home.is_quiet().await
}

async fn not_taken_at_work(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let thread = ThreadId::parse("thread-at-work")?;
    let handle = home.boxes().acquire(home.request().thread(thread.clone())).await?;
    home.threads().say(&thread, ThreadState::Working);
    refused(handle.release(false).await, ErrorKind::Refused, "a release under a thread's hands")?;
    if lab.abilities().switch {
        refused(handle.stop(false).await, ErrorKind::Refused, "a stop under a thread's hands")?;
    }
    home.threads().be_silent(true);
    refused(handle.release(false).await, ErrorKind::Unavailable, "a release when nobody knows")?;
    ensure_eq!(out(&handle, "echo here").await?, "here", "the box after all that");
    handle.release(true).await?;
    home.is_quiet().await
}

async fn forgetting(lab: Lab) -> Verdict {
    let mut home = Home::new(&lab)?;
    let handle = home.acquire().await?;
    let guest = guest_of(&handle)?;
    refused(handle.forget().await, ErrorKind::Refused, "a forget while the backend is configured")?;
    drop(handle);
    home.restart_with(None).await?;
    let record = home.boxes().list()?.pop();
    let Some(record) = record else { return failed("the record went with the backend") };
    let orphan = home.boxes().get(record.id.as_str())?;
    refused(orphan.release(true).await, ErrorKind::Refused, "a release without the backend")?;
    orphan.forget().await?;
    ensure!(home.boxes().list()?.is_empty(), "the record is still there");
    ensure!(lab.backend().power(&guest).await?.is_some(), "the guest was deleted");
    drop(orphan);
    // The backend comes back, and with it the box.
    home.restart().await?;
    home.sweep().await?;
    let back = home.boxes().get(record.id.as_str())?;
    ensure_eq!(out(&back, "echo here").await?, "here", "the box after its backend came back");
    back.release(true).await?;
    home.is_quiet().await
}

async fn one_owner(lab: Lab) -> Verdict {
    let home = Home::new(&lab)?;
    let second = Boxes::builder().data(home.folder()).backend(lab.fresh()?).open();
    let error = refused(second, ErrorKind::Busy, "a second owner of one folder")?;
    ensure!(
        error.chain().contains(&std::process::id().to_string()),
        "it does not name the owner: {}",
        error.chain()
    );
    let reader = Boxes::builder().data(home.folder()).backend(lab.fresh()?).read_only().open()?;
    ensure!(reader.list()?.is_empty(), "the reader sees boxes that are not there");
    refused(reader.acquire(home.request()).await, ErrorKind::Refused, "a change by a reader")?;
    Ok(())
}
