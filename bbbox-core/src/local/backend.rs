//! The trait: in which order things happen to a guest, safe to repeat at every point.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::{
    client,
    config::{Isolation, LocalConfig},
    folder::{Folder, Guests, fault, leftovers, private},
    map::{Mode, Record, memory_mib},
    running,
    transport::{Inside, is_admin},
};
use crate::{
    Error, ErrorKind, Result,
    backend::{
        AcquireHooks, Backend, Check, CheckOutcome, Nature, Offer, Order, Reach, Relabel, ReleaseHooks,
        Released, Resize, Switch, Switched,
    },
    capacity::{Capacity, Counted, HostRoom, Limit, LimitName},
    config::Amount,
    driver::Settings as _,
    guest::{Guest, Held, Owner, Power, StopCause},
    id::{BackendId, BoxId, InstallId, KindId},
    kind::{Arch, Capabilities},
    size::Size,
};

/// What a small machine may promise all the same: sizes are not enforced, and a box or two can be tried anywhere.
const LEAST_MIB: u64 = 8192;

/// What a guest that does not say its size takes at least.
const SMALLEST: Size = Size::new(1, 2048);

/// The backend: guests in one folder of this machine.
#[derive(Clone, Debug)]
pub struct Local {
    id: BackendId,
    dir: PathBuf,
    config: LocalConfig,
    /// How guests made now are kept apart, and why no better: asked once.
    granted: Arc<OnceCell<(Mode, Vec<String>)>>,
}

impl Local {
    /// Opens the folder, making it when it is missing. Starts nothing.
    ///
    /// # Errors
    /// `Invalid` with every problem of the configuration; `Unavailable` when the folder cannot be made or read.
    pub fn open(id: BackendId, config: LocalConfig) -> Result<Self> {
        let mut problems: Vec<_> = config.validate().iter().map(ToString::to_string).collect();
        if config.dir.is_none() {
            problems.push("dir: it is needed here".to_owned());
        }
        if !problems.is_empty() {
            return Err(Error::invalid(format!("backend {id} is set up wrongly: {}", problems.join("; "))));
        }
        let dir = config.dir.clone().unwrap_or_default();
        let opened = private(&dir).and_then(|()| dir.canonicalize());
        let dir = opened.map_err(|e| fault("could not open the folder of guests", &dir, e))?;
        Ok(Self { id, dir, config, granted: Arc::default() })
    }

    async fn granted(&self) -> Result<&(Mode, Vec<String>)> {
        let ask = async || {
            let (mut refusals, folder) = (Vec::new(), self.dir.join(".try"));
            for part in ["home", "root"] {
                private(&folder.join(part)).map_err(|e| fault("could not make a folder", &folder, e))?;
            }
            let wanted: &[Mode] =
                if self.config.isolation == Isolation::None { &[] } else { &[Mode::Root, Mode::User] };
            for mode in wanted {
                match client::refusal(&folder, *mode).await? {
                    None => return Ok((*mode, refusals)),
                    Some(why) => refusals.push(why),
                }
            }
            Ok((Mode::None, refusals))
        };
        self.granted.get_or_try_init(ask).await
    }

    /// How guests made now are kept apart, if that is enough.
    async fn mode(&self) -> Result<Mode> {
        match self.granted().await? {
            (Mode::None, why) if self.config.isolation == Isolation::Required => {
                Err(Error::unavailable("this machine grants no namespaces, and boxes must be kept apart")
                    .fix("run bb-box as root, allow user namespaces, or set isolation to \"auto\"")
                    .because_of(why.join("; ")))
            }
            (mode, _) => Ok(*mode),
        }
    }

    fn owned(&self, guest: &Guest) -> Result<Option<(Folder, Record)>> {
        Folder::of(&self.dir, guest)
    }

    fn must_own(&self, guest: &Guest) -> Result<(Folder, Record)> {
        self.owned(guest)?.ok_or_else(|| Error::gone(format!("box {} is gone", guest.box_id)))
    }

    /// Finishes the guest of `record`, which is claimed.
    async fn make(&self, record: &Record) -> Result<()> {
        let dir = &self.dir;
        self.tidy(&record.owner.install, &record.owner.box_id).await?;
        let folder = match Folder::named(dir, &record.owner.box_id)? {
            Some((folder, found)) => {
                if found != *record {
                    folder.write(record)?;
                }
                folder
            }
            None => Folder::create(dir, record)?,
        };
        running::start(&folder, record).await.map(drop)
    }

