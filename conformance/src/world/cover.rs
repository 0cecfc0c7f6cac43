//! What a swarm is to have met: each operation, at each of its steps, with each fault that can happen there.

use std::{collections::BTreeSet, sync::LazyLock};

use super::parts::{phase_of, step_of};

/// What a step is, which says at which points of it a process may die.
#[derive(Clone, Copy)]
enum Step {
    /// It writes to the store.
    Write,
    /// It writes another state, which the state may not allow.
    Turns,
    /// It looks, and decides in the transaction that records it.
    Decide,
    /// It does something outside, or looks there.
    Outside,
    /// It has a backend make a guest, which calls back.
    Makes,
    /// What takes the step of this name back.
    Undo,
}

impl Step {
    fn points(self) -> &'static [&'static str] {
        match self {
            Self::Write => &["write", "wrote"],
            Self::Turns => &["write", "wrote", "recorded"],
            Self::Decide => &["look", "decide", "decided", "recorded"],
            Self::Outside => &["intend", "intended", "acted", "recorded"],
            Self::Makes => &[
                "intend",
                "intended",
                "write within",
                "wrote within",
                "save task",
                "saved task",
                "acted",
                "recorded",
            ],
            Self::Undo => &["intend", "intended", "acted", "undone", "armed", "stuck"],
        }
    }
}

/// Every operation with its steps.
const OPERATIONS: &[(&str, &[(&str, Step)])] = &[
    (
        "acquire",
        &[
            ("place", Step::Decide),
            ("make", Step::Makes),
            ("undo release-guest of make", Step::Undo),
            ("unmake", Step::Outside),
            ("undo release-guest of unmake", Step::Undo),
            ("ready", Step::Outside),
            ("publish", Step::Turns),
        ],
    ),
    (
        "start",
        &[
            ("room", Step::Decide),
            ("start", Step::Outside),
            ("ready", Step::Outside),
            ("answers", Step::Write),
        ],
    ),
    ("stop", &[("stopping", Step::Turns), ("stop", Step::Outside)]),
    ("release", &[("releasing", Step::Turns), ("release", Step::Outside), ("forget", Step::Write)]),
    ("rename", &[("relabel", Step::Outside)]),
    ("resize", &[("room", Step::Decide), ("resize", Step::Outside)]),
    ("check", &[("look", Step::Decide)]),
    ("adopt", &[("adopt", Step::Decide), ("answers", Step::Outside), ("heard", Step::Write)]),
    ("release-stray", &[("wanted", Step::Outside), ("release", Step::Outside)]),
    ("forget", &[("forget", Step::Turns)]),
];

/// Every crash point.
pub(super) fn points() -> &'static [String] {
    static POINTS: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut points = Vec::new();
        for (operation, steps) in OPERATIONS {
            points.extend(["turn", "undoing", "end", "ended"].map(|at| format!("{operation} {at}")));
            for (step, kind) in *steps {
                points.extend(kind.points().iter().map(|at| format!("{operation} {step} {at}")));
            }
        }
        points
    });
    &POINTS
}

/// The names of the operations.
pub(super) fn operations() -> Vec<&'static str> {
    OPERATIONS.iter().map(|(operation, _)| *operation).collect()
}

/// Every crash point of one operation.
pub(super) fn points_of(operation: &str) -> Vec<&'static str> {
    points().iter().map(String::as_str).filter(|at| at.split(' ').next() == Some(operation)).collect()
}

const READS: &[&str] = &["refused", "answer lost", "slow"];
const PARTS: &[&str] = &["in part"];
const CHANGES: &[&str] = &["refused", "answer lost", "slow", "done late", "broken"];
const LINE: &[&str] = &["line breaks before", "line breaks after", "line stalls"];

