//! `bbbox config`: show, check and apply the configuration.

use std::{
    iter,
    path::{Path, PathBuf},
};

use bbbox::{
    boxes::BackendView,
    config::{Applied, Draft, Stored, check_text},
};
use clap::{Args, Subcommand};
use serde_json::json;

use super::{file_name, read_bytes};
use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::{Printer, line},
};

/// Show, check or apply the configuration: the backends in order, and what is set about kinds
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bbbox config show > bbbox.toml     (with the revision it is)\n  \
    bbbox config check bbbox.toml\n  \
    bbbox config apply bbbox.toml      (only while that revision is the newest)\n  \
    bbbox config schema > bbbox.schema.json")]
pub(crate) struct Config {
    #[command(subcommand)]
    doing: Doing,
}

#[derive(Debug, Subcommand)]
enum Doing {
    /// Print the configuration that holds: as TOML, or as JSON with --json
    #[command(after_help = "Example:\n  bbbox config show > bbbox.toml")]
    Show,
    /// Say everything that is wrong with a document, and change nothing
    #[command(after_help = "Example:\n  bbbox config check bbbox.toml")]
    Check {
        /// A file of TOML or JSON; `-` is stdin
        file: PathBuf,
    },
    /// Put a document in place of the one that holds
    #[command(after_help = "Example:\n  bbbox config apply bbbox.toml")]
    Apply {
        /// A file of TOML or JSON; `-` is stdin
        file: PathBuf,
        /// The revision it was made from, where the document does not say
        #[arg(long)]
        revision: Option<u64>,
    },
    /// Print the JSON Schema of the document
    #[command(after_help = "Example:\n  bbbox config schema > bbbox.schema.json")]
    Schema,
}

impl Config {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        match self.doing {
            Doing::Show => folder::block_on(async {
                let boxes = folder::reading(common)?;
                let stored = boxes.configuration()?;
                let draft = stored.draft();
                printer.answer(&draft.to_json(), || shown(&stored, &draft, &boxes.backends()))
            })?,
            Doing::Check { file } => {
                let draft = read(&file)?;
                printer.answer(&draft.to_json(), || format!("{} holds", file_name(&file)))?;
            }
            Doing::Apply { file, revision } => {
                let mut draft = read(&file)?;
                draft.revision = draft.revision.or(revision);
                folder::change(common, printer, "config apply", async |boxes| {
                    let Applied { stored, warnings } = boxes.configure(&draft)?;
                    let value = json!({ "revision": stored.revision, "warnings": warnings });
                    printer.answer(&value, || {
                        let warned = warnings.iter().map(|warning| format!("\nwarning: {}", line(warning)));
                        let held = format!("the configuration is at revision {}", stored.revision);
                        iter::once(held).chain(warned).collect()
                    })
                })?;
            }
            Doing::Schema => {
                let schema = bbbox::drivers().config_schema();
                let text = serde_json::to_string_pretty(&schema).map_err(Fault::json)?;
                printer.data(format!("{text}\n").as_bytes())?;
            }
        }
        Ok(0)
    }
}

/// The document as a file that can be edited and applied.
fn shown(stored: &Stored, draft: &Draft, backends: &[BackendView]) -> String {
    let head = match &stored.changed {
        Some(change) => format!("# Changed {} at {:.0}.\n", change.by, change.at),
        None => "# Nothing is configured: these are the defaults.\n".to_owned(),
    };
    let backends: String = backends
        .iter()
        .filter_map(|backend| {
            let words = match (&backend.trouble, &backend.place) {
                (Some(trouble), _) => format!("cannot be used: {trouble}"),
                (None, place) => place.clone()?,
            };
            Some(format!("# {}\n", line(&format!("{}: {words}", backend.id))))
        })
        .collect();
    format!("{head}{backends}{}", draft.to_toml())
}

fn read(file: &Path) -> Result<Draft, Fault> {
    let name = file_name(file);
    let text = String::from_utf8(read_bytes(file)?).map_err(|error| {
        bbbox::Error::invalid(format!("{name} is not UTF-8")).fix("save it as UTF-8").because(error)
    })?;
    check_text(&text, &bbbox::drivers()).map_err(|problems| Fault::Problems { source: name, problems })
}
