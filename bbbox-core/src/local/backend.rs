//! The trait: in which order things happen to a guest, safe to repeat at every point.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::{
    client::{self, Fence, Handle, PATIENCE},
    config::{Isolation, LocalConfig},
    folder::{Folder, fault, leftovers, private},
    map::{Mode, Record, Stage, memory_mib},
    transport::{Inside, is_admin},
};
use crate::{
    Error, ErrorKind, Result,
    backend::{
        AcquireHooks, Backend, Check, CheckOutcome, Nature, Offer, Order, Reach, Relabel, ReleaseHooks,
        Released, Resize, Switch, Switched,
    },
    capacity::{Capacity, Counted, HostRoom, Limit, LimitName},
    guest::{Guest, Held, Owner, Power, StopCause},
    id::{BackendId, InstallId, KindId},
    kind::{Arch, Capabilities},
    size::Size,
};

/// The backend: guests in one folder of this machine.
#[derive(Clone, Debug)]
pub struct Local {
    id: BackendId,
    config: LocalConfig,
    /// How guests made now are kept apart, and why no better: asked once.
    granted: Arc<OnceCell<(Mode, Vec<String>)>>,
}

impl Local {
    /// Opens the folder, making it when it is missing. Starts nothing.
    ///
    /// # Errors
    /// `Invalid` with every problem of the configuration; `Unavailable` when the folder cannot be made or read.
    pub fn open(id: BackendId, mut config: LocalConfig) -> Result<Self> {
        let problems = config.validate();
        if !problems.is_empty() {
            return Err(Error::invalid(format!("backend {id} is set up wrongly: {}", problems.join("; "))));
        }
        let dir = private(&config.dir).and_then(|()| config.dir.canonicalize());
        config.dir = dir.map_err(|e| fault("could not open the folder of guests", &config.dir, e))?;
        Ok(Self { id, config, granted: Arc::default() })
    }

    async fn granted(&self) -> Result<&(Mode, Vec<String>)> {
        let ask = async || {
            let (mut refusals, folder) = (Vec::new(), self.config.dir.join(".try"));
            for part in ["home", "root"] {
                private(&folder.join(part)).map_err(|e| fault("could not make a folder", &folder, e))?;
            }
            let wanted: &[Mode] =
                if self.config.isolation == Isolation::None { &[] } else { &[Mode::Root, Mode::User] };
            for mode in wanted {
                match client::grants(&folder, *mode).await {
                    Ok(()) => return Ok((*mode, refusals)),
                    Err(e) => refusals.push(e.chain()),
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
        Folder::of(&self.config.dir, guest)
    }

    fn must_own(&self, guest: &Guest) -> Result<(Folder, Record)> {
        self.owned(guest)?.ok_or_else(|| Error::gone(format!("box {} is gone", guest.box_id)))
    }

    /// Finishes the guest of `record`, which is claimed.
    async fn make(&self, record: &Record, hooks: &dyn AcquireHooks) -> Result<()> {
        let begun = Instant::now();
        let dir = &self.config.dir;
        for path in leftovers(dir, &record.owner.install, &record.owner.box_id) {
            client::remove(&path).await?;
        }
        let folder = match Folder::named(dir, &record.owner.box_id)? {
            Some((folder, found)) => {
                if found != *record {
                    folder.write(record)?;
                }
                folder
            }
            None => Folder::create(dir, record)?,
        };
        hooks.timing("folder", begun.elapsed());
        let begun = Instant::now();
        run(&folder, record).await?;
        hooks.timing("start", begun.elapsed());
        Ok(())
    }

    async fn remove(&self, folder: &Folder, record: &Record) -> Result<()> {
        // Held until the folder is gone, so that nothing starts it meanwhile.
        let (_lock, _) = halt(folder, record).await?;
        let [_, old] = leftovers(&self.config.dir, &record.owner.install, &record.owner.box_id);
        client::remove(&old).await?;
        folder.retire(&self.config.dir, &record.owner)?;
        client::remove(&old).await
    }
}

/// Starts the guest, or waits for the start that another run of this began.
async fn run(folder: &Folder, record: &Record) -> Result<Switched> {
    let until = Instant::now() + PATIENCE;
    loop {
        match alive(folder) {
            Some((_, Stage::Ready)) => return Ok(Switched::Already),
            Some((keeper, Stage::Ending)) => keeper.end().await?,
            Some((_, Stage::Setup)) | None => {}
        }
        if let Some(lock) = folder.try_lock()? {
            sweep(record).await?;
            client::launch(folder.path(), &record.owner.name, record.mode, lock).await?;
            return Ok(Switched::Done);
        }
        again(until, record).await?;
    }
}

/// Ends all that runs in the guest, and returns its lock and whether anything ran.
async fn halt(folder: &Folder, record: &Record) -> Result<(File, bool)> {
    let (until, mut ran) = (Instant::now() + PATIENCE, false);
    loop {
        if let Some((keeper, _)) = alive(folder) {
            folder.mark_ending()?;
            keeper.end().await?;
            ran = true;
        }
        if let Some(lock) = folder.try_lock()? {
            sweep(record).await?;
            return Ok((lock, ran));
        }
        again(until, record).await?;
    }
}

/// Ends what no namespace ended.
async fn sweep(record: &Record) -> Result<()> {
    match record.mode {
        Mode::None => Fence::Marker(record.owner.box_id.clone()).end(|_| true).await,
        Mode::Root | Mode::User => Ok(()),
    }
}

/// A process is starting or ending just now; it takes milliseconds.
async fn again(until: Instant, record: &Record) -> Result<()> {
    if Instant::now() > until {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("box {} is held by another process", record.owner.box_id),
        )
        .fix("look for a second bb-box that uses the same folder"));
    }
    tokio::time::sleep(Duration::from_millis(2)).await;
    Ok(())
}

/// The guest's first process, if it lives, and how far it is.
fn alive(folder: &Folder) -> Option<(Handle, Stage)> {
    folder.keeper().and_then(|keeper| Some((Handle::of(&keeper)?, keeper.stage)))
}

fn is_ready(folder: &Folder) -> bool {
    alive(folder).is_some_and(|(_, stage)| stage == Stage::Ready)
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
        let mut memory =
            Limit { name: LimitName::Memory, used: 0, total: self.config.memory_mib, reserve: 0 };
        if memory.total.is_none() {
            memory.total = fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_mib(&text));
            memory.reserve = self.config.reserve_mib;
        }
        let total = self.config.guests.map(u64::from);
        let mut guests = Limit { name: LimitName::Guests, used: 0, total, reserve: 0 };
        let mut counted = BTreeMap::new();
        for (folder, record) in Folder::all(&self.config.dir)? {
            let running = alive(&folder).is_some();
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
        let cancelled = || Error::cancelled(format!("box {} was taken back", order.owner.box_id));
        let found = Folder::named(&self.config.dir, &order.owner.box_id)?.map(|(_, record)| record);
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
        if order.cancel.is_cancelled() && found.is_none() {
            return Err(cancelled());
        }
        hooks.claim(&guest).await?;
        if !order.cancel.is_cancelled() {
            self.make(&record, hooks).await.map_err(|e| e.at("box", &order.owner.box_id))?;
        }
        if order.cancel.is_cancelled() {
            if let Some((folder, record)) = self.owned(&guest)? {
                self.remove(&folder, &record).await?;
            }
            return Err(cancelled());
        }
        Ok(guest)
    }

