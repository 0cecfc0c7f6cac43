//! The shape of Rust files: their page of docs, their length, and who may print or wait.

use super::{Checkout, code, hold, is_test};

/// A file that is longer is split.
const LONGEST: usize = 500;
/// A crate's page opens with an example, so it may be longer than a file's.
const LONGEST_PAGE: usize = 60;

/// Each program's one file that prints.
const PRINTERS: &[&str] = &[
    "bbbox-host/src/printer.rs:",
    "conformance/src/print.rs:",
    "conformance/src/bin/bench/main.rs:",
    "xtask/src/say.rs:",
];

fn pages(checkout: &Checkout) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, text) in checkout.rust() {
        let lines = text.lines().take_while(|line| line.starts_with("//!")).count();
        let most = if path.ends_with("lib.rs") { LONGEST_PAGE } else { 15 };
        if lines == 0 {
            broken.push(format!("{path}: does not say what it owns and what it never does"));
        } else if lines > most {
            broken.push(format!("{path}: {lines} lines of page, at most {most}"));
        }
    }
    broken
}

fn lengths(checkout: &Checkout) -> Vec<String> {
    let lengths = checkout.rust().map(|(path, text)| (path, text.lines().count()));
    lengths
        .filter(|(_, n)| *n > LONGEST)
        .map(|(path, n)| format!("{path}: {n} lines, at most {LONGEST}"))
        .collect()
}

/// Time comes in through `Env` alone, or a simulation could not own the clock. The reference backend is a provider: it
/// waits for processes of this machine, which no simulated clock moves.
fn waits(checkout: &Checkout) -> Vec<String> {
    let core = checkout.rust().filter(|(path, _)| path.starts_with("bbbox-core/src/") && !is_test(path));
    lines_with(
        core.filter(|(path, _)| {
            *path != "bbbox-core/src/env.rs" && !path.starts_with("bbbox-core/src/local/")
        }),
        &["thread::sleep", "tokio::time", "Instant::now", "SystemTime::now", "Timestamp::now"],
    )
}

/// A program has one printer.
fn prints(checkout: &Checkout) -> Vec<String> {
    let silent = checkout.rust().filter(|(path, _)| !is_test(path) && !path.starts_with("examples/"));
    lines_with(silent, &["print!(", "println!(", "dbg!(", "io::stdout()", "clippy::print_std"])
        .into_iter()
        .filter(|line| !PRINTERS.iter().any(|printer| line.starts_with(printer)))
        .collect()
}

fn lines_with<'a>(files: impl Iterator<Item = (&'a str, &'a str)>, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        for (at, line) in code(text) {
            let word = words.iter().find(|word| line.contains(**word));
            found.extend(word.map(|word| format!("{path}:{at}: {word}")));
        }
    }
    found
}

#[test]
fn every_rust_file_opens_with_its_page() {
    hold(&pages(&Checkout::here()));
}

#[test]
fn no_rust_file_is_too_long() {
    hold(&lengths(&Checkout::here()));
}

#[test]
fn the_core_waits_through_env_alone() {
    hold(&waits(&Checkout::here()));
}

#[test]
fn only_the_printers_print() {
    hold(&prints(&Checkout::here()));
}

#[test]
fn what_breaks_a_rule_about_files_is_found() {
    let long = "//! A page.\n".to_owned() + &"\n".repeat(LONGEST);
    let checkout = Checkout::of(&[
        (
            "bbbox-core/src/a.rs",
            "use std::thread::sleep;\n// tokio::time is another's\nfn f() { println!(\"x\") }\n",
        ),
        ("bbbox-core/src/env.rs", "//! Time.\nuse tokio::time;\n"),
        ("bbbox-host/src/printer.rs", "//! The printer.\nfn f() { println!(\"x\") }\n"),
        ("bbbox-core/src/long.rs", &long),
    ]);
    assert_eq!(pages(&checkout).len(), 1);
    assert_eq!(lengths(&checkout).len(), 1);
    assert_eq!(waits(&checkout), ["bbbox-core/src/a.rs:1: thread::sleep"]);
    assert_eq!(prints(&checkout), ["bbbox-core/src/a.rs:3: println!("]);
}
