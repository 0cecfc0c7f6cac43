//! Arguments, help and errors. It makes no box.

use crate::Folder;

#[test]
fn a_wrong_argument_is_one_object_when_json_was_asked_for() {
    let folder = Folder::new();
    let said = folder.call(&["acquire", "linux", "--size", "cores=0,memory=2GiB", "--json"]);
    assert_eq!(said.code, 2);
    assert_eq!(said.error()["kind"], "invalid");
    let said = folder.call(&["acquire", "linux", "--name", "A B"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("\"A B\" is not a box name") && said.out.is_empty(), "{said:?}");
}

#[test]
fn a_run_that_cannot_be_read_does_not_look_like_the_commands_own_code() {
    let folder = Folder::new();
    assert_eq!(folder.call(&["run"]).code, 125);
    assert_eq!(folder.call(&["run", "nowhere", "--", "true"]).code, 125);
    assert_eq!(folder.call(&["--data", "/tmp/run", "status"]).code, 2);
}

#[test]
fn an_error_says_what_and_what_to_do_and_has_no_colour_where_nobody_looks() {
    let folder = Folder::new();
    let said = folder.call(&["acquire", "beos"]);
    assert_eq!(said.code, 2);
    assert!(said.err.starts_with("error: there is no kind \"beos\"\n  fix: use one of linux, "), "{said:?}");
    assert!(!said.err.contains('\u{1b}') && said.out.is_empty(), "{said:?}");
    let said = folder.call(&["status", "nobody", "--json"]);
    assert_eq!((said.code, said.error()["kind"].as_str()), (3, Some("gone")));
}

#[test]
fn the_first_look_at_a_folder_makes_it_an_install_without_boxes() {
    let folder = Folder::new();
    let new = folder.path().join("new");
    let new = new.to_str().unwrap();
    assert_eq!(folder.ok(&["list", "--json", "--data", new]), "[]\n");
    assert!(folder.ok(&["config", "show", "--data", new]).contains("revision = 0"));
    let id = folder.ok(&["install-id", "--data", new]);
    assert_eq!(folder.ok(&["install-id", "--data", new]), id);
}

#[test]
fn every_verb_shows_an_example_and_takes_json() {
    let folder = Folder::new();
    let help = folder.ok(&["--help"]);
    let verbs: Vec<_> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.len() >= 19, "{verbs:?}");
    for verb in verbs {
        let help = folder.ok(&[verb, "--help"]);
        for part in ["Example", "--json", "--data"] {
            assert!(help.contains(part), "{verb} has no {part}");
        }
    }
}

#[test]
fn help_that_cannot_be_written_is_no_success() {
    let folder = Folder::new();
    for words in [&["--help"][..], &["--version"], &["run", "--help"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = folder.command(words).stdout(full).output().unwrap();
        let said = crate::Said::from(output);
        assert_eq!(said.code, 1, "{words:?}: {said:?}");
        assert!(said.err.starts_with("error: could not write to stdout"), "{words:?}: {said:?}");
    }
}

#[test]
fn completions_are_text_and_say_so() {
    let folder = Folder::new();
    assert!(folder.ok(&["completions", "bash"]).contains("bbbox"));
    let said = folder.call(&["completions", "bash", "--json"]);
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(said.error()["fix"], "leave --json out");
}

#[test]
fn an_error_of_what_was_named_says_what_to_do() {
    let folder = Folder::with_box();
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir(path("folder")).unwrap();
    std::fs::write(path("file"), b"\xff").unwrap();
    folder.ok(&["run", "dev", "--", "mkdir", "-p", "made/file"]);
    let (no, dir, file) = (path("no"), path("folder"), path("file"));
    let there = path("no/such/place");
    let calls: [&[&str]; 13] = [
        &["config", "check", &no],
        &["config", "check", &dir],
        &["config", "check", &file],
        &["run", "dev", "--script", &no],
        &["run", "dev", "--env-file", &no, "--", "true"],
        &["copy", &no, "dev:x"],
        &["copy", "/dev/null", "dev:x"],
        &["copy", "dev:no", &dir],
        &["copy", "dev:made", &file],
        &["copy", "dev:made", &there],
        &["image", "build", "linux", "--on", "local"],
        &["job", "wait", "dev", "jb0123456789ab"],
        &["status", "nobody"],
    ];
    let silent: Vec<_> = calls
        .into_iter()
        .map(|words| (words, folder.call(words)))
        .filter(|(_, said)| said.code == 0 || !said.err.contains("\n  fix: "))
        .collect();
    assert!(silent.is_empty(), "no advice:\n{silent:#?}");
}
