//! What asks this program to end: a Ctrl-C, a terminate, and the hang-up of its terminal.
//!
//! A signal that whoever started it has it ignore, as `nohup` and a shell's `&` do, stays ignored.

use bbbox::signals::was_ignored;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask for an end, as they come.
pub(crate) struct Ends(Vec<Signal>);

impl Ends {
    /// Listens from now on.
    pub(crate) fn listen() -> Self {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let heeded = kinds.into_iter().filter(|kind| !was_ignored(kind.as_raw_value()));
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
