//! Files and directories, in and out.
//!
//! What is copied goes as one tar stream into a directory of its own, is checked there by CRC and size against the
//! source, and only then takes its place, each file by one rename: a copy that is cut off leaves the old files and
//! nothing else. One process in the box guards the directory for as long as the copy lasts; where the transport
//! has a faster way for the bytes, the guard only looks whether they arrived where commands see them.

#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod guard;
mod land;
mod list;
mod pack;
mod pipe;
mod unpack;
mod work;

#[cfg(test)]
mod tests;

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
};

use self::{
    guard::{Fault, Guard, cut, unsure},
    land::{Landed, Landing},
    pack::Tree,
    unpack::Target,
    work::{blocking, on_a_thread},
};
use super::{posix, session::Session};
use crate::{
    env::Env,
    error::{Error, ErrorKind, Result},
    transport::{Source, Transport},
};

const COPY_IN: &str =
    concat!(include_str!("../../../guest/verify.sh"), include_str!("../../../guest/copy-in.sh"));
const COPY_OUT: &str =
    concat!(include_str!("../../../guest/verify.sh"), include_str!("../../../guest/copy-out.sh"));
/// How much of a stream is gathered before it goes to a thread, and how long at most.
const PIECE: usize = 256 * 1024;
const LINGER: Duration = Duration::from_millis(5);
/// From this size on the transport's faster way is worth its own start.
const LARGE: u64 = 1 << 20;

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Files and symbolic links.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// What was left out because it is neither file, directory nor link, such as a socket.
    pub skipped: Vec<PathBuf>,
}

/// Told as bytes pass: how many by now, and how many there will be about, where that is known.
pub type Progress<'a> = &'a (dyn Fn(u64, Option<u64>) + Send + Sync);

impl Session {
    /// Copies the local file or directory `local` to `remote` in the box, relative to the user's home.
    ///
    /// A file takes the place of the file `remote`, or goes into the directory `remote`. What a directory holds goes
    /// into the directory `remote`, which is made when it is not there; files of the same names are replaced, others
    /// stay. Modes and times are kept. Symbolic links are copied as links, and none in the box is followed.
    ///
    /// # Errors
    /// `Gone` when `local`, or the directory it is to go into, is not there; `Refused` when something is in the way;
    /// `Failed`, naming the file; `Unavailable`, with effect `Unknown` when everything was sent.
    pub async fn copy_in(
        &self,
        local: &Path,
        remote: impl AsRef<[u8]>,
        progress: Progress<'_>,
    ) -> Result<Copied> {
        self.contact(async {
            let nonce = self.nonce();
            let from = local.to_owned();
            let mut tree = blocking(move || Tree::look(&from)).await?;
            let copied =
                Copied { files: tree.files, bytes: tree.bytes, skipped: std::mem::take(&mut tree.skipped) };
            let script = in_script(remote.as_ref(), &name_of(local), &nonce, &tree)?;
            let transport = self.transport().await?;
            let mut guard = Guard::start(&*transport, &script).await?;
            let moved = AtomicU64::new(0);
            let work = async {
                let ready = guard.ready().await?;
                let count = |n: u64| progress(moved.fetch_add(n, Ordering::Relaxed) + n, Some(copied.bytes));
                send(&mut guard, &*transport, tree, &ready, &count).await?;
                guard.end().await
            };
            let done = tokio::select! {
                biased;
                done = work => done,
                // How far the box has come with what was sent is not known then.
                error = self.contact_lost(&moved) => Err(unsure(Fault::There(error))),
            };
            match done {
                Ok(()) => Ok(copied),
                Err(error) => Err(guard.failed(&*self.env, error, "copy into the box").await),
            }
        })
        .await
    }

    /// Copies the file or directory `remote` of the box, relative to the user's home, to `local`.
    ///
    /// As [`Self::copy_in`], the other way round.
    ///
    /// # Errors
    /// As [`Self::copy_in`].
    pub async fn copy_out(
        &self,
        remote: impl AsRef<[u8]>,
        local: &Path,
        progress: Progress<'_>,
    ) -> Result<Copied> {
        self.contact(async {
            let nonce = self.nonce();
            let mut script = b"bb_source=".to_vec();
            posix::put_word(&mut script, plain(remote.as_ref())?)?;
            script.push(b'\n');
            script.extend_from_slice(posix::sent(COPY_OUT).as_bytes());
            let transport = self.transport().await?;
            let mut guard = Guard::start(&*transport, &script).await?;
            let moved = AtomicU64::new(0);
            let work = async {
                let ready = guard.ready().await?;
                let ready = out_ready(&ready)?;
                let count = |n: u64| progress(moved.fetch_add(n, Ordering::Relaxed) + n, ready.size);
                let (name, to, is_dir) = (
                    name_of(Path::new(OsStr::from_bytes(remote.as_ref()))),
                    local.to_owned(),
                    ready.kind == Kind::Dir,
                );
                let target =
                    blocking(move || Target::look(&to, Path::new(OsStr::from_bytes(&name)), is_dir)).await?;
                let arriving =
                    receive(&*self.env, &mut guard, &*transport, &ready, (target, nonce), &count).await?;
                let Arriving { list, sum, verdict, done } = arriving;
                guard.check(list, sum).await?;
                let _ = verdict.send(());
                Ok(done.await.map_err(|_| Error::failed("the copy's thread ended"))??)
            };
            let done = tokio::select! {
                biased;
                done = work => done,
                error = self.contact_lost(&moved) => Err(Fault::There(error)),
            };
            match done {
                Ok(copied) => Ok(copied),
                Err(error) => Err(guard.failed(&*self.env, error, "copy from the box").await),
            }
        })
        .await
    }

