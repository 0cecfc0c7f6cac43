//! Debian's packages: each is there when its program is.

use super::place;
use crate::{
    child::Child,
    fault::{Fault, Result},
};

/// `(program, package)`.
const NEEDED: &[(&str, &str)] = &[
    ("dockerd", "docker.io"),
    ("docker", "docker.io"),
    // The engine needs these two on some kernels, and only recommends them.
    ("apparmor_parser", "apparmor"),
    ("cgroupfs-mount", "cgroupfs-mount"),
    ("debootstrap", "debootstrap"),
    ("busybox", "busybox"),
    ("shellcheck", "shellcheck"),
];

/// Installs what is missing.
pub(super) fn install() -> Result<String> {
    let mut missing: Vec<_> = NEEDED
        .iter()
        .filter(|(program, _)| place::find(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok("all there".into());
    }
    let list = missing.join(" ");
    if !place::root() {
        return Err(Fault::new(format!(
            "missing packages, and only root can install them: run `apt-get update && apt-get install {list}` as root"
        )));
    }
    apt(&["update"])?;
    apt(&[&["install", "--yes", "--no-install-recommends"], &*missing].concat())?;
    Ok(format!("installed {list}"))
}

fn apt(args: &[&str]) -> Result<()> {
    let mut child = Child::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").minutes(10);
    if !place::systemd() {
        // Without systemd nothing looks after what a package's own script starts: `engine` starts it.
        child = child.env("RUNLEVEL", "1");
    }
    child.env("NEEDRESTART_SUSPEND", "1").run(&place::log("apt")).map(drop)
}
