//! The one place that prints.
//!
//! What a chore says goes to stdout, a line at a time; why it failed goes to stderr. A reader that went away is no
//! reason to stop.

use std::io::{self, Write};

use crate::fault::Fault;

/// Prints one line at once.
pub(crate) fn line(text: impl std::fmt::Display) {
    let mut out = io::stdout().lock();
    drop(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// Prints why a chore failed, with the output that shows it.
pub(crate) fn fault(fault: &Fault) {
    let mut out = io::stderr().lock();
    if let Some(output) = &fault.output {
        drop(writeln!(out, "{}", output.trim_end()));
    }
    drop(writeln!(out, "error: {}", fault.what));
}
