//! The documents: what each must have, and that what it points at is there.

use std::collections::BTreeSet;

use super::{Checkout, hold};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const GUARANTEES: &str = "docs/guarantees.md";
const FIELD_REPORTS: &str = "docs/field-reports.md";
/// The heads of a decision note, in order.
const HEADS: &[&str] = &["## Context", "## Decision", "## Consequences"];
/// One page.
const PAGE: usize = 60;

fn decisions(checkout: &Checkout) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, text) in checkout.iter().filter(|(path, _)| path.starts_with("docs/decisions/")) {
        let heads: Vec<_> = text.lines().filter(|line| line.starts_with("## ")).collect();
        if heads != HEADS {
            broken.push(format!("{path}: its heads are {heads:?} and should be {HEADS:?}"));
        }
        let lines = text.lines().count();
        if lines > PAGE {
            broken.push(format!("{path}: {lines} lines are more than one page"));
        }
    }
    broken
}

fn architecture(checkout: &Checkout) -> Vec<String> {
    let Some(text) = checkout.text(ARCHITECTURE) else { return vec![format!("there is no {ARCHITECTURE}")] };
    let lines = text.lines().count();
    let long = (lines >= 250).then(|| format!("{ARCHITECTURE}: {lines} lines, fewer than 250"));
    long.into_iter().collect()
}

/// Links to files of the checkout lead somewhere.
fn links(checkout: &Checkout) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, text) in checkout.iter().filter(|(path, _)| path.ends_with(".md")) {
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let outside = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if outside || exists(checkout, &resolve(path, target)) {
                continue;
            }
            broken.push(format!("{path}: leads to {target}, which is not there"));
        }
    }
    broken
}

fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn exists(checkout: &Checkout, path: &str) -> bool {
    let folder = format!("{path}/");
    checkout.iter().any(|(file, _)| file == path || file.starts_with(&folder))
}

/// What a document says a test holds is held by a test of that name: a function, or a conformance case.
fn named_tests(checkout: &Checkout) -> Vec<String> {
    let mut broken = Vec::new();
    for path in [GUARANTEES, FIELD_REPORTS] {
        let Some(text) = checkout.text(path) else {
            broken.push(format!("there is no {path}"));
            continue;
        };
        let rows =
            text.lines().filter(|line| line.starts_with('|')).filter_map(|line| line.rsplit('|').nth(1));
        let mut named = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).peekable();
        if named.peek().is_none() {
            broken.push(format!("{path}: names no test"));
        }
        let lost = named.filter(|name| !stands(checkout, name));
        broken.extend(lost.map(|name| format!("{path}: no test is named {name}")));
    }
    broken
}

/// Each promise in the docs of an interface has a conformance case, and each case holds a promise that is there.
fn promises(checkout: &Checkout) -> Vec<String> {
    let interfaces = ["backend", "transport", "boxes/mod", "boxes/handle", "boxes/build", "run/session"];
    let interfaces = interfaces.map(|name| format!("bbbox-core/src/{name}.rs"));
    let said: BTreeSet<_> = interfaces.iter().filter_map(|path| checkout.text(path)).flat_map(said).collect();
    let cases = checkout.rust().filter(|(path, _)| path.starts_with("conformance/src/cases/"));
    let held: BTreeSet<_> = cases
        .flat_map(|(_, text)| text.split("promise: \"").skip(1))
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect();
    let without_case = said.difference(&held).map(|name| format!("{name}: no case holds this promise"));
    let without_promise =
        held.difference(&said).map(|name| format!("{name}: no interface says this promise"));
    without_case.chain(without_promise).collect()
}

/// The names of promises in a file's docs: words with hyphens in a `- *Promise*` point, each before its text.
fn said(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut inside = false;
    for line in text.lines().map(str::trim_start) {
        let Some(doc) = line.strip_prefix("///").map(str::trim_start) else {
            inside = false;
            continue;
        };
        inside =
            if doc.starts_with("- ") { doc.starts_with("- *Promise*") } else { inside && !doc.is_empty() };
        if inside {
            let words = doc.split('`').skip(1).step_by(2);
            names.extend(words.filter(|word| word.contains('-')).map(str::to_owned));
        }
    }
    names
}

fn stands(checkout: &Checkout, name: &str) -> bool {
    let (function, case) = (format!("fn {name}("), format!("\"{name}\""));
    checkout.rust().any(|(_, text)| text.contains(&function) || text.contains(&case))
}

#[test]
fn every_decision_is_one_page_with_its_heads() {
    hold(&decisions(&Checkout::here()));
}

#[test]
fn the_architecture_stays_a_map() {
    hold(&architecture(&Checkout::here()));
}

#[test]
fn links_lead_somewhere() {
    hold(&links(&Checkout::here()));
}

#[test]
fn the_tests_that_documents_name_exist() {
    hold(&named_tests(&Checkout::here()));
}

#[test]
fn promises_and_cases_carry_the_same_names() {
    hold(&promises(&Checkout::here()));
}

#[test]
fn what_breaks_a_rule_about_promises_is_found() {
    let checkout = Checkout::of(&[
        (
            "bbbox-core/src/backend.rs",
            "/// - *Promise* `a-b`: that. `c-d`: and\n///   `e-f`: more.\n/// - *Again*: `x-y`.\nfn f();\n",
        ),
        (
            "conformance/src/cases/a.rs",
            "Case { name: \"n-m\", promise: \"a-b\" }, Case { promise: \"c-d\" }, promise: \"g-h\"",
        ),
    ]);
    assert_eq!(
        promises(&checkout),
        ["e-f: no case holds this promise", "g-h: no interface says this promise"]
    );
}

#[test]
fn what_breaks_a_rule_about_documents_is_found() {
    let checkout = Checkout::of(&[
        (
            "docs/decisions/a.md",
            "# A\n## Context\n## Decision\n## Consequences\nsee [b](b.md) and [all](../../README.md)\n",
        ),
        ("docs/decisions/b.md", "# B\n## Decision\n"),
        ("README.md", "[lost](docs/lost.md), [map](docs/decisions/), [out](https://example.org)\n"),
        (
            "docs/guarantees.md",
            "| promise | held by |\n| a | `a_test`, `a-case` |\n| b | `no_test` |\n## Not yet held\n| c | a test |\n",
        ),
        ("a.rs", "fn a_test() { case(\"a-case\") }"),
    ]);
    assert_eq!(decisions(&checkout).len(), 1);
    assert_eq!(architecture(&checkout).len(), 1);
    assert_eq!(links(&checkout), ["README.md: leads to docs/lost.md, which is not there"]);
    assert_eq!(
        named_tests(&checkout),
        ["docs/guarantees.md: no test is named no_test", "there is no docs/field-reports.md"]
    );
}
