//! The log of a whole run, at its finest, and the check that no secret of the run stands in it.
//!
//! It is kept in a file that goes with the run; it is never shown.

use std::{fs::File, io::Read, sync::Arc, time::Instant};

use conformance::{Outcome, Told};
use tempfile::NamedTempFile;
use tracing_subscriber::EnvFilter;

/// What is logged: everything of bb-box's, and what its libraries tell of their calls.
const FILTER: &str = "debug,bbbox=trace,bbbox_core=trace,bbbox_docker=trace,conformance=trace";

/// A run's log.
pub(crate) struct Log(NamedTempFile);

/// Begins to log everything from now on.
pub(crate) fn begin() -> std::io::Result<Log> {
    let file = NamedTempFile::with_prefix("bbbox-log-")?;
    let to: Arc<File> = Arc::new(file.reopen()?);
    // A log that something else already keeps is not read here, and then this one is empty, which fails the check.
    drop(
        tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new(FILTER))
            .with_ansi(false)
            .with_writer(to)
            .try_init(),
    );
    tracing::info!("the run begins");
    Ok(Log(file))
}

impl Log {
    /// Whether none of `secrets` stands in the log, as a case.
    pub(crate) fn without(mut self, secrets: &[String]) -> Told {
        let began = Instant::now();
        let (outcome, reason) = match self.found(secrets) {
            _ if secrets.is_empty() => {
                (Outcome::Skipped, Some("the cases that ran used no secret".to_owned()))
            }
            Ok((0, _)) => (Outcome::Failed, Some("nothing was logged at all".to_owned())),
            Ok((_, 0)) => (Outcome::Passed, None),
            Ok((_, found)) => (Outcome::Failed, Some(format!("{found} secrets of the run stand in its log"))),
            Err(error) => (Outcome::Failed, Some(format!("the log cannot be read: {error}"))),
        };
        let ms = began.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        let (name, promise) = ("no-secret-is-in-any-log".to_owned(), "a-secret-stays-secret".to_owned());
        Told { name, promise, outcome, reason, ms }
    }

    /// How long the log is, and how many of `secrets` stand in it.
    fn found(&mut self, secrets: &[String]) -> std::io::Result<(usize, usize)> {
        let mut bytes = Vec::new();
        self.0.reopen()?.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        Ok((bytes.len(), secrets.iter().filter(|secret| text.contains(secret.as_str())).count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_the_log_is_found() {
        let log = begin().unwrap();
        let secrets = ["in-the-log".to_owned(), "elsewhere".to_owned()];
        tracing::trace!(word = "in-the-log", "said");
        assert_eq!(log.without(&secrets).outcome, Outcome::Failed);
    }
}
