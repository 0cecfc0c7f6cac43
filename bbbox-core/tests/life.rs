//! A box's life through the public face, on the reference backend with real processes.
#![cfg(all(feature = "local", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

use std::{path::Path, sync::Arc};

use bbbox_core::{
    ErrorKind,
    boxes::{Acquire, BoxHandle, Boxes},
    id::{BackendId, BoxName, InstallId, RequestId},
    local::{Local, LocalConfig},
    record::BoxState,
    run::{JobSpec, RunResult},
    size::SizeChoice,
};
use tempfile::TempDir;

fn open(data: &Path, guests: &Path) -> Boxes {
    let local = Local::open(BackendId::parse("local").unwrap(), LocalConfig::new(guests)).unwrap();
    Boxes::builder().data(data).backend(Arc::new(local)).open().unwrap()
}

fn small() -> Acquire {
    Acquire::kind("linux").size(SizeChoice::Preset("small".into()))
}

async fn out(handle: &BoxHandle, script: &str) -> String {
    match handle.run(JobSpec::script(script)).await.unwrap() {
        RunResult::Ended(ended) => {
            assert!(ended.exit.success(), "{ended:?}");
            String::from_utf8(ended.stdout.whole().unwrap()).unwrap()
        }
        RunResult::Running(job) => panic!("{script} runs on as {job}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_box_lives_from_acquire_to_release() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let handle = boxes.acquire(small()).await.unwrap();
    assert_eq!(handle.record().unwrap().state, BoxState::Ready);
    assert_eq!(out(&handle, "echo kept > f; cat f").await, "kept\n");
    handle.stop(false).await.unwrap();
    assert_eq!(handle.record().unwrap().state, BoxState::Stopped);
    assert_eq!(handle.run(JobSpec::script("true")).await.unwrap_err().kind(), ErrorKind::Refused);
    handle.start().await.unwrap();
    assert_eq!(out(&handle, "cat f").await, "kept\n");
    handle.resize(&SizeChoice::Preset("medium".into())).await.unwrap();
    handle.rename(BoxName::parse("other").unwrap()).await.unwrap();
    assert_eq!(boxes.get("other").unwrap().id(), handle.id());
    handle.release(false).await.unwrap();
    assert_eq!(handle.record().unwrap_err().kind(), ErrorKind::Gone);
    let events: Vec<_> = handle.log(100).unwrap().into_iter().map(|l| l.event.kind).collect();
    assert_eq!(events.first().map(String::as_str), Some("acquire-asked"), "{events:?}");
    assert_eq!(events.last().map(String::as_str), Some("released"), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_said_again_is_the_same_box() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let ask = || small().request(RequestId::parse("r1").unwrap());
    let (one, two) = tokio::join!(boxes.acquire(ask()), boxes.acquire(ask()));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one.id(), two.id());
    assert_eq!(boxes.list().unwrap().len(), 1);
    one.release(false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_rebuilt_from_guests_by_the_install_that_made_them() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let handle = boxes.acquire(small().name(BoxName::parse("kept").unwrap())).await.unwrap();
    out(&handle, "echo work > f").await;
    let install = boxes.install_id();
    let id = handle.id().clone();
    drop((boxes, handle));

    let fresh = TempDir::new().unwrap();
    let boxes = open(fresh.path(), guests.path());
    assert_ne!(boxes.install_id(), install);
    assert!(boxes.sweep().await.unwrap().done.is_empty(), "another install's guest was touched");
    assert!(boxes.list().unwrap().is_empty());
    boxes.set_install_id(&install).unwrap();
    boxes.sweep().await.unwrap().into_result().unwrap();
    let again = boxes.get("kept").unwrap();
    assert_eq!(*again.id(), id);
    assert_eq!(out(&again, "cat f").await, "work\n");
    let other = InstallId::draw(|| 7 << 40);
    assert_eq!(boxes.set_install_id(&other).unwrap_err().kind(), ErrorKind::Refused);
    again.release(false).await.unwrap();
    assert!(boxes.sweep().await.unwrap().done.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_ends_an_acquire_that_is_under_way() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let (operation, handle) = boxes.begin_acquire(small()).unwrap();
    let released = handle.release(true).await;
    let acquired = boxes.wait(&operation).await;
    assert!(released.is_ok(), "{released:?}");
    // Either the acquire was quicker or it was taken back; nothing is left in both.
    if let Err(error) = acquired {
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error:?}");
    }
    assert!(boxes.list().unwrap().is_empty());
    assert!(boxes.sweep().await.unwrap().done.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_leaves_nothing() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    for (ask, kind) in [
        (Acquire::kind("beos"), ErrorKind::Invalid),
        (Acquire::kind("linux-kvm"), ErrorKind::Refused),
        (Acquire::kind("linux").size("cores=1,memory=1GiB".parse().unwrap()), ErrorKind::Invalid),
        (Acquire::kind("linux").size("cores=1000,memory=4GiB".parse().unwrap()), ErrorKind::Invalid),
        (small().on("nowhere"), ErrorKind::Invalid),
        (Acquire::kind("linux").size("cores=1,memory=100GiB".parse().unwrap()), ErrorKind::NoCapacity),
    ] {
        let error = boxes.acquire(ask).await.map(|handle| handle.id().clone()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error:?}");
        assert!(error.how_to_fix().is_some(), "{error:?}");
    }
    assert!(boxes.list().unwrap().is_empty());
}
