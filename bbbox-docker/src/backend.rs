//! The Docker backend: what it offers, what it has room for, and what it holds.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bbbox_core::{
    Error, Result,
    backend::{
        AcquireHooks, Backend, Check, Images, Nature, Offer, Order, Reach, Relabel, ReleaseHooks, Released,
        Resize, Switch, Upkeep,
    },
    capacity::{Capacity, Counted, HostRoom, Limit, LimitName},
    guest::{Guest, Held, Power},
    id::{BackendId, InstallId, KindId},
    kind::{Arch, Capabilities, Feature, standard},
    size::Size,
};
use bollard::models::SystemInfo;

use crate::{
    client::Engine,
    config::{DockerConfig, Host},
    map::{self, Container, Labels, Phase},
    privilege::{self, Grant, Seen},
    transport::ExecTransport,
    variable::DOCKER_HOST,
};

/// How long a box may take until it answers.
const READY: Duration = Duration::from_secs(60);

/// Boxes as containers on one Docker Engine.
#[derive(Clone, Debug)]
pub struct Docker(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) id: BackendId,
    pub(crate) config: DockerConfig,
    pub(crate) host: Host,
    pub(crate) engine: Arc<Engine>,
    known: Mutex<Known>,
    finding: tokio::sync::Mutex<()>,
}

/// What was learned about the engine. Read again after an error, as another engine may answer then.
#[derive(Debug, Default)]
struct Known {
    info: Option<SystemInfo>,
    seen: Option<Seen>,
}

impl Docker {
    /// A backend on the engine that `config` names. Makes no connection: an engine that is down is an error of the
    /// first call that needs it.
    ///
    /// # Errors
    /// `Invalid`, with every problem, when the configuration has one.
    pub fn connect(id: BackendId, config: DockerConfig) -> Result<Self> {
        Self::named(id, config, None)
    }

    /// As [`Self::connect`]; `by` is what named the engine, where that was not the configuration.
    pub(crate) fn named(id: BackendId, config: DockerConfig, by: Option<&'static str>) -> Result<Self> {
        let problems = config.validate();
        let host = match config.parse_host() {
            Ok(host) if problems.is_empty() => host,
            _ => {
                let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                return Err(Error::invalid(format!("backend {id}: {}", problems.join("; "))));
            }
        };
        let engine = Arc::new(Engine::new(host.clone(), by));
        Ok(Self(Arc::new(Inner {
            id,
            config,
            host,
            engine,
            known: Mutex::default(),
            finding: tokio::sync::Mutex::default(),
        })))
    }
}

impl Inner {
    /// What the engine says about itself, asked once.
    pub(crate) async fn info(&self) -> Result<SystemInfo> {
        if let Some(info) = self.lock().info.clone() {
            return Ok(info);
        }
        let info = self.engine.info().await?;
        self.lock().info = Some(info.clone());
        Ok(info)
    }

    /// The kind whose boxes this engine makes.
    pub(crate) async fn kind(&self) -> Result<KindId> {
        let info = self.info().await?;
        map::kind(&info).ok_or_else(|| {
            let arch = info.architecture.unwrap_or_default();
            Error::refused(format!("no boxes are made for an engine on {arch}"))
                .fix("use an engine on x86_64 or arm64")
        })
    }

    /// What the engine is known to grant: from this process, else from its own note; `None` when that is not known.
    pub(crate) async fn known_grant(&self) -> Result<Option<Seen>> {
        if !self.config.privileged {
            return Ok(Some(Seen { grant: Grant::Plain, refusal: None }));
        }
        if let Some(seen) = self.lock().seen.clone() {
            return Ok(Some(seen));
        }
        let seen = privilege::noted(&self.engine, &self.info().await?).await?;
        self.lock().seen.clone_from(&seen);
        Ok(seen)
    }

    /// What to ask for when nothing is known: full privilege, wherever that can be.
    pub(crate) async fn first_grant(&self) -> Result<Seen> {
        let plain = |refusal| Seen { grant: Grant::Plain, refusal };
        if !self.config.privileged {
            return Ok(plain(None));
        }
        if privilege::is_rootless(&self.info().await?) {
            return Ok(plain(Some("the engine runs without root".to_owned())));
        }
        Ok(Seen { grant: Grant::Privileged, refusal: None })
    }

    /// What the engine grants, as far as that can be said without making anything.
    pub(crate) async fn grant(&self) -> Result<Seen> {
        match self.known_grant().await? {
            Some(seen) => Ok(seen),
            None => self.first_grant().await,
        }
    }

