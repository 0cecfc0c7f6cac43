//! A box's tar stream as local files, in a directory of its own until they are checked.
//!
//! A box is not trusted: nothing is written outside that directory, no link is followed, and no name may lead
//! anywhere but down. Nothing of the target changes before the box has confirmed every sum.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Component, Path, PathBuf},
    rc::Rc,
};

use tar::{Archive, EntryType};

use super::{
    IN_THE_WAY,
    guard::Fault,
    list::{List, Sum},
    pack::Summed,
    pipe::Arrived,
};
use crate::error::{Error, Result};

/// How much may stand before an entry's content: its header, and what gives it a long name, which the archive's
/// reader takes into memory whole, however much there is.
const BEFORE_CONTENT: u64 = 1 << 20;
/// How many bytes the names of all entries may have: they are kept until the copy is in place.
const NAMES: usize = 128 << 20;
/// What is kept of an entry beside its names, about.
const ENTRY: usize = 64;

/// Where a copy is to end up.
pub(super) struct Target {
    /// The target itself.
    path: PathBuf,
    /// A directory that is there already: what comes is put into it.
    merge: bool,
}

impl Target {
    /// Looks at what is there. `name` is the source's own: a file that is copied onto a directory goes into it.
    pub(super) fn look(path: &Path, name: &Path, is_dir: bool) -> Result<Self> {
        let there = fs::metadata(path).ok();
        let to_dir = there.as_ref().is_some_and(fs::Metadata::is_dir);
        if is_dir && there.is_some() && !to_dir {
            return Err(Error::refused(format!("{} is there already and is no directory", path.display()))
                .fix(IN_THE_WAY));
        }
        let path = if to_dir && !is_dir { path.join(name) } else { path.to_owned() };
        if !is_dir && path.is_dir() {
            return Err(Error::refused(format!("{} is a directory", path.display())).fix(IN_THE_WAY));
        }
        Ok(Self { path, merge: is_dir && to_dir })
    }

    fn base(&self) -> &Path {
        if self.merge {
            return &self.path;
        }
        match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        }
    }
}

/// Files that arrived and are not in place yet.
pub(super) struct Stage {
    target: Target,
    root: PathBuf,
    is_dir: bool,
    /// Directories with their modes; the top is the empty path.
    dirs: BTreeMap<PathBuf, u32>,
    files: BTreeMap<PathBuf, Sum>,
    links: BTreeSet<PathBuf>,
    pub(super) skipped: Vec<PathBuf>,
    /// Bytes of names so far.
    names: usize,
}

impl Stage {
    /// An empty one, beside the target or in it. `nonce` is a name that nobody guesses.
    pub(super) fn make(target: Target, nonce: &str, is_dir: bool) -> Result<Self> {
        let root = target.base().join(nonce);
        DirBuilder::new().mode(0o700).create(&root).map_err(|error| unwritten(target.base(), error))?;
        Ok(Self {
            target,
            root,
            is_dir,
            dirs: BTreeMap::new(),
            files: BTreeMap::new(),
            links: BTreeSet::new(),
            skipped: Vec::new(),
            names: 0,
        })
    }

