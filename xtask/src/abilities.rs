//! The README's table of what each backend was seen to do.
//!
//! It is made from what the suite said in the last run of `cargo xtask test`, so that it claims no more than was seen.

use std::{fmt::Write, fs, path::Path};

use serde_json::Value;

use crate::{
    fault::{Fault, Result},
    test,
};

const BACKENDS: [&str; 2] = ["local", "docker"];
const BEGIN: &str = "<!-- abilities: written by `cargo xtask abilities` -->\n";
const END: &str = "<!-- end -->\n";

/// Writes the table into the README.
pub(crate) fn write() -> Result<()> {
    let root = test::root();
    let mut runs = Vec::new();
    for backend in BACKENDS {
        runs.push(cases(&read(&root.join(format!("target/xtask/conformance-{backend}.out")))?));
    }
    let path = root.join("README.md");
    let text = read(&path)?;
    let changed = replace(&text, &table(&runs))
        .ok_or_else(|| Fault::new(format!("{} has no place for the table: {BEGIN}…{END}", path.display())))?;
    fs::write(&path, changed).map_err(|e| Fault::file("write", &path, e))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .map_err(|e| Fault::file("read", path, format!("{e}; run `cargo xtask test` first")))
}

/// One case as it came out.
struct Case {
    promise: String,
    outcome: String,
    reason: String,
}

fn cases(text: &str) -> Vec<Case> {
    let objects = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of = |object: &Value, field: &str| object[field].as_str().map(str::to_owned);
    let case = |object: Value| {
        let reason = of(&object, "reason").unwrap_or_default();
        Some(Case { promise: of(&object, "promise")?, outcome: of(&object, "outcome")?, reason })
    };
    objects.filter_map(case).collect()
}

fn table(runs: &[Vec<Case>]) -> String {
    let mut promises: Vec<_> = runs.iter().flatten().map(|case| &*case.promise).collect();
    promises.sort_unstable();
    promises.dedup();
    let mut text = format!(
        "| Promise | {} |\n|---|{}\n",
        BACKENDS.map(|b| format!("`{b}`")).join(" | "),
        "---|".repeat(runs.len())
    );
    for promise in promises {
        let cells = runs.iter().map(|run| cell(run.iter().filter(|case| case.promise == promise).collect()));
        let _ = writeln!(text, "| `{promise}` | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

/// `3 of 3`, or what is missing and why.
fn cell(cases: Vec<&Case>) -> String {
    let passed = cases.iter().filter(|case| case.outcome == "passed").count();
    let mut text = format!("{passed} of {}", cases.len());
    let mut rest: Vec<_> = cases.iter().filter(|case| case.outcome != "passed").collect();
    rest.dedup_by_key(|case| &case.reason);
    for case in rest {
        let _ = write!(text, "; {}: {}", case.outcome, case.reason);
    }
    text
}

fn replace(text: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_says_what_was_seen_and_what_was_not() {
        let run = cases(
            r#"{"name":"a","promise":"p-q","outcome":"passed","reason":null,"ms":1}
{"name":"b","promise":"p-q","outcome":"skipped","reason":"no switch","ms":1}
{"passed":1,"failed":0,"skipped":1,"known":0}"#,
        );
        let text = table(&[run, Vec::new()]);
        assert!(text.ends_with("| `p-q` | 1 of 2; skipped: no switch | 0 of 0 |\n"), "{text}");
        assert_eq!(
            replace(&format!("a\n{BEGIN}old\n{END}b\n"), "new\n").unwrap(),
            format!("a\n{BEGIN}new\n{END}b\n")
        );
        assert_eq!(replace("no place", "new"), None);
    }
}
