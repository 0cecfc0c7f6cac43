//! `bbbox release`: a box and all it keeps are deleted.

use clap::Args;
use serde::Serialize;

use bbbox::{
    boxes::Boxes,
    id::{BoxId, BoxName},
};

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::Printer,
    progress::{Progress, settle},
};

/// Release boxes: each is deleted with all it keeps
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bbbox release dev\n  \
    bbbox list --json | jq -r '.[].name' | xargs bbbox release")]
pub(crate) struct Release {
    /// The boxes, by name or ID
    #[arg(value_name = "BOX", required = true)]
    names: Vec<String>,
    /// Release them even while a thread works on them
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Released {
    id: BoxId,
    name: BoxName,
}

impl Release {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "release", async |boxes| {
            // All are looked up before one is released: a word that names nothing releases nothing.
            let handles = self.names.iter().map(|name| boxes.get(name)).collect::<Result<Vec<_>, _>>()?;
            let mut released = Vec::new();
            let mut first_fault = None;
            for handle in handles {
                let record = handle.record()?;
                match self.release(boxes, &handle, record.name.as_str(), printer).await {
                    Ok(()) => released.push(Released { id: record.id, name: record.name }),
                    Err(fault) if first_fault.is_none() => first_fault = Some(fault),
                    Err(fault) => printer.fault(&fault),
                }
            }
            printer.answer(&released, || {
                released.iter().map(|released| format!("{} is released\n", released.name)).collect()
            })?;
            first_fault.map_or(Ok(0), Err)
        })
    }

    async fn release(
        &self,
        boxes: &Boxes,
        handle: &bbbox::boxes::BoxHandle,
        name: &str,
        printer: Printer,
    ) -> Result<(), Fault> {
        let events = boxes.events();
        let operation = handle.begin_release(self.force).await?;
        let progress = Progress::new(printer, format!("releasing {name}"));
        settle(boxes, events, &operation, &progress).await
    }
}
