//! Running processes in a box: in its home, with its name in their environment, which is how they are found again.

use std::{fs, io, os::unix::process::ExitStatusExt as _, path::PathBuf, process::Stdio, time::Duration};

use async_trait::async_trait;
use bbbox::{
    Effect, Error, Result,
    id::BoxId,
    kind::Shell,
    route::Route,
    signals::pass_none_on,
    transport::{Closing, Exit, Process, Transport, TransportTraits},
};
use tokio::process::Command;

use crate::{gone, read};

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The way into one box.
pub(crate) struct Inside {
    pub(crate) folder: PathBuf,
    pub(crate) id: BoxId,
}

#[async_trait]
impl Transport for Inside {
    fn traits(&self) -> TransportTraits {
        TransportTraits { shell: Shell::Sh, admin: is_root(), in_desktop_session: false, streaming: true }
    }

    async fn spawn(&self, argv: &[String]) -> Result<Process> {
        self.look()?;
        let home = self.folder.join("home");
        pass_none_on();
        // The shell becomes the command, so that one that is not found exits 127; the arguments pass as they are.
        let mut child = Command::new("/bin/sh")
            .args(["-c", "exec \"$@\"", "sh"])
            .args(argv)
            .env_clear()
            .envs([("PATH", PATH), ("LANG", "C.UTF-8"), ("TERM", "dumb"), ("BOX", self.id.as_str())])
            .env("HOME", &home)
            .env("USER", if is_root() { "root" } else { "box" })
            .current_dir(&home)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(not_started)?;
        let (Some(stdin), Some(stdout), Some(stderr), Some(group)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take(), child.id())
        else {
            return Err(Error::failed("the process has no streams").effect(Effect::Applied));
        };
        let id = self.id.clone();
        Ok(Process {
            stdin: Box::new(Closing::new(stdin)),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            exit: Box::pin(async move { child.wait().await.map_err(lost).and_then(exit) }),
            kill: Box::pin(async move { end(&id, |stat| stat.group == group).await }),
        })
    }

    async fn probe(&self) -> Result<()> {
        self.look()
    }

    async fn route(&self, port: u16) -> Result<Route> {
        self.look()?;
        Ok(Route::Tcp { host: "127.0.0.1".to_owned(), port })
    }
}

impl Inside {
    fn look(&self) -> Result<()> {
        let here = read(&self.folder)?.is_some_and(|mark| mark.owner.box_id == self.id);
        if here { Ok(()) } else { Err(gone(&self.id)) }
    }
}

/// Whether commands run as the administrator.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0)
}

/// Ends every process of the box.
pub(crate) async fn end_all(id: &BoxId) -> Result<()> {
    end(id, |_| true).await
}

struct Stat {
    pid: u32,
    group: u32,
}

/// Ends the box's processes that `which` picks, until there is none: they may start others meanwhile.
async fn end(id: &BoxId, which: impl Fn(&Stat) -> bool + Send) -> Result<()> {
    let list = || processes(id).map_err(|e| Error::unavailable("could not list processes").because(e));
    loop {
        let picked: Vec<_> =
            list()?.into_iter().filter(|stat| which(stat)).map(|stat| stat.pid.to_string()).collect();
        if picked.is_empty() {
            return Ok(());
        }
        let kill =
            Command::new("kill").args(["-s", "KILL"]).args(picked).stderr(Stdio::null()).status().await;
        kill.map_err(|e| Error::unavailable("could not end a box's processes").because(e))?;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The processes that live and have the box's name in their environment.
fn processes(id: &BoxId) -> io::Result<Vec<Stat>> {
    let mark = format!("BOX={id}");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        if !environ.split(|b| *b == 0).any(|one| one == mark.as_bytes()) {
            continue;
        }
        // Behind the name, in brackets: the state, the parent, the group.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let mut words = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
        let alive = !matches!(words.next(), None | Some("Z" | "X"));
        if let Some(group) = words.nth(1).and_then(|word| word.parse().ok()).filter(|_| alive) {
            found.push(Stat { pid, group });
        }
    }
    Ok(found)
}

fn exit(status: std::process::ExitStatus) -> Result<Exit> {
    let byte = |n: Option<i32>| n.and_then(|n| u8::try_from(n).ok());
    byte(status.code())
        .map(Exit::Code)
        .or_else(|| byte(status.signal()).map(Exit::Signal))
        .ok_or_else(|| lost(io::Error::other(status.to_string())))
}

fn lost(error: io::Error) -> Error {
    Error::unavailable("lost contact with a process").effect(Effect::Unknown).because(error)
}

fn not_started(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
            Error::invalid("the command line is too long or holds a NUL").because(error)
        }
        _ => Error::unavailable("could not start a process").because(error),
    }
}