    /// What a new box asks for. While it is not known what the engine grants, one box at a time finds out: whoever
    /// gets the guard.
    pub(crate) async fn grant_to_ask(&self) -> Result<(Seen, Option<tokio::sync::MutexGuard<'_, ()>>)> {
        if let Some(seen) = self.known_grant().await? {
            return Ok((seen, None));
        }
        let finding = self.finding.lock().await;
        match self.known_grant().await? {
            Some(seen) => Ok((seen, None)),
            None => Ok((self.first_grant().await?, Some(finding))),
        }
    }

    /// Keeps what the engine turned out to grant; at the engine, too, when that is less than was asked for.
    pub(crate) async fn granted(&self, seen: Seen) -> Result<()> {
        if !self.config.privileged || self.lock().seen.as_ref() == Some(&seen) {
            return Ok(());
        }
        if seen.grant != Grant::Privileged {
            privilege::note(&self.engine, &self.info().await?, &seen).await;
        }
        self.lock().seen = Some(seen);
        Ok(())
    }

    /// Forgets what was learned, so that it is asked again.
    pub(crate) fn forget(&self) {
        *self.lock() = Known::default();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The container that `guest`'s reference names, or `None` when it is gone or another's.
    ///
    /// Never another container of the same box: labels pass through a commit, so a copy that a person made has them
    /// too. Before an acquire has ended the reference is the name, and the name finds whatever it made.
    pub(crate) async fn find(&self, guest: &Guest) -> Result<Option<Container>> {
        let found = self.engine.inspect(&guest.reference).await?;
        if found.is_none() {
            self.must_be_here(guest).await?;
        }
        Ok(found.filter(|container| container.is(guest)))
    }

    /// Like [`Inner::find`], for changes that need the guest.
    pub(crate) async fn need(&self, guest: &Guest) -> Result<Container> {
        let found = self.find(guest).await?;
        found.ok_or_else(|| Error::gone(format!("box {} has no container here", guest.box_id)))
    }

    /// Refuses to say anything of a guest that was made on another engine: here its container is missing, and there it
    /// may be as it was. The same address is the same place, whatever was installed there anew.
    pub(crate) async fn must_be_here(&self, guest: &Guest) -> Result<()> {
        let Some((address, id)) = map::place(guest) else { return Ok(()) };
        if address == self.host.to_string() || self.info().await?.id.as_deref() == Some(id) {
            return Ok(());
        }
        let here = self.engine.address();
        Err(Error::unavailable(format!(
            "box {} is on the Docker Engine at {address}, and this is the one at {here}",
            guest.box_id
        ))
        .fix(format!(
            "name the box's engine: as the backend's `host` in the configuration, or by {DOCKER_HOST}"
        )))
    }

    /// `guest` with where it is, so that another engine is not taken for its own.
    pub(crate) async fn placed(&self, mut guest: Guest) -> Result<Guest> {
        if let Some(id) = self.info().await?.id {
            map::set_place(&mut guest, &self.host.to_string(), &id);
        }
        Ok(guest)
    }

    /// The newest note of each box with all of `labels`.
    pub(crate) async fn notes(&self, labels: Vec<String>) -> Result<HashMap<String, Labels>> {
        Ok(map::newest_notes(self.engine.volumes(labels).await?.into_iter().map(|(_, labels)| labels)))
    }

    /// A box's size, as its newest note says it, else its labels, else the engine; the engine first where the note
    /// says that a resize is under way or was cut off.
    async fn size_of(&self, container: &Container, note: Option<&Labels>) -> Result<Option<Size>> {
        let said = note.and_then(map::size).or_else(|| map::size(&container.labels));
        if said.is_some() && note.is_none_or(|note| !note.contains_key(map::RESIZING)) {
            return Ok(said);
        }
        Ok(self.engine.inspect(&container.id).await?.and_then(|found| found.size).or(said))
    }

    /// What every install's boxes take of the engine, and which of them are `install`'s.
    async fn room(&self, kind: &KindId, install: &InstallId) -> Result<HostRoom> {
        let image = self.config.image(kind.as_str());
        // One label is enough: what was made by an install takes room, whatever became of the rest.
        let keys = || vec![map::INSTALL.to_owned()];
        let (info, image, boxes, notes) = tokio::try_join!(
            self.info(),
            self.engine.image(&image),
            self.engine.list(keys()),
            self.notes(vec![map::NOTE.to_owned()]),
        )?;
        let total =
            info.mem_total.and_then(|bytes| u64::try_from(bytes).ok()).map(|bytes| bytes / (1024 * 1024));
        let mut memory =
            Limit { name: LimitName::Memory, used: 0, total, reserve: self.config.reserve_mib() };
        let mut counted = BTreeMap::new();
        for container in &boxes {
            let id = container.labels.get(map::BOX).cloned().unwrap_or_default();
            let Some(size) = self.size_of(container, notes.get(&id)).await? else { continue };
            let running = matches!(container.phase, Phase::Running | Phase::Paused | Phase::Between);
            memory.used += LimitName::Memory.need(&size, running);
            if let Some(id) = map::box_of(&container.labels, install) {
                counted.insert(id, Counted { size, running });
            }
        }
        let guests = Limit {
            name: LimitName::Guests,
            used: boxes.len() as u64,
            total: self.config.most_boxes,
            reserve: 0,
        };
        // The engine refuses to hold a box to more than there are; a quota counts in whole cores of the host.
        let cores = Limit {
            name: LimitName::BoxCores,
            used: 0,
            total: info.ncpu.and_then(|cores| u64::try_from(cores).ok()).filter(|cores| *cores > 0),
            reserve: 0,
        };
        let closed = image
            .is_none()
            .then(|| format!("the image for kind {kind} is not built; build it: `bbbox image build {kind}`"));
        Ok(HostRoom { host: None, limits: vec![memory, guests, cores], counted, closed })
    }
}

#[async_trait]
impl Backend for Docker {
    fn id(&self) -> &BackendId {
        &self.0.id
    }