    async fn remove(&self, guest: &Guest) -> Result<Released> {
        let mut removed = Released::AlreadyGone;
        if let Some((folder, record)) = self.owned(guest)? {
            match self.retire(&folder, &record).await {
                Ok(()) => removed = Released::Removed,
                // Another release of it was first.
                Err(e) if e.kind() == ErrorKind::Gone => {}
                Err(e) => return Err(e),
            }
        }
        self.tidy(&guest.install, &guest.box_id).await?;
        Ok(removed)
    }

    async fn retire(&self, folder: &Folder, record: &Record) -> Result<()> {
        // Held until the folder has its name no more, so that nothing starts it meanwhile.
        let (_lock, _) = running::end(folder, record).await?;
        self.tidy(&record.owner.install, &record.owner.box_id).await?;
        folder.retire(&self.dir, &record.owner)
    }

    /// Removes what an acquire or a release that did not end has left.
    async fn tidy(&self, install: &InstallId, id: &BoxId) -> Result<()> {
        for path in leftovers(&self.dir, install, id) {
            client::remove(&path).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Backend for Local {
    fn id(&self) -> &BackendId {
        &self.id
    }

    fn nature(&self) -> Nature {
        Nature::Virtual
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        let (kind, arch) = match std::env::consts::ARCH {
            "x86_64" => ("linux", Arch::X86_64),
            "aarch64" => ("linux-arm64", Arch::Arm64),
            _ => return Ok(Vec::new()),
        };
        let mode = self.mode().await?;
        let word = if mode == Mode::None { "process, no isolation" } else { "process" };
        let mut capabilities = Capabilities::linux(arch, word);
        if let Some(command) = &mut capabilities.command {
            command.admin = is_admin(mode);
        }
        let ready_timeout = Duration::from_secs(30);
        Ok(vec![Offer { kind: KindId::parse(kind)?, capabilities, ready_timeout, last: false }])
    }

    async fn capacity(&self, _kind: &KindId, install: &InstallId) -> Result<Capacity> {
        let limit = |name, total, reserve| Limit { name, used: 0, total, reserve };
        let mut memory = match self.config.memory {
            Some(memory) => limit(LimitName::Memory, Some(memory.mib()), 0),
            None => {
                let reserve = self.config.memory_reserve.map_or(1024, Amount::mib);
                let all = fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_mib(&text));
                limit(LimitName::Memory, all.map(|all| all.max(LEAST_MIB + reserve)), reserve)
            }
        };
        let mut guests = limit(LimitName::Guests, self.config.most_boxes.map(u64::from), 0);
        let mut counted = BTreeMap::new();
        let all = Folder::all(&self.dir)?;
        for (folder, _) in &all.nobodys {
            let running = running::alive(folder).is_some();
            for limit in [&mut memory, &mut guests] {
                limit.used += limit.name.need(&SMALLEST, running);
            }
        }
        for (folder, record) in all.known {
            let running = running::alive(&folder).is_some();
            for limit in [&mut memory, &mut guests] {
                limit.used += limit.name.need(&record.size, running);
            }
            if record.owner.install == *install {
                counted.insert(record.owner.box_id, Counted { size: record.size, running });
            }
        }
        Ok(Capacity {
            hosts: vec![HostRoom { host: None, limits: vec![memory, guests], counted, closed: None }],
        })
    }

    async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        let found = Folder::named(&self.dir, &order.owner.box_id)?.map(|(_, record)| record);
        if found.as_ref().is_some_and(|found| found.owner.install != order.owner.install) {
            return Err(Error::failed(format!("box {} is another install's here", order.owner.box_id)));
        }
        // A guest that is there already stays kept apart as it was made.
        let mode = match &found {
            Some(found) => found.mode,
            None => self.mode().await?,
        };
        let record = Record { owner: order.owner.clone(), size: order.size, mode };
        let guest = record.guest();
        if !order.cancel.is_cancelled() {
            hooks.claim(&guest).await?;
            self.make(&record).await.map_err(|e| e.at("box", &order.owner.box_id))?;
        }
        if order.cancel.is_cancelled() {
            self.remove(&guest).await?;
            return Err(Error::cancelled(format!("box {} was taken back", order.owner.box_id)));
        }
        Ok(guest)
    }

    async fn release(&self, guest: &Guest, _hooks: &dyn ReleaseHooks) -> Result<Released> {
        self.remove(guest).await
    }

    async fn power(&self, guest: &Guest) -> Result<Option<Power>> {
        let running = |(folder, _)| if running::is_ready(&folder) { Power::Running } else { Power::Stopped };
        Ok(self.owned(guest)?.map(running))
    }

    async fn held(&self, install: &InstallId) -> Result<Vec<Held>> {
        let all = Folder::all(&self.dir)?;
        for (_, why) in &all.nobodys {
            tracing::warn!(backend = %self.id, error = why.chain(), "a guest says nothing of its owner and is left alone");
        }
        let known = all.known.into_iter().map(|(_, record)| record);
        Ok(known.filter(|record| record.owner.install == *install).map(|record| record.held()).collect())
    }

    async fn as_offered(&self, guest: &Guest) -> Result<Option<bool>> {
        let (_, record) = self.must_own(guest)?;
        Ok(Some(record.mode == self.mode().await?))
    }

    async fn reach(&self, guest: &Guest) -> Result<Reach> {
        let (_, record) = self.must_own(guest)?;
        let inside = Inside { dir: self.dir.clone(), guest: guest.clone(), mode: record.mode };
        Ok(Reach { command: Arc::new(inside), displays: Vec::new() })
    }

    async fn doctor(&self) -> Vec<Check> {
        let check = |id: &str, outcome, words: String, fix: Option<&str>| Check {
            id: format!("local.{id}"),
            outcome,
            words,
            fix: fix.map(str::to_owned),
        };
        let dir = self.dir.display();
        let folder = match Folder::all(&self.dir) {
            Ok(Guests { known, nobodys }) if nobodys.is_empty() => {
                check("folder", CheckOutcome::Ok, format!("{dir} holds {} guests", known.len()), None)
            }
            Ok(Guests { nobodys, .. }) => {
                let words: Vec<_> = nobodys.iter().map(|(_, why)| why.chain()).collect();
                let fix = nobodys.first().and_then(|(_, why)| why.how_to_fix());
                check("folder", CheckOutcome::Warning, words.join("; "), fix)
            }
            Err(e) => check("folder", CheckOutcome::Failure, e.chain(), e.how_to_fix()),
        };
        let isolation = match (self.mode().await, self.granted().await) {
            (Err(e), _) | (_, Err(e)) => check("isolation", CheckOutcome::Failure, e.chain(), e.how_to_fix()),
            (Ok(Mode::None), Ok((_, why))) => {
                let words = [&[Mode::None.fact().to_owned()], why.as_slice()].concat().join("; ");
                let fix =
                    "run only what you would run yourself; for more, run as root or allow user namespaces";
                check("isolation", CheckOutcome::Warning, words, Some(fix))
            }
            (Ok(mode), _) => check("isolation", CheckOutcome::Ok, mode.fact().to_owned(), None),
        };
        vec![folder, isolation]
    }

    fn switch(&self) -> Option<&dyn Switch> {
        Some(self)
    }

    fn resize(&self) -> Option<&dyn Resize> {
        Some(self)
    }

    fn relabel(&self) -> Option<&dyn Relabel> {
        Some(self)
    }
}

#[async_trait]
impl Switch for Local {
    async fn start(&self, guest: &Guest) -> Result<Switched> {
        let (folder, record) = self.must_own(guest)?;
        running::start(&folder, &record).await
    }

