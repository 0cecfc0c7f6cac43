//! The command's one printer: data on stdout, all else on stderr.

use std::io::{Write, stderr, stdout};

use conformance::{Report, Told};
use serde::Serialize;

/// Writes to a stream that may be closed by now: then nobody wants it.
fn put(mut to: impl Write, text: &str) {
    drop(to.write_all(text.as_bytes()).and_then(|()| to.flush()));
}

fn json(value: &impl Serialize) {
    // Cannot fail: plain data.
    put(stdout(), &(serde_json::to_string(value).unwrap_or_default() + "\n"));
}

/// A case as a program reads it.
pub(crate) fn line(told: &Told) {
    json(told);
}

/// A case as a person sees it go by.
pub(crate) fn brief(told: &Told) {
    let reason = told.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    put(stderr(), &format!("{:>7} {:>6} ms  {}{reason}\n", told.outcome.as_str(), told.ms, told.name));
}

/// The counts as a program reads them.
pub(crate) fn counts(report: &Report) {
    json(&report.counts());
}

/// Everything for people.
pub(crate) fn table(report: &Report) {
    put(stdout(), &format!("{report}\n"));
}

/// Why nothing could be run.
pub(crate) fn problem(words: &str) {
    put(stderr(), &format!("{words}\n"));
}

/// A line for people who want it on stdout.
pub(crate) fn text(words: &str) {
    put(stdout(), &format!("{words}\n"));
}

/// A value as a program reads it.
pub(crate) fn value(value: &serde_json::Value) {
    json(value);
}
