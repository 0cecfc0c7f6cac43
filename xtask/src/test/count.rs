//! How many passed, failed and were skipped, read from what a part said.
//!
//! Each reader answers `None` when it finds no count at all, which is a failure: a part that ran nothing did not
//! pass.

use serde_json::Value;

/// What one part came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    /// What did not pass, with the reason.
    pub(super) notes: Vec<String>,
}

impl Report {
    /// A part that could not even count.
    pub(super) fn failure() -> Self {
        Self { failed: 1, ..Self::default() }
    }

    /// A part that did not run, and why.
    pub(super) fn skipped(why: &str) -> Self {
        Self { skipped: 1, notes: vec![format!("skipped: {why}")], ..Self::default() }
    }

    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self { failed: 1.., .. } => "failed",
            Self { passed: 0, skipped: 1.., .. } => "skipped",
            _ => "passed",
        }
    }

    pub(super) fn add(self, other: &Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
            notes: Vec::new(),
        }
    }
}

/// A check that says all by its exit status.
pub(super) fn check(_: &str) -> Option<Report> {
    Some(Report { passed: 1, ..Report::default() })
}

/// nextest's summary line. A test that could not run says `SKIPPED: why` and ends well, so it is taken from those
/// that passed.
pub(super) fn nextest(text: &str) -> Option<Report> {
    let line = text.lines().rfind(|line| line.trim_start().starts_with("Summary ["))?;
    let (_, counts) = line.split_once("run: ")?;
    let mut report = Report::default();
    for count in counts.split(", ") {
        let (number, what) = count.trim().split_once(' ')?;
        // "2 passed (1 slow)": what stands in brackets is a part of the number before it.
        let number: u64 = number.parse().ok()?;
        match what.split(' ').next()? {
            "passed" => report.passed += number,
            "skipped" => report.skipped += number,
            _ => report.failed += number,
        }
    }
    let mut name = None;
    for line in text.lines().map(str::trim_start) {
        if let Some(rest) = line.strip_prefix("PASS [") {
            name = rest.split_once(") ").map(|(_, name)| name);
        } else if let Some(why) = line.strip_prefix("SKIPPED: ")
            && let Some(name) = name.take()
        {
            report.passed = report.passed.checked_sub(1)?;
            report.skipped += 1;
            report.notes.push(format!("skipped {name}: {why}"));
        }
    }
    Some(report).filter(|report| report.passed + report.failed > 0)
}

/// The result lines of libtest, one for each program that ran.
pub(super) fn cargo_test(text: &str) -> Option<Report> {
    let mut found = None;
    for line in text.lines().filter(|line| line.starts_with("test result: ")) {
        let report: &mut Report = found.get_or_insert_default();
        for count in line.split(['.', ';']) {
            match count.trim().split_once(' ') {
                Some((number, "passed")) => report.passed += number.parse::<u64>().ok()?,
                Some((number, "failed")) => report.failed += number.parse::<u64>().ok()?,
                Some((number, "ignored")) => report.skipped += number.parse::<u64>().ok()?,
                _ => {}
            }
        }
    }
    found
}

/// The suite's JSON: one object a case, then the counts. A known failure is not a pass, so it counts as skipped.
pub(super) fn conformance(text: &str) -> Option<Report> {
    let objects = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut notes = Vec::new();
    let mut counts = None;
    for object in objects {
        if object["passed"].is_u64() {
            counts = Some(object);
        } else if let Some(outcome) = object["outcome"].as_str().filter(|outcome| *outcome != "passed") {
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            notes.push(format!("{outcome} {}: {}", text("name"), text("reason")));
        }
    }
    let counts = counts?;
    let count = |field: &str| counts[field].as_u64().unwrap_or_default();
    let report = Report {
        passed: count("passed"),
        failed: count("failed"),
        skipped: count("skipped") + count("known"),
        notes,
    };
    Some(report).filter(|report| report.passed + report.failed > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counts(report: Option<Report>) -> (u64, u64, u64) {
        report.map(|r| (r.passed, r.failed, r.skipped)).unwrap()
    }

    #[test]
    fn nextest_is_read_with_what_stands_in_brackets() {
        let text =
            "   PASS x\n     Summary [   0.010s] 3 tests run: 2 passed (1 slow), 1 failed, 4 skipped\n";
        assert_eq!(counts(nextest(text)), (2, 1, 4));
        let cut = "  Summary [ 1.0s] 3/5 tests run: 1 passed, 1 timed out, 1 exec failed, 0 skipped";
        assert_eq!(counts(nextest(cut)), (1, 2, 0));
    }

    #[test]
    fn a_test_that_says_it_was_skipped_did_not_pass() {
        let text = "        PASS [   0.1s] (1/3) crate::life makes\n  stdout ---\n\n    running 1 test\n    \
                    SKIPPED: no engine\n    SKIPPED: no image\n    test makes ... ok\n        \
                    PASS [   0.1s] (2/3) crate::life ends\n     Summary [ 0.2s] 2 tests run: 2 passed, 0 skipped\n";
        let report = nextest(text).unwrap();
        assert_eq!((report.passed, report.skipped), (1, 1));
        assert_eq!(report.notes, ["skipped crate::life makes: no engine"]);
    }

    #[test]
    fn a_run_of_no_test_is_no_pass() {
        assert_eq!(nextest("  Summary [ 0.0s] 0 tests run: 0 passed, 3 skipped"), None);
        assert_eq!(nextest("error: no tests to run"), None);
        assert_eq!(conformance(r#"{"passed":0,"failed":0,"skipped":9,"known":0}"#), None);
        assert_eq!(conformance(""), None);
    }

    #[test]
    fn libtests_results_are_added_up() {
        let text = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.0s\n\
                    test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(counts(cargo_test(text)), (5, 1, 1));
    }

    #[test]
    fn the_suites_counts_come_from_its_last_object_and_reasons_from_its_cases() {
        let text = r#"noise
{"name":"a","promise":"p","outcome":"passed","reason":null,"ms":3}
{"name":"b","promise":"p","outcome":"skipped","reason":"no switch","ms":0}
{"passed":1,"failed":0,"skipped":1,"known":1}"#;
        let report = conformance(text).unwrap();
        assert_eq!((report.passed, report.skipped), (1, 2));
        assert_eq!(report.notes, ["skipped b: no switch"]);
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_reader(text in ".{0,200}", line in "(Summary \\[)?.{0,9}run: [0-9 a-z,()]{0,40}") {
            for text in [&text, &line, &format!("test result: {text}")] {
                drop((nextest(text), cargo_test(text), conformance(text)));
            }
        }
    }
}
