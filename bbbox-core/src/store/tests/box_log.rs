//! What the box log keeps, drops and survives.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use crate::{
    id::BoxId,
    store::{
        BoxLog, LogEvent, Logged,
        box_log::{LONGEST_WORDS, clipped},
    },
};

pub(super) fn box_id(n: u64) -> BoxId {
    BoxId::parse(format!("bx{n:012}")).unwrap()
}

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap() + SignedDuration::from_hours(hours)
}

pub(super) fn event(n: u64, hours: i64, kind: &str) -> LogEvent {
    LogEvent {
        at: at(hours),
        box_id: box_id(n),
        kind: kind.to_owned(),
        by: "you".to_owned(),
        words: format!("{kind} at {hours}"),
        operation: None,
    }
}

fn kinds(log: &BoxLog, n: u64) -> Vec<String> {
    log.read(&box_id(n), None, 999).unwrap().into_iter().map(|logged| logged.event.words).collect()
}

#[test]
fn events_come_back_in_order_from_the_end_or_after_one() {
    let log = BoxLog::memory();
    for hours in 0..5 {
        log.append(&event(1, hours, "stopped"));
        log.append(&event(2, hours, "stopped"));
    }
    let all = log.read(&box_id(1), None, 99).unwrap();
    assert_eq!(all.len(), 5);
    assert_eq!(all[0].event, event(1, 0, "stopped"));
    let words = |logged: &[Logged]| logged.iter().map(|l| l.event.words.clone()).collect::<Vec<_>>();
    assert_eq!(words(&log.read(&box_id(1), None, 2).unwrap()), ["stopped at 3", "stopped at 4"]);
    let after = log.read(&box_id(1), Some(all[1].seq), 2).unwrap();
    assert_eq!(words(&after), ["stopped at 2", "stopped at 3"]);
}

#[test]
fn a_week_is_kept_and_the_latest_of_each_kind() {
    let log = BoxLog::memory();
    log.append(&event(1, 0, "ready"));
    log.append(&event(1, 1, "stopped"));
    log.append(&event(1, 2, "stopped"));
    log.append(&event(2, 7 * 24 + 3, "ready"));
    assert_eq!(kinds(&log, 1), ["ready at 0", "stopped at 2"]);
    assert_eq!(kinds(&log, 2).len(), 1);
}

#[test]
fn a_box_that_is_gone_keeps_its_history_for_a_day() {
    let log = BoxLog::memory();
    let ends =
        [(1, "released"), (2, "forgotten"), (3, "stopped"), (5, "acquire-failed"), (6, "stray-released")];
    for (n, last) in ends {
        log.append(&event(n, 0, "ready"));
        log.append(&event(n, 1, last));
    }
    // A box that came back after it was forgotten is not gone.
    log.append(&event(4, 0, "forgotten"));
    log.append(&event(4, 1, "ready"));
    log.append(&event(9, 24, "ready"));
    assert_eq!([1, 2, 3, 4, 5, 6].map(|n| kinds(&log, n).len()), [2; 6]);
    log.append(&event(9, 26, "stopped"));
    assert_eq!([1, 2, 3, 4, 5, 6].map(|n| kinds(&log, n).len()), [0, 0, 2, 2, 0, 0]);
}

#[test]
fn a_failure_tried_over_and_over_is_kept_once_until_something_else_happens() {
    let log = BoxLog::memory();
    let add = |hours, kind, by: &str, words: &str| {
        log.append(&LogEvent { by: by.to_owned(), words: words.to_owned(), ..event(1, hours, kind) });
    };
    let told = || -> Vec<String> {
        let all = log.read(&box_id(1), None, 99).unwrap().into_iter();
        all.map(|l| format!("{} {} {}", l.event.kind, l.event.by, l.event.words)).collect()
    };
    let try_release = |hours, by: &str, words: &str| {
        add(hours, "release-asked", by, "");
        add(hours, "release-failed", "bb-box", words);
    };
    for hours in 0..5 {
        try_release(hours, "sweep", "no answer");
        log.append(&event(2, hours, "stopped"));
    }
    assert_eq!(told(), ["release-asked sweep ", "release-failed bb-box no answer"]);
    assert_eq!(log.read(&box_id(1), None, 1).unwrap()[0].event.at, at(0), "since when it fails");
    // Other words, another asker, or something between: each is news.
    try_release(5, "sweep", "no disk");
    try_release(6, "you", "no disk");
    try_release(7, "you", "no disk");
    add(8, "stopped", "bb-box", "");
    try_release(9, "you", "no disk");
    let news = [
        "release-asked sweep ",
        "release-failed bb-box no disk",
        "release-asked you ",
        "release-failed bb-box no disk",
        "stopped bb-box ",
        "release-asked you ",
        "release-failed bb-box no disk",
    ];
    assert_eq!(told()[2..], news);
    assert_eq!(kinds(&log, 2).len(), 5);
}

#[test]
fn at_its_cap_the_oldest_go_and_the_file_stays_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let log = BoxLog::own(folder.path());
    let words = "x".repeat(LONGEST_WORDS);
    let mut last = 0;
    for n in 0..6000 {
        log.append(&LogEvent { words: words.clone(), ..event(1 + n % 3, 0, "said") });
        last = n;
    }
    log.append(&event(7, 0, "ready"));
    let size: u64 = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap())
        // The index into the write-ahead log is memory, not storage.
        .filter(|file| !file.file_name().to_string_lossy().ends_with("-shm"))
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!((4 << 20..=8 << 20).contains(&size), "{size} bytes");
    let newest = log.read(&box_id(1 + last % 3), None, 1).unwrap();
    assert_eq!(newest[0].seq, 6000);
    assert_eq!(kinds(&log, 7), ["ready at 0"]);
    let oldest = log.read(&box_id(1), Some(0), 1).unwrap();
    assert!((2000..5000).contains(&oldest[0].seq), "{}", oldest[0].seq);
}

#[test]
fn history_that_cannot_be_kept_stops_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("box-log.db"), "this is no database, only words".repeat(99)).unwrap();
    let log = BoxLog::own(folder.path());
    log.append(&event(1, 0, "ready"));
    let error = log.read(&box_id(1), None, 9).unwrap_err();
    assert!(error.how_to_fix().is_some_and(|fix| fix.contains("box-log.db")), "{error:?}");
}

#[test]
fn the_history_outlives_its_process_and_others_read_it() {
    let folder = tempfile::tempdir().unwrap();
    assert!(BoxLog::look(folder.path()).read(&box_id(1), None, 9).unwrap().is_empty());
    BoxLog::own(folder.path()).append(&event(1, 0, "ready"));
    let owner = BoxLog::own(folder.path());
    owner.append(&event(1, 1, "stopped"));
    let reader = BoxLog::look(folder.path());
    assert_eq!(kinds(&reader, 1), ["ready at 0", "stopped at 1"]);
    reader.append(&event(1, 2, "started"));
    assert_eq!(kinds(&owner, 1).len(), 2);
}

proptest! {
    #[test]
    fn long_words_keep_their_beginning_and_their_end(text in "\\PC{0,3000}") {
        let short = clipped(&text);
        prop_assert!(short.len() <= LONGEST_WORDS + 5);
        if text.len() <= LONGEST_WORDS {
            prop_assert_eq!(short, text);
        } else {
            let (head, tail) = short.split_once(" … ").unwrap();
            prop_assert!(text.starts_with(head));
            prop_assert!(text.ends_with(tail) || short.matches(" … ").count() > 1);
        }
    }
}
