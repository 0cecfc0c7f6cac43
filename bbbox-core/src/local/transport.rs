//! Running processes in a guest: inside its namespaces, or on the machine with the guest's home.
//!
//! Each is the leader of a session of its own, without a terminal, so that it cannot reach the one of whoever runs
//! bb-box, and so that `kill` finds what it started.

use std::{io, os::unix::process::ExitStatusExt as _, path::PathBuf, process::ExitStatus, process::Stdio};

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::{
    client::{Fence, Handle, enter},
    folder::Folder,
    map::{Mode, Record, Stage},
};
use crate::{
    Effect, Error, Result,
    guest::Guest,
    kind::Shell,
    route::Route,
    transport::{Closing, Exit, Process, Transport, TransportTraits},
};

/// The way into one guest.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) dir: PathBuf,
    pub(super) guest: Guest,
    pub(super) mode: Mode,
}

impl Inside {
    /// The guest's first process, if the guest is there, is this box's and runs.
    fn keeper(&self) -> Result<(Handle, Folder, Record)> {
        let (folder, record) = Folder::of(&self.dir, &self.guest)?
            .ok_or_else(|| Error::gone(format!("box {} is gone", self.guest.box_id)))?;
        let keeper = folder.keeper().filter(|keeper| keeper.stage == Stage::Ready);
        match keeper.and_then(|keeper| Handle::of(&keeper)) {
            Some(handle) => Ok((handle, folder, record)),
            None => Err(Error::refused(format!("box {} is stopped", self.guest.box_id))
                .fix(format!("start it: `bbbox start {}`", self.guest.box_id))),
        }
    }
}

#[async_trait]
impl Transport for Inside {
    fn traits(&self) -> TransportTraits {
        TransportTraits {
            shell: Shell::Sh,
            admin: is_admin(self.mode),
            in_desktop_session: false,
            streaming: true,
        }
    }

    async fn spawn(&self, argv: &[String]) -> Result<Process> {
        if argv.is_empty() {
            return Err(Error::invalid("there is no command to run").fix("name a program"));
        }
        let (keeper, folder, record) = self.keeper()?;
        let fence = match record.mode {
            Mode::None => Fence::Marker(record.owner.box_id.clone()),
            _ => Fence::Namespace(keeper.namespace().ok_or_else(|| lost(&self.guest))?),
        };
        let mut command = enter(&keeper, record.mode);
        command.args(argv).env("TERM", "dumb").env("LANG", "C.UTF-8");
        let user = user_of(record.mode);
        command.envs([("USER", user.as_str()), ("LOGNAME", &user)]);
        if record.mode == Mode::None {
            let home = folder.path().join("home");
            command.env("HOME", &home).current_dir(&home).env("TMPDIR", folder.path().join("tmp"));
            command.env("BBBOX_BOX", record.owner.box_id.as_str());
        } else {
            command.env("HOME", "/home/box");
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(not_started)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(Error::failed("the process has no streams").effect(Effect::Applied));
        };
        let session = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or_default();
        let (tell, told) = oneshot::channel();
        let unknown = lost(&self.guest);
        // Waits whether or not the caller does: it is what collects the process, and `keeper` must stay open
        // until the process is inside.
        tokio::spawn(async move {
            let status = child.wait().await;
            let left = record.mode != Mode::None && keeper.stat().is_none_or(|stat| stat.ended);
            let _nobody_waits = tell.send(ended(status, left));
        });
        Ok(Process {
            stdin: Box::new(Closing::new(stdin)),
            stdout: Box::new(stdout),
            stderr: Box::new(stderr),
            exit: Box::pin(async move { told.await.ok().flatten().ok_or(unknown) }),
            kill: Box::pin(async move { fence.end(|stat| stat.session == session).await }),
        })
    }

    async fn probe(&self) -> Result<()> {
        let exit = self.spawn(&["/bin/true".to_owned()]).await?.exit.await?;
        if exit.success() {
            return Ok(());
        }
        Err(Error::unavailable(format!("box {} runs nothing", self.guest.box_id))
            .because_of(exit.to_string()))
    }

    async fn route(&self, port: u16) -> Result<Route> {
        self.keeper()?;
        Ok(Route::Tcp { host: "127.0.0.1".to_owned(), port })
    }
}

/// Whether commands run as root in a guest that is kept so.
pub(super) fn is_admin(mode: Mode) -> bool {
    mode != Mode::None || rustix::process::getuid().is_root()
}

/// The name of the user that commands run as.
fn user_of(mode: Mode) -> String {
    if is_admin(mode) {
        return "root".to_owned();
    }
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1) == Some(&uid)).then(|| name.to_owned())
    });
    name.unwrap_or(uid)
}

/// How it ended. Exit 1 from a box that is no more may be `nsenter`'s own word that it could not get in.
fn ended(status: io::Result<ExitStatus>, box_left: bool) -> Option<Exit> {
    let status = status.ok()?;
    match (status.code(), status.signal()) {
        (Some(1), _) if box_left => None,
        (Some(code), _) => u8::try_from(code).ok().map(Exit::Code),
        (None, signal) => signal.and_then(|signal| u8::try_from(signal).ok()).map(Exit::Signal),
    }
}

fn lost(guest: &Guest) -> Error {
    Error::unavailable(format!("lost contact with box {}", guest.box_id)).effect(Effect::Unknown)
}

fn not_started(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong | io::ErrorKind::InvalidInput => {
            Error::invalid("the command line is too long or holds a NUL").because(error)
        }
        _ => Error::unavailable("could not start a process").because(error),
    }
}