    /// Removes it with all it holds.
    pub(super) fn remove(&self) {
        for (dir, _) in self.dirs.iter().filter(|(_, mode)| *mode & 0o700 != 0o700) {
            let _ = fs::set_permissions(self.at(dir), Permissions::from_mode(0o700));
        }
        if let Err(error) = fs::remove_dir_all(&self.root) {
            tracing::warn!(path = %self.root.display(), %error, "what a copy left could not be removed");
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.values().map(|sum| sum.size).sum()
    }

    pub(super) fn count(&self) -> u64 {
        (self.files.len() + self.links.len()) as u64
    }

    /// The sum of the one file.
    pub(super) fn only_sum(&self) -> Option<Sum> {
        self.files.values().next().copied()
    }

    /// The list by which the box checks what arrived here.
    pub(super) fn list(&self) -> Result<Vec<u8>> {
        let mut list = List::default();
        for (path, sum) in &self.files {
            list.file(&[b"./", path.as_os_str().as_bytes()].concat(), *sum)?;
        }
        Ok(list.finish(b""))
    }

    fn at(&self, path: &Path) -> PathBuf {
        let top = self.root.join("d");
        if path.as_os_str().is_empty() { top } else { top.join(path) }
    }

    /// Unpacks a whole stream.
    pub(super) fn unpack(&mut self, from: Arrived) -> Result<(), Fault> {
        let left = Rc::new(Cell::new(BEFORE_CONTENT));
        let mut archive = Archive::new(Rationed { from, left: Rc::clone(&left) });
        let mut entries = archive.entries().map_err(broken)?;
        if self.is_dir {
            self.dir(PathBuf::new(), 0o755)?;
        }
        loop {
            left.set(BEFORE_CONTENT);
            let Some(entry) = entries.next() else { break };
            left.set(u64::MAX);
            let mut entry = entry.map_err(broken)?;
            self.names += entry.path_bytes().len() + entry.link_name_bytes().map_or(0, |to| to.len()) + ENTRY;
            if self.names > NAMES {
                return Err(Error::failed("the box sent more names than a copy may have")
                    .fix("copy parts of the directory on their own")
                    .into());
            }
            let mode = entry.header().mode().map_err(broken)? & 0o777;
            let kind = entry.header().entry_type();
            let path = if self.is_dir { below(&entry.path().map_err(broken)?)? } else { PathBuf::new() };
            match kind {
                EntryType::Directory => self.dir(path, mode)?,
                EntryType::Symlink => {
                    let to =
                        entry.link_name().map_err(broken)?.ok_or_else(|| broken(no_target()))?.into_owned();
                    self.link(path, &to)?;
                }
                EntryType::Link => {
                    let to =
                        entry.link_name().map_err(broken)?.ok_or_else(|| broken(no_target()))?.into_owned();
                    self.same(path, &below(&to)?)?;
                }
                EntryType::Regular | EntryType::Continuous => self.file(path, mode, &mut entry)?,
                // Its holes would be written out here: a few bytes from the box could fill this disk.
                EntryType::GNUSparse => {
                    return Err(Error::failed(format!("the box sent {path:?} with holes"))
                        .fix("its tar must not pack holes apart, as `tar -S` does")
                        .into());
                }
                EntryType::XGlobalHeader => {}
                _ => self.skipped.push(path),
            }
            // What is left of its content is passed over here, where it may be long.
            io::copy(&mut entry, &mut io::sink()).map_err(broken)?;
        }
        if !self.is_dir && self.files.len() != 1 {
            return Err(Fault::There(Error::failed("the box sent no file")));
        }
        Ok(())
    }

    /// Refuses a path whose parent is no directory of this copy, or that came already.
    fn room(&self, path: &Path) -> Result<()> {
        let parent_known = path.parent().is_none_or(|parent| self.dirs.contains_key(parent));
        let taken = self.files.contains_key(path) || self.links.contains(path);
        let top_taken = self.is_dir && path.as_os_str().is_empty();
        if parent_known && !taken && !top_taken {
            return Ok(());
        }
        Err(Error::failed(format!("the box sent {:?} where it cannot be", path.display().to_string())))
    }

    fn dir(&mut self, path: PathBuf, mode: u32) -> Result<()> {
        if let Some(known) = self.dirs.get_mut(&path) {
            *known = mode;
            return Ok(());
        }
        if !path.as_os_str().is_empty() {
            self.room(&path)?;
        }
        let at = self.at(&path);
        DirBuilder::new().mode(0o700).create(&at).map_err(|error| unwritten(&at, error))?;
        self.dirs.insert(path, mode);
        Ok(())
    }

    fn link(&mut self, path: PathBuf, to: &Path) -> Result<()> {
        self.room(&path)?;
        let at = self.at(&path);
        symlink(to, &at).map_err(|error| unwritten(&at, error))?;
        self.links.insert(path);
        Ok(())
    }

    /// A second name of a file that came already.
    fn same(&mut self, path: PathBuf, of: &Path) -> Result<()> {
        self.room(&path)?;
        let at = self.at(&path);
        if let Some(known) = self.files.get(of).copied() {
            fs::hard_link(self.at(of), &at).map_err(|error| unwritten(&at, error))?;
            self.files.insert(path, known);
        } else if self.links.contains(of) {
            let to = fs::read_link(self.at(of)).map_err(|error| unwritten(&at, error))?;
            return self.link(path, &to);
        } else {
            return Err(Error::failed(format!(
                "the box sent a second name of {:?}, which it did not send",
                of
            )));
        }
        Ok(())
    }

    fn file(&mut self, path: PathBuf, mode: u32, from: &mut impl Read) -> Result<(), Fault> {
        self.room(&path)?;
        let at = self.at(&path);
        let mut options = OpenOptions::new();
        let mut file: File = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&at)
            .map_err(|error| unwritten(&at, error))?;
        let mut from = Summed::new(from);
        let mut buffer = vec![0; 128 * 1024];
        loop {
            let n = from.read(&mut buffer).map_err(broken)?;
            if n == 0 {
                break;
            }
            io::Write::write_all(&mut file, &buffer[..n]).map_err(|error| unwritten(&at, error))?;
        }
        file.set_permissions(Permissions::from_mode(mode)).map_err(|error| unwritten(&at, error))?;
        self.files.insert(path, from.finish());
        Ok(())
    }

