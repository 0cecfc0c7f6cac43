//! The cargo tools that the tests run: nextest, hack and deny.
//!
//! One that is installed is used as it is. A missing one is built into the cache folder at a pinned version, at low
//! priority and unoptimised, since it runs for seconds and should not keep the tests waiting.

use super::{place, step};
use crate::{child::Child, fault::Result};

/// `(program, version)`.
const TOOLS: &[(&str, &str)] =
    &[("cargo-hack", "0.6.46"), ("cargo-deny", "0.20.2"), ("cargo-nextest", "0.9.143")];

/// Builds what is missing.
pub(super) fn install() -> Result<()> {
    for (tool, version) in TOOLS {
        step(tool, || match place::find(tool) {
            Some(_) => Ok("there".into()),
            None => build(tool, version),
        })?;
    }
    Ok(())
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
