//! What operations work with: the store, the backends, the environment, and the box log.
//!
//! One value that every operation shares. It decides nothing.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::Connection;
use tokio_util::sync::CancellationToken;

use crate::{
    backend::Backend,
    embed::Embedder,
    env::Env,
    error::{Error, ErrorKind, Result},
    id::{BackendId, BoxId, BoxName, InstallId, KindId},
    record::{BoxRecord, BoxState, Unanswered},
    records,
    registry::Registry,
    run::{Dial, Runners, Session},
    store::{LogEvent, Store},
    sweep,
    transport::Transport,
};

/// What operations share.
pub(crate) struct World {
    pub(crate) store: Arc<Store>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) runners: Runners,
    /// When this process opened the store: what was under way before then gets its time anew.
    pub(crate) opened: Timestamp,
    registry: RwLock<Arc<Registry>>,
    install: RwLock<InstallId>,
}

/// What a new [`World`] is made of.
pub(crate) struct Parts {
    pub(crate) store: Arc<Store>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) runners: Runners,
    pub(crate) registry: Registry,
    pub(crate) install: InstallId,
}

impl World {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            opened: parts.env.now(),
            store: parts.store,
            env: parts.env,
            embedder: parts.embedder,
            runners: parts.runners,
            registry: RwLock::new(Arc::new(parts.registry)),
            install: RwLock::new(parts.install),
        }
    }

    /// The backends as they are configured now.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other backends in place for what begins from now on.
    pub(crate) fn set_registry(&self, registry: Registry) {
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
    }

    /// This install's ID.
    pub(crate) fn install(&self) -> InstallId {
        self.install.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes another install ID, in the store too.
    pub(crate) fn set_install(&self, id: &InstallId) -> Result<()> {
        self.store.write(|tx| records::set_install_id(tx, id))?;
        *self.install.write().unwrap_or_else(PoisonError::into_inner) = id.clone();
        Ok(())
    }

    /// The record of `id`, if there is one.
    pub(crate) fn find(&self, id: &BoxId) -> Result<Option<BoxRecord>> {
        self.store.read(|tx| records::get(tx, id))
    }

    /// The record of `id`.
    ///
    /// # Errors
    /// `Gone` when there is none.
    pub(crate) fn record(&self, id: &BoxId) -> Result<BoxRecord> {
        self.find(id)?.ok_or_else(|| no_such_box(id.as_str()))
    }

    /// The backend that has `record`'s guest.
    ///
    /// # Errors
    /// `Refused` when no backend has it yet, or the backend is not configured any more.
    pub(crate) fn backend_of(&self, record: &BoxRecord) -> Result<Arc<dyn Backend>> {
        let id: &BackendId = record.backend.as_ref().ok_or_else(|| {
            Error::refused(format!("box {} has no backend yet", record.id)).fix("wait until it is made")
        })?;
        self.registry().backend(id)
    }

    /// Notes in the box's log that `event` happened, who asked, and the words for people.
    pub(crate) fn note(&self, id: &BoxId, event: &str, by: &str, words: impl Into<String>) {
        self.store.box_log().append(&LogEvent {
            at: self.env.now(),
            box_id: id.clone(),
            kind: event.to_owned(),
            by: by.to_owned(),
            words: words.into(),
            operation: None,
        });
    }

    /// Runs `work` until `deadline`. Past it, `cancel` is cancelled, and `work` gets ten seconds to end by itself.
    ///
    /// # Errors
    /// What `work` answers; `None` when the deadline passed first.
    pub(crate) async fn until<T>(
        &self,
        deadline: Timestamp,
        cancel: &CancellationToken,
        work: impl Future<Output = Result<T>>,
    ) -> Result<Option<T>> {
        tokio::pin!(work);
        let left = Duration::try_from(deadline.duration_since(self.env.now())).unwrap_or_default();
        tokio::select! {
            biased;
            done = &mut work => return done.map(Some),
            () = self.env.sleep(left) => cancel.cancel(),
        }
        tokio::select! {
            biased;
            // Ready all the same, a moment late: better than to throw it away.
            done = &mut work => done.map(Some).or(Ok(None)),
            () = self.env.sleep(Duration::from_secs(10)) => Ok(None),
        }
    }
}

