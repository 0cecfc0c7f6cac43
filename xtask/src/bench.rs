//! `bench`: builds the benchmark and the command in release, and hands over to the benchmark.
//!
//! It measures nothing itself: what is printed, and the exit code, are the benchmark's.

use std::process::{Command, ExitCode};

use crate::fault::{Fault, Result};

/// What to measure, passed on as it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// What to measure, such as `docker`.
    area: String,
    /// Only figures whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// One JSON object a figure.
    #[arg(long)]
    json: bool,
}

impl Bench {
    /// Runs it: 0 when every bar holds, 1 when one does not, 2 when it could not be measured.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        // Its lines go to stderr: stdout is the figures'.
        let own = std::env::current_exe()
            .map_err(|why| Fault::new(format!("could not find this program: {why}")))?;
        let set_up = Command::new(own).arg("setup").stdout(std::io::stderr()).status();
        if !set_up.is_ok_and(|ended| ended.success()) {
            return Err(Fault::new("this machine could not be set up: see above"));
        }
        let built = cargo(&["build", "--release", "--quiet", "-p", "bbbox-host"])?
            && cargo(&[
                "build",
                "--release",
                "--quiet",
                "-p",
                "conformance",
                "--features",
                "bench",
                "--bin",
                "bench",
            ])?;
        if !built {
            return Err(Fault::new("the benchmark was not built: see above"));
        }
        let mut bench =
            vec!["run", "--release", "--quiet", "-p", "conformance", "--features", "bench", "--bin", "bench"];
        bench.extend(["--", &self.area]);
        if let Some(only) = &self.only {
            bench.extend(["--only", only]);
        }
        if self.json {
            bench.push("--json");
        }
        let ended = Command::new(env!("CARGO"))
            .args(&bench)
            .status()
            .map_err(|why| Fault::new(format!("could not start the benchmark: {why}")))?;
        Ok(ExitCode::from(ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
    }
}

fn cargo(arguments: &[&str]) -> Result<bool> {
    let ended = Command::new(env!("CARGO")).args(arguments).status();
    Ok(ended.map_err(|why| Fault::new(format!("could not start cargo: {why}")))?.success())
}
