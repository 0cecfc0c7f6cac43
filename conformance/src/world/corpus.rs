//! Runs that once found something, made short: they are played before any seed.
//!
//! They are kept whole, as a seed means another run once the way schedules are made changes.

use super::{
    action::Schedule,
    run::{Played, run},
};

macro_rules! run {
    ($name:literal) => {
        ($name, include_str!(concat!("../../corpus/", $name, ".json")))
    };
}

/// What was found, and the run that found it.
const RUNS: &[(&str, &str)] = &[
    run!("a-copy-into-a-box-that-is-stopped-under-it"),
    run!("a-guest-that-was-found-has-its-own-size"),
    run!("a-late-guest-of-a-gone-box"),
    run!("a-request-that-comes-late-is-no-second-one"),
    run!("a-resize-that-is-done-after-it-failed"),
    run!("a-resize-that-is-done-after-its-host-went"),
    run!("a-thread-that-lived-between-two-answers"),
    run!("an-acquire-without-its-backend-ends"),
    run!("the-log-of-a-gone-box-has-its-end"),
];

/// Every run of the corpus, by what it found.
pub(super) fn corpus() -> Vec<(&'static str, Schedule)> {
    let parse = |text| serde_json::from_str(text).unwrap_or_else(|e| panic!("a run of the corpus: {e}"));
    RUNS.iter().map(|(name, text)| (*name, parse(text))).collect()
}

/// Plays the run of the corpus that is called `name`.
#[must_use]
pub fn replay(name: &str) -> Option<Played> {
    let (_, schedule) = corpus().into_iter().find(|(other, _)| *other == name)?;
    Some(run(&schedule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_of_the_corpus_can_be_read() {
        assert_eq!(corpus().len(), RUNS.len());
    }

    #[test]
    fn every_run_of_the_corpus_holds() {
        for (name, schedule) in corpus() {
            let played = run(&schedule);
            assert!(played.problems.is_empty(), "{name}: {:#?}", played.problems);
        }
    }
}
