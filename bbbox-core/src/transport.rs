//! Reaching inside a box: starting a process there, and opening a port.
//!
//! A backend supplies a [`Transport`]; running commands, jobs, copies and terminals are written once, in this
//! crate, on [`Transport::spawn`]. A transport never knows what its caller runs.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{error::Result, kind::Shell, route::Route};

/// Bytes that go to a process.
pub type Sink = Box<dyn AsyncWrite + Send + Unpin>;
/// Bytes that come from a process.
pub type Source = Box<dyn AsyncRead + Send + Unpin>;

/// A writer that is dropped when it is shut down: for a pipe, whose other end reads the end only then.
#[derive(Debug)]
pub struct Closing<W>(Option<W>);

impl<W> Closing<W> {
    /// Wraps a writer, such as a child's stdin.
    #[must_use]
    pub const fn new(writer: W) -> Self {
        Self(Some(writer))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Closing<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Some(writer) => Pin::new(writer).poll_write(cx, buf),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().map_or(Poll::Ready(Ok(())), |writer| Pin::new(writer).poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(writer) = &mut self.0 {
            std::task::ready!(Pin::new(writer).poll_shutdown(cx))?;
            self.0 = None;
        }
        Poll::Ready(Ok(()))
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// It exited with this code, 0 to 255.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
}

impl Exit {
    /// Whether it exited with 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Code(0)
    }

    /// The status a shell would show: the code, or 128 and the signal.
    #[must_use]
    pub fn shell_status(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128_u8.saturating_add(signal),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// What a transport's commands meet at the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportTraits {
    /// The shell that scripts are written for.
    pub shell: Shell,
    /// Whether the box's user may become administrator.
    pub admin: bool,
    /// Whether a process starts in the logged-in desktop session.
    pub in_desktop_session: bool,
    /// Whether output comes as it is written.
    pub streaming: bool,
}

/// A running process in a box. Its streams are bytes: nothing is translated, merged or cut.
///
/// - *Promise* `exit-is-true`: the code or signal that ended it, never a guess.
///   `exit-is-told-at-once`: it is told once the process has ended and not before, whatever holds its output.
///   `kill-ends-what-it-started`: a kill ends the process and its children, and no other process.
pub struct Process {
    /// Its standard input. `shutdown` closes it; the process then reads the end.
    pub stdin: Sink,
    /// Its standard output, to its end.
    pub stdout: Source,
    /// Its standard error, to its end.
    pub stderr: Source,
    /// How it ended. Resolves once it has, even while something it started still holds a stream open.
    /// `Unavailable` with effect `Unknown` when contact was lost before that could be learned.
    pub exit: BoxFuture<'static, Result<Exit>>,
    /// Ends it and what it started, where the transport can; safe to repeat, and after its own end.
    pub kill: BoxFuture<'static, Result<()>>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Process")
    }
}

/// How commands reach one box.
#[async_trait]
pub trait Transport: Send + Sync {
    /// What commands meet at the other end.
    fn traits(&self) -> TransportTraits;

    /// Starts `argv` in the box as the box's user, in that user's home, without a TTY.
    ///
    /// - *Promise* `spawn-bytes`: each argument arrives as it is; the three streams are separate and exact.
    ///   `spawn-is-at-home`: it starts in the home of the box's user, where what is written stays.
    ///   `spawn-never-starts-a-box`: a stopped box stays stopped.
    /// - *Again*: starts another process.
    /// - *If dropped*: before it returns, the process may or may not have started. Dropping the [`Process`] closes
    ///   its streams and nothing else; `kill` ends it.
    /// - *Errors*: `Gone` when the box is not there, `Refused` when it is stopped (a spawn never starts a box),
    ///   `Unavailable` when it cannot be reached. A command that is not found is not an error: it exits 127.
    async fn spawn(&self, argv: &[String]) -> Result<Process>;

    /// Reaches the box afresh and runs nothing of its user's.
    ///
    /// - *Promise* `probe-dials-afresh`: a success means that a new connection works now.
    /// - *Errors*: as `spawn`.
    async fn probe(&self) -> Result<()>;

    /// A route to `port` on the box's own loopback, for one connection.
    ///
    /// - *Promise* `route-reaches-a-port`: bytes pass both ways, and the end of each direction by itself.
    /// - *Errors*: `Gone` or `Unavailable`. Whether something listens there shows only when the route is opened.
    async fn route(&self, port: u16) -> Result<Route>;

    /// A faster way to move whole files than a process's streams, where there is one.
    fn archive(&self) -> Option<&dyn Archive> {
        None
    }
}

/// Moving tar streams in and out of a box without a process of the box's.
///
/// What this reaches may differ from what commands see (a memory file system, for one), so a caller checks what
/// arrived and falls back to [`Transport::spawn`].
#[async_trait]
pub trait Archive: Send + Sync {
    /// Unpacks `tar` below the existing directory `dir`, with the owners that the entries name.
    ///
    /// - *Promise* `archive-moves-files-whole`: bytes, names and modes are in the box as they are in the stream.
    /// - *Errors*: `Gone` when there is no such directory or box, `Failed` when the stream broke.
    async fn unpack(&self, dir: &str, tar: Source) -> Result<()>;

    /// Packs the file or directory `path` as a tar stream with one top entry, its last component.
    ///
    /// - *Errors*: `Gone` when there is no such path or box.
    async fn pack(&self, path: &str) -> Result<Source>;
}

/// The traits stay usable as objects.
const _: fn(&dyn Transport, &dyn Archive) = |_, _| {};
