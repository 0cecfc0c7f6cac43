//! `bbbox list`: the boxes there are.

use bbbox::record::{BoxRecord, BoxState};
use clap::Args;
use jiff::Timestamp;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::{Printer, table},
    words,
};

/// List boxes, oldest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bbbox list\n  bbbox list --json | jq -r '.[].name'")]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::block_on(async {
            let boxes = folder::reading(common)?.list()?;
            printer.answer(&boxes, || {
                if boxes.is_empty() {
                    return "There are no boxes. Acquire one: `bbbox acquire linux`".to_owned();
                }
                let now = Timestamp::now();
                table(
                    ["NAME", "STATE", "KIND", "SIZE", "BACKEND", "AGE", "THREAD", "NOTE"],
                    boxes.iter().map(|record| row(record, now)),
                )
            })?;
            Ok(0)
        })
    }
}

fn row(record: &BoxRecord, now: Timestamp) -> [String; 8] {
    let dash = || "-".to_owned();
    let unanswered = record.unanswered.as_ref();
    [
        record.name.to_string(),
        record.state.to_string(),
        record.kind.to_string(),
        record.size.to_string(),
        record.backend.as_ref().map_or_else(dash, ToString::to_string),
        words::ago(record.made, now),
        record.thread.as_ref().map_or_else(dash, ToString::to_string),
        record
            .trouble
            .clone()
            .map(|words| match record.state {
                BoxState::Gone => format!("{words}: `bbbox release {}`", record.name),
                _ => words,
            })
            .or_else(|| unanswered.map(|u| format!("does not answer {}", words::silent(u, now))))
            .unwrap_or_default(),
    ]
}
