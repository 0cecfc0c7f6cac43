//! A box's life through the public face, on the reference backend with real processes.
#![cfg(all(feature = "local", target_os = "linux"))]
#![allow(clippy::unwrap_used)]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bbbox_core::{
    ErrorKind,
    boxes::{Acquire, BoxHandle, Boxes},
    env::{Env, SystemEnv},
    id::{BackendId, BoxName, InstallId, RequestId},
    local::{Local, LocalConfig},
    record::BoxState,
    run::{JobSpec, RunResult},
    size::SizeChoice,
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use tempfile::TempDir;

fn open(data: &Path, guests: &Path) -> Boxes {
    open_with(data, guests, Arc::new(SystemEnv))
}

fn open_with(data: &Path, guests: &Path, env: Arc<dyn Env>) -> Boxes {
    let local = Local::open(BackendId::parse("local").unwrap(), LocalConfig::new(guests)).unwrap();
    Boxes::builder().data(data).backend(Arc::new(local)).env(env).open().unwrap()
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

const DAY: Duration = Duration::from_hours(24);

/// The machine's clocks, of which one is set anew at every point of an operation.
struct Jumpy {
    points: AtomicU64,
    /// Whether it is the clock on the wall, back and forth, or the one that durations are measured with, forward.
    wall: bool,
}

impl Env for Jumpy {
    fn now(&self) -> Timestamp {
        let ahead = self.wall && self.points.load(Ordering::SeqCst) % 2 == 1;
        SystemEnv.now() + if ahead { DAY } else { Duration::ZERO }
    }

    fn elapsed(&self) -> Duration {
        let points = self.points.load(Ordering::SeqCst);
        SystemEnv.elapsed() + if self.wall { Duration::ZERO } else { DAY * u32::try_from(points).unwrap() }
    }

    fn random(&self) -> u64 {
        SystemEnv.random()
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        SystemEnv.sleep(time)
    }

    fn point(&self, at: &str) -> BoxFuture<'static, ()> {
        self.points.fetch_add(1, Ordering::SeqCst);
        SystemEnv.point(at)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_ends_no_acquire_and_time_that_passes_does() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let wall = Arc::new(Jumpy { points: AtomicU64::default(), wall: true });
    let boxes = open_with(data.path(), guests.path(), wall);
    let handle = boxes.acquire(small()).await.unwrap();
    let timings = handle.record().unwrap().timings;
    assert!(!timings.is_empty());
    for timing in timings {
        assert!(timing.ms < 3_600_000, "{timing:?}");
    }
    handle.stop(false).await.unwrap();
    handle.start().await.unwrap();
    for operation in boxes.operations(100).unwrap() {
        assert!(operation.ended.unwrap() >= operation.began, "{operation:?}");
    }
    handle.release(false).await.unwrap();
    drop((boxes, handle));

    let data = TempDir::new().unwrap();
    let passing = Arc::new(Jumpy { points: AtomicU64::default(), wall: false });
    let boxes = open_with(data.path(), guests.path(), passing);
    let error = boxes.acquire(small()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Failed, "{error:?}");
    assert!(error.chain().contains("within its time"), "{error:?}");
    assert!(boxes.list().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_is_checked_at_most_once_a_minute_unless_something_was_done() {
    let (data, guests) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let boxes = open(data.path(), guests.path());
    let handle = boxes.acquire(small()).await.unwrap();
    let checks = || {
        let all = boxes.operations(100).unwrap();
        all.into_iter().filter(|operation| operation.kind == "check").count()
    };
    handle.check().await.unwrap();
    handle.check().await.unwrap();
    assert_eq!(checks(), 1);
    handle.stop(false).await.unwrap();
    handle.check().await.unwrap();
    assert_eq!(checks(), 2);
    handle.release(false).await.unwrap();
}