/// Which calls of a provider each step makes, and what may become of them.
const CALLS: &[(&str, &str, &[&str])] = &[
    ("acquire place", "offers", READS),
    ("acquire place", "capacity", READS),
    ("acquire make", "find", READS),
    ("acquire make", "create", CHANGES),
    ("acquire make", "start", CHANGES),
    ("acquire make", "delete", CHANGES),
    ("acquire unmake", "delete", CHANGES),
    ("acquire undo", "delete", CHANGES),
    ("start room", "capacity", READS),
    ("start start", "start", CHANGES),
    ("start start", "power", READS),
    ("stop stop", "stop", CHANGES),
    ("stop stop", "power", READS),
    ("release release", "delete", CHANGES),
    ("release release", "power", READS),
    ("rename relabel", "relabel", CHANGES),
    ("resize room", "capacity", READS),
    ("resize resize", "resize", CHANGES),
    ("resize resize", "capacity", READS),
    ("check look", "power", READS),
    ("check look", "stopped", READS),
    ("check look", "capacity", READS),
    ("adopt adopt", "power", READS),
    ("release-stray wanted", "power", READS),
    ("release-stray release", "delete", CHANGES),
    ("sweep call", "held", READS),
    ("sweep call", "offers", READS),
    ("sweep call", "power", READS),
    ("sweep call", "list", PARTS),
    ("upkeep", "held", READS),
    ("upkeep", "offers", READS),
    ("upkeep", "power", READS),
    ("upkeep", "list", PARTS),
];

/// Which calls reach into a box.
const INSIDE: &[&str] = &[
    "acquire ready",
    "start ready",
    "adopt answers",
    "upkeep",
    "run call",
    "launch call",
    "wait call",
    "look call",
    "signal call",
    "stream call",
    "follow call",
    "copy-in call",
    "copy-out call",
    "copy-tree-in call",
    "copy-tree-out call",
];

/// Who asks how a thread stands.
const ASKED: &[&str] = &["sweep call", "upkeep", "stop call", "release call"];

/// What happens to the world by itself.
const HAPPENS: &[&str] = &[
    "lose-store",
    "fill-store",
    "jump-clock",
    "guest-ends",
    "by-hand",
    "host-down",
    "thread-ends",
    "thread-works",
    "cut-lines",
    "configure",
    "restart",
];

/// Cells that cannot be met, and why.
const NEVER: &[(&str, &str)] =
    &[("acquire: dies at turn", "its box is new: nothing stands before it in the box's queue")];

/// What was met, held to the table.
pub(super) struct Covered {
    pub(super) cells: usize,
    /// Cells that were not met and could be.
    pub(super) missed: Vec<String>,
    /// Cells that cannot be met, with why.
    pub(super) never: Vec<String>,
    /// What was met, or passed, and is not in the table, or is said to be impossible there.
    pub(super) beyond: Vec<String>,
}

/// Holds what was met, and the crash points that were passed, to the table.
pub(super) fn covered(met: &BTreeSet<String>, passed: &BTreeSet<String>) -> Covered {
    let (all, never) = (cells(), NEVER.iter().map(|(cell, _)| (*cell).to_owned()).collect());
    let cells: BTreeSet<String> = all.difference(&never).cloned().collect();
    let points: BTreeSet<String> = points().iter().cloned().collect();
    let unknown = passed.difference(&points).map(|at| format!("the crash point {at:?}"));
    Covered {
        cells: cells.len(),
        missed: cells.difference(met).cloned().collect(),
        never: NEVER.iter().map(|(cell, why)| format!("{cell}: {why}")).collect(),
        beyond: met.difference(&cells).cloned().chain(unknown).collect(),
    }
}

/// Every cell of the table.
fn cells() -> BTreeSet<String> {
    let deaths = points().iter().map(|at| format!("{}: dies at {}", step_of(at), phase_of(at)));
    let again = points().iter().map(|at| format!("{}: dies again", step_of(at)));
    let calls = CALLS.iter().flat_map(|(step, method, faults)| {
        faults.iter().map(move |fault| format!("{step}: {method} {fault}"))
    });
    let inside = INSIDE.iter().flat_map(|step| LINE.iter().map(move |fault| format!("{step}: {fault}")));
    let asked = ASKED.iter().flat_map(|step| {
        ["thread misreported", "thread not reported"].into_iter().map(move |fault| format!("{step}: {fault}"))
    });
    let happens = HAPPENS.iter().map(|what| format!("{what} call: happens"));
    deaths.chain(again).chain(calls).chain(inside).chain(asked).chain(happens).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_to_be_impossible_is_in_the_table_once() {
        let (all, never): (_, BTreeSet<&str>) = (cells(), NEVER.iter().map(|(cell, _)| *cell).collect());
        assert_eq!(never.len(), NEVER.len());
        for cell in never {
            assert!(all.contains(cell), "{cell}");
        }
    }
}
