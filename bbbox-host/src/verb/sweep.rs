//! `bbbox sweep`: look at everything once and mend what differs.

use clap::Args;

use crate::{cli::Common, fault::Fault, folder, printer::Printer, progress::Progress};

/// Look at every guest and record once: finish what was interrupted, find what is lost
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  bbbox sweep\n\nIt touches no guest of another install. It exits with 1 when it \
    could not see or do everything."
)]
pub(crate) struct Sweep {}

impl Sweep {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "sweep", async |boxes| {
            let progress = Progress::new(printer, "looking at every guest");
            let report = progress.during(boxes.sweep()).await?;
            printer.answer(&report, || {
                let troubles = report.troubles.iter().map(|trouble| format!("trouble: {trouble}"));
                let mut lines: Vec<String> =
                    report.done.iter().chain(&report.kept).cloned().chain(troubles).collect();
                if lines.is_empty() {
                    lines.push("All is as it should be".to_owned());
                }
                lines.iter().map(|text| format!("{}\n", crate::printer::line(text))).collect()
            })?;
            Ok(u8::from(!report.troubles.is_empty()))
        })
    }
}
