//! The command as people and programs meet it: the real binary, boxes of the reference backend, a folder of its own for
//! each test. It looks at what is printed, on which stream, and at exit codes; never into the folder.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod arguments;
mod boxes;
mod choice;
mod config;
mod copies;
mod damage;
mod ends;
mod gone;
mod jobs;

use std::{
    io::Write,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// A folder with boxes in it; they are released with it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A folder with one box, named `dev`.
    fn with_box() -> Self {
        let folder = Self::new();
        folder.ok(&["acquire", "linux", "--on", "local", "--name", "dev"]);
        folder
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bbbox"));
        command
            .args(words)
            .env("BBBOX_DATA", self.path())
            .env_remove("BBBOX_LOG")
            .env_remove("DOCKER_HOST")
            .stdin(Stdio::null());
        command
    }

    /// What a call says and how it ends.
    fn call(&self, words: &[&str]) -> Said {
        Said::from(self.command(words).output().unwrap())
    }

    /// As [`Self::call`], with something to read.
    fn feed(&self, words: &[&str], input: &[u8]) -> Said {
        let mut child = self.spawn(words, Stdio::piped());
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // A command that does not read all of it is no failure of the test.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let said = Said::from(child.wait_with_output().unwrap());
        writer.join().unwrap();
        said
    }

    fn spawn(&self, words: &[&str], stdin: Stdio) -> Child {
        self.command(words).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// The stdout of a call that succeeds.
    fn ok(&self, words: &[&str]) -> String {
        let said = self.call(words);
        assert_eq!(said.code, 0, "bbbox {words:?}: {said:?}");
        said.out
    }

    /// The one value that a call with `--json` prints.
    fn json(&self, words: &[&str]) -> Value {
        let mut all = words.to_vec();
        all.insert(1, "--json");
        let value = serde_json::from_str(&self.ok(&all)).unwrap();
        // A document has the names that its file has.
        if words[0] != "config" {
            assert_one_case(&value);
        }
        value
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let listed = self.call(&["list", "--json"]);
        let Ok(Value::Array(boxes)) = serde_json::from_str(&listed.out) else { return };
        let names = boxes.iter().filter_map(|record| record["name"].as_str());
        let words: Vec<_> = ["release", "--force"].into_iter().chain(names).collect();
        if words.len() > 2 {
            self.call(&words);
        }
    }
}

/// Every name in `value` is written alike; what is named by people or by kinds apart.
fn assert_one_case(value: &Value) {
    let is_alike =
        |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                assert!(is_alike(name), "{name:?} in {value}");
                if !matches!(name.as_str(), "presets" | "context") {
                    assert_one_case(value);
                }
            }
        }
        Value::Array(all) => all.iter().for_each(assert_one_case),
        _ => {}
    }
}

#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Said {
    /// The error that a call with `--json` ends with: one object on stderr, and nothing on stdout.
    fn error(&self) -> Value {
        assert_eq!(self.out, "", "{self:?}");
        let value: Value = serde_json::from_str(&self.err).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        value["error"].clone()
    }
}

/// Waits until `seen` says something, for at most half a minute.
fn until<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = seen() {
            return value;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a process that this test started.
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}
