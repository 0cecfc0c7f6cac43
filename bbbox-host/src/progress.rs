//! What goes on, for a person who waits: a line on stderr once something takes longer than half a second.

use std::{borrow::Cow, time::Duration};

use bbbox::{
    Error,
    boxes::{Boxes, Events},
    id::OperationId,
    journal::What,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::broadcast::error::RecvError;

use crate::{
    fault::Fault,
    printer::{Printer, line},
    signals::Ends,
};

/// How long something may take before it is worth a line.
const WORTH_A_LINE: Duration = Duration::from_millis(500);

/// A line that says what goes on, hidden until it is worth it and always where nobody watches.
#[derive(Clone)]
pub(crate) struct Progress {
    bar: ProgressBar,
    watched: bool,
}

impl Progress {
    pub(crate) fn new(printer: Printer, what: impl Into<Cow<'static, str>>) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_message(what);
        bar.set_style(style(PLAIN));
        Self { bar, watched: printer.watched() }
    }

    /// Says what goes on, with the share that is done where that is known.
    pub(crate) fn say(&self, text: &str, fraction: Option<f64>) {
        self.bar.set_message(line(text));
        if let Some(fraction) = fraction {
            if self.bar.length().is_none() {
                self.bar.set_length(1000);
                self.bar.set_style(style(SHARE));
            }
            self.bar.set_position((fraction.clamp(0.0, 1.0) * 1000.0) as u64);
        } else if self.bar.length().is_some() {
            self.bar.unset_length();
            self.bar.set_style(style(PLAIN));
        }
    }

    /// Says how many bytes have passed, of `total` where that is known.
    pub(crate) fn bytes(&self, passed: u64, total: Option<u64>) {
        match total {
            Some(total) if self.bar.length() != Some(total) => {
                self.bar.set_length(total);
                self.bar.set_style(style(BYTES_OF));
            }
            None if self.bar.position() == 0 => self.bar.set_style(style(BYTES)),
            _ => {}
        }
        self.bar.set_position(passed);
    }

    /// Waits for `work`, showing the line once that takes a while, and takes it away at the end.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::pin!(work);
        if self.watched {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(WORTH_A_LINE) => {
                    self.bar.set_draw_target(ProgressDrawTarget::stderr());
                    self.bar.enable_steady_tick(Duration::from_millis(100));
                }
            }
        }
        let done = work.await;
        self.bar.finish_and_clear();
        done
    }
}

const PLAIN: &str = "{spinner} {msg} {elapsed:.dim}";
const SHARE: &str = "{spinner} {msg} {bar:24} {percent}% {elapsed:.dim}";
const BYTES: &str = "{spinner} {msg} {bytes}, {bytes_per_sec}";
const BYTES_OF: &str = "{spinner} {msg} {bar:24} {bytes} of {total_bytes}, {bytes_per_sec}";

fn style(template: &str) -> ProgressStyle {
    // Cannot fail: the templates are constants, and a test draws each.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

/// Waits for an operation, showing its progress. A Ctrl-C, or another signal that ends programs, asks for it to be
/// taken back; a second one leaves it.
///
/// # Errors
/// The operation's own; `Cancelled` when it was left, and it goes on with the next bbbox that opens the folder.
pub(crate) async fn settle(
    boxes: &Boxes,
    mut events: Events,
    operation: &OperationId,
    progress: &Progress,
) -> Result<(), Fault> {
    let watch = async {
        loop {
            match events.recv().await {
                Ok(event) if event.operation == *operation => show(progress, &event.what),
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    };
    let interrupts = async {
        let (mut ends, mut asked) = (Ends::listen(), false);
        loop {
            ends.next().await;
            if asked {
                break;
            }
            asked = true;
            match boxes.cancel(operation) {
                Ok(true) => progress.say("taking it back (Ctrl-C again leaves it)", None),
                Ok(false) => progress.say("too late to take it back (Ctrl-C again leaves it)", None),
                Err(error) => progress.say(&error.to_string(), None),
            }
        }
    };
    let work = async {
        tokio::select! {
            biased;
            done = boxes.wait(operation) => done,
            () = interrupts => Err(Error::cancelled(format!("operation {operation} was left where it is"))
                .fix("`bbbox sweep` goes on with it, as every verb does that changes something")),
            () = watch => Ok(()),
        }
    };
    Ok(progress.during(work).await?)
}

fn show(progress: &Progress, what: &What) {
    match what {
        What::Progress { text, fraction, .. } => progress.say(text, *fraction),
        What::StepEnded { error: Some(error), again: Some(again), .. } => {
            progress.say(&format!("again in {}: {error}", crate::words::took(*again)), None);
        }
        What::Undoing { cause } => progress.say(&format!("taking it back: {cause}"), None),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_the_line_is_drawn() {
        for template in [PLAIN, SHARE, BYTES, BYTES_OF] {
            ProgressStyle::with_template(template).unwrap();
        }
    }
}
