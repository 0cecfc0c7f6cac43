//! The promises of commands and jobs, with real shells and real processes.

mod commands;
mod jobs;
mod streams;

use std::{sync::Arc, time::Duration};

use super::{testing::*, *};

const LONG: Duration = Duration::from_secs(60);

/// Runs `test` against each shell.
pub(super) async fn in_each_shell(test: impl AsyncFn(Arc<Local>, Session)) {
    for shell in SHELLS {
        let local = Local::new(shell);
        let session = local.session();
        test(local, session).await;
    }
}

pub(super) async fn ended(session: &Session, spec: JobSpec) -> Ended {
    session.run(&spec, LONG).await.unwrap().ended().expect("it ends in time")
}

pub(super) fn whole(kept: &Kept) -> Vec<u8> {
    kept.whole().expect("nothing is left out")
}

/// Processes that this one started for `local` and whose command line holds `mark`.
pub(super) fn pids(local: &Local, mark: &str) -> Vec<i32> {
    let home = local.home.path().to_owned();
    let mut pids = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if cwd.starts_with(&home) && String::from_utf8_lossy(&line).contains(mark) {
            let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
            let parent = status.lines().find_map(|l| l.strip_prefix("PPid:\t")).unwrap_or("0").to_owned();
            if parent == std::process::id().to_string() {
                pids.push(pid);
            }
        }
    }
    pids
}

pub(super) fn runner_pids(local: &Local) -> Vec<i32> {
    pids(local, "dd bs=1 co")
}

pub(super) fn kill_hard(pid: impl ToString) {
    std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
}
