//! A simulated guest's processes: real ones of this machine, told apart by a word in their environment.

use std::{
    fs,
    os::unix::{fs::MetadataExt as _, process::ExitStatusExt as _},
    path::Path,
    process::Stdio,
    sync::Arc,
};

use async_trait::async_trait;
use bbbox::{
    Result,
    error::{Effect, Error},
    guest::Guest,
    kind::Shell,
    route::Route,
    transport::{Closing, Exit, Process, Transport, TransportTraits},
};
use tokio::{process::Command, sync::oneshot};

use super::Provider;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The variable that holds a guest's home, in every process of it.
const MARK: &str = "BBBOX_SIM";

/// Whether this process, and so a simulated guest's user, is root.
pub(super) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|of| of.uid() == 0)
}

/// The way into one guest.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) provider: Arc<Provider>,
    pub(super) guest: Guest,
}

#[async_trait]
impl Transport for Inside {
    fn traits(&self) -> TransportTraits {
        TransportTraits { shell: Shell::Sh, admin: is_root(), in_desktop_session: false, streaming: true }
    }

    async fn spawn(&self, argv: &[String]) -> Result<Process> {
        // Held while the process starts, so that a stop that comes now ends it too.
        let state = self.provider.state();
        let machine = state.guests.get(&self.guest.reference.parse().unwrap_or_default()).filter(|machine| {
            machine.owner.install == self.guest.install && machine.owner.box_id == self.guest.box_id
        });
        let Some(machine) = machine else {
            return Err(Error::gone(format!("box {} has no guest here", self.guest.box_id)));
        };
        if !machine.running {
            return Err(Error::refused(format!("box {} is stopped", self.guest.box_id)).fix("start it"));
        }
        let home = self.provider.home(machine);
        let mut child = Command::new("setsid")
            .arg("--")
            .args(argv)
            .env_clear()
            .envs([("PATH", PATH), ("LANG", "C.UTF-8"), ("USER", "sim")])
            .env("HOME", &home)
            .env(MARK, &home)
            .current_dir(&home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| Error::unavailable("could not start a process").because(e))?;
        drop(state);
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::failed("the process has no streams").effect(Effect::Applied));
        };
        let session = child.id();
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move { drop(tell.send(child.wait().await)) });
        let exit = async move {
            let lost = || Error::unavailable("lost contact with a process").effect(Effect::Unknown);
            let status = told.await.map_err(|_| lost())?.map_err(|e| lost().because(e))?;
            let byte = |n: Option<i32>| n.and_then(|n| u8::try_from(n).ok());
            byte(status.code()).map(Exit::Code).or(byte(status.signal()).map(Exit::Signal)).ok_or_else(lost)
        };
        Ok(Process {
            stdin: Box::new(Closing::new(stdin)),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            exit: Box::pin(exit),
            kill: Box::pin(async move { end_all(&home, session).await }),
        })
    }

    async fn probe(&self) -> Result<()> {
        self.spawn(&["true".to_owned()]).await?.exit.await.map(drop)
    }

    async fn route(&self, port: u16) -> Result<Route> {
        match self.provider.machine(&self.guest) {
            None => Err(Error::gone(format!("box {} has no guest here", self.guest.box_id))),
            Some(machine) if !machine.running => {
                Err(Error::refused(format!("box {} is stopped", self.guest.box_id)))
            }
            Some(_) => Ok(Route::Tcp { host: "127.0.0.1".to_owned(), port }),
        }
    }
}

/// How many looks in a row must find no process.
const LOOKS: u32 = 3;

/// Ends every process of the guest with this home, or of one session of it, until there is none.
pub(super) async fn end_all(home: &Path, session: Option<u32>) -> Result<()> {
    let fault = |e| Error::unavailable("could not end a simulated guest's processes").because(e);
    // One that is being forked or becomes another program just now is not seen, so one look proves nothing.
    let mut unseen = 0;
    loop {
        let pids: Vec<String> = fs::read_dir("/proc")
            .map_err(fault)?
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
            .filter(|pid| session.is_none_or(|session| session_of(pid) == Some(session)) && is_of(pid, home))
            .collect();
        if pids.is_empty() {
            unseen += 1;
            if unseen == LOOKS {
                return Ok(());
            }
            tokio::task::yield_now().await;
            continue;
        }
        unseen = 0;
        // One that ended meanwhile is no fault.
        Command::new("kill").arg("-KILL").args(&pids).stderr(Stdio::null()).status().await.map_err(fault)?;
        tokio::task::yield_now().await;
    }
}

/// Whether a process that has not ended has the guest's mark.
fn is_of(pid: &str, home: &Path) -> bool {
    let mark = format!("{MARK}={}", home.display());
    // One that has ended has no environment any more.
    fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|all| all.split(|b| *b == 0).any(|one| one == mark.as_bytes()))
}

fn session_of(pid: &str) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may itself hold spaces and brackets.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(3)?.parse().ok()
}
