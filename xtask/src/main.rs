//! Chores, run as `cargo xtask NAME`.
//!
//! `setup` brings what the tests need onto this machine; `test` runs every check there is. The tidy rules are tests
//! of this crate. Nothing here is part of what users install, and nothing here knows how a box works: it starts
//! other programs, waits for them and adds up what they say.

mod abilities;
mod bench;
mod child;
mod fault;
mod fuzz;
mod say;
mod setup;
mod test;
#[cfg(test)]
mod tidy;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the bb-box workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Install and start what the tests need; quick when nothing is to do.
    Setup,
    /// Set up, then run every check and test, and stop at the first failure.
    Test,
    /// Write what the backends were seen to do in the last `test` into the README.
    Abilities,
    /// Measure bb-box beside what a user would run instead; 1 when a bar is missed.
    Bench(bench::Bench),
    /// Fuzz what reads bytes from outside; 1 when something is found.
    Fuzz(fuzz::Fuzz),
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Setup => setup::run().map(|()| ExitCode::SUCCESS),
        Chore::Test => test::run().map(|()| ExitCode::SUCCESS),
        Chore::Abilities => abilities::write().map(|()| ExitCode::SUCCESS),
        Chore::Bench(bench) => bench.run(),
        Chore::Fuzz(fuzz) => fuzz.run().map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        Err(fault) => {
            say::fault(&fault);
            ExitCode::FAILURE
        }
    }
}
