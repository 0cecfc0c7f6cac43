//! `bbbox stop`: a box stands still and keeps its disk.

use clap::Args;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::Printer,
    progress::{Progress, settle},
};

/// Stop a box: its disk stays, its memory is freed
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  bbbox stop dev")]
pub(crate) struct Stop {
    /// The box, by name or ID
    #[arg(value_name = "BOX")]
    name: String,
    /// Stop it even while a thread works on it
    #[arg(long)]
    force: bool,
}

impl Stop {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "stop", async |boxes| {
            let handle = boxes.get(&self.name)?;
            let events = boxes.events();
            let operation = handle.begin_stop(self.force).await?;
            let progress = Progress::new(printer, format!("stopping {}", self.name));
            settle(boxes, events, &operation, &progress).await?;
            let record = handle.record()?;
            printer.answer(&record, || format!("{} is {}", record.name, record.state))?;
            Ok(0)
        })
    }
}
