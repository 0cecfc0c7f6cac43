//! The parts of a run, as data: what runs, what it needs, how long it may take and how its words are counted.
//!
//! All cargo parts share one target folder and the dev profile, so that a dependency is compiled once to be checked
//! and once to be run. Each list of files is read from the checkout, so a new script or example is not forgotten.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use super::count::{self, Report};
use crate::{
    child::Child,
    fault::{Fault, Result},
    setup,
};

/// What must be there before a part runs.
#[derive(Clone, Copy)]
pub(super) enum Needs {
    /// Cargo alone.
    Rust,
    /// Packages and a Docker Engine.
    Machine,
    /// The cargo tools.
    Tools,
}

/// One part of the run.
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) needs: Needs,
    child: Child,
    count: fn(&str) -> Option<Report>,
    /// A child without which the part is skipped, and the words for it.
    first: Option<(Child, &'static str)>,
}

impl Part {
    fn new(name: &'static str, needs: Needs, child: Child, minutes: u64) -> Self {
        let child = child.minutes(minutes).env("PATH", setup::path()).env("CARGO_TERM_COLOR", "never");
        Self { name, needs, child, count: count::check, first: None }
    }

    fn counted(mut self, count: fn(&str) -> Option<Report>) -> Self {
        self.count = count;
        self
    }

    fn unless_fails(mut self, first: Child, otherwise: &'static str) -> Self {
        self.first = Some((first.env("PATH", setup::path()), otherwise));
        self
    }

    /// Runs it and answers what was counted, and why it failed if it did.
    pub(super) fn run(&self, log: &Path) -> (Report, Option<Fault>) {
        if let Some((first, otherwise)) = &self.first
            && first.run(&log.with_extension("first")).is_err()
        {
            return (Report::skipped(otherwise), None);
        }
        let said = match self.child.run(log) {
            Ok(said) => said,
            Err(fault) => {
                let counted = fault.output.as_deref().and_then(self.count).filter(|report| report.failed > 0);
                return (counted.unwrap_or_else(Report::failure), Some(fault));
            }
        };
        let (report, what) = match (self.count)(&format!("{}\n{}", said.stderr, said.stdout)) {
            Some(report) if report.failed == 0 => return (report, None),
            Some(report) => (report, "reported failures and ended as if all was well"),
            None => (Report::failure(), "ended well and reported no count of what it ran"),
        };
        (
            report,
            Some(Fault { what: format!("{} {what}", self.name), output: Some(said.stderr + &said.stdout) }),
        )
    }
}

/// Every part, in order.
pub(super) fn all(root: &Path) -> Result<Vec<Part>> {
    let cargo = |args: &str| Child::new("cargo").dir(root).args(args.split(' '));
    let suite = |name, args: &str, minutes| {
        let program = Child::new(programs(root).join("conformance")).dir(root);
        let child = program.args(args.split(' ')).args(["--json"]);
        Part::new(name, Needs::Machine, child, minutes).counted(count::conformance)
    };
    let mut parts = vec![
        Part::new("format", Needs::Rust, cargo("fmt --all --check"), 2),
        Part::new(
            "clippy",
            Needs::Rust,
            cargo("clippy --workspace --all-targets --locked -- -D warnings"),
            20,
        ),
        Part::new(
            "docs",
            Needs::Rust,
            cargo("doc --workspace --no-deps --locked").env("RUSTDOCFLAGS", "-D warnings"),
            10,
        ),
        Part::new(
            "features",
            Needs::Tools,
            cargo(
                "hack check --workspace --exclude bbbox --each-feature --exclude-features default --locked",
            ),
            20,
        ),
        Part::new(
            "licences",
            Needs::Tools,
            cargo("deny --all-features --locked check bans licenses sources"),
            5,
        ),
        Part::new(
            "advisories",
            Needs::Tools,
            cargo("deny --all-features --locked check advisories --disable-fetch"),
            5,
        )
        .unless_fails(cargo("deny fetch db").minutes(2), "the advisory database could not be fetched"),
        // The fuzzer itself is C++ and needs a nightly compiler; the targets are Rust.
        Part::new(
            "fuzz targets",
            Needs::Rust,
            cargo("check --locked --no-default-features --target-dir target --manifest-path fuzz/Cargo.toml"),
            15,
        ),
        Part::new("build", Needs::Rust, cargo("build --workspace --all-targets --locked"), 25),
        // First of what needs boxes, as it builds the image that they come from.
        suite("conformance docker", "run --backend docker", 20),
        suite("conformance local", "run --backend local", 10),
        Part::new("tests", Needs::Machine, cargo("nextest run --workspace --locked --no-fail-fast --status-level pass --success-output immediate"), 30)
            .counted(count::nextest),
        Part::new("doctests", Needs::Machine, cargo("test --workspace --locked --doc"), 10)
            .counted(count::cargo_test),
    ];
    for (scripts, shell) in scripts(root)? {
        let child = Child::new("shellcheck").dir(root).args(["--severity=warning", "--exclude=SC1007"]);
        parts.insert(6, Part::new("scripts", Needs::Machine, child.args(shell).args(scripts), 2));
    }
    // cargo-hack checks the default members in place of a package that stands at the workspace's root.
    for features in facade_features(root)? {
        let child = cargo("check --package bbbox --lib --locked --features").args([&features]);
        parts.insert(4, Part::new("facade alone", Needs::Rust, child, 10));
    }
    for manifest in foreign_examples(root)? {
        let child = cargo("test --locked --target-dir target --manifest-path").args([manifest]);
        parts.push(Part::new("foreign example", Needs::Machine, child, 15).counted(count::cargo_test));
    }
    parts.push(suite("crash local", "crash --backend local", 15));
    parts.push(suite("crash docker", "crash --backend docker", 20));
    Ok(parts)
}

