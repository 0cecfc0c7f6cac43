//! `bbbox install-id`: which install this is.

use bbbox::id::InstallId;
use clap::Args;
use serde_json::json;

use crate::{cli::Common, fault::Fault, folder, printer::Printer, words};

/// Show this install's ID, which is on every guest it makes, or take an old one back
#[derive(Debug, Args)]
#[command(
    name = "install-id",
    after_help = "Examples:\n  bbbox install-id\n  \
    bbbox install-id --set in0123456789ab   (after the data folder was lost; then: bbbox sweep)"
)]
pub(crate) struct InstallIdArgs {
    /// The ID to take: the next sweep takes that install's guests back
    #[arg(long, value_name = "ID", value_parser = |t: &str| InstallId::parse(t).map_err(words::spoken))]
    set: Option<InstallId>,
}

impl InstallIdArgs {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        folder::change(common, printer, "install-id", async |boxes| {
            // An ID is shown only once it is kept: what is told to a person must stay true.
            if let Some(id) = &self.set {
                boxes.set_install_id(id)?;
            }
            let id = boxes.install_id();
            printer.answer(&json!({ "install": id }), || id.to_string())?;
            Ok(0)
        })
    }
}