    /// Puts everything in place, each file by one rename.
    pub(super) fn place(&self) -> Result<()> {
        if !self.target.merge {
            self.set_modes(
                self.dirs.iter().rev().map(|(dir, mode)| (self.at(dir), *mode)),
                &self.at(Path::new("")),
            )?;
            let (from, to) = (self.at(Path::new("")), &self.target.path);
            if self.is_dir && fs::symlink_metadata(to).is_ok() {
                return Err(
                    Error::refused(format!("{} came into being meanwhile", to.display())).fix("copy again")
                );
            }
            fs::rename(from, to).map_err(|error| unwritten(to, error))?;
            return self.top_mode(to);
        }
        let to = |path: &Path| self.target.path.join(path);
        for path in self.dirs.keys().filter(|path| !path.as_os_str().is_empty()) {
            match fs::symlink_metadata(to(path)) {
                Ok(meta) if meta.is_dir() => {}
                Ok(meta) if meta.is_symlink() => {
                    return Err(Error::refused(format!(
                        "{} is a symbolic link, and a copy does not follow it",
                        to(path).display()
                    ))
                    .fix(IN_THE_WAY));
                }
                Ok(_) => {
                    return Err(
                        Error::refused(format!("{} is no directory", to(path).display())).fix(IN_THE_WAY)
                    );
                }
                Err(_) => {}
            }
        }
        let mut made = Vec::new();
        for (path, mode) in self.dirs.iter().filter(|(path, _)| !path.as_os_str().is_empty()) {
            match DirBuilder::new().mode(0o700).create(to(path)) {
                Ok(()) => made.push((to(path), *mode)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(unwritten(&to(path), error)),
            }
        }
        for path in self.files.keys().chain(&self.links) {
            fs::rename(self.at(path), to(path)).map_err(|error| unwritten(&to(path), error))?;
        }
        self.set_modes(made.into_iter().rev(), Path::new("/"))
    }

    fn set_modes(&self, dirs: impl Iterator<Item = (PathBuf, u32)>, but: &Path) -> Result<()> {
        for (path, mode) in dirs.filter(|(path, _)| path != but) {
            fs::set_permissions(&path, Permissions::from_mode(mode))
                .map_err(|error| unwritten(&path, error))?;
        }
        Ok(())
    }

    /// The top's own mode comes last: a directory that is read-only cannot be moved.
    fn top_mode(&self, to: &Path) -> Result<()> {
        let Some(mode) = self.dirs.get(Path::new("")) else { return Ok(()) };
        fs::set_permissions(to, Permissions::from_mode(*mode)).map_err(|error| unwritten(to, error))
    }
}

/// A stream of which only so much may be read until more is allowed.
struct Rationed<R> {
    from: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Rationed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other(format!("it has more than {BEFORE_CONTENT} bytes before a file")));
        }
        let most = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let n = self.from.read(&mut into[..most])?;
        self.left.set(left - n as u64);
        Ok(n)
    }
}

/// An entry's path below the top. Only steps down count.
fn below(path: &Path) -> Result<PathBuf> {
    let mut below = PathBuf::new();
    for part in path.components().filter(|part| *part != Component::CurDir) {
        match part {
            Component::Normal(name) => below.push(name),
            _ => {
                return Err(Error::failed(format!("the box sent the name {:?}", path.display().to_string())));
            }
        }
    }
    Ok(below)
}

fn no_target() -> io::Error {
    io::Error::other("a link without a target")
}

fn broken(error: io::Error) -> Fault {
    Fault::There(Error::failed("the box's stream of files broke off").because(error))
}

fn unwritten(path: &Path, error: io::Error) -> Error {
    let fix = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space on its disk",
        io::ErrorKind::NotFound => "make the folder that it goes into",
        _ => "name a path that you may write to",
    };
    Error::failed(format!("{} could not be written", path.display())).fix(fix).because(error)
}
