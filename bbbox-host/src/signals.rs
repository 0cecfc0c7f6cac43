//! What asks this program to end: a Ctrl-C, a terminate, and the hang-up of its terminal.
//!
//! A signal that whoever started it has it ignore, as `nohup` and a shell's `&` do, stays ignored.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask for an end, as they come.
pub(crate) struct Ends(Vec<Signal>);

impl Ends {
    /// Listens from now on.
    pub(crate) fn listen() -> Self {
        let ignored = ignored();
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let heeded = kinds.into_iter().filter(|kind| !is_in(ignored, kind.as_raw_value()));
        Self(heeded.filter_map(|kind| signal(kind).ok()).collect())
    }

    /// The next one.
    pub(crate) async fn next(&mut self) {
        std::future::poll_fn(|context| {
            let came = self.0.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if came { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

/// The signals that this process was started to ignore, a bit each; none where that cannot be read.
fn ignored() -> u64 {
    std::fs::read_to_string("/proc/self/status").map_or(0, |status| mask(&status))
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
    }
}
