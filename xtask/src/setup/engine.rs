//! A Docker Engine that answers.
//!
//! One that answers is left as it is. Otherwise systemd starts it where there is systemd; elsewhere `dockerd` is
//! started in a session of its own, with its log and pid file in the state folder, and waited for.

use std::{
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child as Process, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::place;
use crate::{
    child::Child,
    fault::{Fault, Result},
};

/// How long an engine may take until it answers.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often it is asked meanwhile.
const ASKED_EVERY: Duration = Duration::from_millis(200);
/// Where the engine keeps the pid of the containerd that it starts.
const CONTAINERD_PID: &str = "/var/run/docker/containerd/containerd.pid";

/// Starts the engine unless one answers.
pub(super) fn start() -> Result<String> {
    if let Some(version) = version() {
        return Ok(format!("version {version} answers"));
    }
    if !place::root() {
        return Err(Fault::new(
            "no Docker engine answers, and only root can start one: start it, and see that your user may reach it",
        ));
    }
    if place::systemd() {
        Child::new("systemctl").args(["start", "docker"]).minutes(3).run(&place::log("systemctl"))?;
        return wait(None);
    }
    if running("dockerd") {
        // Someone else's that has only begun: two would fight for the same folder.
        return wait(None);
    }
    mount_cgroups()?;
    let files = [log_file(), pid_file()];
    forget_stale_pid(&files[1], "dockerd")?;
    forget_stale_pid(Path::new(CONTAINERD_PID), "containerd")?;
    let process = spawn(&files[0], &files[1])?;
    wait(Some(process))
}

/// The version of the engine that answers, if one does.
fn version() -> Option<String> {
    let ask = ["version", "--format", "{{.Server.Version}}"];
    Child::new(place::find("docker")?).args(ask).ask().map(|version| version.trim().to_owned())
}

fn log_file() -> PathBuf {
    place::state().join("dockerd.log")
}

fn pid_file() -> PathBuf {
    place::state().join("dockerd.pid")
}

fn spawn(log: &Path, pid: &Path) -> Result<Process> {
    let dir = place::state();
    fs::create_dir_all(&dir).map_err(|e| Fault::file("make", &dir, e))?;
    let out = File::create(log).map_err(|e| Fault::file("write", log, e))?;
    let err = out.try_clone().map_err(|e| Fault::file("write", log, e))?;
    let mut command = Command::new("setsid");
    command.arg("dockerd").arg("--pidfile").arg(pid).env("PATH", place::search_path()).current_dir("/");
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    command.spawn().map_err(|e| Fault::new(format!("could not start dockerd: {e}")))
}

/// Waits until an engine answers, or until the one that was started is seen to have ended.
fn wait(mut process: Option<Process>) -> Result<String> {
    let begun = Instant::now();
    loop {
        if let Some(version) = version() {
            return Ok(format!("started version {version}"));
        }
        let ended = process.as_mut().and_then(|process| process.try_wait().ok().flatten());
        let why = match ended {
            Some(status) => match status.signal() {
                Some(signal) => format!("dockerd was ended by signal {signal}"),
                None => format!("dockerd ended: {status}"),
            },
            None if begun.elapsed() > PATIENCE => format!("no engine answers after {PATIENCE:?}"),
            None => {
                thread::sleep(ASKED_EVERY);
                continue;
            }
        };
        let text = process.and_then(|_| fs::read_to_string(log_file()).ok()).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(25)..].join("\n");
        return Err(Fault { what: why, output: Some(tail).filter(|tail| !tail.is_empty()) });
    }
}

/// The engine cannot run without control groups, which a machine without systemd may not have mounted.
fn mount_cgroups() -> Result<()> {
    let mounted = fs::read_to_string("/proc/mounts").unwrap_or_default();
    if mounted.lines().any(|line| line.split(' ').nth(2).is_some_and(|kind| kind.starts_with("cgroup"))) {
        return Ok(());
    }
    Child::new("cgroupfs-mount").run(&place::log("cgroupfs-mount")).map(drop)
}

/// After a crash or a restart of the machine a pid file may name somebody else's process, and the engine would
/// refuse to start beside it.
fn forget_stale_pid(file: &Path, program: &str) -> Result<()> {
    let Ok(text) = fs::read_to_string(file) else { return Ok(()) };
    let name = fs::read_to_string(format!("/proc/{}/comm", text.trim())).unwrap_or_default();
    if name.trim() == program {
        return Ok(());
    }
    fs::remove_file(file).map_err(|e| Fault::file("remove", file, e))
}

fn running(program: &str) -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|entry| fs::read_to_string(entry.path().join("comm")).ok())
        .any(|name| name.trim() == program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pid_file_of_a_process_with_another_name_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let me = std::process::id();
        let name = fs::read_to_string(format!("/proc/{me}/comm")).unwrap();
        fs::write(&file, format!("{me}\n")).unwrap();
        forget_stale_pid(&file, name.trim()).unwrap();
        assert!(file.exists());
        forget_stale_pid(&file, "dockerd").unwrap();
        assert!(!file.exists());
        forget_stale_pid(&file, "dockerd").unwrap();
    }
}
