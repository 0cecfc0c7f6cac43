//! The cargo tools that the tests run: nextest, hack and deny.
//!
//! One that is installed is used as it is. A missing one is built into the cache folder at a pinned version, at low
//! priority and unoptimised, since it runs for seconds and should not keep the tests waiting.

use super::{place, step};
use crate::{child::Child, fault::Result};

/// `(program, version)`.
const TOOLS: &[(&str, &str)] =
    &[("cargo-hack", "0.6.46"), ("cargo-deny", "0.20.2"), ("cargo-nextest", "0.9.143")];

/// The one that fuzzes. No test needs it.
const FUZZER: (&str, &str) = ("cargo-fuzz", "0.13.1");

/// Builds what is missing.
pub(super) fn install() -> Result<()> {
    TOOLS.iter().try_for_each(|(tool, version)| bring(tool, version))
}

/// Builds the fuzzer if it is missing.
pub(super) fn fuzzer() -> Result<()> {
    bring(FUZZER.0, FUZZER.1)
}

fn bring(tool: &str, version: &str) -> Result<()> {
    step(tool, || match place::find(tool) {
        Some(_) => Ok("there".into()),
        None => build(tool, version),
    })
}

fn build(tool: &str, version: &str) -> Result<String> {
    let root = place::cache().join("tools");
    let cargo =
        ["nice", "-n", "10", "cargo", "install", "--locked", "--debug", "--version", version, "--root"];
    Child::new("env")
        .args(cargo)
        .args([root.as_os_str(), tool.as_ref()])
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .minutes(30)
        .run(&place::log(tool))?;
    Ok(format!("built {version}"))
}
