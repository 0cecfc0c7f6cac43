//! Why a chore failed.

use std::{fmt::Display, path::Path};

/// A result whose error is a [`Fault`].
pub(crate) type Result<T> = std::result::Result<T, Fault>;

/// What went wrong, and the output that shows it.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What was tried, why it failed and what to do.
    pub(crate) what: String,
    /// What the child said, where that helps.
    pub(crate) output: Option<String>,
}

impl Fault {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), output: None }
    }

    /// A file or folder that could not be used.
    pub(crate) fn file(doing: &str, path: &Path, why: impl Display) -> Self {
        Self::new(format!("could not {doing} {}: {why}", path.display()))
    }
}
