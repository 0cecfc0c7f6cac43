//! The program does what its page says.

use std::process::Command;

#[test]
fn it_runs_a_script_in_a_box_that_is_gone_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_custom-backend"))
        .arg(dir.path())
        .arg("echo hello; basename $HOME; exit 3")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(String::from_utf8_lossy(&done.stdout), "hello\nhome\nexit 3\n");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_tree_that_may_not_be_written_goes_too() {
    let dir = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_custom-backend"))
        .arg(dir.path())
        .arg("mkdir -p a/b && : >a/b/c && chmod 555 a/b && chmod 0 a")
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
