//! `bbbox resize`: another size for a box.

use bbbox::size::SizeChoice;
use clap::Args;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::Printer,
    progress::{Progress, settle},
    words,
};

/// Give a box another size; its files stay
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  bbbox resize dev large\n  bbbox resize dev cores=4,memory=8GiB")]
pub(crate) struct Resize {
    /// The box, by name or ID
    #[arg(value_name = "BOX")]
    name: String,
    /// A size of its kind's (small, medium, large), or cores=2,memory=4GiB,disk=20GiB
    #[arg(value_parser = words::size)]
    size: SizeChoice,
}

impl Resize {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "resize", async |boxes| {
            let handle = boxes.get(&self.name)?;
            let events = boxes.events();
            let operation = handle.begin_resize(&self.size)?;
            let progress = Progress::new(printer, format!("resizing {}", self.name));
            settle(boxes, events, &operation, &progress).await?;
            let record = handle.record()?;
            printer.answer(&record, || format!("{} has {}", record.name, record.size))?;
            Ok(0)
        })
    }
}
