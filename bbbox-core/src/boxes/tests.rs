//! What the public face must hold when operations meet in ways that callers do not choose.
#![allow(clippy::unwrap_used)]

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
    let asked = Asked { by: "by bb-box: its thread ended".to_owned(), request: None };
    let only = If::ThreadEnded(thread.clone());
    let operation = life::begin_release(journal, world, handle.id(), &asked, only).unwrap();
    found(false);
    operation
}

#[tokio::test(flavor = "multi_thread")]
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

#[tokio::test(flavor = "multi_thread")]
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
