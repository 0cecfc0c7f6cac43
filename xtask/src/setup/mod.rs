//! What the tests need on a fresh Debian 12 with Rust, installed and started.
//!
//! Safe to repeat, and quick when nothing is to do. The machine (packages, the engine) and the cargo tools are made
//! ready side by side, each on a thread, so that compiling can go on meanwhile. What only root may do is named when
//! this does not run as root. Downloads come from where this machine's own apt and cargo get theirs.

mod engine;
mod packages;
mod place;
mod tools;

use std::{
    ffi::OsString,
    thread::{self, JoinHandle},
    time::Instant,
};

use crate::{
    child,
    fault::{Fault, Result},
    say,
};

/// Sets everything up and says what it found or did.
pub(crate) fn run() -> Result<()> {
    let mut setup = Setup::begin();
    setup.machine()?;
    setup.tools()
}

/// A setup that is under way.
pub(crate) struct Setup {
    machine: Option<JoinHandle<Result<()>>>,
    tools: Option<JoinHandle<Result<()>>>,
}

impl Setup {
    /// Begins it, without waiting.
    pub(crate) fn begin() -> Self {
        Self { machine: Some(thread::spawn(machine)), tools: Some(thread::spawn(tools::install)) }
    }

    /// Waits until packages are there and an engine answers.
    pub(crate) fn machine(&mut self) -> Result<()> {
        join(&mut self.machine)
    }

    /// Waits until the cargo tools are there.
    pub(crate) fn tools(&mut self) -> Result<()> {
        join(&mut self.tools)
    }
}

/// Brings the fuzzer, which only `fuzz` needs.
pub(crate) fn fuzzer() -> Result<()> {
    tools::fuzzer()
}

/// `PATH` with the places where setup puts tools.
pub(crate) fn path() -> OsString {
    place::search_path()
}

fn join(thread: &mut Option<JoinHandle<Result<()>>>) -> Result<()> {
    match thread.take().map(JoinHandle::join) {
        None => Ok(()),
        Some(Ok(done)) => done,
        Some(Err(_)) => Err(Fault::new("setup panicked; the lines above say where")),
    }
}

fn machine() -> Result<()> {
    step("packages", packages::install)?;
    step("engine", engine::start)
}

/// Does one step and says what it did.
fn step(name: &str, f: impl FnOnce() -> Result<String>) -> Result<()> {
    let begun = Instant::now();
    let did = f()?;
    say::line(format!("setup: {name}: {did} ({})", child::took(begun)));
    Ok(())
}
