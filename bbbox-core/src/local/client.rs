//! The machine's own tools and `/proc`: one function a call. Decides nothing.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::Command,
    time::{sleep, timeout},
};

use super::map::{Keeper, Mode, Stat};
use crate::{
    Effect, Error, Result,
    id::{BoxId, BoxName},
    signals,
};

/// Where the machine's and a box's programs are looked for.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What even a box's root may do: nothing to devices, mounts, the kernel or what is not the box's.
const CAPS: &str = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,\
    +net_bind_service,+sys_chroot,+audit_write,+setfcap";
/// The first process's script; `KEEPER` in its environment, so that `ps` stays readable.
const KEEPER: &str = include_str!("keeper.sh");
/// How long a change of a process may take: it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// A command of this machine, with none of this process's environment.
pub(super) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).stdin(Stdio::null()).current_dir("/");
    command
}

/// What the first process becomes: it collects orphans that have ended, and SIGTERM, which is how a box is shut
/// down from inside, makes it leave word and end.
const KEEP: &str = r#"trap 'echo "$BOOT" >&8; kill $!; exit 0' TERM
trap '' PIPE; echo ready >&7; echo ready; exec 7>&- >/dev/null 2>&1
while :; do sleep 2147483647 </dev/null 8>&- & wait; done"#;

/// A first process for the guest in `folder`, which becomes `keep` once the box is set up.
fn keeper(folder: &Path, name: &str, mode: Mode, keep: &str) -> Command {
    signals::pass_none_on();
    let walls: &[&str] = match mode {
        Mode::Root => &["unshare", "-m", "-u", "-i", "-p", "-f"],
        Mode::User => &["unshare", "-U", "-r", "-m", "-u", "-i", "-p", "-f"],
        Mode::None => &[],
    };
    let mut command = command("setsid");
    command.args(walls).args(["sh", "-c", "eval \"$KEEPER\"", "bbbox-keeper"]).arg(folder);
    command.args([name, mode.word()]).envs([("KEEPER", KEEPER), ("KEEP", keep), ("CAPS", CAPS)]);
    command
}

/// Why this machine refuses `mode`, if it does: sets up a box in `folder` that ends at once, even if this process dies.
pub(super) async fn refusal(folder: &Path, mode: Mode) -> Result<Option<String>> {
    let done = keeper(folder, "try", mode, "exit 0").output().await;
    // Not knowing is no refusal: boxes would be kept apart less than they could be.
    let done =
        done.map_err(|e| Error::unavailable("could not ask this machine for namespaces").because(e))?;
    let why =
        || format!("no namespaces as {}: {}", mode.word(), String::from_utf8_lossy(&done.stderr).trim_end());
    Ok((!done.status.success()).then(why))
}

/// Starts a guest's first process and waits until the box is set up. It outlives this process, and holds `lock`.
pub(super) async fn launch(folder: &Path, name: &BoxName, mode: Mode, lock: File) -> Result<()> {
    let failed = || Error::failed("could not start a box's first process");
    let mut keeper = keeper(folder, name.as_str(), mode, KEEP);
    let child = keeper.stdin(lock).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|e| failed().because(e))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    // Collected whenever it ends, for as long as this process is there to do it.
    tokio::spawn(async move { child.wait().await });
    let said = async {
        let (mut line, mut words) = (String::new(), String::new());
        if let (Some(out), Some(mut err)) = (out, err) {
            BufReader::new(out).read_line(&mut line).await?;
            if line != "ready\n" {
                err.read_to_string(&mut words).await?;
            }
        }
        io::Result::Ok((line == "ready\n", words))
    };
    match timeout(PATIENCE, said).await {
        Ok(Ok((true, _))) => Ok(()),
        Ok(Ok((false, words))) => Err(failed().because_of(words.trim_end())),
        Ok(Err(e)) => Err(failed().because(e)),
        Err(_) => Err(failed().effect(Effect::Unknown).because_of(format!("not set up after {PATIENCE:?}"))),
    }
}

/// A process's directory in `/proc`, open: it stays this process's when its number is used again.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) pid: i32,
    dir: File,
}

impl Handle {
    /// The keeper, if it lives.
    pub(super) fn of(keeper: &Keeper) -> Option<Self> {
        let handle = Self { pid: keeper.pid, dir: File::open(format!("/proc/{}", keeper.pid)).ok()? };
        let stat = handle.stat()?;
        let same = stat.start == keeper.start && !stat.ended && boot().is_some_and(|b| b == keeper.boot);
        same.then_some(handle)
    }

