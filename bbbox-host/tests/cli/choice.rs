//! Where a box goes, and what is said about where it does not.

use crate::{Folder, Said};

/// A folder whose first backend has no room for a box and whose second has.
fn with_a_full_one() -> Folder {
    let folder = Folder::new();
    let document = r#"{"revision": 0, "backends": [
        {"id": "small", "type": "local", "memory": "1 GiB", "dir": "DIR/small"},
        {"id": "wide", "type": "local", "isolation": "none", "dir": "DIR/wide"}]}"#;
    let document = document.replace("DIR", folder.path().to_str().unwrap());
    let said = folder.feed(&["config", "apply", "-"], document.as_bytes());
    assert_eq!(said.code, 0, "{said:?}");
    folder
}

#[test]
fn a_backend_that_is_passed_over_is_told_with_why() {
    let folder = with_a_full_one();
    let said = folder.call(&["acquire", "linux", "--name", "one", "--size", "small"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.err.starts_with("warning: passed over small: memory is full: it needs 2048 MiB"),
        "{said:?}"
    );
    assert!(said.err.contains("warning: box one is on wide, where nothing keeps it apart"), "{said:?}");
    assert!(!said.out.contains("passed over"), "{said:?}");
    let record = folder.json(&["acquire", "linux", "--size", "small"]);
    let warnings = record["warnings"].as_array().unwrap();
    assert!(warnings[0].as_str().is_some_and(|words| words.contains("passed over small")), "{record}");
    assert!(folder.ok(&["status", "one"]).contains("\npassed over  small: memory"));
    let record = folder.json(&["acquire", "linux", "--size", "small", "--on", "wide"]);
    assert_eq!(record["warnings"], serde_json::json!([]), "what was asked for is no surprise");
    let report = folder.json(&["try"]);
    assert!(
        report["warnings"][0].as_str().is_some_and(|words| words.contains("passed over small")),
        "{report}"
    );
}

#[test]
fn a_size_that_no_backend_can_ever_have_says_so() {
    let folder = with_a_full_one();
    let said = folder.call(&["acquire", "linux", "--on", "small"]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.err.starts_with("error: nothing that answers is large enough for a box of"), "{said:?}");
    assert!(said.err.contains("fix: ask for a smaller size"), "{said:?}");
}

fn with_docker_host(folder: &Folder, host: &str, words: &[&str]) -> Said {
    Said::from(folder.command(words).env("DOCKER_HOST", host).output().unwrap())
}

#[test]
fn the_engine_that_the_environment_names_is_the_one_that_is_asked() {
    let folder = Folder::new();
    let nowhere = "unix:///nowhere/engine.sock";
    let said = with_docker_host(&folder, nowhere, &["acquire", "linux", "--size", "small"]);
    assert_eq!(said.code, 0, "{said:?}");
    let asked = "/nowhere/engine.sock (named by DOCKER_HOST)";
    assert!(said.err.contains("passed over docker: ") && said.err.contains(asked), "{said:?}");
    let said = with_docker_host(&folder, nowhere, &["config", "show"]);
    assert!(said.out.contains(&format!("\n# docker: the engine at {asked}\n")), "{said:?}");
    let said = with_docker_host(&folder, nowhere, &["kinds"]);
    assert!(said.out.contains(&format!("\n  docker: the engine at {asked}\n")), "{said:?}");
    let said = with_docker_host(&folder, "ssh://host", &["acquire", "linux", "--on", "docker"]);
    assert_eq!(said.code, 5, "{said:?}");
    assert!(
        said.err.contains("DOCKER_HOST names an engine that cannot be used here: \"ssh://host\""),
        "{said:?}"
    );
    assert!(said.err.contains("set DOCKER_HOST to unix:///path"), "{said:?}");
    let said = with_docker_host(&folder, "ssh://host", &["config", "show"]);
    assert!(said.out.contains("\n# docker: cannot be used: "), "{said:?}");
    // What is configured is meant, whatever the environment says.
    let document =
        r#"{"revision": 0, "backends": [{"id": "d", "type": "docker", "host": "/elsewhere.sock"}]}"#;
    assert_eq!(folder.feed(&["config", "apply", "-"], document.as_bytes()).code, 0);
    let said = with_docker_host(&folder, "ssh://host", &["config", "show"]);
    assert!(said.out.contains("\n# d: the engine at /elsewhere.sock\n"), "{said:?}");
}

#[test]
fn a_name_that_is_not_there_is_answered_with_those_that_are() {
    let folder = Folder::new();
    let said = folder.call(&["try", "--on", "nosuch"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert!(said.err.contains("fix: use one of docker, local, or leave --on out"), "{said:?}");
    let said = folder.call(&["acquire", "linx"]);
    assert!(said.err.starts_with("error: there is no kind \"linx\"; did you mean linux?"), "{said:?}");
}

#[test]
fn a_backend_that_cannot_be_used_is_told_wherever_backends_are_asked() {
    let folder = Folder::new();
    let why = "set DOCKER_HOST to unix:///path";
    let said = with_docker_host(&folder, "ssh://host", &["image", "list"]);
    assert!(
        said.code == 0 && said.err.starts_with("warning: docker: ") && said.err.contains(why),
        "{said:?}"
    );
    let said = with_docker_host(&folder, "ssh://host", &["image", "--json", "list"]);
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert!(told["warnings"][0].as_str().is_some_and(|words| words.contains(why)), "{told}");
    let said = with_docker_host(&folder, "ssh://host", &["kinds"]);
    assert!(said.out.contains("\nDoes not answer: docker: ") && said.out.contains(why), "{said:?}");
    let said = with_docker_host(&folder, "ssh://host", &["sweep"]);
    assert!(said.code == 1 && said.out.starts_with("trouble: backend docker: "), "{said:?}");
    assert!(said.out.contains(why), "{said:?}");
}
