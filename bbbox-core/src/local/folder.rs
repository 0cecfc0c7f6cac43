//! The backend's folder, which is its provider: one folder a guest, made and removed whole.
//!
//! `<box>/owner.json` says whose it is, `home/` is the box's disk, `keeper` is its first process as that wrote
//! itself down, `ended` says how a shutdown from inside went, and `lock` is held by whoever starts or removes the
//! guest and then by the keeper. What is being made or removed is called `.new-…` and `.old-…`, and is no guest.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, ErrorKind as Io, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::map::{Keeper, Record};
use crate::{
    Error, ErrorKind, Result,
    guest::{Guest, Owner},
    id::{BoxId, InstallId},
};

/// One guest's folder.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

/// Every guest in the backend's folder.
#[derive(Debug, Default)]
pub(super) struct Guests {
    pub(super) known: Vec<(Folder, Record)>,
    /// Those whose owner cannot be read, and why.
    pub(super) nobodys: Vec<(Folder, Error)>,
}

impl Folder {
    /// The folder and record of `guest`, if it is there and is that install's and that box's.
    pub(super) fn of(dir: &Path, guest: &Guest) -> Result<Option<(Self, Record)>> {
        // A reference that is no box ID names nothing here, and must never become a path.
        let Ok(name) = BoxId::parse(guest.reference.as_str()) else { return Ok(None) };
        let found = Self::named(dir, &name)?;
        Ok(found.filter(|(_, r)| r.owner.install == guest.install && r.owner.box_id == guest.box_id))
    }

    /// The folder and record of whatever guest has this name.
    pub(super) fn named(dir: &Path, name: &BoxId) -> Result<Option<(Self, Record)>> {
        let folder = Self(dir.join(name.as_str()));
        Ok(folder.record()?.map(|record| (folder, record)))
    }

    /// Every guest of every install. One that does not say whose it is is nobody's: it never stands in the way of
    /// what the others are asked for.
    pub(super) fn all(dir: &Path) -> Result<Guests> {
        let mut found = Guests::default();
        for entry in fs::read_dir(dir).map_err(|e| fault("could not list the guests", dir, e))? {
            let entry = entry.map_err(|e| fault("could not list the guests", dir, e))?;
            if let Some(name) = entry.file_name().to_str().and_then(|name| BoxId::parse(name).ok()) {
                match Self::named(dir, &name) {
                    Ok(guest) => found.known.extend(guest),
                    Err(why) if why.kind() == ErrorKind::Failed => {
                        found.nobodys.push((Self(dir.join(name.as_str())), why));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(found)
    }

    /// Makes the guest's folder with its record in it, in one step.
    pub(super) fn create(dir: &Path, record: &Record) -> Result<Self> {
        let folder = Self(dir.join(record.owner.box_id.as_str()));
        let new = Self(beside(dir, ".new", &record.owner.install, &record.owner.box_id));
        let fault = |e| fault("could not make a guest", &new.0, e);
        private(&new.0).and_then(|()| private(&new.0.join("home"))).map_err(fault)?;
        private(&new.0.join("root")).map_err(fault)?;
        new.write(record)?;
        fs::rename(&new.0, &folder.0).map_err(fault)?;
        Ok(folder)
    }

    /// Records `record` in place of what was there.
    pub(super) fn write(&self, record: &Record) -> Result<()> {
        let (new, path) = (self.0.join(".owner.new"), self.0.join("owner.json"));
        let put = || {
            let mut file =
                OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&serde_json::to_vec(record)?)?;
            // A record that a power cut emptied would hide a guest.
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        put().map_err(|e| lost("could not record a guest's owner", &path, e))
    }

    /// Takes the guest away, whole: what is left is no guest, and is what [`leftovers`] names.
    pub(super) fn retire(&self, dir: &Path, owner: &Owner) -> Result<()> {
        fs::rename(&self.0, beside(dir, ".old", &owner.install, &owner.box_id))
            .map_err(|e| lost("could not remove a guest", &self.0, e))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The first process as it wrote itself down. It proves nothing until it is looked at.
    pub(super) fn keeper(&self) -> Option<Keeper> {
        fs::read_to_string(self.0.join("keeper")).ok()?.parse().ok()
    }

    /// Says beside the first process that it is about to be ended: a signal that is under way looks like life.
    pub(super) fn mark_ending(&self) -> Result<()> {
        let path = self.0.join("keeper");
        let marked =
            OpenOptions::new().append(true).open(&path).and_then(|mut file| file.write_all(b"ending\n"));
        marked.map_err(|e| lost("could not record the end of a guest's processes", &path, e))
    }

    /// The boot in which the guest shut itself down, if it did.
    pub(super) fn ended(&self) -> Option<String> {
        let text = fs::read_to_string(self.0.join("ended")).ok()?;
        Some(text.trim_end().to_owned()).filter(|boot| !boot.is_empty())
    }

    /// The guest's lock, or `None` while another, or the keeper, holds it; `Gone` when the guest was removed.
    pub(super) fn try_lock(&self) -> Result<Option<File>> {
        let path = self.0.join("lock");
        let lock = || {
            let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path)?;
            match file.try_lock() {
                // Whoever held it may have removed the guest, and another may have been made since.
                Ok(()) => Ok((file.metadata()?.ino() == fs::metadata(&path)?.ino()).then_some(file)),
                Err(fs::TryLockError::WouldBlock) => Ok(None),
                Err(fs::TryLockError::Error(e)) => Err(e),
            }
        };
        lock().map_err(|e| lost("could not lock a guest", &path, e))
    }

    fn record(&self) -> Result<Option<Record>> {
        let path = self.0.join("owner.json");
        let words = "could not read a guest's owner";
        match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| unread(words, &path, e.into())),
            Err(e) if matches!(e.kind(), Io::NotFound | Io::NotADirectory) => Ok(None),
            Err(e) if e.kind() == Io::PermissionDenied => Err(unread(words, &path, e)),
            Err(e) => Err(fault(words, &path, e)),
        }
    }
}

/// What an acquire or a release that did not end may have left of `guest`.
pub(super) fn leftovers(dir: &Path, install: &InstallId, id: &BoxId) -> [PathBuf; 2] {
    [".new", ".old"].map(|what| beside(dir, what, install, id))
}

/// The install is in the name, so that none removes what another is making.
fn beside(dir: &Path, what: &str, install: &InstallId, id: &BoxId) -> PathBuf {
    dir.join(format!("{what}-{install}-{id}"))
}

/// Makes a directory for its owner alone, and those above it; one that is there is left as it is.
pub(super) fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A guest that does not say whose it is, now or later.
fn unread(words: &str, path: &Path, error: io::Error) -> Error {
    Error::failed(format!("{words} ({})", path.display()))
        .because(error)
        .fix("mend that file, or remove its folder if no box needs it")
}

/// A failure in a guest's folder, which may have been removed meanwhile.
fn lost(words: &str, path: &Path, error: io::Error) -> Error {
    match error.kind() {
        Io::NotFound => Error::gone(format!("{words} ({}): it was removed", path.display())).because(error),
        _ => fault(words, path, error),
    }
}

/// A failure of the file system, as the core's.
pub(super) fn fault(words: &str, path: &Path, error: io::Error) -> Error {
    let full = matches!(error.kind(), Io::StorageFull | Io::QuotaExceeded);
    let kind = if full { ErrorKind::NoCapacity } else { ErrorKind::Unavailable };
    let fault = Error::new(kind, format!("{words} ({})", path.display())).because(error);
    if full { fault.fix("free space on that disk") } else { fault }
}
