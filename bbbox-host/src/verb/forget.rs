//! `bbbox forget`: a record goes, and nothing else.

use clap::Args;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::Printer,
    progress::{Progress, settle},
};

/// Forget a box whose backend is no longer configured; nothing is deleted anywhere
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bbbox forget dev")]
pub(crate) struct Forget {
    /// The box, by name or ID
    #[arg(value_name = "BOX")]
    name: String,
}

impl Forget {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "forget", async |boxes| {
            let handle = boxes.get(&self.name)?;
            let record = handle.record()?;
            let events = boxes.events();
            let operation = handle.begin_forget()?;
            let progress = Progress::new(printer, format!("forgetting {}", self.name));
            settle(boxes, events, &operation, &progress).await?;
            printer.answer(&record, || format!("{} is forgotten; nothing of it was deleted", record.name))?;
            Ok(0)
        })
    }
}
