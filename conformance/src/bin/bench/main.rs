//! Speed beside what a user would run instead, as ratios from one run.
//!
//! `cargo xtask bench docker [--json]` runs this in a release build. Both sides take turns on the same engine and
//! the same image; a figure is ok when its bars hold, and the exit code is 1 when one does not.

mod command;
mod docker;
mod host;
mod measure;

use std::process::ExitCode;

use bbbox::Result;
use clap::{Parser, ValueEnum};
use measure::Figure;

/// Measures bb-box beside what a user would run instead.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure.
    area: Area,
    /// Only figures whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// One JSON object a figure.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Area {
    /// Boxes on a Docker Engine, and the command's own start.
    Docker,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            print(&format!("the measurement could not be made: {}", error.chain()));
            ExitCode::from(2)
        }
    }
}

async fn run(arguments: &Arguments) -> Result<bool> {
    let mut ok = true;
    let mut tell = |figure: Figure| {
        ok &= figure.ok;
        let line = if arguments.json {
            serde_json::to_string(&figure).unwrap_or_else(|e| unreachable!("a figure is plain data: {e}"))
        } else {
            figure.to_string()
        };
        print(&line);
    };
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    match arguments.area {
        Area::Docker => {
            host::measure(&wanted, &mut tell).await?;
            docker::measure(&wanted, &mut tell).await?;
        }
    }
    Ok(ok)
}

/// The one place that prints.
#[allow(clippy::print_stdout, reason = "a benchmark's output is its lines")]
fn print(line: &str) {
    println!("{line}");
}