/// How a box is reached as it is now: asked anew for each contact.
struct Way {
    world: Arc<World>,
    box_id: BoxId,
}

#[async_trait]
impl Dial for Way {
    async fn dial(&self) -> Result<Arc<dyn Transport>> {
        let record = self.world.record(&self.box_id)?;
        let guest = record.guest.as_ref().ok_or_else(|| {
            Error::unavailable(format!("box {} has no guest yet", record.name)).fix("wait until it is made")
        })?;
        Ok(self.world.backend_of(&record)?.reach(guest).await?.command)
    }
}

impl World {
    /// A session in `record`'s box, whatever its state says.
    fn reach(self: &Arc<Self>, record: &BoxRecord) -> Session {
        let way = Way { world: Arc::clone(self), box_id: record.id.clone() };
        self.runners.session(&record.id, Arc::new(way))
    }

    /// Whether the box's commands answer.
    ///
    /// # Errors
    /// `Unavailable` or `Refused` while they do not, `Gone` when the guest is.
    pub(crate) async fn answers(self: &Arc<Self>, record: &BoxRecord) -> Result<()> {
        self.reach(record).ready().await
    }

    /// As [`Self::answers`], at the latest after `limit`.
    pub(crate) async fn answers_within(self: &Arc<Self>, record: &BoxRecord, limit: Duration) -> Result<()> {
        tokio::select! {
            biased;
            answer = self.answers(record) => answer,
            () = self.env.sleep(limit) => {
                Err(Error::unavailable(format!("box {} did not answer within {} s", record.name, limit.as_secs())))
            }
        }
    }

    /// Notes that a box did not answer a command, so that it is asked again by itself.
    pub(crate) fn note_unanswered(&self, id: &BoxId, error: &Error) {
        if error.kind() != ErrorKind::Unavailable {
            return;
        }
        let now = self.env.now();
        let first =
            Unanswered { since: now, tries: 0, next: now + sweep::probe_due(0), words: error.chain() };
        let written = self.store.write(|tx| {
            records::change(tx, id, |r| {
                r.unanswered.get_or_insert(first);
            })
        });
        if let Err(error) = written {
            tracing::debug!(box_id = %id, error = error.chain(), "it was not noted that a box does not answer");
        }
    }

    /// A session in `record`'s box. Connects when it is first used.
    ///
    /// # Errors
    /// `Refused` when the box is not ready, `Gone` when its guest is.
    pub(crate) fn session(self: &Arc<Self>, record: &BoxRecord) -> Result<Session> {
        match record.state {
            BoxState::Ready => {}
            BoxState::Gone => {
                return Err(Error::gone(format!(
                    "the guest of box {} was deleted outside bb-box",
                    record.name
                )));
            }
            BoxState::Stopped => {
                return Err(Error::refused(format!("box {} is stopped", record.name))
                    .fix(format!("start it: `bbbox start {}`", record.name)));
            }
            state => {
                return Err(
                    Error::refused(format!("box {} is {state}", record.name)).fix("wait until it is ready")
                );
            }
        }
        Ok(self.reach(record))
    }

    /// A name that no box has yet, for a box of `kind`.
    pub(crate) fn spare_name(&self, tx: &Connection, kind: &KindId) -> Result<BoxName> {
        loop {
            let id = BoxId::draw(|| self.env.random());
            // The prefix of an ID is two letters; four of the random ones tell boxes apart for people.
            let tail: String = id.as_str().chars().skip(2).take(4).collect();
            let name = BoxName::parse(format!("{kind}-{tail}"))?;
            if !records::name_taken(tx, &name)? {
                return Ok(name);
            }
        }
    }
}

/// The answer for a box that is not there, and for one that is not the caller's to see.
pub(crate) fn no_such_box(word: &str) -> Error {
    Error::gone(format!("there is no box {word:?}")).fix("see `bbbox list`")
}