/// Where the part `build` leaves programs. They are run from there: `cargo run` of one package would take other
/// features of what all packages share, and compile most of it once more.
fn programs(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir)).join("debug")
}

/// Every shell script of the checkout: those whose first line names their shell, and those that a program sends to a
/// POSIX sh, with the argument that says so.
fn scripts(root: &Path) -> Result<Vec<(Vec<PathBuf>, Option<&'static str>)>> {
    let (mut whole, mut sent) = (Vec::new(), Vec::new());
    for file in files(root)? {
        let bytes = fs::read(&file).map_err(|e| Fault::file("read", &file, e))?;
        let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
        if line.starts_with(b"#!") && line.ends_with(b"sh") {
            whole.push(file);
        } else if file.extension().is_some_and(|ext| ext == "sh") {
            sent.push(file);
        }
    }
    let kinds = [(whole, None), (sent, Some("--shell=sh"))];
    Ok(kinds.into_iter().filter(|(files, _)| !files.is_empty()).collect())
}

/// What the facade must compile with: nothing, each feature alone, all of them.
fn facade_features(root: &Path) -> Result<Vec<String>> {
    let path = root.join("Cargo.toml");
    let text = fs::read_to_string(&path).map_err(|e| Fault::file("read", &path, e))?;
    let manifest: toml::Table = text.parse().map_err(|e| Fault::file("read", &path, e))?;
    let features = manifest.get("features").and_then(toml::Value::as_table);
    let names: Vec<_> =
        features.into_iter().flat_map(toml::Table::keys).filter(|name| *name != "default").collect();
    let all = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(",");
    Ok([String::new()].into_iter().chain(names.into_iter().cloned()).chain([all]).collect())
}

/// The manifests of examples that are no members of this workspace.
fn foreign_examples(root: &Path) -> Result<Vec<PathBuf>> {
    let dir = root.join("examples");
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).into_iter().flatten() {
        let manifest = entry.map_err(|e| Fault::file("list", &dir, e))?.path().join("Cargo.toml");
        found.extend(
            fs::read_to_string(&manifest).is_ok_and(|text| text.contains("[workspace]")).then_some(manifest),
        );
    }
    Ok(found)
}

/// Every file of the checkout that git does not ignore, sorted.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let git = ["-C", &root.to_string_lossy(), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        .map(str::to_owned);
    let named = Child::new("git")
        .args(git)
        .ask()
        .ok_or_else(|| Fault::new("git does not list the checkout's files"))?;
    let mut files: Vec<_> =
        named.split_terminator('\0').map(|name| root.join(name)).filter(|file| file.is_file()).collect();
    files.sort();
    Ok(files)
}
