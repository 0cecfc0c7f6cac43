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

fn ahead() -> usize {
    // Where one thread does all, nobody takes a piece before the last of them is there.
    #[cfg(feature = "simulation")]
    if crate::simulation::alone() {
        return tokio::sync::Semaphore::MAX_PERMITS;
    }
    AHEAD
}

/// What a blocking thread writes, as the async side reads it. An error that the thread sends ends the stream.
pub(super) fn from_thread() -> (Pieces, Source) {
    let (to, mut from) = channel::<io::Result<Bytes>>(ahead());
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
        self.put(Ok(piece.into()))
    }

    /// Ends the stream as broken.
    pub(super) fn fail(&self) {
        let _ = self.put(Err(io::ErrorKind::Interrupted.into()));
    }

    fn put(&self, piece: io::Result<Bytes>) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if crate::simulation::alone() {
            return self.to.try_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into());
        }
        self.to.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
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
    let (to, from) = channel(ahead());
    (to, Arrived { from, piece: Bytes::new() })
}

/// A reader of what was sent into [`to_thread`]'s sender.
pub(super) struct Arrived {
    from: Receiver<Bytes>,
    piece: Bytes,
}

impl Arrived {
    fn next(&mut self) -> Option<Bytes> {
        #[cfg(feature = "simulation")]
        if crate::simulation::alone() {
            return self.from.try_recv().ok();
        }
        self.from.blocking_recv()
    }
}

#[cfg(feature = "simulation")]
impl Arrived {
    /// A whole archive, or what came of it, for whoever cannot wait for one piece after the other.
    pub(super) async fn gathered(mut self) -> Self {
        let mut all = Vec::new();
        while !is_whole(&all) {
            let Some(piece) = self.from.recv().await else { break };
            all.extend_from_slice(&piece);
        }
        self.from.close();
        Self { from: self.from, piece: all.into() }
    }
}

/// Whether an archive's end is in what came of it.
#[cfg(feature = "simulation")]
fn is_whole(archive: &[u8]) -> bool {
    let mut rest = archive;
    while let Some((block, more)) = rest.split_at_checked(512) {
        if block.iter().all(|b| *b == 0) {
            return true;
        }
        let size = tar::Header::from_byte_slice(block).entry_size().unwrap_or(0).next_multiple_of(512);
        rest = usize::try_from(size).ok().and_then(|size| more.get(size..)).unwrap_or_default();
    }
    false
}

impl Read for Arrived {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.next() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let n = into.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut into[..n]);
        Ok(n)
    }
}