    /// A path to `name` of this process that other processes of this user can open for as long as `self` lives.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        use std::os::fd::AsRawFd as _;
        format!("/proc/{}/fd/{}/{name}", std::process::id(), self.dir.as_raw_fd()).into()
    }

    pub(super) fn stat(&self) -> Option<Stat> {
        fs::read_to_string(self.path("stat")).ok()?.parse().ok()
    }

    /// Its process namespace, which tells who is in the box.
    pub(super) fn namespace(&self) -> Option<PathBuf> {
        fs::read_link(self.path("ns/pid")).ok()
    }

    /// Ends it at once, and all of its namespace with it, and waits until they are gone.
    pub(super) async fn end(&self) -> Result<()> {
        let fault =
            |e: io::Error| Error::unavailable(format!("could not end process {}", self.pid)).because(e);
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
        // The number is this process's still, so the descriptor is too.
        if self.stat().is_none_or(|stat| stat.ended) {
            return Ok(());
        }
        match pidfd_send_signal(&fd, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return Err(fault(e.into())),
        }
        let gone = async {
            while self.stat().is_some_and(|stat| !stat.ended) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let stuck = |_| Error::unavailable(format!("process {} does not end", self.pid));
        timeout(PATIENCE, gone).await.map_err(stuck)
    }
}

/// This start of the machine.
pub(super) fn boot() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim_end().to_owned())
}

/// How many looks in a row must find no process of a box.
const LOOKS: u32 = 3;

/// What tells a box's processes from all others.
#[derive(Clone, Debug)]
pub(super) enum Fence {
    /// They are in this process namespace.
    Namespace(PathBuf),
    /// Their environment names the box.
    Marker(BoxId),
}

impl Fence {
    fn holds(&self, process: &Handle) -> bool {
        match self {
            Self::Namespace(ours) => process.namespace().is_some_and(|theirs| theirs == *ours),
            Self::Marker(id) => {
                let marker = format!("BBBOX_BOX={id}");
                fs::read(process.path("environ"))
                    .is_ok_and(|all| all.split(|b| *b == 0).any(|one| one == marker.as_bytes()))
            }
        }
    }

    /// Ends every process inside that `which` picks, until there is none.
    pub(super) async fn end(&self, which: impl Fn(&Stat) -> bool) -> Result<()> {
        let mut seen = BTreeSet::new();
        // One that is being forked or becomes another program just now is not seen: one look proves nothing.
        let mut unseen = 0;
        loop {
            let picked: Vec<_> = processes()?
                .filter(|process| process.stat().is_some_and(|stat| !stat.ended && which(&stat)))
                .filter(|process| self.holds(process))
                .collect();
            if picked.is_empty() {
                unseen += 1;
                if unseen == LOOKS {
                    return Ok(());
                }
                sleep(Duration::from_millis(1)).await;
                continue;
            }
            unseen = 0;
            for process in picked {
                process.end().await?;
                seen.insert(process.pid);
            }
            if seen.len() > 100_000 {
                return Err(Error::unavailable("the box starts processes faster than they can be ended"));
            }
        }
    }
}

fn processes() -> Result<impl Iterator<Item = Handle>> {
    let entries =
        fs::read_dir("/proc").map_err(|e| Error::unavailable("could not list processes").because(e))?;
    Ok(entries.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some(Handle { pid, dir: File::open(entry.path()).ok()? })
    }))
}

/// The command line that goes before what is to run in a box, in a session of its own.
pub(super) fn enter(keeper: &Handle, mode: Mode) -> Command {
    signals::pass_none_on();
    let mut command = command("setsid");
    if mode != Mode::None {
        let way = |flag: &str, name: &str| format!("{flag}{}", keeper.path(name).display());
        command.arg("nsenter");
        if mode == Mode::User {
            command.args([way("-U", "ns/user"), "--preserve-credentials".to_owned()]);
        }
        command.args([way("-m", "ns/mnt"), way("-u", "ns/uts"), way("-i", "ns/ipc"), way("-p", "ns/pid")]);
        command.args([way("-w", "cwd"), "--".to_owned()]);
        command.args(["setpriv", "--bounding-set", CAPS]);
    }
    command.arg("--");
    command
}

/// Removes a tree, whatever its permissions and depth; never follows a link, never crosses into a mount.
pub(super) async fn remove(path: &Path) -> Result<()> {
    if fs::symlink_metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    let run = async |program: &str, arguments: &[&str]| {
        let mut tool = command(program);
        tool.args(arguments).arg("--").arg(path).stdout(Stdio::null()).output().await
    };
    // Only root may empty a directory that it may not write.
    let mut done = run("rm", &["-rf", "--one-file-system"]).await;
    if done.as_ref().is_ok_and(|done| !done.status.success()) {
        drop(run("chmod", &["-R", "u+rwx"]).await);
        done = run("rm", &["-rf", "--one-file-system"]).await;
    }
    let failed =
        || Error::unavailable(format!("could not remove {}", path.display())).effect(Effect::Unknown);
    match done {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(failed().because_of(String::from_utf8_lossy(&done.stderr).trim_end())),
        Err(e) => Err(failed().because(e)),
    }
}
