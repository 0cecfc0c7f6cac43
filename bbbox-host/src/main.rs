//! The command `bbbox`: reads arguments, asks the library, shows the answer.
//!
//! There is no rule here: what may be done to a box is the library's to say, so that programs that embed it keep the
//! same rules. Each verb is one file in `verb/`; everything is printed by `printer`.

mod cli;
#[cfg(test)]
mod docs;
mod fault;
mod folder;
mod output;
mod printer;
mod progress;
mod signals;
mod variables;
mod verb;
mod words;

use std::process::ExitCode;

use clap::Parser;

use crate::{cli::Cli, printer::Printer};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return cli::refuse(&told),
    };
    let printer = Printer::new(cli.common.json);
    trace();
    match cli.verb.run(&cli.common, printer) {
        Ok(code) => ExitCode::from(code),
        Err(ended) => {
            printer.fault(&ended.fault);
            ExitCode::from(ended.code)
        }
    }
}

/// Logs go to stderr when `BBBOX_LOG` asks for them, such as `BBBOX_LOG=debug`.
fn trace() {
    if let Ok(filter) = std::env::var("BBBOX_LOG") {
        let filter = tracing_subscriber::EnvFilter::new(filter);
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}
