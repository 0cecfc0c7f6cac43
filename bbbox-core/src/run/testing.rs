//! A transport to this machine, for tests: each box is a home directory.

use std::{
    pin::Pin,
    process::Stdio,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use async_trait::async_trait;
use tempfile::TempDir;
use tokio::{io::AsyncWrite, process::ChildStdin};

use super::{Runners, Session};
use crate::{
    env::SystemEnv,
    error::{Error, Result},
    id::BoxId,
    kind::Shell,
    route::Route,
    transport::{Archive, Exit, Process, Source, Transport, TransportTraits},
};

/// The shells that every promise is tested in.
pub(crate) const SHELLS: [&[&str]; 3] = [&["dash"], &["bash", "--posix"], &["busybox", "sh"]];

pub(crate) struct Local {
    pub(crate) home: TempDir,
    shell: Vec<String>,
    path: Option<String>,
    archive: Option<Archiver>,
}

/// Another way for files, as a provider may have: `elsewhere` gets what it unpacks when commands do not see it.
struct Archiver {
    home: std::path::PathBuf,
    elsewhere: Option<TempDir>,
    damages: std::sync::atomic::AtomicBool,
}

#[async_trait]
impl Archive for Archiver {
    async fn unpack(&self, dir: &str, mut tar: Source) -> Result<()> {
        let dir = match &self.elsewhere {
            Some(other) => other.path().to_owned(),
            None => self.home.join(dir),
        };
        let damage = dir.clone();
        let mut command = tokio::process::Command::new("tar");
        let mut child = command.args(["-xpf", "-"]).current_dir(dir).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let sent = tokio::io::copy(&mut tar, &mut stdin).await;
        drop(stdin);
        let unpacked = child.wait().await.unwrap().success() && sent.is_ok();
        if self.damages.load(std::sync::atomic::Ordering::Relaxed) {
            let script = "find d -type f -exec sh -c 'printf x >>\"$1\"' x {} \\;";
            std::process::Command::new("sh").args(["-c", script]).current_dir(damage).status().unwrap();
        }
        if unpacked { Ok(()) } else { Err(Error::failed("the stream broke")) }
    }

    async fn pack(&self, path: &str) -> Result<Source> {
        let path = std::path::Path::new(path);
        let (dir, name) = (path.parent().unwrap(), path.file_name().unwrap());
        let mut command = tokio::process::Command::new("tar");
        let mut child =
            command.args(["-cf", "-"]).arg(name).current_dir(dir).stdout(Stdio::piped()).spawn().unwrap();
        Ok(Box::new(child.stdout.take().unwrap()))
    }
}

impl Local {
    pub(crate) fn new(shell: &[&str]) -> Arc<Self> {
        let shell = shell.iter().map(ToString::to_string).collect();
        Arc::new(Self { home: tempfile::tempdir().unwrap(), shell, path: None, archive: None })
    }

    /// One with another way for files, which commands see or do not.
    pub(crate) fn with_archive(shell: &[&str], seen: bool) -> Arc<Self> {
        let home = tempfile::tempdir().unwrap();
        let elsewhere = (!seen).then(|| tempfile::tempdir().unwrap());
        let archive = Some(Archiver {
            home: home.path().to_owned(),
            elsewhere,
            damages: std::sync::atomic::AtomicBool::new(false),
        });
        Arc::new(Self { home, shell: shell.iter().map(ToString::to_string).collect(), path: None, archive })
    }

    /// One whose PATH begins with a directory in which `name` always fails.
    pub(crate) fn without(shell: &[&str], name: &str) -> Arc<Self> {
        use std::os::unix::fs::PermissionsExt;
        let mut local = Self {
            home: tempfile::tempdir().unwrap(),
            shell: shell.iter().map(ToString::to_string).collect(),
            path: None,
            archive: None,
        };
        let bin = local.home.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join(name), "#!/bin/sh\nexit 1\n").unwrap();
        std::fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
        local.path = Some(format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
        Arc::new(local)
    }

    /// Has every file that goes the other way arrive with a byte too many.
    pub(crate) fn damage(&self) {
        let archive = self.archive.as_ref().unwrap();
        archive.damages.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    pub(crate) fn session(self: &Arc<Self>) -> Session {
        self.session_in(&Runners::new(Arc::new(SystemEnv)))
    }

    pub(crate) fn session_in(self: &Arc<Self>, runners: &Runners) -> Session {
        let transport: Arc<dyn Transport> = Arc::<Self>::clone(self);
        runners.session(&BoxId::parse("bxtest00000000").unwrap(), Arc::new(transport))
    }
}

#[async_trait]
impl Transport for Local {
    fn traits(&self) -> TransportTraits {
        TransportTraits { shell: Shell::Sh, admin: false, in_desktop_session: false, streaming: true }
    }

    async fn spawn(&self, argv: &[String]) -> Result<Process> {
        // `/bin/sh` is the box's own shell.
        let (program, args): (&String, Vec<&String>) = if argv[0] == "/bin/sh" {
            (&self.shell[0], self.shell[1..].iter().chain(&argv[1..]).collect())
        } else {
            (&argv[0], argv[1..].iter().collect())
        };
        let mut command = tokio::process::Command::new(program);
        command.args(args).current_dir(self.home.path()).env("HOME", self.home.path()).env_remove("LC_ALL");
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| Error::unavailable("could not start").because(error))?;
        let pid = child.id().unwrap();
        Ok(Process {
            stdin: Box::new(Closing(child.stdin.take())),
            stdout: Box::new(child.stdout.take().unwrap()),
            stderr: Box::new(child.stderr.take().unwrap()),
            exit: Box::pin(async move {
                use std::os::unix::process::ExitStatusExt;
                let status = child.wait().await.map_err(|error| Error::failed("wait").because(error))?;
                Ok(match status.code() {
                    Some(code) => Exit::Code(code as u8),
                    None => Exit::Signal(status.signal().unwrap() as u8),
                })
            }),
            kill: Box::pin(async move {
                let _ = std::process::Command::new("kill").arg("-9").arg(pid.to_string()).output();
                Ok(())
            }),
        })
    }

    async fn probe(&self) -> Result<()> {
        Ok(())
    }

    fn archive(&self) -> Option<&dyn Archive> {
        self.archive.as_ref().map(|archive| archive as &dyn Archive)
    }

    async fn route(&self, port: u16) -> Result<Route> {
        Ok(Route::Tcp { host: "127.0.0.1".into(), port })
    }
}

/// A pipe that closes at shutdown, which tokio's own does only when it is dropped.
struct Closing(Option<ChildStdin>);

impl AsyncWrite for Closing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match &mut self.0 {
            Some(pipe) => Pin::new(pipe).poll_write(cx, bytes),
            None => Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.0 = None;
        Poll::Ready(Ok(()))
    }
}

/// Waits until `done` holds, and says what was last seen when it never does.
pub(crate) async fn until<T: std::fmt::Debug>(what: &str, mut look: impl AsyncFnMut() -> (bool, T)) {
    let mut last = None;
    for _ in 0..500 {
        let (done, seen) = look().await;
        if done {
            return;
        }
        last = Some(seen);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: last seen {last:?}");
}