    fn place(&self) -> Option<String> {
        Some(format!("the engine at {}", self.0.engine.address()))
    }

    fn nature(&self) -> Nature {
        Nature::Virtual
    }

    async fn offers(&self) -> Result<Vec<Offer>> {
        let info = self.0.info().await?;
        let Some(kind) = map::kind(&info) else { return Ok(Vec::new()) };
        let arch = standard(&kind).map_or(Arch::X86_64, |row| row.arch);
        let mut capabilities = Capabilities::linux(arch, "docker exec");
        if self.0.grant().await?.grant.has_docker() {
            capabilities.features.insert(Feature::parse("docker")?);
        }
        Ok(vec![Offer { kind, capabilities, ready_timeout: READY, last: false }])
    }

    async fn capacity(&self, kind: &KindId, install: &InstallId) -> Result<Capacity> {
        let room = self.0.room(kind, install).await;
        if room.is_err() {
            self.0.forget();
        }
        Ok(Capacity { hosts: vec![room?] })
    }

    async fn acquire(&self, order: &Order, hooks: &dyn AcquireHooks) -> Result<Guest> {
        self.0.acquire(order, hooks).await
    }

    async fn release(&self, guest: &Guest, hooks: &dyn ReleaseHooks) -> Result<Released> {
        self.0.release(guest, hooks).await
    }

    async fn power(&self, guest: &Guest) -> Result<Option<Power>> {
        Ok(self.0.find(guest).await?.map(|container| match container.phase {
            Phase::Running => Power::Running,
            Phase::Created | Phase::Stopped => Power::Stopped,
            Phase::Paused => Power::Paused,
            Phase::Between => Power::Unknown,
        }))
    }

    async fn held(&self, install: &InstallId) -> Result<Vec<Held>> {
        let mine = || vec![format!("{}={install}", map::INSTALL), format!("{}={}", map::BACKEND, self.0.id)];
        let (boxes, notes) = tokio::try_join!(self.0.engine.list(mine()), self.0.notes(mine()))?;
        let mut held = Vec::new();
        for mut container in boxes {
            let Some(recorded) = map::owner(&container.labels) else {
                tracing::warn!(
                    container = %container.id, labels = ?container.labels,
                    "a container of this install is no box: its labels cannot be read; remove it if nobody needs it"
                );
                continue;
            };
            let note = notes.get(recorded.box_id.as_str());
            container.size = self.0.size_of(&container, note).await?;
            let owner = note.and_then(map::owner).unwrap_or(recorded);
            let mut guest = self.0.placed(map::guest(&container, &owner)).await?;
            map::set_made(&mut guest, &container);
            held.push(Held { guest, owner });
        }
        Ok(held)
    }

    async fn as_offered(&self, guest: &Guest) -> Result<Option<bool>> {
        let (container, seen) = tokio::try_join!(self.0.need(guest), self.0.grant())?;
        Ok(Some(container.has_docker() == seen.grant.has_docker()))
    }

    async fn reach(&self, guest: &Guest) -> Result<Reach> {
        let command = Arc::new(ExecTransport {
            docker: Arc::clone(&self.0),
            engine: Arc::clone(&self.0.engine),
            guest: guest.clone(),
        });
        Ok(Reach { command, displays: Vec::new() })
    }

    async fn doctor(&self) -> Vec<Check> {
        self.checks().await
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

    fn images(&self) -> Option<&dyn Images> {
        Some(self)
    }

    fn upkeep(&self) -> Option<&dyn Upkeep> {
        Some(self)
    }
}
