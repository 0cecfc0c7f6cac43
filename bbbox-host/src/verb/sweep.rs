//! `bbbox sweep`: finish what was begun, look at everything once and mend what differs.

use std::time::Duration;

use bbbox::{
    ErrorKind,
    boxes::Boxes,
    journal::{State, Summary},
    sweep::Report,
};
use clap::Args;

use crate::{cli::Common, fault::Fault, folder, printer::Printer, progress::Progress};

/// How long what an earlier call began is waited for.
const PATIENCE: Duration = Duration::from_secs(300);

/// Look at every guest and record once: finish what was interrupted, find what is lost
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  bbbox sweep\n\nIt touches no guest of another install. It exits with 1 when it \
    could not see or do everything, and says what stands and what to do about it."
)]
pub(crate) struct Sweep {}

impl Sweep {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "sweep", async |boxes| {
            let progress = Progress::new(printer, "finishing what was begun");
            let finished = progress.during(finish(boxes)).await?;
            let progress = Progress::new(printer, "looking at every guest");
            let waits = |whom: &str| progress.say(&format!("looking at every guest: {whom}"), None);
            let mut report = progress.during(boxes.sweep_telling(&waits)).await?;
            report.done.splice(0..0, finished);
            report.troubles.extend(standing(boxes)?);
            printer.answer(&report, || told(&report))?;
            Ok(u8::from(!report.troubles.is_empty()))
        })
    }
}

/// Waits for what an earlier call left under way, which went on when the folder was opened, and says how each ended.
async fn finish(boxes: &Boxes) -> Result<Vec<String>, Fault> {
    let left = boxes.unfinished()?;
    let under_way =
        left.iter().filter(|operation| !matches!(operation.state, State::Suspended | State::Unknown));
    let waits = under_way.map(async |operation| {
        let ended = tokio::time::timeout(PATIENCE, boxes.wait(&operation.id)).await.ok()?;
        let what = named(operation, boxes);
        match ended {
            Ok(()) => Some(format!("finished {what}")),
            // What still stands is told once everything was looked at.
            Err(error) if error.kind() == ErrorKind::Busy => None,
            Err(error) => Some(format!("{what} came to nothing: {}", error.chain())),
        }
    });
    Ok(futures::future::join_all(waits).await.into_iter().flatten().collect())
}

/// What has not come to its end all the same, with what to do about it.
fn standing(boxes: &Boxes) -> Result<Vec<String>, Fault> {
    let left = boxes.unfinished()?;
    // Of what stands still the sweep tells by itself.
    let told = left.iter().filter(|operation| operation.state != State::Suspended);
    Ok(told
        .map(|operation| {
            let what = named(operation, boxes);
            let error = operation.error.as_ref();
            let why = error.map(|error| format!(": {}", error.chain())).unwrap_or_default();
            let fix = error.and_then(bbbox::Error::how_to_fix).unwrap_or("look again: `bbbox sweep`");
            format!("{what} is {}{why} ({fix})", operation.state.as_str())
        })
        .collect())
}

/// An operation for a person, with its boxes' names.
fn named(operation: &Summary, boxes: &Boxes) -> String {
    let names = operation.boxes.iter().map(|id| {
        let record = boxes.get(id.as_str()).and_then(|handle| handle.record());
        record.map_or_else(|_| id.to_string(), |record| record.name.to_string())
    });
    let of = names.collect::<Vec<_>>().join(", ");
    let of = if of.is_empty() { of } else { format!(" of {of}") };
    format!("the {}{of}", operation.kind.replace('-', " "))
}

fn told(report: &Report) -> String {
    let troubles = report.troubles.iter().map(|trouble| format!("trouble: {trouble}"));
    let mut lines: Vec<String> = report.done.iter().chain(&report.kept).cloned().chain(troubles).collect();
    if lines.is_empty() {
        lines.push("All is as it should be".to_owned());
    }
    lines.iter().map(|text| format!("{}\n", crate::printer::line(text))).collect()
}