    fn nonce(&self) -> String {
        format!(".bb-{:016x}{:016x}", self.env.random(), self.env.random())
    }

    /// Ends when the box is found not to answer while no byte moves.
    async fn contact_lost(&self, moved: &AtomicU64) -> Error {
        let mut last = 0;
        loop {
            self.env.sleep(super::follow::DOUBT).await;
            let now = moved.load(Ordering::Relaxed);
            if now == last
                && let Err(error) = self.ask(|runner| async move { runner.ping().await }).await
            {
                return error;
            }
            last = now;
        }
    }
}

/// What to do about something that stands where a copy goes, here or in the box.
const IN_THE_WAY: &str = "name another path, or move what is there away";

fn plain(path: &[u8]) -> Result<&[u8]> {
    if path.is_empty() || path.contains(&0) {
        return Err(Error::invalid("a path in a box is neither empty nor holds a NUL byte")
            .fix("name a path from the box's home folder on, or an absolute one"));
    }
    Ok(path)
}

/// The last part of a path; of one that ends in `..` what it stands for is not known, and `copy` has to do.
fn name_of(path: &Path) -> Vec<u8> {
    path.file_name().unwrap_or(OsStr::new("copy")).as_bytes().to_vec()
}

fn in_script(remote: &[u8], name: &[u8], stage: &str, tree: &Tree) -> Result<Vec<u8>> {
    let remote = plain(remote)?;
    let trimmed = match remote.iter().rposition(|b| *b != b'/') {
        Some(last) if tree.is_dir => &remote[..=last],
        Some(_) => remote,
        None => b"/",
    };
    let (dir, last) = match trimmed.iter().rposition(|b| *b == b'/') {
        Some(0) => (&b"/"[..], &trimmed[1..]),
        Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
        None => (&b"."[..], trimmed),
    };
    let kind = if tree.is_dir { "dir" } else { "file" };
    let mut script = Vec::new();
    let words = [("bb_target", trimmed), ("bb_dir", dir), ("bb_last", last), ("bb_name", name)];
    for (variable, value) in
        words.into_iter().chain([("bb_stage", stage.as_bytes()), ("bb_kind", kind.as_bytes())])
    {
        script.extend_from_slice(variable.as_bytes());
        script.push(b'=');
        posix::put_word(&mut script, value)?;
        script.push(b'\n');
    }
    script.extend_from_slice(posix::sent(COPY_IN).as_bytes());
    Ok(script)
}

/// Sends a tree by whatever way is fastest and works.
async fn send(
    guard: &mut Guard,
    transport: &dyn Transport,
    tree: Tree,
    ready: &[u8],
    count: &(impl Fn(u64) + Sync),
) -> Result<(), Fault> {
    let (owner, stage) = in_ready(ready)?;
    let tree = Arc::new(tree);
    if tree.bytes >= LARGE
        && let (Some(archive), Some(stage)) = (transport.archive(), stage)
    {
        let (source, packed) = packing(&tree, owner);
        // A failure here says little: this way may not reach the directory at all, and the other then tells more.
        let unpacked = archive.unpack(&stage, source).await;
        packed.await.unwrap_or(Ok(()))?;
        if unpacked.is_ok() && guard.arrived().await? {
            count(tree.bytes);
            return Ok(());
        }
    }
    let (mut source, packed) = packing(&tree, owner);
    guard.say(b"tar\n").await?;
    let sent = guard.pump(&mut source, count).await;
    drop(source);
    // What could not be read matters more than the stream that broke because of it.
    packed.await.unwrap_or(Ok(()))?;
    sent
}

