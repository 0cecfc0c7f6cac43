//! What is said when the data folder is damaged. These tests alone reach into it: to do the damage.

use crate::Folder;

/// The verbs that read, each with the file that it reads.
const READERS: [(&[&str], &str); 7] = [
    (&["list"], "bbbox.db"),
    (&["status", "dev"], "bbbox.db"),
    (&["kinds"], "bbbox.db"),
    (&["image", "list"], "bbbox.db"),
    (&["config", "show"], "bbbox.db"),
    (&["job", "list", "dev"], "bbbox.db"),
    (&["log", "dev"], "box-log.db"),
];

/// A folder of its own whose box is kept by another: what is damaged cannot release it.
fn damaged(file: &str, bytes: &[u8], folder: &Folder) -> tempfile::TempDir {
    let spoiled = tempfile::tempdir().unwrap();
    for name in ["bbbox.db", "box-log.db"] {
        std::fs::copy(folder.path().join(name), spoiled.path().join(name)).unwrap();
    }
    std::fs::write(spoiled.path().join(file), bytes).unwrap();
    spoiled
}

#[test]
fn a_damaged_file_is_named_with_what_to_do_by_every_verb_that_reads_it() {
    let folder = Folder::with_box();
    for (words, file) in READERS {
        for bytes in [&b""[..], &b"this is no database".repeat(999)] {
            let spoiled = damaged(file, bytes, &folder);
            let mut words = words.to_vec();
            words.extend(["--data", spoiled.path().to_str().unwrap()]);
            let said = folder.call(&words);
            assert_eq!(said.code, 1, "{words:?}: {said:?}");
            let path = spoiled.path().join(file).display().to_string();
            assert!(said.err.contains(&format!("file {path}")), "{words:?}: {said:?}");
            assert!(said.err.contains(&format!("\n  fix: put a copy of {path} back")), "{words:?}: {said:?}");
            assert_eq!(said.err.matches("error: ").count(), 1, "{words:?}: {said:?}");
        }
    }
}

#[test]
fn what_is_advised_about_damaged_files_works() {
    let folder = Folder::with_box();
    let install = folder.ok(&["install-id"]);
    std::fs::write(folder.path().join("bbbox.db"), "no database").unwrap();
    std::fs::write(folder.path().join("box-log.db"), "no database").unwrap();
    for file in ["bbbox.db", "box-log.db"] {
        std::fs::rename(folder.path().join(file), folder.path().join(format!("{file}.old"))).unwrap();
    }
    folder.ok(&["install-id", "--set", install.trim()]);
    folder.ok(&["sweep"]);
    assert_eq!(folder.json(&["list"])[0]["name"], "dev");
    folder.ok(&["run", "dev", "--", "true"]);
    folder.ok(&["log", "dev"]);
}
