//! How to reach one port inside a box: plain data for one connection, opened in one place.
//!
//! A route may hold a one-time secret, so it is never logged, never recorded and never sent to a viewer.

use std::{
    fmt, io,
    pin::Pin,
    process::Stdio,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    error::{Error, Result},
    transport::Closing,
};

/// A byte stream in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// One way to one port in a box.
pub enum Route {
    /// An address that this process reaches by itself.
    Tcp {
        /// Host name or address.
        host: String,
        /// TCP port.
        port: u16,
    },
    /// A command on this machine whose stdin and stdout carry the bytes.
    Command {
        /// The program and its arguments.
        argv: Vec<String>,
    },
    /// A stream that is open already.
    Stream(Box<dyn Duplex>),
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp { .. } => "Route::Tcp",
            Self::Command { .. } => "Route::Command",
            Self::Stream(_) => "Route::Stream",
        })
    }
}

impl Route {
    /// Opens the route: the only code that does.
    ///
    /// # Errors
    /// `Unavailable` when nothing answers, `Failed` when the command cannot be started.
    pub async fn open(self) -> Result<Box<dyn Duplex>> {
        match self {
            Self::Stream(stream) => Ok(stream),
            Self::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|e| {
                    Error::unavailable(format!("could not connect to port {port} of the box"))
                        .fix("check that something in the box listens there")
                        .because(e)
                })?;
                stream
                    .set_nodelay(true)
                    .map_err(|e| Error::failed("could not set up the connection").because(e))?;
                Ok(Box::new(stream))
            }
            Self::Command { argv } => {
                let (program, arguments) =
                    argv.split_first().ok_or_else(|| Error::invalid("a command route needs a program"))?;
                let mut child = Command::new(program)
                    .args(arguments)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .kill_on_drop(true)
                    .spawn()
                    .map_err(|e| Error::failed(format!("could not start {program:?}")).because(e))?;
                match (child.stdout.take(), child.stdin.take()) {
                    (Some(from), Some(to)) => {
                        Ok(Box::new(CommandStream { from, to: Closing::new(to), _child: child }))
                    }
                    _ => Err(Error::failed(format!("{program:?} has no stdin or stdout"))),
                }
            }
        }
    }
}

/// A command's two pipes as one stream; dropping it ends the command.
struct CommandStream {
    from: ChildStdout,
    to: Closing<ChildStdin>,
    _child: Child,
}

impl AsyncRead for CommandStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.from).poll_read(cx, buf)
    }
}

impl AsyncWrite for CommandStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.to).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_command_route_carries_bytes_both_ways() {
        let mut stream = Route::Command { argv: vec!["cat".into()] }.open().await.unwrap();
        stream.write_all(b"\0\xff\r\n").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.unwrap();
        assert_eq!(back, b"\0\xff\r\n");
    }
}
