//! What the public face must hold when operations meet in ways that callers do not choose.
//!
//! On one thread nothing that was begun gets its turn before the test waits for something.

use std::{path::Path, sync::Arc};

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::{
    life::{Asked, If},
    local::{Local, LocalConfig},
    run::JobSpec,
};

fn open(data: &Path, guests: &Path) -> Boxes {
    let local = Local::open(crate::id::BackendId::parse("local").unwrap(), LocalConfig::new(guests)).unwrap();
    Boxes::builder().data(data).backend(Arc::new(local)).open().unwrap()
}

/// A release that waits for its turn, of a box whose thread lives again by then.
async fn begins_and_holds_no_more(boxes: &Boxes, handle: &BoxHandle) -> OperationId {
    let thread = ThreadId::parse("t1").unwrap();
    let (world, journal) = (&boxes.shared.world, &boxes.shared.journal);
    let found = |ended| {
        let now = world.env.now();
        let mark = |record: &mut BoxRecord| {
            record.thread = Some(thread.clone());
            record.thread_ended = if ended { Some(now) } else { None };
        };
        world.store.write(|tx| records::change(tx, handle.id(), mark)).unwrap();
    };
    found(true);
    handle.begin_stop(true).await.unwrap();
    let asked = Asked::by_itself("its thread ended");
    let only = If::ThreadEnded(thread.clone());
    let operation = life::begin_release(journal, world, handle.id(), &asked, only).unwrap();
    found(false);
    operation
}

#[tokio::test]
async fn a_release_whose_reason_is_over_keeps_the_box_and_says_so() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let handle = boxes.acquire(Acquire::kind("linux")).await.unwrap();
    let operation = begins_and_holds_no_more(&boxes, &handle).await;
    assert_eq!(boxes.shared.journal.wait(&operation).await.unwrap(), Value::Bool(false));
    assert_eq!(handle.record().unwrap().state, crate::record::BoxState::Stopped);
    let history = boxes.shared.journal.history(handle.id()).unwrap();
    assert!(!history.iter().any(life::gives_up), "it counts as given up: {history:?}");
    handle.release(false).await.unwrap();
    let history = boxes.shared.journal.history(handle.id()).unwrap();
    assert!(history.iter().any(life::gives_up), "it counts as wanted: {history:?}");
}

#[tokio::test]
async fn who_releases_a_box_is_not_answered_by_a_release_that_may_keep_it() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let handle = boxes.acquire(Acquire::kind("linux")).await.unwrap();
    begins_and_holds_no_more(&boxes, &handle).await;
    handle.release(true).await.unwrap();
    assert_eq!(handle.record().unwrap_err().kind(), crate::ErrorKind::Gone);
    let registry = boxes.shared.world.registry();
    for entry in registry.entries() {
        assert!(entry.backend.held(&boxes.install_id()).await.unwrap().is_empty());
    }
}

/// Also through the runner that the next thread's commands started.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_thread_has_open_in_a_box_ends_when_the_box_is_handed_on() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let [one, two] = ["t1", "t2"].map(|name| ThreadId::parse(name).unwrap());
    let first = boxes.for_thread(one.clone()).acquire(Acquire::kind("linux")).await.unwrap();
    let handle = boxes.get(first.id().as_str()).unwrap();
    let session = first.session().unwrap();
    session.ready().await.unwrap();
    let open = session.clone();
    let waits =
        tokio::spawn(async move { open.run(&JobSpec::script("sleep 60"), Duration::from_secs(60)).await });
    while session.jobs().await.unwrap().is_empty() {}
    handle.hand_to(Some(two.clone())).await.unwrap();
    assert_eq!(waits.await.unwrap().unwrap_err().kind(), crate::ErrorKind::Gone);

    let second = boxes.for_thread(two).get(first.id().as_str()).unwrap();
    second.run(JobSpec::script("true")).await.unwrap();
    assert_eq!(session.jobs().await.unwrap_err().kind(), crate::ErrorKind::Gone);
    let file = data.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let copied = session.copy_in(&file, "file", &|_, _| {}).await;
    assert_eq!(copied.unwrap_err().kind(), crate::ErrorKind::Gone);

    handle.hand_to(Some(one)).await.unwrap();
    assert!(!session.jobs().await.unwrap().is_empty());
    handle.release(true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_said_again_is_the_same_box_whatever_the_configuration_says_by_then() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let ask = || Acquire::kind("linux").request(crate::id::RequestId::parse("r1").unwrap());
    let first = boxes.acquire(ask()).await.unwrap();
    let off = crate::config::check_text("[kinds.linux]\non = false\n", boxes.drivers()).unwrap();
    boxes.configure(&off).unwrap();
    assert_eq!(boxes.acquire(Acquire::kind("linux")).await.unwrap_err().kind(), crate::ErrorKind::Refused);
    assert_eq!(boxes.acquire(ask()).await.unwrap().id(), first.id());
    first.release(true).await.unwrap();
}

/// It waits for its turn behind what hands the box on.
#[tokio::test]
async fn what_a_thread_asked_for_does_not_reach_a_box_that_was_handed_on_meanwhile() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let [one, two] = ["t1", "t2"].map(|name| ThreadId::parse(name).unwrap());
    let mine = boxes.for_thread(one).acquire(Acquire::kind("linux")).await.unwrap();
    let handle = boxes.get(mine.id().as_str()).unwrap();
    let stop = handle.begin_stop(true).await.unwrap();
    let asked = [
        mine.begin_start().unwrap(),
        mine.begin_stop(true).await.unwrap(),
        mine.begin_release(true).await.unwrap(),
    ];
    let change = |record: &mut BoxRecord| record.thread = Some(two.clone());
    boxes.shared.world.store.write(|tx| records::change(tx, handle.id(), change)).unwrap();
    boxes.wait(&stop).await.unwrap();
    for operation in &asked {
        assert_eq!(boxes.wait(operation).await.unwrap_err().kind(), crate::ErrorKind::Cancelled);
    }
    let record = handle.record().unwrap();
    assert_eq!((record.state, record.trouble), (crate::record::BoxState::Stopped, None));
    handle.release(true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_threads_view_stays_its_own_and_takes_back_only_what_it_asked_for() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let [one, two] = ["t1", "t2"].map(|name| ThreadId::parse(name).unwrap());
    let view = boxes.for_thread(one);
    let mine = view.acquire(Acquire::kind("linux")).await.unwrap();
    assert_eq!(view.for_thread(two).list().unwrap().len(), 1, "the view became another's");
    let handle = boxes.get(mine.id().as_str()).unwrap();
    let (first, stop) = (handle.begin_stop(true).await.unwrap(), handle.begin_start().unwrap());
    for operation in [&first, &stop] {
        assert_eq!(view.cancel(operation).unwrap_err().kind(), crate::ErrorKind::Refused);
    }
    let mut events = view.events();
    let release = mine.begin_release(true).await.unwrap();
    boxes.wait(&first).await.unwrap();
    boxes.wait(&stop).await.unwrap();
    view.wait(&release).await.unwrap();
    let ended = async {
        loop {
            let event = events.recv().await.unwrap();
            if event.operation == release && matches!(event.what, crate::journal::What::Ended { .. }) {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), ended).await.unwrap();
    assert_eq!(view.close(Duration::ZERO).await, 0);
    boxes.acquire(Acquire::kind("linux")).await.unwrap().release(true).await.unwrap();
}
