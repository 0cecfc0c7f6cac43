//! Files through the command. What a copy keeps and how it breaks is the library's to test.

use serde_json::json;

use crate::Folder;

#[test]
fn a_file_and_a_folder_go_in_and_come_back() {
    let folder = Folder::with_box();
    let here = tempfile::tempdir().unwrap();
    let path = |name: &str| here.path().join(name).to_str().unwrap().to_owned();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| ((n * 31) >> 5) as u8).collect();
    std::fs::create_dir(path("a b")).unwrap();
    std::fs::write(path("a b/$x\n'\"é"), &bytes).unwrap();
    std::fs::write(path("a b/empty"), []).unwrap();
    let copied = folder.json(&["copy", &path("a b"), "dev:in"]);
    assert_eq!(copied, json!({ "files": 2, "bytes": 3_000_000, "skipped": [] }));
    folder.ok(&["copy", "dev:in", &path("back")]);
    assert_eq!(std::fs::read(path("back/$x\n'\"é")).unwrap(), bytes);
    assert!(std::fs::read(path("back/empty")).unwrap().is_empty());
    assert_eq!(folder.ok(&["copy", "dev:in/empty", &path("one")]), "1 file, 0 B\n");
    folder.ok(&["copy", &path("one"), "dev:"]);
    assert_eq!(folder.ok(&["run", "dev", "--", "ls"]), "in\none\n", "nothing after the colon is the home");
}

#[test]
fn a_copy_has_one_end_here_and_one_in_a_box() {
    let folder = Folder::with_box();
    for ends in [["dev:a", "dev:b"], ["./a", "./b"]] {
        let said = folder.call(&["copy", ends[0], ends[1]]);
        assert_eq!(said.code, 2);
        assert!(said.err.contains("BOX:PATH"), "{said:?}");
    }
    assert_eq!(folder.call(&["copy", "dev:not-there", "/tmp"]).code, 3);
    assert_eq!(folder.call(&["copy", "/not/there", "dev:"]).code, 3);
}
