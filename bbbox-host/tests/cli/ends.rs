//! Calls that are ended before they are done, and what the next one makes of it.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use bbbox::{
    boxes::{Acquire, Boxes},
    env::{Env, SystemEnv},
};
use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::{Folder, signal};

/// An environment in which a process stands still once it comes to one crash point.
struct Stuck {
    at: &'static str,
    there: tokio::sync::Notify,
}

impl Env for Stuck {
    fn now(&self) -> Timestamp {
        SystemEnv.now()
    }
    fn elapsed(&self) -> Duration {
        SystemEnv.elapsed()
    }
    fn random(&self) -> u64 {
        SystemEnv.random()
    }
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        SystemEnv.sleep(time)
    }
    fn point(&self, at: &str) -> BoxFuture<'static, ()> {
        if at.contains(self.at) {
            self.there.notify_one();
            return Box::pin(std::future::pending());
        }
        Box::pin(std::future::ready(()))
    }
}

#[test]
fn a_sweep_finishes_what_an_earlier_call_left_under_way() {
    let folder = Folder::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stuck = Arc::new(Stuck { at: "ready", there: tokio::sync::Notify::new() });
        let builder = Boxes::builder().drivers(bbbox::drivers()).data(folder.path());
        let boxes = builder.env(Arc::clone(&stuck) as Arc<dyn Env>).open().unwrap();
        let ask = Acquire::kind("linux").on("local").name("dev".parse().unwrap());
        boxes.begin_acquire(ask).unwrap();
        tokio::time::timeout(Duration::from_secs(30), stuck.there.notified()).await.unwrap();
    });
    // As a kill does: nothing is told that it ends.
    drop(runtime);
    assert_ne!(folder.json(&["list"])[0]["state"], "ready");
    let report = folder.json(&["sweep"]);
    assert_eq!(report["done"][0], "finished the acquire of dev", "{report}");
    assert_eq!(folder.json(&["status", "dev"])["state"], "ready");
    assert_eq!(folder.ok(&["sweep"]), "All is as it should be\n");
}

#[test]
fn every_signal_that_ends_programs_takes_back_what_is_under_way() {
    for name in ["INT", "TERM", "HUP"] {
        let folder = Folder::new();
        let mut child = folder.spawn(&["try", "--on", "local"], Stdio::null());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().starts_with("acquire ") {}
        signal(&child, name);
        let rest: Vec<_> = lines.map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(9), "{name}");
        assert!(rest.last().is_some_and(|line| line.starts_with("release ")), "{name}: {rest:?}");
        assert_eq!(folder.json(&["list"]), serde_json::json!([]));
    }
}
