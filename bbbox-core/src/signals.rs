//! The signals that this process was started to ignore, as `nohup` and a shell's `&` start one.
//!
//! A process passes on what it ignores to all that it starts, and a shell cannot take that back. What it catches it does
//! not pass on: so a backend whose boxes are processes of this machine has this process catch what it ignored, and do
//! nothing then.

use std::sync::LazyLock;

static AT_START: LazyLock<u64> =
    LazyLock::new(|| std::fs::read_to_string("/proc/self/status").map_or(0, |status| mask(&status)));

/// Whether this process was started to ignore the signal `number`. The first call must come before anything catches a
/// signal. Where the system does not tell, as outside Linux, none was.
#[must_use]
pub fn was_ignored(number: i32) -> bool {
    is_in(*AT_START, number)
}

/// Has what is started from now on begin with no signal ignored: for a backend that starts commands as processes of this
/// machine, before it does. Needs a runtime of tokio around it.
pub fn pass_none_on() {
    use tokio::signal::unix::{SignalKind, signal};
    static DONE: std::sync::Once = std::sync::Once::new();
    // A broken pipe's signal is not among them: the standard library gives that back itself.
    let kinds = [
        SignalKind::hangup(),
        SignalKind::interrupt(),
        SignalKind::quit(),
        SignalKind::terminate(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::alarm(),
    ];
    DONE.call_once(|| {
        for kind in kinds.into_iter().filter(|kind| was_ignored(kind.as_raw_value())) {
            if let Err(error) = signal(kind) {
                tracing::warn!(signal = kind.as_raw_value(), %error, "boxes inherit that a signal is ignored");
            }
        }
    });
}

fn mask(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

fn is_in(mask: u64, number: i32) -> bool {
    u32::try_from(number - 1).ok().and_then(|bit| mask.checked_shr(bit)).is_some_and(|rest| rest & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored_is_read_from_the_processs_own_status() {
        let mask = mask("Name:\tsh\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000010002\n");
        assert!(is_in(mask, 1) && !is_in(mask, 2) && !is_in(mask, 15));
        assert_eq!(super::mask("nothing of it"), 0);
        assert!(!is_in(u64::MAX, 0) && !is_in(u64::MAX, -1) && !is_in(u64::MAX, 65));
    }
}
