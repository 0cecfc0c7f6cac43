//! A box's life through the command, and what happens to two commands on one folder.

use std::process::Stdio;

use bbbox::boxes::Boxes;

use crate::Folder;

#[test]
fn each_verb_of_a_life_prints_one_value_for_a_program() {
    let folder = Folder::new();
    let record = folder.json(&["acquire", "linux", "--on", "local", "--name", "dev", "--request", "a/1"]);
    assert_eq!((record["state"].as_str(), record["backend"].as_str()), (Some("ready"), Some("local")));
    let again = folder.json(&["acquire", "linux", "--on", "local", "--name", "dev", "--request", "a/1"]);
    assert_eq!(again["id"], record["id"], "the same request is the same box");
    assert_eq!(folder.json(&["list"])[0]["id"], record["id"]);
    assert_eq!(folder.json(&["status", "dev"])["power"], "running");
    assert_eq!(folder.json(&["resize", "dev", "small"])["size"]["cores"], 1);
    assert_eq!(folder.json(&["rename", "dev", "work"])["name"], "work");
    assert_eq!(folder.json(&["stop", "work"])["state"], "stopped");
    assert_eq!(folder.json(&["start", "work"])["state"], "ready");
    let log = folder.json(&["log", "work"]);
    let kinds: Vec<_> = log.as_array().unwrap().iter().filter_map(|event| event["kind"].as_str()).collect();
    assert!(kinds.starts_with(&["acquire-asked", "ready"]) && kinds.len() > 4, "{kinds:?}");
    assert_eq!(folder.json(&["sweep"])["troubles"].as_array().map(Vec::len), Some(0));
    assert!(folder.json(&["kinds"])["kinds"].as_array().is_some_and(|kinds| !kinds.is_empty()));
    assert!(folder.json(&["install-id"])["install"].as_str().is_some_and(|id| id.starts_with("in")));
    assert_eq!(folder.json(&["release", "work"])[0]["id"], record["id"]);
    assert_eq!(folder.json(&["list"]), serde_json::json!([]));
    let log = folder.json(&["log", record["id"].as_str().unwrap()]);
    assert_eq!(
        log.as_array().and_then(|log| log.last()).map(|event| &event["kind"]),
        Some(&"released".into())
    );
}

#[test]
fn a_release_that_names_one_box_wrongly_releases_none() {
    let folder = Folder::with_box();
    let said = folder.call(&["release", "dev", "dve"]);
    assert_eq!(said.code, 3);
    assert_eq!(folder.json(&["list"]).as_array().map(Vec::len), Some(1));
}

#[test]
fn a_box_can_be_listed_and_used_beside_a_process_that_has_the_folder() {
    let folder = Folder::with_box();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let owner = runtime.block_on(async {
        Boxes::builder().drivers(bbbox::drivers()).data(folder.path()).command("the owner").open().unwrap()
    });
    assert_eq!(folder.json(&["list"]).as_array().map(Vec::len), Some(1));
    assert_eq!(folder.call(&["run", "dev", "--", "sh", "-c", "exit 5"]).code, 5);
    let said = folder.call(&["stop", "dev", "--json"]);
    assert_eq!(said.code, 6, "{said:?}");
    let error = said.error();
    assert!(error["message"].as_str().is_some_and(|words| words.contains("the owner")), "{error}");
    drop(owner);
    drop(runtime);
    assert_eq!(folder.json(&["stop", "dev"])["state"], "stopped");
}

#[test]
fn commands_that_change_something_at_once_wait_for_each_other() {
    let folder = Folder::new();
    let names = ["one", "two", "three"];
    let all: Vec<_> = names
        .map(|name| {
            let words = ["acquire", "linux", "--on", "local", "--size", "small", "--name", name];
            folder.spawn(&words, Stdio::null())
        })
        .into_iter()
        .collect();
    for child in all {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(folder.json(&["list"]).as_array().map(Vec::len), Some(3));
}

#[test]
fn the_first_command_does_the_main_job_and_leaves_no_box() {
    let folder = Folder::new();
    let report = folder.json(&["try", "--on", "local"]);
    let steps: Vec<_> = report["steps"].as_array().unwrap().iter().map(|step| &step["step"]).collect();
    assert_eq!(steps.first().and_then(|step| step.as_str()), Some("choose"));
    assert_eq!(steps.last().and_then(|step| step.as_str()), Some("release"));
    assert_eq!(folder.json(&["list"]), serde_json::json!([]));
}