    async fn stop(&self, guest: &Guest) -> Result<Switched> {
        let (folder, record) = self.must_own(guest)?;
        let (_, ran) = running::end(&folder, &record).await?;
        Ok(if ran { Switched::Done } else { Switched::Already })
    }

    async fn stopped(&self, guest: &Guest) -> Result<Option<StopCause>> {
        let Some((folder, _)) = self.owned(guest)?.filter(|(folder, _)| !running::is_ready(folder)) else {
            return Ok(None);
        };
        // A machine that shuts down asks every process to end, and that is not the guest's choice.
        let by_guest = folder.ended().is_some_and(|ended| client::boot() == Some(ended));
        let words = if by_guest {
            "it was shut down from inside"
        } else {
            "its first process was ended from outside, or this machine was restarted"
        };
        Ok(Some(StopCause { by_guest, words: words.to_owned() }))
    }
}

#[async_trait]
impl Resize for Local {
    async fn resize(&self, guest: &Guest, size: &Size) -> Result<Guest> {
        let (folder, mut record) = self.must_own(guest)?;
        record.size = *size;
        folder.write(&record)?;
        Ok(record.guest())
    }

    fn needs_stop(&self) -> bool {
        false
    }
}

#[async_trait]
impl Relabel for Local {
    async fn relabel(&self, guest: &Guest, owner: &Owner) -> Result<Guest> {
        let (folder, mut record) = self.must_own(guest)?;
        record.owner =
            Owner { install: guest.install.clone(), box_id: guest.box_id.clone(), ..owner.clone() };
        folder.write(&record)?;
        Ok(record.guest())
    }
}
