//! Boxes whose guest was deleted behind bb-box's back, and trouble that is over.

use std::time::Duration;

use bbbox::{
    backend::{Backend, ReleaseHooks},
    boxes::Boxes,
    guest::Guest,
    id::BackendId,
    local::{Local, LocalConfig},
};

use crate::Folder;

/// Nobody watches this release.
struct Quiet;

#[async_trait::async_trait]
impl ReleaseHooks for Quiet {
    async fn resetting(&self) -> bbbox::Result<()> {
        Ok(())
    }
    fn progress(&self, _text: &str, _fraction: Option<f64>) {}
}

/// A folder with a box whose guest was deleted by other means than bb-box.
fn with_a_lost_box() -> Folder {
    let folder = Folder::new();
    let guests = folder.path().join("guests");
    let document = format!(
        r#"{{"revision": 0, "backends": [{{"id": "local", "type": "local", "memory": "3 GiB", "dir": "{}"}}]}}"#,
        guests.display()
    );
    assert_eq!(folder.feed(&["config", "apply", "-"], document.as_bytes()).code, 0);
    let record = folder.json(&["acquire", "linux", "--name", "dev", "--size", "small"]);
    let guest: Guest = serde_json::from_value(record["guest"].clone()).unwrap();
    let backend = Local::open(BackendId::parse("local").unwrap(), LocalConfig::new(guests)).unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(backend.release(&guest, &Quiet)).unwrap();
    folder
}

#[test]
fn a_run_in_a_box_that_was_deleted_says_so_and_the_record_does_from_then_on() {
    let folder = with_a_lost_box();
    let said = folder.call(&["run", "dev", "--", "true"]);
    assert_eq!(said.code, 125, "{said:?}");
    let words = "error: the guest of box dev is gone: it was deleted outside bb-box";
    assert!(said.err.starts_with(words) && said.err.contains("`bbbox release dev`"), "{said:?}");
    assert_eq!(folder.json(&["list"])[0]["state"], "gone");
    assert!(folder.ok(&["list"]).contains("`bbbox release dev`"));
    folder.ok(&["release", "dev"]);
    assert_eq!(folder.json(&["list"]), serde_json::json!([]));
}

#[test]
fn a_status_of_a_box_that_was_deleted_says_so() {
    let folder = with_a_lost_box();
    let said = folder.ok(&["status", "dev"]);
    assert!(said.contains("\nstate      gone\n") && said.contains("`bbbox release dev`"), "{said}");
    assert_eq!(folder.json(&["list"])[0]["state"], "gone");
}

#[test]
fn a_sweep_that_follows_from_a_call_comes_at_most_every_three_minutes() {
    let folder = with_a_lost_box();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let boxes = runtime
        .block_on(async { Boxes::builder().drivers(bbbox::drivers()).data(folder.path()).open().unwrap() });
    let due = || runtime.block_on(boxes.sweep_if_due(Duration::from_secs(30))).unwrap();
    assert!(due().is_none(), "the call that made the box has swept");
    drop(boxes);
    // Another folder of the same kind, which no call has changed yet.
    let new = tempfile::tempdir().unwrap();
    let boxes = runtime
        .block_on(async { Boxes::builder().drivers(bbbox::drivers()).data(new.path()).open().unwrap() });
    let due = || runtime.block_on(boxes.sweep_if_due(Duration::from_secs(30))).unwrap();
    assert!(due().is_some() && due().is_none());
}

/// A folder whose only backend has room for one small box.
fn with_3_gib() -> Folder {
    let folder = Folder::new();
    let document = r#"{"revision": 0, "backends": [{"id": "local", "type": "local", "memory": "3 GiB"}]}"#;
    assert_eq!(folder.feed(&["config", "apply", "-"], document.as_bytes()).code, 0);
    folder
}

#[test]
fn a_refused_resize_is_told_to_whoever_asked_and_is_no_trouble_of_the_box() {
    let folder = with_3_gib();
    folder.ok(&["acquire", "linux", "--name", "dev", "--size", "small"]);
    assert_eq!(folder.call(&["resize", "dev", "cores=1,memory=4GiB"]).code, 4);
    let status = folder.json(&["status", "dev"]);
    assert!(status["trouble"].is_null(), "{status}");
}

#[test]
fn a_refused_start_is_told_to_whoever_asked_and_is_no_trouble_of_the_box() {
    let folder = with_3_gib();
    folder.ok(&["acquire", "linux", "--name", "one", "--size", "small"]);
    folder.ok(&["stop", "one"]);
    folder.ok(&["acquire", "linux", "--name", "two", "--size", "small"]);
    assert_eq!(folder.call(&["start", "one"]).code, 4, "there is no room for both");
    let status = folder.json(&["status", "one"]);
    assert!(status["trouble"].is_null() && status["state"] == "stopped", "{status}");
    assert!(folder.ok(&["log", "one"]).contains("start-failed"), "its history tells of it");
}
