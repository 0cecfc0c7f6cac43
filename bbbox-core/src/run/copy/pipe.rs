//! Bytes between a thread that may block and the async side, a few pieces ahead at most.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes};
use futures::stream::poll_fn;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::io::StreamReader;

use crate::transport::Source;

/// One piece.
const PIECE: usize = 256 * 1024;
/// How many pieces wait: with it, a copy holds little more than a mebibyte.
const AHEAD: usize = 4;

/// What a blocking thread writes, as the async side reads it. An error that the thread sends ends the stream.
pub(super) fn from_thread() -> (Pieces, Source) {
    let (to, mut from) = channel::<io::Result<Bytes>>(AHEAD);
    let stream = StreamReader::new(poll_fn(move |cx| from.poll_recv(cx)));
    (Pieces { to, piece: Vec::with_capacity(PIECE) }, Box::new(stream))
}

/// A writer into [`from_thread`]'s stream.
pub(super) struct Pieces {
    to: Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Pieces {
    fn send(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE));
        self.to.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Ends the stream as broken.
    pub(super) fn fail(&self) {
        let _ = self.to.blocking_send(Err(io::ErrorKind::Interrupted.into()));
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..n]);
        if self.piece.len() == PIECE {
            self.send()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() { Ok(()) } else { self.send() }
    }
}

/// The other way: what the async side sends, as a blocking thread reads it.
pub(super) fn to_thread() -> (Sender<Bytes>, Arrived) {
    let (to, from) = channel(AHEAD);
    (to, Arrived { from, piece: Bytes::new() })
}

/// A reader of what was sent into [`to_thread`]'s sender.
pub(super) struct Arrived {
    from: Receiver<Bytes>,
    piece: Bytes,
}

impl Read for Arrived {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.from.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let n = into.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut into[..n]);
        Ok(n)
    }
}
