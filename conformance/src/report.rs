//! What a run found: a line a case, the counts, a table for people.

use std::fmt;

use comfy_table::{Cell, ContentArrangement, Table, presets::UTF8_HORIZONTAL_ONLY};
use serde::Serialize;

/// How a case came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The promise held.
    Passed,
    /// It did not.
    Failed,
    /// It does not apply; the reason says why.
    Skipped,
    /// It fails, as is known.
    Known,
}

impl Outcome {
    /// As one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Known => "known",
        }
    }
}

/// One case as it came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Told {
    /// The case.
    pub name: String,
    /// The promise that it holds a backend to.
    pub promise: String,
    /// How it came out.
    pub outcome: Outcome,
    /// Why, unless it passed.
    pub reason: Option<String>,
    /// Milliseconds that it took.
    pub ms: u64,
}

/// Everything a run found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each case, in the suite's order.
    pub cases: Vec<Told>,
    /// Every secret that the run used: none may stand in any log of it.
    pub secrets: Vec<String>,
}

impl From<Vec<Told>> for Report {
    fn from(cases: Vec<Told>) -> Self {
        Self { cases, secrets: Vec::new() }
    }
}

/// How many cases came out in which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
    known: usize,
}

impl Report {
    /// How many cases came out in which way.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |outcome| self.cases.iter().filter(|c| c.outcome == outcome).count();
        Counts {
            passed: count(Outcome::Passed),
            failed: count(Outcome::Failed),
            skipped: count(Outcome::Skipped),
            known: count(Outcome::Known),
        }
    }

    /// Whether something was tried and nothing failed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let counts = self.counts();
        counts.failed == 0 && counts.passed > 0
    }

    /// The run as JSON: one object a case, then the counts, a line each.
    #[must_use]
    pub fn to_json_lines(&self) -> String {
        // Cannot fail: strings, numbers and unit variants alone.
        let line =
            |value: serde_json::Result<String>| value.unwrap_or_else(|_| unreachable!("plain data")) + "\n";
        let mut text: String = self.cases.iter().map(|case| line(serde_json::to_string(case))).collect();
        text.push_str(&line(serde_json::to_string(&self.counts())));
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["case", "promise", "outcome", "ms", "reason"]);
        for case in &self.cases {
            table.add_row([
                Cell::new(&case.name),
                Cell::new(&case.promise),
                Cell::new(case.outcome.as_str()),
                Cell::new(case.ms),
                Cell::new(case.reason.as_deref().unwrap_or_default()),
            ]);
        }
        let Counts { passed, failed, skipped, known } = self.counts();
        write!(f, "{table}\n{passed} passed, {failed} failed, {skipped} skipped, {known} known")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(outcome: Outcome) -> Told {
        let reason = (outcome != Outcome::Passed).then(|| "why".to_owned());
        Told { name: "a".into(), promise: "p".into(), outcome, reason, ms: 3 }
    }

    #[test]
    fn a_run_is_told_as_programs_read_it() {
        let report = Report::from(vec![told(Outcome::Passed), told(Outcome::Skipped)]);
        assert_eq!(
            report.to_json_lines(),
            "{\"name\":\"a\",\"promise\":\"p\",\"outcome\":\"passed\",\"reason\":null,\"ms\":3}\n\
             {\"name\":\"a\",\"promise\":\"p\",\"outcome\":\"skipped\",\"reason\":\"why\",\"ms\":3}\n\
             {\"passed\":1,\"failed\":0,\"skipped\":1,\"known\":0}\n"
        );
    }

    #[test]
    fn a_run_that_tried_nothing_is_not_good() {
        assert!(!Report::default().is_good());
        assert!(!Report::from(vec![told(Outcome::Skipped)]).is_good());
        assert!(!Report::from(vec![told(Outcome::Passed), told(Outcome::Failed)]).is_good());
        assert!(Report::from(vec![told(Outcome::Passed), told(Outcome::Known)]).is_good());
    }
}
