//! What operations work with: the store, the backends, the environment, and the box log.
//!
//! One value that every operation shares. It decides nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use rusqlite::Connection;
use tokio_util::sync::CancellationToken;

use crate::{
    backend::Backend,
    embed::Embedder,
    env::Env,
    error::{Error, Result},
    id::{BackendId, BoxId, BoxName, InstallId, KindId},
    record::BoxRecord,
    records,
    registry::Registry,
    run::Runners,
    store::{LogEvent, Store},
};

/// How often a box's guest is checked when people ask for it.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// What operations share.
pub(crate) struct World {
    pub(crate) store: Arc<Store>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) embedder: Arc<dyn Embedder>,
    pub(crate) runners: Runners,
    /// By when each box that is being made must answer, as [`Env::elapsed`] counts. It is not stored: after a
    /// restart a box gets its time anew.
    deadlines: Mutex<HashMap<BoxId, Duration>>,
    /// When each box's guest was last checked, as [`Env::elapsed`] counts.
    checked: Mutex<HashMap<BoxId, Duration>>,
    /// Has the next sweep come at once.
    pub(crate) nudge: tokio::sync::Notify,
    registry: RwLock<Arc<Registry>>,
    install: RwLock<InstallId>,
}

/// What became of work that had a deadline.
pub(crate) enum InTime<T> {
    /// It answered.
    Done(Result<T>),
    /// Its time was over; what it still said then.
    Late(Option<Error>),
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
            deadlines: Mutex::default(),
            checked: Mutex::default(),
            nudge: tokio::sync::Notify::new(),
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
        self.store.box_log().append(&self.event(id, event, by, words));
    }

    /// What [`Self::note`] notes.
    pub(crate) fn event(&self, id: &BoxId, event: &str, by: &str, words: impl Into<String>) -> LogEvent {
        LogEvent {
            at: self.env.now(),
            box_id: id.clone(),
            kind: event.to_owned(),
            by: by.to_owned(),
            words: words.into(),
            operation: None,
        }
    }

    /// Gives the box `time` from now until it must answer.
    pub(crate) fn give_time(&self, id: &BoxId, time: Duration) {
        let mut deadlines = self.deadlines.lock().unwrap_or_else(PoisonError::into_inner);
        deadlines.insert(id.clone(), self.env.elapsed() + time);
    }

    /// By when the box must answer. It is given `time` from now if this process gave it none yet.
    pub(crate) fn deadline(&self, id: &BoxId, time: Duration) -> Duration {
        let mut deadlines = self.deadlines.lock().unwrap_or_else(PoisonError::into_inner);
        *deadlines.entry(id.clone()).or_insert_with(|| self.env.elapsed() + time)
    }

    /// Says that the box is not being made any more.
    pub(crate) fn drop_deadline(&self, id: &BoxId) {
        self.deadlines.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Notes that the box's guest was just checked.
    pub(crate) fn note_checked(&self, id: &BoxId) {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.env.elapsed();
        checked.retain(|_, at| now.saturating_sub(*at) < CHECK_EVERY);
        checked.insert(id.clone(), now);
    }

    /// Whether the box's guest was checked within the last minute.
    pub(crate) fn was_just_checked(&self, id: &BoxId) -> bool {
        let checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.get(id).is_some_and(|at| self.env.elapsed().saturating_sub(*at) < CHECK_EVERY)
    }

    /// Runs `work` until `deadline`, as [`Env::elapsed`] counts. Past it, `cancel` is cancelled, and `work` gets ten seconds to end by itself.
    pub(crate) async fn until<T>(
        &self,
        deadline: Duration,
        cancel: &CancellationToken,
        work: impl Future<Output = Result<T>>,
    ) -> InTime<T> {
        tokio::pin!(work);
        let left = deadline.saturating_sub(self.env.elapsed());
        tokio::select! {
            biased;
            done = &mut work => return InTime::Done(done),
            () = self.env.sleep(left) => cancel.cancel(),
        }
        tokio::select! {
            biased;
            // Ready all the same, a moment late: better than to throw it away.
            done = &mut work => match done {
                Ok(value) => InTime::Done(Ok(value)),
                Err(error) => InTime::Late(Some(error)),
            },
            () = self.env.sleep(Duration::from_secs(10)) => InTime::Late(None),
        }
    }
}

impl World {
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
