//! The configuration through files, as people change it.

use crate::Folder;

#[test]
fn what_is_shown_can_be_changed_and_applied_and_only_over_what_it_was_made_from() {
    let folder = Folder::new();
    let file = folder.path().join("bbbox.toml");
    let file_name = file.to_str().unwrap();
    let shown = folder.ok(&["config", "show"]);
    std::fs::write(&file, shown.replace("on = true", "on = false")).unwrap();
    folder.ok(&["config", "check", file_name]);
    assert_eq!(folder.json(&["config", "apply", file_name])["revision"], 1);
    assert_eq!(folder.json(&["config", "show"])["backends"][0]["on"], false);
    assert_eq!(folder.call(&["acquire", "linux"]).code, 7, "no backend takes new boxes");

    // Another change of revision 0 comes too late, and what holds stays.
    std::fs::write(&file, shown).unwrap();
    let said = folder.call(&["config", "apply", file_name]);
    assert_eq!(said.code, 6, "{said:?}");
    assert!(said.err.contains("at revision 1") && said.err.contains("backends[0].on"), "{said:?}");
    assert_eq!(folder.json(&["config", "show"])["revision"], 1);

    // Taking a kind's switch and sizes works at once.
    let document = r#"{"revision": 1, "backends": [{"id": "l", "type": "local"}],
        "kinds": {"linux": {"default": "tiny", "presets": {"tiny": {"cores": 1, "memory": "2 GiB"}}}}}"#;
    let said = folder.feed(&["config", "apply", "-"], document.as_bytes());
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(folder.json(&["acquire", "linux"])["size"]["memory_mib"], 2048);
}

#[test]
fn a_document_that_drops_a_backend_says_which_boxes_it_leaves() {
    let folder = Folder::new();
    let apply = |revision: u64, id: &str| {
        let document =
            format!(r#"{{"revision": {revision}, "backends": [{{"id": "{id}", "type": "local"}}]}}"#);
        let said = folder.feed(&["config", "--json", "apply", "-"], document.as_bytes());
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"))
    };
    assert_eq!(apply(0, "one")["warnings"], serde_json::json!([]));
    folder.ok(&["acquire", "linux", "--name", "dev"]);
    let warnings = apply(1, "two")["warnings"].clone();
    let words = warnings[0].as_str().unwrap();
    assert!(
        words.contains("box dev") && words.contains("backend one") && words.contains("forget"),
        "{words}"
    );
    let said = folder.feed(&["config", "apply", "-"], br#"{"revision": 2, "backends": []}"#);
    assert!(said.out.contains("\nwarning: box dev: "), "{said:?}");
    assert_eq!(apply(3, "one")["warnings"], serde_json::json!([]));
}

#[test]
fn every_problem_of_a_file_is_said_with_its_line() {
    let folder = Folder::new();
    let document = "[[backends]]\nid = \"one\"\ntype = \"dokcer\"\n\n[kinds.linux]\ndefault = \"smal\"\n";
    let said = folder.feed(&["config", "check", "-"], document.as_bytes());
    assert_eq!((said.code, said.err.lines().count()), (2, 2));
    assert!(said.err.contains("stdin: line 3, column 1: backends[0].type: is \"dokcer\"; did you mean"));
    assert!(said.err.contains("stdin: line 6, column 1: kinds.linux.default: "), "{said:?}");
    let said = folder.feed(&["config", "check", "-", "--json"], document.as_bytes());
    assert_eq!(said.error()["problems"].as_array().map(Vec::len), Some(2));
    let said = folder.feed(&["config", "check", "-"], b"[backends\n");
    assert!(said.code == 2 && said.err.starts_with("error: stdin: line 1, column "), "{said:?}");
}

#[test]
fn the_error_that_the_documentation_shows_is_the_one_that_is_said() {
    let folder = Folder::new();
    let file = folder.path().join("bbbox.toml");
    std::fs::write(&file, "revision = 0\n\n[[backends]]\nid = \"docker\"\ntype = \"docker\"\nmemry = 1\n")
        .unwrap();
    let said = folder.call(&["config", "check", file.to_str().unwrap()]);
    let said = said.err.replace(file.to_str().unwrap(), "bbbox.toml");
    let page = include_str!("../../../docs/configuration.md");
    assert!(page.contains(&said), "docs/configuration.md does not show:\n{said}");
}

#[test]
fn a_text_that_is_no_document_is_told_once_and_a_field_said_twice_by_its_path() {
    let folder = Folder::new();
    let prose = "these are words\nand no document: at all\n".repeat(99);
    let said = folder.feed(&["config", "check", "-"], prose.as_bytes());
    assert_eq!((said.code, said.err.lines().count()), (2, 1), "{said:?}");
    assert!(said.err.starts_with("error: stdin: line 1, column 7: this is not TOML: "), "{said:?}");
    let twice = br#"{"revision": 0, "backends": [{"id": "one", "type": "local", "id": "two"}]}"#;
    let said = folder.feed(&["config", "apply", "-"], twice);
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(said.err, "error: stdin: backends[0].id: stands there twice; allowed: once\n");
    assert_eq!(folder.json(&["config", "show"])["revision"], 0);
}
