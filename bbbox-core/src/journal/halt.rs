//! Why an operation's function must return, and how long to wait before it is run again.

use std::time::Duration;

use crate::{
    env::Env,
    error::{Error, ErrorKind},
};

/// How many runs of a step may end in an error that may pass, unless the step says otherwise.
pub(super) const ATTEMPTS: u32 = 8;
const SHORTEST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_millis(12_800);

/// What a call on a context returns when the function must not go on: pass it up with `?`.
///
/// A function may look at [`Halt::error`] to go another way after a step failed for good. Everything else stays
/// in force even when the function drops it.
#[derive(Clone, Debug)]
pub(crate) struct Halt(pub(super) Why);

#[derive(Clone, Debug)]
pub(super) enum Why {
    /// A step failed for good, or the function itself gave up.
    Failed(Error),
    /// Somebody asked to cancel it.
    Cancelled,
    /// A step failed and is to be tried again.
    Again(Duration),
    /// The journal could not be written.
    Store(Error),
    /// What is recorded does not fit the function.
    Unfit(String),
    /// The journal is being closed.
    Closed,
}

impl Halt {
    /// The error of a step that failed for good.
    #[must_use]
    pub(crate) fn error(&self) -> Option<&Error> {
        match &self.0 {
            Why::Failed(error) => Some(error),
            Why::Cancelled | Why::Again(_) | Why::Store(_) | Why::Unfit(_) | Why::Closed => None,
        }
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self(Why::Failed(error))
    }
}

/// Whether the same call may succeed later.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Busy)
}

/// How long to wait after `failures` earlier ones: 100 ms, doubled each time to 12.8 s, and up to a quarter more.
pub(super) fn backoff(env: &dyn Env, failures: u32) -> Duration {
    let wait = SHORTEST_WAIT.saturating_mul(1 << failures.min(7)).min(LONGEST_WAIT);
    let most = u64::try_from(wait.as_millis() / 4).unwrap_or(0).max(1);
    let extra = env.random() % most;
    (wait + Duration::from_millis(extra)).min(Duration::from_secs(13))
}
