//! A small backend for bb-box: each box is a folder, and the processes that were started in it.
//!
//! It isolates nothing and is no way to run code that you do not trust. It shows what a backend must do: mark a guest
//! with its owner in the same step that makes it, act only on guests that still bear the mark, answer from what is
//! there and never from memory, and be safe to call again at every point.
//!
//! ```no_run
//! # async fn example() -> bbbox::Result<()> {
//! use std::sync::Arc;
//! use bbbox::boxes::{Acquire, Boxes};
//!
//! let folders = custom_backend::Folders::open("/var/lib/folders")?;
//! let boxes = Boxes::builder().backend(Arc::new(folders)).open()?;
//! let machine = boxes.acquire(Acquire::kind("linux")).await?;
//! # Ok(())
//! # }
//! ```

mod transport;

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bbbox::{
    Error, Result,
    backend::{
        AcquireHooks, Backend, Check, CheckOutcome, Nature, Offer, Order, Reach, ReleaseHooks, Released,
    },
    capacity::{Capacity, Counted, HostRoom, Limit, LimitName},
    guest::{Guest, Held, Owner, Power},
    id::{BackendId, BoxId, InstallId, KindId},
    kind::{Arch, Capabilities},
    size::Size,
};
use serde::{Deserialize, Serialize};

use transport::Inside;

/// The most boxes there may be.
const MOST: u64 = 64;

const ARM: bool = cfg!(target_arch = "aarch64");

/// The kind of the boxes, which is this machine's.
#[must_use]
pub fn kind() -> &'static str {
    if ARM { "linux-arm64" } else { "linux" }
}

/// The backend: every box is a folder below one.
#[derive(Debug)]
pub struct Folders {
    id: BackendId,
    dir: PathBuf,
}

/// A box's mark, in its folder.
#[derive(Serialize, Deserialize)]
struct Mark {
    owner: Owner,
    size: Size,
}

impl Mark {
    fn guest(&self) -> Guest {
        Guest {
            install: self.owner.install.clone(),
            box_id: self.owner.box_id.clone(),
            reference: self.owner.box_id.to_string(),
            host: None,
            address: None,
            size: self.size,
            data: BTreeMap::new(),
            facts: BTreeMap::from([("isolation".to_owned(), "none".to_owned())]),
        }
    }
}

impl Folders {
    /// Keeps boxes below `dir`, which is made when it is missing.
    ///
    /// # Errors
    /// `Unavailable` when it cannot be made.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        fs::create_dir_all(&dir).map_err(|e| fault("make", &dir, e))?;
        Ok(Self { id: BackendId::parse("folders")?, dir })
    }

    /// The box's folder and mark, if it is there and is this guest's.
    fn find(&self, guest: &Guest) -> Result<Option<(PathBuf, Mark)>> {
        // A reference comes from a record; only a box ID may become a path.
        let Ok(id) = BoxId::parse(guest.reference.as_str()) else { return Ok(None) };
        let folder = self.dir.join(id.as_str());
        let ours = |mark: &Mark| mark.owner.install == guest.install && mark.owner.box_id == guest.box_id;
        Ok(read(&folder)?.filter(ours).map(|mark| (folder, mark)))
    }

    fn all(&self) -> Result<Vec<Mark>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(|e| fault("list", &self.dir, e))? {
            let name = entry.map_err(|e| fault("list", &self.dir, e))?.file_name();
            if name.to_str().is_some_and(|name| BoxId::parse(name).is_ok()) {
                all.extend(read(&self.dir.join(name))?);
            }
        }
        Ok(all)
    }

    /// Where a box is made and removed: not a box's name, so that half a box is no box.
    fn aside(&self, what: &str, guest: &Guest) -> PathBuf {
        self.dir.join(format!("{what}-{}-{}", guest.install, guest.box_id))
    }

    /// Makes the folder with its mark in it, and shows it under its name once both are there.
    fn make(&self, mark: &Mark) -> Result<()> {
        let guest = mark.guest();
        let (new, folder) = (self.aside("new", &guest), self.dir.join(&guest.reference));
        let make = || {
            remove(&new)?;
            fs::create_dir_all(new.join("home"))?;
            fs::write(new.join("mark.json"), serde_json::to_vec(mark)?)?;
            fs::rename(&new, &folder)
        };
        make().map_err(|e| fault("make", &folder, e))
    }

    async fn unmake(&self, guest: &Guest) -> Result<Released> {
        let found = self.find(guest)?;
        let (new, old) = (self.aside("new", guest), self.aside("old", guest));
        if let Some((folder, _)) = &found {
            transport::end_all(&guest.box_id).await?;
            remove(&old).and_then(|()| fs::rename(folder, &old)).map_err(|e| fault("remove", folder, e))?;
        }
        remove(&new).and_then(|()| remove(&old)).map_err(|e| fault("remove", &old, e))?;
        Ok(if found.is_some() { Released::Removed } else { Released::AlreadyGone })
    }
}

