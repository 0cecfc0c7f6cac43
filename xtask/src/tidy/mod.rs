//! Rules about the text of the checkout, each a test.
//!
//! A rule is a function from the [`Checkout`] to the list of what breaks it, so each is tried on a checkout made up
//! for it as well as on the real one. What a compiler or a lint can check is theirs.

mod crates;
mod docs;
mod files;
mod words;

use std::{fs, path::Path};

/// The text files of a checkout, by their path in it.
#[derive(Default)]
struct Checkout {
    files: Vec<(String, String)>,
}

impl Checkout {
    /// This one, as git lists it.
    fn here() -> Self {
        let root = crate::test::root();
        let name = |path: &Path| path.strip_prefix(&root).ok().and_then(Path::to_str).map(str::to_owned);
        let read = |path: &Path| Some((name(path)?, String::from_utf8(fs::read(path).ok()?).ok()?));
        let files: Vec<_> = crate::test::files(&root).unwrap().iter().filter_map(|path| read(path)).collect();
        assert!(
            files.iter().any(|(path, _)| path == "Cargo.toml"),
            "the checkout is not where it was compiled"
        );
        Self { files }
    }

    /// One made up for a test.
    fn of(files: &[(&str, &str)]) -> Self {
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect() }
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|(name, _)| name == path).map(|(_, text)| &**text)
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (&**path, &**text))
    }

    /// Its Rust files.
    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(|(path, _)| path.ends_with(".rs"))
    }
}

/// Fails with everything that breaks a rule.
fn hold(broken: &[String]) {
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
}

/// Whether a file holds tests only.
fn is_test(path: &str) -> bool {
    ["/tests/", "/tests.rs", "_tests.rs", "/testing.rs", "/src/tidy/"].iter().any(|part| path.contains(part))
}

/// The lines of a Rust file that are compiled into the program, numbered from 1: no comments, and nothing below the
/// first line that begins tests.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text
        .lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]" || line.starts_with(' '));
    lines.map(|(at, line)| (at + 1, line)).filter(|(_, line)| !line.trim_start().starts_with("//"))
}

#[test]
fn code_ends_where_tests_begin() {
    let text = "a\n// b\nc\n#[cfg(test)]\nmod tests {}\n";
    assert_eq!(code(text).collect::<Vec<_>>(), [(1, "a"), (3, "c")]);
}
