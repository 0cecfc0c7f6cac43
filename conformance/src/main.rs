//! The suite as a command: `run` and `crash` on a backend of this workspace.
//!
//! It owns arguments and output. Which cases there are and how they run is the library's.

mod backends;
mod crash;
mod log;
mod print;
mod simulate;

use std::{process::ExitCode, sync::Arc};

use clap::{Args, Parser, Subcommand};
use conformance::{Listener, Options};

use backends::Name;

/// Holds a backend to the promises of the interface.
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Runs every case and shows what passed, failed and was skipped.
    Run(Run),
    /// Dies at every crash point of every operation, restarts, and checks what must hold.
    Crash(crash::Crash),
    /// Plays the simulated world from seeds and checks what must hold.
    Sim(simulate::Simulate),
    /// One run that may die; `crash` starts it.
    #[command(hide = true)]
    CrashChild(crash::Child),
}

#[derive(Debug, Args)]
struct Run {
    /// The backend.
    #[arg(long)]
    backend: Name,
    /// One JSON object a case, then the counts.
    #[arg(long)]
    json: bool,
    /// Only cases whose name or promise holds this.
    #[arg(long)]
    only: Option<String>,
}

fn main() -> ExitCode {
    let Command { verb } = Command::parse();
    // It makes runtimes of its own, whose clocks stand still.
    if let Verb::Sim(simulate) = verb {
        return simulate.run();
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::problem(&format!("could not start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    runtime.block_on(async {
        match verb {
            Verb::Run(run) => self::run(run).await,
            Verb::Sim(_) => ExitCode::SUCCESS,
            Verb::Crash(crash) => crash.run().await,
            Verb::CrashChild(child) => match child.run().await {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    print::problem(&format!("{error:?}"));
                    ExitCode::FAILURE
                }
            },
        }
    })
}

async fn run(Run { backend, json, only }: Run) -> ExitCode {
    let subject = match backends::subject(backend) {
        Ok(subject) => subject,
        Err(error) => {
            print::problem(&format!("{error:?}"));
            return ExitCode::FAILURE;
        }
    };
    let told: Listener = if json { Arc::new(print::line) } else { Arc::new(print::brief) };
    let log = match log::begin() {
        Ok(log) => log,
        Err(error) => {
            print::problem(&format!("could not begin a log: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let mut report =
        conformance::run(subject, Options { only, told: Some(told), ..Options::default() }).await;
    let secrets = log.without(&report.secrets);
    if json {
        print::line(&secrets);
    }
    report.cases.push(secrets);
    if json {
        print::counts(&report);
    } else {
        print::table(&report);
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
