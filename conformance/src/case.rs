//! A case as data: what it is called, which promise it holds a backend to, what it needs and what it does.

use std::{fmt, time::Duration};

use bbbox::error::Error;
use futures::future::BoxFuture;

use crate::{ability::Abilities, lab::Lab};

/// What a case does.
pub type Body = fn(Lab) -> BoxFuture<'static, Verdict>;

/// One named check of one promise.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The promise, as the docs of the interface name it.
    pub promise: &'static str,
    /// Why it does not apply to a backend; `None` when it does.
    pub needs: fn(&Abilities) -> Option<String>,
    /// What it takes while it runs.
    pub cost: Cost,
    /// How long it may take: past it, it is killed and has failed.
    pub limit: Duration,
    /// What it does.
    pub body: Body,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "case {} of {}", self.name, self.promise)
    }
}

/// What a case takes while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// This many boxes at once.
    Boxes(u32),
    /// The provider for itself: nothing else runs meanwhile.
    Alone,
}

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The promise does not hold; the words say what was seen.
    Failed(String),
    /// It does not apply here, which showed only in the box.
    Skipped(String),
}

/// How a case, or a part of one, came out.
pub type Verdict<T = ()> = Result<T, Stop>;

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(format!("{error:?}"))
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(format!("a stream broke: {error}"))
    }
}

/// Fails with the words of what was seen.
pub(crate) fn failed<T>(words: impl Into<String>) -> Verdict<T> {
    Err(Stop::Failed(words.into()))
}

/// Fails the case unless `$holds`.
macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err($crate::case::Stop::Failed(format!($($words)+)));
        }
    };
}

/// Fails the case unless both are equal; the words say what was compared.
macro_rules! ensure_eq {
    ($seen:expr, $right:expr, $($words:tt)+) => {
        // A match keeps what the expressions borrow from.
        match (&$seen, &$right) {
            (seen, right) if seen == right => {}
            (seen, right) => {
                return Err($crate::case::Stop::Failed(format!(
                    "{}: {seen:?}, and should be {right:?}",
                    format_args!($($words)+)
                )));
            }
        }
    };
}

pub(crate) use {ensure, ensure_eq};
