//! `bbbox start`: a stopped box runs again.

use clap::Args;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::Printer,
    progress::{Progress, settle},
};

/// Start a stopped box and wait until its commands answer
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bbbox start dev")]
pub(crate) struct Start {
    /// The box, by name or ID
    #[arg(value_name = "BOX")]
    name: String,
}

impl Start {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "start", async |boxes| {
            let handle = boxes.get(&self.name)?;
            let events = boxes.events();
            let operation = handle.begin_start()?;
            let progress = Progress::new(printer, format!("starting {}", self.name));
            settle(boxes, events, &operation, &progress).await?;
            let record = handle.record()?;
            printer.answer(&record, || format!("{} is {}", record.name, record.state))?;
            Ok(0)
        })
    }
}
