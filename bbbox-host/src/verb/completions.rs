//! `bbbox completions`: for a shell.

use bbbox::Error;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use crate::{cli::Cli, fault::Fault, printer::Printer};

/// Print completions for a shell; they have no JSON form
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  bbbox completions bash > ~/.local/share/bash-completion/completions/bbbox"
)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, printer: Printer) -> Result<u8, Fault> {
        if printer.json() {
            return Err(Error::invalid("completions are a shell's own text and have no JSON form")
                .fix("leave --json out")
                .into());
        }
        let mut text = Vec::new();
        generate(self.shell, &mut Cli::command(), "bbbox", &mut text);
        printer.data(&text)?;
        Ok(0)
    }
}
