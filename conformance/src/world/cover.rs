//! What a swarm is to have met: each operation, at each of its steps, with each fault that can happen there.

use std::collections::BTreeSet;

/// Every crash point that a schedule may choose to die at.
pub(super) const POINTS: &[&str] = &[
    "acquire place look",
    "acquire place decide",
    "acquire place decided",
    "acquire make intend",
    "acquire make intended",
    "acquire make write within",
    "acquire make wrote within",
    "acquire make save task",
    "acquire make saved task",
    "acquire make acted",
    "acquire make recorded",
    "acquire ready intend",
    "acquire ready intended",
    "acquire ready acted",
    "acquire ready recorded",
    "acquire publish write",
    "acquire publish wrote",
    "acquire undoing",
    "acquire undo release-guest of make intend",
    "acquire undo release-guest of make intended",
    "acquire undo release-guest of make acted",
    "acquire undo release-guest of make undone",
    "acquire end",
    "acquire ended",
    "start room look",
    "start room decide",
    "start room decided",
    "start start intend",
    "start start intended",
    "start start acted",
    "start start recorded",
    "start ready intend",
    "start ready intended",
    "start ready acted",
    "start ready recorded",
    "start answers write",
    "start answers wrote",
    "start end",
    "start ended",
    "stop stopping write",
    "stop stopping wrote",
    "stop stop intend",
    "stop stop intended",
    "stop stop acted",
    "stop stop recorded",
    "stop end",
    "stop ended",
    "release turn",
    "release releasing write",
    "release releasing wrote",
    "release release intend",
    "release release intended",
    "release release acted",
    "release release recorded",
    "release forget write",
    "release forget wrote",
    "release end",
    "release ended",
    "rename relabel intend",
    "rename relabel intended",
    "rename relabel acted",
    "rename relabel recorded",
    "rename end",
    "rename ended",
    "resize room look",
    "resize room decide",
    "resize room decided",
    "resize resize intend",
    "resize resize intended",
    "resize resize acted",
    "resize resize recorded",
    "resize end",
    "resize ended",
    "check look look",
    "check look decide",
    "check look decided",
    "check end",
    "check ended",
    "adopt adopt look",
    "adopt adopt decide",
    "adopt adopt decided",
    "adopt end",
    "adopt ended",
    "release-stray wanted intend",
    "release-stray wanted intended",
    "release-stray wanted acted",
    "release-stray wanted recorded",
    "release-stray release intend",
    "release-stray release intended",
    "release-stray release acted",
    "release-stray release recorded",
    "release-stray end",
    "release-stray ended",
    "forget forget write",
    "forget forget wrote",
    "forget end",
    "forget ended",
];

const READS: &[&str] = &["refused", "answer lost", "slow"];
const CHANGES: &[&str] = &["refused", "answer lost", "slow", "done late", "broken"];
const LINE: &[&str] = &["line breaks before", "line breaks after", "line stalls"];

/// Which calls of a provider each step makes, and what may become of them.
const CALLS: &[(&str, &str, &[&str])] = &[
    ("acquire place", "offers", READS),
    ("acquire place", "capacity", READS),
    ("acquire make", "find", READS),
    ("acquire make", "create", CHANGES),
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
    ("check look", "power", READS),
    ("check look", "stopped", READS),
    ("adopt adopt", "power", READS),
    ("release-stray wanted", "power", READS),
    ("release-stray release", "delete", CHANGES),
    ("sweep call", "held", READS),
    ("sweep call", "offers", READS),
    ("sweep call", "power", READS),
    ("sweep call", "list", &["in part"]),
    ("upkeep", "held", READS),
    ("upkeep", "power", READS),
    ("upkeep", "list", &["in part"]),
];

/// Which calls reach into a box.
const INSIDE: &[&str] =
    &["acquire ready", "start ready", "run call", "launch call", "wait call", "look call"];

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
];

/// Every cell of the table.
pub(super) fn cells() -> BTreeSet<String> {
    let deaths = POINTS
        .iter()
        .map(|at| format!("{}: dies at {}", super::parts::step_of(at), super::parts::phase_of(at)));
    let calls = CALLS.iter().flat_map(|(step, method, faults)| {
        faults.iter().map(move |fault| format!("{step}: {method} {fault}"))
    });
    let inside = INSIDE.iter().flat_map(|step| LINE.iter().map(move |fault| format!("{step}: {fault}")));
    let asked = ASKED.iter().flat_map(|step| {
        ["thread misreported", "thread not reported"].into_iter().map(move |fault| format!("{step}: {fault}"))
    });
    let happens = HAPPENS.iter().map(|what| format!("{what} call: happens"));
    deaths.chain(calls).chain(inside).chain(asked).chain(happens).collect()
}
