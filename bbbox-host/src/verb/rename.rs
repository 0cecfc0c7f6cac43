//! `bbbox rename`: another name for a box.

use bbbox::id::BoxName;
use clap::Args;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::Printer,
    progress::{Progress, settle},
    words,
};

/// Give a box another name
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bbbox rename dev staging")]
pub(crate) struct Rename {
    /// The box, by name or ID
    #[arg(value_name = "BOX")]
    name: String,
    /// Its new name
    #[arg(value_parser = |t: &str| BoxName::parse(t).map_err(words::spoken))]
    to: BoxName,
}

impl Rename {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "rename", async |boxes| {
            let handle = boxes.get(&self.name)?;
            let events = boxes.events();
            let operation = handle.begin_rename(self.to)?;
            let progress = Progress::new(printer, format!("renaming {}", self.name));
            settle(boxes, events, &operation, &progress).await?;
            let record = handle.record()?;
            printer.answer(&record, || format!("{} ({}) has its new name", record.name, record.id))?;
            Ok(0)
        })
    }
}