fn packing(tree: &Arc<Tree>, owner: (u64, u64)) -> (Source, oneshot::Receiver<Result<()>>) {
    let (mut pieces, source) = pipe::from_thread();
    let (tell, packed) = oneshot::channel();
    let tree = Arc::clone(tree);
    on_a_thread(move || {
        let outcome = tree.pack(owner, &mut pieces);
        if outcome.is_err() {
            pieces.fail();
        }
        // Whoever cut the stream off has an error of its own.
        let _ = tell.send(
            outcome.or_else(|error| if error.kind() == ErrorKind::Unavailable { Ok(()) } else { Err(error) }),
        );
    });
    (source, packed)
}

/// `UID GID STAGE`; a stage whose name is not text has no faster way.
fn in_ready(ready: &[u8]) -> Result<((u64, u64), Option<String>)> {
    let mut words = ready.splitn(3, |b| *b == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let (Some(uid), Some(gid)) = (number(), number()) else { return Err(odd(ready)) };
    let stage = words.next().and_then(|stage| String::from_utf8(stage.to_vec()).ok());
    Ok(((uid, gid), stage))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Link,
    Dir,
}

/// What a box has to give.
struct OutReady {
    kind: Kind,
    /// A file's size.
    size: Option<u64>,
    /// Where it is; a path that is not text has no faster way.
    path: Option<String>,
}

/// `KIND SIZE PATH`.
fn out_ready(ready: &[u8]) -> Result<OutReady> {
    let mut words = ready.splitn(3, |b| *b == b' ');
    let kind = match words.next() {
        Some(b"file") => Kind::File,
        Some(b"link") => Kind::Link,
        Some(b"dir") => Kind::Dir,
        _ => return Err(odd(ready)),
    };
    let size = words.next().and_then(|size| std::str::from_utf8(size).ok()?.parse().ok());
    let path = words.next().and_then(|path| String::from_utf8(path.to_vec()).ok());
    Ok(OutReady { kind, size: size.filter(|_| kind != Kind::Dir), path })
}

fn odd(ready: &[u8]) -> Error {
    Error::failed(format!("the box answered the copy with {:?}", String::from_utf8_lossy(ready)))
}

/// Files that arrived here and wait for the box's word.
struct Arriving {
    list: Vec<u8>,
    sum: Option<list::Sum>,
    verdict: oneshot::Sender<()>,
    done: oneshot::Receiver<Result<Copied>>,
}

/// Receives a source into a stage. The thread that holds the stage places it at the verdict, and removes it when
/// none comes: also when whoever asked is gone.
async fn receive(
    env: &dyn Env,
    guard: &mut Guard,
    transport: &dyn Transport,
    ready: &OutReady,
    (target, nonce): (Target, String),
    count: &(impl Fn(u64) + Sync),
) -> Result<Arriving, Fault> {
    let kind = ready.kind;
    if kind != Kind::Dir {
        guard.say(b"sum\n").await?;
    }
    let packed = match (transport.archive(), &ready.path) {
        (Some(archive), Some(path)) if kind == Kind::File && ready.size.is_some_and(|size| size >= LARGE) => {
            archive.pack(path).await.ok()
        }
        _ => None,
    };
    let (to, from) = pipe::to_thread();
    let Landed { told, verdict, done } = Landing::begin(target, nonce, kind == Kind::Dir, from);
    let pumped = match packed {
        Some(mut source) => pump_pieces(env, &mut source, to, count).await,
        None => {
            guard.say(b"tar\n").await?;
            guard.tar_started();
            pump_pieces(env, guard.stdout(), to, count).await
        }
    };
    let (list, sum) = told.await.map_err(|_| Error::failed("the copy's thread ended"))??;
    pumped?;
    Ok(Arriving { list, sum: sum.filter(|_| kind != Kind::Dir), verdict, done })
}

/// Passes a tar stream to the thread, to the stream's end or until the thread has seen the archive's end.
async fn pump_pieces(
    env: &dyn Env,
    from: &mut Source,
    to: tokio::sync::mpsc::Sender<Bytes>,
    count: &(impl Fn(u64) + Sync),
) -> Result<(), Fault> {
    let mut piece = BytesMut::with_capacity(PIECE);
    loop {
        // A thread that is woken for each small piece would cost more than the bytes do.
        let read = tokio::select! {
            biased;
            read = from.read_buf(&mut piece) => Some(read.map_err(cut)?),
            () = env.sleep(LINGER), if !piece.is_empty() => None,
            () = to.closed() => return Ok(()),
        };
        count(read.unwrap_or(0) as u64);
        if !piece.is_empty() && (piece.len() >= PIECE / 2 || matches!(read, None | Some(0))) {
            if to.send(piece.split().freeze()).await.is_err() {
                return Ok(());
            }
            piece.reserve(PIECE);
        }
        if read == Some(0) {
            return Ok(());
        }
    }
}

/// Writes all of it at once.
async fn put(to: &mut crate::transport::Sink, bytes: &[u8]) -> std::io::Result<()> {
    to.write_all(bytes).await?;
    to.flush().await
}