#[async_trait]
impl Backend for Folders {
    fn id(&self) -> &BackendId {
        &self.id
    }

    fn nature(&self) -> Nature {
        Nature::Virtual
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        let arch = if ARM { Arch::Arm64 } else { Arch::X86_64 };
        let mut capabilities = Capabilities::linux(arch, "process");
        if let Some(command) = &mut capabilities.command {
            command.admin = transport::is_root();
        }
        let ready_timeout = Duration::from_secs(10);
        Ok(vec![Offer { kind: KindId::parse(kind())?, capabilities, ready_timeout, last: false }])
    }

    async fn capacity(&self, _kind: &KindId, install: &InstallId) -> Result<Capacity> {
        let all = self.all()?;
        let limit = Limit { name: LimitName::Guests, used: all.len() as u64, total: Some(MOST), reserve: 0 };
        let mine = all.into_iter().filter(|mark| mark.owner.install == *install);
        let counted =
            mine.map(|mark| (mark.owner.box_id, Counted { size: mark.size, running: true })).collect();
        Ok(Capacity { hosts: vec![HostRoom { host: None, limits: vec![limit], counted, closed: None }] })
    }

    async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        let mark = Mark { owner: order.owner.clone(), size: order.size };
        let guest = mark.guest();
        // Before anything is made. What an earlier try of this made is found by its mark, and finished.
        hooks.claim(&guest).await?;
        if !order.cancel.is_cancelled() && self.find(&guest)?.is_none() {
            self.make(&mark)?;
        }
        if order.cancel.is_cancelled() {
            self.unmake(&guest).await?;
            return Err(Error::cancelled(format!("box {} was taken back", guest.box_id)));
        }
        Ok(guest)
    }

    async fn release(&self, guest: &Guest, _hooks: &dyn ReleaseHooks) -> Result<Released> {
        self.unmake(guest).await
    }

    async fn power(&self, guest: &Guest) -> Result<Option<Power>> {
        Ok(self.find(guest)?.map(|_| Power::Running))
    }

    async fn held(&self, install: &InstallId) -> Result<Vec<Held>> {
        let mine = self.all()?.into_iter().filter(|mark| mark.owner.install == *install);
        Ok(mine.map(|mark| Held { guest: mark.guest(), owner: mark.owner }).collect())
    }

    async fn as_offered(&self, guest: &Guest) -> Result<Option<bool>> {
        self.find(guest)?.map(|_| Some(true)).ok_or_else(|| gone(&guest.box_id))
    }

    async fn reach(&self, guest: &Guest) -> Result<Reach> {
        let (folder, _) = self.find(guest)?.ok_or_else(|| gone(&guest.box_id))?;
        let command = Arc::new(Inside { folder, id: guest.box_id.clone() });
        Ok(Reach { command, displays: Vec::new() })
    }

    async fn doctor(&self) -> Vec<Check> {
        let (outcome, words) = match self.all() {
            Ok(all) => (CheckOutcome::Ok, format!("{} holds {} boxes", self.dir.display(), all.len())),
            Err(e) => (CheckOutcome::Failure, e.chain()),
        };
        vec![Check { id: "folders.dir".to_owned(), outcome, words, fix: None }]
    }
}

/// The mark in `folder`; `None` when there is none. One that cannot be read is an error: not knowing is not "gone".
fn read(folder: &Path) -> Result<Option<Mark>> {
    let path = folder.join("mark.json");
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|e| fault("read", &path, e.into())),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(fault("read", &path, e)),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let gone = || match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    gone().or_else(|_| {
        // Only root may empty a folder that it may not write.
        std::process::Command::new("chmod").args(["-R", "u+rwx", "--"]).arg(path).status()?;
        gone()
    })
}

fn gone(id: &BoxId) -> Error {
    Error::gone(format!("box {id} is gone"))
}

fn fault(what: &str, path: &Path, error: io::Error) -> Error {
    Error::unavailable(format!("could not {what} {}", path.display())).because(error)
}
