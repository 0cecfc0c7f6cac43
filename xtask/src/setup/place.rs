//! Where setup keeps what it makes, and where it looks for programs.
//!
//! Nothing is kept in the checkout: what can be made again lies in the user's cache folder, logs and pid files in
//! the state folder, so a fresh clone on the same machine has nothing to do.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
};

/// What can be made again.
pub(super) fn cache() -> PathBuf {
    folder("XDG_CACHE_HOME", ".cache")
}

/// Logs and pid files.
pub(super) fn state() -> PathBuf {
    folder("XDG_STATE_HOME", ".local/state")
}

/// The log of one step, for [`crate::child::Child::run`].
pub(super) fn log(step: &str) -> PathBuf {
    state().join(step)
}

fn folder(variable: &str, otherwise: &str) -> PathBuf {
    let set = env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute());
    set.unwrap_or_else(|| env::home_dir().unwrap_or_else(|| "/".into()).join(otherwise)).join("bb-box")
}

/// The places a program may be in: the caller's, setup's own, and the administrator's, which an ordinary user's
/// `PATH` lacks.
pub(super) fn search_path() -> OsString {
    let mut dirs: Vec<PathBuf> = env::var_os("PATH").iter().flat_map(env::split_paths).collect();
    let sbin = ["/usr/local/sbin", "/usr/sbin", "/sbin"];
    dirs.extend([cache().join("tools/bin")].into_iter().chain(sbin.map(PathBuf::from)));
    env::join_paths(dirs)
        .unwrap_or_else(|_| unreachable!("parts of a path, and a cache folder without a colon"))
}

/// Where `program` is, if it is installed.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&search_path()).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Whether this process may do what only root may.
pub(super) fn root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether systemd runs this machine's services.
pub(super) fn systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}
