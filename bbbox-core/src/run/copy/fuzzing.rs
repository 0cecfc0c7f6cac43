//! What a box says to a copy and sends to it, for [`crate::fuzzing`].

use std::{
    fs,
    io::Cursor,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    guard::{Fault, Guard},
    in_ready, out_ready, pipe,
    unpack::{Stage, Target},
};
use crate::{
    env::SystemEnv,
    error::{Error, Result},
    kind::Shell,
    route::Route,
    run::copy::list::Sum,
    transport::{Exit, Process, Transport, TransportTraits},
};

/// A box that says what it was told to, whatever is asked of it.
struct Parrot<'a> {
    stdout: &'a [u8],
    stderr: &'a [u8],
    exit: Exit,
}

#[async_trait]
impl Transport for Parrot<'_> {
    fn traits(&self) -> TransportTraits {
        TransportTraits { shell: Shell::Sh, admin: false, in_desktop_session: false, streaming: true }
    }

    async fn spawn(&self, _: &[String]) -> Result<Process> {
        let exit = self.exit;
        Ok(Process {
            stdin: Box::new(tokio::io::sink()),
            stdout: Box::new(Cursor::new(self.stdout.to_vec())),
            stderr: Box::new(Cursor::new(self.stderr.to_vec())),
            exit: Box::pin(async move { Ok(exit) }),
            kill: Box::pin(async { Ok(()) }),
        })
    }

    async fn probe(&self) -> Result<()> {
        Ok(())
    }

    async fn route(&self, _: u16) -> Result<Route> {
        Err(Error::failed("it has no ports"))
    }
}

/// The talk of a copy with its guard. The first byte is how that ends; what follows is its two streams, with a byte that
/// no text has between them.
pub fn guard(bytes: &[u8]) {
    let Some((ends, said)) = bytes.split_first() else { return };
    let (stdout, stderr) = said.split_at(said.iter().position(|b| *b == 0xff).unwrap_or(said.len()));
    let exit = if ends & 0x80 == 0 { Exit::Code(*ends) } else { Exit::Signal(ends & 0x7f) };
    let parrot = Parrot { stdout, stderr, exit };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.unwrap_or_else(|error| panic!("there is no runtime: {error}")).block_on(async {
        copies_in(&parrot).await;
        copies_out(&parrot).await;
    });
}

/// Only a guard that said that all is in place, and ended well, is believed.
async fn copies_in(parrot: &Parrot<'_>) {
    let Ok(mut guard) = Guard::start(parrot, b"").await else { return };
    let talk: Result<bool, Fault> = async {
        in_ready(&guard.ready().await?)?;
        guard.say(b"tar\n").await?;
        let seen = guard.arrived().await?;
        guard.end().await?;
        Ok(seen)
    }
    .await;
    match talk {
        Ok(_) => assert!(parrot.exit.success() && contains(parrot.stdout, b"done")),
        Err(fault) => drop(guard.failed(&SystemEnv, fault, "copy into the box").await.chain()),
    }
}

/// A file counts as the same only where the guard named its sum.
async fn copies_out(parrot: &Parrot<'_>) {
    let sum = Sum { crc: 1, size: 2 };
    let Ok(mut guard) = Guard::start(parrot, b"").await else { return };
    let talk: Result<(), Fault> = async {
        out_ready(&guard.ready().await?)?;
        guard.tar_started();
        guard.check(Vec::new(), Some(sum)).await
    }
    .await;
    match talk {
        Ok(()) => assert!(parrot.exit.success() && contains(parrot.stderr, b"bb_sum 1 2")),
        Err(fault) => drop(guard.failed(&SystemEnv, fault, "copy from the box").await.chain()),
    }
}

fn contains(text: &[u8], what: &[u8]) -> bool {
    text.windows(what.len()).any(|part| part == what)
}

/// A box's tar stream, onto nothing, onto a file and into a directory: nothing outside its target changes, no link is
/// followed, and what is not placed leaves nothing. The first byte says which; the sums of its headers are put right.
pub fn archive(bytes: &[u8]) {
    let Some((which, archive)) = bytes.split_first() else { return };
    let (is_dir, there) = (which & 1 == 1, which & 2 == 2);
    let archive = with_sums(archive);
    let root =
        tempfile::tempdir_in(memory()).unwrap_or_else(|error| panic!("there is no directory: {error}"));
    let (inner, guarded) = (root.path().join("in"), root.path().join("outside"));
    let target = inner.join("target");
    fs::create_dir(&inner).and_then(|()| fs::write(&guarded, "outside")).unwrap_or_else(|e| panic!("{e}"));
    if there && is_dir {
        let made =
            fs::create_dir(&target).and_then(|()| std::os::unix::fs::symlink("../..", target.join("up")));
        made.and_then(|()| fs::create_dir(target.join("d"))).unwrap_or_else(|e| panic!("{e}"));
    } else if there {
        fs::write(&target, "old").unwrap_or_else(|e| panic!("{e}"));
    }
    let placed = copy(&target, is_dir, archive);
    let left = names(root.path());
    assert_eq!(left, ["in", "outside"], "something is beside what was copied");
    assert_eq!(fs::read(&guarded).ok().as_deref(), Some(&b"outside"[..]));
    assert!(names(&inner).iter().all(|name| name == "target"), "{:?}", names(&inner));
    if placed.is_err() && there && !is_dir {
        assert_eq!(fs::read(&target).ok().as_deref(), Some(&b"old"[..]), "what was there is lost");
    }
    if placed.is_err() && !there {
        assert!(fs::symlink_metadata(&target).is_err(), "what failed is in place");
    }
    if placed.is_ok() {
        let meta =
            fs::symlink_metadata(&target).unwrap_or_else(|e| panic!("what was placed is not there: {e}"));
        assert!(meta.is_dir() == is_dir && !meta.is_symlink() && meta.mode() & 0o7000 == 0, "{meta:?}");
    }
    open_all(&inner);
}

fn copy(target: &Path, is_dir: bool, archive: Vec<u8>) -> Result<(), Fault> {
    let mut stage = Stage::make(Target::look(target, Path::new("name"), is_dir)?, ".bb-stage", is_dir)?;
    let (to, from) = pipe::to_thread();
    assert!(to.try_send(Bytes::from(archive)).is_ok(), "a stream takes its first piece");
    drop(to);
    let unpacked = stage.unpack(from);
    let placed = match unpacked {
        Ok(()) => {
            stage.list()?;
            assert!(is_dir || stage.only_sum().is_some());
            stage.place().map_err(Fault::Here)
        }
        Err(fault) => Err(fault),
    };
    stage.remove();
    placed
}

/// The headers of an archive with the sums that they should have: those are no defence, and hard to guess.
fn with_sums(archive: &[u8]) -> Vec<u8> {
    let (mut whole, mut at) = (archive.to_vec(), 0);
    while let Some(block) = whole.get_mut(at..at + 512) {
        let mut header = tar::Header::from_byte_slice(block).clone();
        if block.iter().all(|b| *b == 0) {
            break;
        }
        header.set_cksum();
        block.copy_from_slice(header.as_bytes());
        let size = header.entry_size().unwrap_or(0).min(1 << 20).next_multiple_of(512);
        at += 512 + usize::try_from(size).unwrap_or(0);
    }
    whole
}

/// A place in memory, where there is one: thousands of directories a second come and go.
fn memory() -> std::path::PathBuf {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Lets everything below be removed, whatever modes it came with.
fn open_all(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o700));
            open_all(&entry.path());
        }
    }
}
