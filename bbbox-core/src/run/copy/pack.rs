//! Local files as a tar stream, with the list that the box checks them by at its end.
//!
//! Symbolic links are packed as links and never followed, but for the path that the caller named.

use std::{
    fs::{self, File, Metadata},
    io::{self, BufReader, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use tar::{Builder, EntryType, Header};

use super::{
    guard::lost,
    list::{List, Places, Sum, Summing},
    pipe::Pieces,
};
use crate::error::{Error, Result};

/// One thing to pack, by its path below the top; the top's own is empty.
struct Item {
    below: PathBuf,
    meta: Metadata,
    link: Option<PathBuf>,
}

/// What there is to pack.
pub(super) struct Tree {
    top: PathBuf,
    items: Vec<Item>,
    pub(super) is_dir: bool,
    /// Bytes of all its files.
    pub(super) bytes: u64,
    /// Files and links.
    pub(super) files: u64,
    /// What is neither file, directory nor link.
    pub(super) skipped: Vec<PathBuf>,
}

impl Tree {
    /// Looks at everything below `top` without reading a file.
    pub(super) fn look(top: &Path) -> Result<Self> {
        let meta = fs::metadata(top).map_err(|error| unread(top, error))?;
        let mut tree = Self {
            top: top.to_owned(),
            items: Vec::new(),
            is_dir: meta.is_dir(),
            bytes: 0,
            files: 0,
            skipped: Vec::new(),
        };
        if !meta.is_dir() && !meta.is_file() {
            return Err(Error::invalid(format!("{} is neither a file nor a directory", top.display()))
                .fix("pass what a pipe or a device gives through the input of `bbbox run BOX`"));
        }
        tree.add(PathBuf::new(), meta, None);
        let mut at = 0;
        while at < tree.items.len() {
            if tree.items[at].meta.is_dir() {
                tree.enter(tree.items[at].below.clone())?;
            }
            at += 1;
        }
        Ok(tree)
    }

    fn enter(&mut self, below: PathBuf) -> Result<()> {
        let dir = self.path(&below);
        let entries = fs::read_dir(&dir).map_err(|error| unread(&dir, error))?;
        let mut names = Vec::new();
        for entry in entries {
            names.push(entry.map_err(|error| unread(&dir, error))?.file_name());
        }
        names.sort();
        for name in names {
            let below = below.join(name);
            let path = self.path(&below);
            let meta = fs::symlink_metadata(&path).map_err(|error| unread(&path, error))?;
            let link = if meta.is_symlink() {
                Some(fs::read_link(&path).map_err(|error| unread(&path, error))?)
            } else {
                None
            };
            self.add(below, meta, link);
        }
        Ok(())
    }

    fn add(&mut self, below: PathBuf, meta: Metadata, link: Option<PathBuf>) {
        if meta.is_file() {
            self.bytes += meta.len();
        } else if !meta.is_dir() && link.is_none() {
            self.skipped.push(self.path(&below));
            return;
        }
        self.files += u64::from(!meta.is_dir());
        self.items.push(Item { below, meta, link });
    }

    fn path(&self, below: &Path) -> PathBuf {
        if below.as_os_str().is_empty() { self.top.clone() } else { self.top.join(below) }
    }

    /// Writes all of it, owned by `owner`, as `d` and what is below it, and then the list as `m`.
    pub(super) fn pack(&self, owner: (u64, u64), to: &mut Pieces) -> Result<()> {
        let mut tar = Builder::new(to);
        let (mut list, mut places) = (List::default(), Places::default());
        for item in &self.items {
            let name = packed_name(&item.below);
            self.pack_item(&mut tar, item, &name, owner, &mut list)?;
            place(&mut places, item)?;
        }
        let text = list.finish(&places.finish(self.items[0].meta.mode() & 0o777));
        let mut header = header(owner, EntryType::Regular, 0o600, 0);
        header.set_size(text.len() as u64);
        let done =
            tar.append_data(&mut header, "m", text.as_slice()).and_then(|()| tar.into_inner()?.flush_all());
        done.map_err(not_sent)
    }

    fn pack_item(
        &self,
        tar: &mut Builder<&mut Pieces>,
        item: &Item,
        name: &Path,
        owner: (u64, u64),
        list: &mut List,
    ) -> Result<()> {
        let mode = item.meta.mode() & 0o777;
        let at = item.meta.mtime().max(0) as u64;
        if let Some(target) = &item.link {
            let mut header = header(owner, EntryType::Symlink, 0o777, at);
            return tar.append_link(&mut header, name, target).map_err(not_sent);
        }
        if item.meta.is_dir() {
            // Whoever unpacks must be able to write into it; its own mode comes when it is in place.
            let mut header = header(owner, EntryType::Directory, mode | 0o700, at);
            return tar.append_data(&mut header, name, io::empty()).map_err(not_sent);
        }
        let path = self.path(&item.below);
        // The box reads it to check it, and gives a single file its own mode after that.
        let mode = if self.is_dir { mode } else { mode | 0o400 };
        let mut header = header(owner, EntryType::Regular, mode, at);
        header.set_size(item.meta.len());
        let file = File::open(&path).map_err(|error| unread(&path, error))?;
        let mut file = Summed::new(BufReader::with_capacity(256 * 1024, file.take(item.meta.len())));
        tar.append_data(&mut header, name, &mut file).map_err(|error| match file.failed.take() {
            Some(error) => unread(&path, error),
            None => not_sent(error),
        })?;
        let sum = file.finish();
        if sum.size != item.meta.len() {
            return Err(Error::failed(format!("{} changed while it was copied", path.display()))
                .fix("copy it once nothing writes to it; what the kernel makes up as it is read (/proc, /sys), as a copy"));
        }
        list.file(name.as_os_str().as_bytes(), sum)
    }
}

trait FlushAll {
    fn flush_all(self) -> io::Result<()>;
}

impl FlushAll for &mut Pieces {
    fn flush_all(self) -> io::Result<()> {
        io::Write::flush(self)
    }
}

fn packed_name(below: &Path) -> PathBuf {
    if below.as_os_str().is_empty() { PathBuf::from("d") } else { Path::new("d").join(below) }
}

fn place(places: &mut Places, item: &Item) -> Result<()> {
    let Some(name) = item.below.file_name() else { return Ok(()) };
    if item.meta.is_dir() {
        return places.dir(item.below.as_os_str().as_bytes(), item.meta.mode() & 0o777);
    }
    let mut dir = item.below.parent().map(|dir| dir.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    if !dir.is_empty() {
        dir.push(b'/');
    }
    places.put(&dir, name.as_bytes())
}

fn header((uid, gid): (u64, u64), kind: EntryType, mode: u32, mtime: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(uid);
    header.set_gid(gid);
    header.set_mtime(mtime);
    header.set_size(0);
    header
}

/// A reader that sums what passes.
pub(super) struct Summed<R> {
    from: R,
    sum: Summing,
    failed: Option<io::Error>,
}

impl<R: Read> Summed<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, sum: Summing::new(), failed: None }
    }

    pub(super) fn finish(self) -> Sum {
        self.sum.finish()
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(into).inspect_err(|error| {
            // The caller sees only one error for both ends; which end it was decides the words.
            self.failed =
                Some(error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error));
        })?;
        self.sum.update(&into[..n]);
        Ok(n)
    }
}

fn unread(path: &Path, error: io::Error) -> Error {
    let words = format!("{} could not be read", path.display());
    let made = match error.kind() {
        io::ErrorKind::NotFound => Error::gone(words).fix("name one that is there"),
        io::ErrorKind::PermissionDenied => Error::failed(words).fix("make it readable for you"),
        _ => Error::failed(words),
    };
    made.because(error)
}

fn not_sent(error: io::Error) -> Error {
    lost("the copy was cut off", error)
}