    async fn release(&self, guest: &Guest, _hooks: &dyn ReleaseHooks) -> Result<Released> {
        if let Some((folder, record)) = self.owned(guest)? {
            self.remove(&folder, &record).await?;
            return Ok(Released::Removed);
        }
        for path in leftovers(&self.config.dir, &guest.install, &guest.box_id) {
            client::remove(&path).await?;
        }
        Ok(Released::AlreadyGone)
    }

    async fn power(&self, guest: &Guest) -> Result<Option<Power>> {
        let running = |(folder, _)| if is_ready(&folder) { Power::Running } else { Power::Stopped };
        Ok(self.owned(guest)?.map(running))
    }

    async fn held(&self, install: &InstallId) -> Result<Vec<Held>> {
        let all = Folder::all(&self.config.dir)?.into_iter().map(|(_, record)| record);
        Ok(all.filter(|record| record.owner.install == *install).map(|record| record.held()).collect())
    }

    async fn reach(&self, guest: &Guest) -> Result<Reach> {
        let (_, record) = self.must_own(guest)?;
        let inside = Inside { dir: self.config.dir.clone(), guest: guest.clone(), mode: record.mode };
        Ok(Reach { command: Arc::new(inside), displays: Vec::new() })
    }

    async fn doctor(&self) -> Vec<Check> {
        let check = |id: &str, outcome, words: String, fix: Option<&str>| Check {
            id: format!("local.{id}"),
            outcome,
            words,
            fix: fix.map(str::to_owned),
        };
        let dir = self.config.dir.display();
        let folder = match Folder::all(&self.config.dir) {
            Ok(all) => check("folder", CheckOutcome::Ok, format!("{dir} holds {} guests", all.len()), None),
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
        run(&folder, &record).await
    }

    async fn stop(&self, guest: &Guest) -> Result<Switched> {
        let (folder, record) = self.must_own(guest)?;
        let (_, ran) = halt(&folder, &record).await?;
        Ok(if ran { Switched::Done } else { Switched::Already })
    }

    async fn stopped(&self, guest: &Guest) -> Result<Option<StopCause>> {
        let Some((folder, _)) = self.owned(guest)?.filter(|(folder, _)| !is_ready(folder)) else {
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
