//! How people read times, durations and amounts.

use std::time::Duration;

use bbbox::{record::Unanswered, size::SizeChoice};
use jiff::Timestamp;

/// How long something took: `340 ms`, `1.2 s`, `2 min 5 s`.
pub(crate) fn took(time: Duration) -> String {
    match time.as_millis() {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..60_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        ms => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

/// How long ago something was: `now`, `5 min`, `3 h`, `2 days`.
pub(crate) fn ago(then: Timestamp, now: Timestamp) -> String {
    match now.duration_since(then).as_secs() {
        ..60 => "now".to_owned(),
        s @ 60..3_600 => format!("{} min", s / 60),
        s @ 3_600..172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}

/// Since when a box is silent, and what was seen last: nobody may have asked it since.
pub(crate) fn silent(silence: &Unanswered, now: Timestamp) -> String {
    let ago = match ago(silence.since, now).as_str() {
        "now" => "just now".to_owned(),
        long => format!("{long} ago"),
    };
    let Unanswered { since, tries, words, .. } = silence;
    format!("since {since:.0} ({ago}, asked {tries} times since): {words}")
}

/// An amount of bytes: `512 B`, `1.5 MiB`, `2.0 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, factor)| n >= *factor) {
        Some((unit, factor)) => format!("{:.1} {unit}", n as f64 / factor as f64),
        None => format!("{n} B"),
    }
}

/// Reads a size as an argument.
pub(crate) fn size(text: &str) -> Result<SizeChoice, String> {
    text.parse().map_err(spoken)
}

/// An error as clap shows it under an argument: what is wrong, and what is right.
pub(crate) fn spoken(error: bbbox::Error) -> String {
    match error.how_to_fix() {
        Some(fix) => format!("{error}; {fix}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_amounts_read_as_people_write_them() {
        let ms = Duration::from_millis;
        assert_eq!([took(ms(7)), took(ms(1_240)), took(ms(125_000))], ["7 ms", "1.2 s", "2 min 5 s"]);
        let now: Timestamp = "2026-01-03T00:00:00Z".parse().unwrap();
        let at = |text: &str| ago(text.parse().unwrap(), now);
        assert_eq!(at("2026-01-02T23:59:30Z"), "now");
        assert_eq!(at("2026-01-02T23:55:00Z"), "5 min");
        assert_eq!(at("2026-01-02T20:00:00Z"), "4 h");
        assert_eq!(at("2025-12-30T00:00:00Z"), "4 days");
        assert_eq!([bytes(512), bytes(1_572_864), bytes(2 << 30)], ["512 B", "1.5 MiB", "2.0 GiB"]);
    }
}
