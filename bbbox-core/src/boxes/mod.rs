//! The public face: acquire boxes, find them, and keep the install in order.
//!
//! [`Boxes`] is the whole of bb-box in one value. It is cheap to clone. A view for a thread ([`Boxes::for_thread`])
//! sees that thread's boxes only: another thread's box is as if it did not exist.

mod backends;
mod build;
mod caller;
mod handle;
mod images;
mod kinds;
mod request;
mod settings;
#[cfg(test)]
mod shapes;
#[cfg(test)]
#[cfg(all(feature = "local", target_os = "linux"))]
mod tests;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::broadcast;

pub use backends::BackendView;
pub use build::Builder;
pub use caller::Caller;
pub use handle::{BoxHandle, Status};
pub use images::BackendImage;
pub use kinds::{KindOffer, KindView, Kinds};
pub use request::Acquire;

use crate::{
    error::{Error, Result},
    id::{BoxId, InstallId, OperationId, ThreadId},
    journal::{Event, Journal, Summary},
    life::{self, Asked},
    record::BoxRecord,
    records,
    store::Logged,
    sweep::{self, Report},
    world::{World, no_such_box},
};

/// Boxes of one install: acquire them, find them, keep them in order.
#[derive(Clone)]
pub struct Boxes {
    shared: Arc<Shared>,
    caller: Caller,
}

/// What every view shares.
struct Shared {
    world: Arc<World>,
    journal: Arc<Journal>,
    /// Whether the folder is open for reading only.
    reading: bool,
    settings: build::SettingsInUse,
    /// The upkeep in the background: it ends with the last view, or when this process closes.
    upkeep: Mutex<Option<[tokio_util::task::AbortOnDropHandle<()>; 2]>>,
}

impl std::fmt::Debug for Boxes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Boxes of {} ({})", self.install_id(), self.caller.words())
    }
}

impl Boxes {
    /// Begins to put an install together.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The same boxes, as `thread` may see them.
    ///
    /// - *Promise* `an-agent-sees-its-own`: another thread's box is as if it did not exist, and what a thread is at
    ///   work on is not taken from it unless that is forced.
    #[must_use]
    pub fn for_thread(&self, thread: ThreadId) -> Self {
        // A thread's view is of that thread, whoever it is handed to.
        let caller = match &self.caller {
            Caller::Thread(_) => self.caller.clone(),
            Caller::Person | Caller::Command => Caller::Thread(thread),
        };
        Self { shared: Arc::clone(&self.shared), caller }
    }

    /// Acquires a box and waits until its commands answer.
    ///
    /// Dropping the future does not end the acquire: it goes on, and the box is found by [`Self::list`]. Take it
    /// back with [`Self::cancel`].
    ///
    /// - *Promise* `a-request-is-one-box`: said again under its request ID, also after a restart.
    ///   `nothing-is-left-behind`: an acquire that fails or is taken back leaves neither guest nor record.
    ///   `places-no-more-than-fits`: however many ask at once. `a-lost-answer-is-looked-after`: when a provider's
    ///   answer is lost, the provider is looked at before anything is done again.
    ///
    /// # Errors
    /// `Invalid` for an unknown kind, size, provider or name; `NoCapacity` with every provider's words when none has
    /// room; `Unavailable`, `Failed`. Nothing is left behind then.
    pub async fn acquire(&self, acquire: Acquire) -> Result<BoxHandle> {
        let (operation, handle) = self.begin_acquire(acquire)?;
        self.wait(&operation).await?;
        Ok(handle)
    }

    /// Begins to acquire a box, for callers that show progress: see [`Self::events`] and [`Self::wait`].
    ///
    /// # Errors
    /// As [`Self::acquire`], as far as it is known at once.
    pub fn begin_acquire(&self, acquire: Acquire) -> Result<(OperationId, BoxHandle)> {
        self.may_change()?;
        let (journal, world) = (&self.shared.journal, &self.shared.world);
        let said = request::said(self, &acquire)?;
        let id = match life::begun_acquire(journal, &said.asked, &said.same)? {
            Some(id) => id,
            None => {
                let request::Resolved { order, record } = request::resolve(self, acquire, &said)?;
                life::begin_acquire(journal, world, &order, &record, &said.asked, said.same)?
            }
        };
        // A request that was said before has its box already.
        let begun = journal.show(&id)?.and_then(|operation| operation.boxes.into_iter().next());
        let box_id = begun.ok_or_else(|| Error::failed(format!("operation {id} has no box")))?;
        Ok((id, BoxHandle::new(self.clone(), box_id)))
    }

    /// Waits for an operation's end.
    ///
    /// # Errors
    /// The operation's own; `Gone` for one that is not there, or is not the caller's to see.
    pub async fn wait(&self, operation: &OperationId) -> Result<()> {
        self.may_follow(operation)?;
        self.shared.journal.wait(operation).await.map(drop)
    }

    /// Asks for an operation to be taken back; whether that is still possible.
    ///
    /// # Errors
    /// `Gone` for an operation that is not there, or is not the caller's to see.
    pub fn cancel(&self, operation: &OperationId) -> Result<bool> {
        self.may_change()?;
        let by = self.may_follow(operation)?;
        if matches!(self.caller, Caller::Thread(_)) && by != self.caller.words() {
            return Err(Error::refused(format!("operation {operation} was asked for {by}"))
                .fix("an agent takes back only what it asked for itself"));
        }
        self.shared.journal.cancel(operation)
    }

    /// What operations do, as they do it.
    #[must_use]
    pub fn events(&self) -> Events {
        Events { receiver: self.shared.journal.subscribe(), boxes: self.clone() }
    }

    /// The newest operations that the caller may see, newest first.
    ///
    /// # Errors
    /// `Failed` when the store cannot be read.
    pub fn operations(&self, most: usize) -> Result<Vec<Summary>> {
        self.shared.journal.recent(most, |operation| self.sees(&operation.boxes, Some(&operation.by)))
    }

    /// Every operation that the caller may see and that has not come to its end, oldest first: it is under way, waits
    /// for its turn, stands still, or ended in a way that is not known.
    ///
    /// # Errors
    /// `Failed` when the store cannot be read.
    pub fn unfinished(&self) -> Result<Vec<Summary>> {
        let mut operations = self.shared.journal.unfinished()?;
        operations.retain(|operation| self.sees(&operation.boxes, Some(&operation.by)));
        Ok(operations)
    }

    /// Whether what concerns `boxes`, asked for by `by`, is the caller's to see.
    fn sees(&self, boxes: &[BoxId], by: Option<&str>) -> bool {
        if !matches!(self.caller, Caller::Thread(_)) || by == Some(self.caller.words().as_str()) {
            return true;
        }
        let visible =
            |id: &BoxId| matches!(self.shared.world.find(id), Ok(Some(r)) if self.caller.may_see(&r));
        !boxes.is_empty() && boxes.iter().all(visible)
    }

    /// Who asked for an operation that the caller may see.
    fn may_follow(&self, operation: &OperationId) -> Result<String> {
        match self.shared.journal.show(operation)? {
            Some(found) if self.sees(&found.boxes, Some(&found.by)) => Ok(found.by),
            _ => Err(Error::gone(format!("there is no operation {operation}"))),
        }
    }

    /// Refuses what an agent may not do, in words for it.
    fn person_only(&self, what: &str) -> Result<()> {
        match &self.caller {
            Caller::Thread(_) => Err(Error::refused(format!("an agent never {what}")).fix("ask the person")),
            Caller::Person | Caller::Command => Ok(()),
        }
    }

    /// Every box that the caller may see, oldest first.
    ///
    /// # Errors
    /// `Failed` when the store cannot be read.
    pub fn list(&self) -> Result<Vec<BoxRecord>> {
        let mut records = self.shared.world.store.read(records::all)?;
        records.retain(|r| self.caller.may_see(r));
        Ok(records)
    }

    /// The box that `word` names, by its ID or its name.
    ///
    /// # Errors
    /// `Gone` when there is none, or it is another thread's.
    pub fn get(&self, word: &str) -> Result<BoxHandle> {
        let record = self.shared.world.store.read(|tx| records::find(tx, word))?;
        match record {
            Some(record) if self.caller.may_see(&record) => Ok(BoxHandle::new(self.clone(), record.id)),
            _ => Err(no_such_box(word)),
        }
    }

    /// What happened to the box that `word` names, oldest first; the newest `most` events. By its ID, a box's log can
    /// be read for a day after the box is gone.
    ///
    /// # Errors
    /// `Gone` when there is no such box, or it is not the caller's to see; `Failed` when the log cannot be read.
    pub fn log(&self, word: &str, most: usize) -> Result<Vec<Logged>> {
        let world = &self.shared.world;
        let record = world.store.read(|tx| records::find(tx, word))?;
        let id = match &record {
            Some(record) if self.caller.may_see(record) => record.id.clone(),
            Some(_) => return Err(no_such_box(word)),
            None => BoxId::parse(word).map_err(|_| no_such_box(word))?,
        };
        // Whose it is stands at its beginning, which the newest events may not reach to.
        let all = if record.is_none() { usize::MAX } else { most };
        let mut events = world.store.box_log().read(&id, None, all)?;
        // Of a box that is gone, an agent sees what it asked for itself.
        let by = self.caller.words();
        let mine = |caller: &Caller| {
            !matches!(caller, Caller::Thread(_))
                || events.iter().any(|e| e.event.kind == "acquire-asked" && e.event.by == by)
        };
        if record.is_none() && (events.is_empty() || !mine(&self.caller)) {
            return Err(no_such_box(word));
        }
        events.drain(..events.len().saturating_sub(most));
        Ok(events)
    }

    /// The kinds that are offered, with their sizes and who offers them.
    pub async fn kinds(&self) -> Kinds {
        kinds::view(&self.shared).await
    }

    /// Looks at every guest and record once and mends what differs.
    ///
    /// - *Promise* `sweep-rebuilds-records`: a guest without a record gets it back.
    ///   `gone-stays-gone`: a box whose guest was deleted, also when its reference is used again.
    ///   `sweep-starts-again-once`: a box that did not choose to stop, and not twice in ten minutes.
    ///   `sweep-acts-on-its-own`: never on another install's guests. `sweep-leaves-one-guest-a-box`.
    ///   `sweep-never-ends-a-box-on-one-answer`: a thread must be found ended twice in a row.
    ///   `sweep-refreshes-what-boxes-can-do`: where a guest comes from what its kind is offered from now.
    ///   `a-silent-provider-loses-nothing`: what cannot be seen is left as it is.
    ///
    /// # Errors
    /// `Failed` when the store cannot be used. What could not be seen stands in the report.
    pub async fn sweep(&self) -> Result<Report> {
        self.person_only("sweeps")?;
        self.may_change()?;
        sweep::run(&self.shared.world, &self.shared.journal).await
    }

    /// As [`Self::sweep`], and tells `told` whom it waits for, such as `one, two`, each time that changes.
    ///
    /// # Errors
    /// As [`Self::sweep`].
    pub async fn sweep_telling(&self, told: &(dyn Fn(&str) + Send + Sync)) -> Result<Report> {
        self.person_only("sweeps")?;
        self.may_change()?;
        sweep::run_telling(&self.shared.world, &self.shared.journal, told).await
    }

    /// As [`Self::sweep`], for a program that is called now and then and has no upkeep in the background: where such a
    /// sweep was begun within the last three minutes, nothing is done. It takes `limit` at most.
    ///
    /// # Errors
    /// `Unavailable` when its time was over; what it began goes on. Else as [`Self::sweep`].
    pub async fn sweep_if_due(&self, limit: Duration) -> Result<Option<Report>> {
        self.person_only("sweeps")?;
        self.may_change()?;
        sweep::run_if_due(&self.shared.world, &self.shared.journal, limit).await
    }

    /// This install's ID: it is on every guest it makes.
    #[must_use]
    pub fn install_id(&self) -> InstallId {
        self.shared.world.install()
    }

    /// Takes another install ID, as when the old store was lost: the next sweep takes that install's guests back.
    ///
    /// # Errors
    /// `Refused` while there are boxes under the present ID.
    pub fn set_install_id(&self, id: &InstallId) -> Result<()> {
        self.person_only("changes the install's ID")?;
        self.may_change()?;
        if *id == self.install_id() {
            return Ok(());
        }
        if let Some(record) = self.shared.world.store.read(records::all)?.first() {
            return Err(Error::refused(format!("box {} belongs to this install", record.name))
                .fix("release this install's boxes first: under another ID nobody would find their guests"));
        }
        self.shared.world.set_install(id)
    }

    /// Ends what this process does for the boxes, so that another may open the folder: operations get `patience` to
    /// come to an end, and the next process goes on with what is left. How many were cut off. A thread's view closes
    /// nothing.
    pub async fn close(&self, patience: Duration) -> usize {
        if matches!(self.caller, Caller::Thread(_)) {
            return 0;
        }
        drop(self.shared.upkeep.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.shared.journal.close(patience).await
    }

    /// Waits until no operation is under way.
    pub async fn idle(&self) {
        self.shared.journal.idle().await;
    }

    /// Who asks through this view.
    fn asked(&self) -> Asked {
        let thread = match &self.caller {
            Caller::Thread(thread) => Some(thread.clone()),
            Caller::Person | Caller::Command => None,
        };
        Asked { by: self.caller.words(), request: None, thread }
    }

    /// Refuses changes where the data folder is open for reading only.
    fn may_change(&self) -> Result<()> {
        if self.shared.reading {
            return Err(Error::refused("the data folder is open for reading only")
                .fix("open it as its owner to change anything"));
        }
        Ok(())
    }

    fn record(&self, id: &BoxId) -> Result<BoxRecord> {
        let record = self.shared.world.record(id)?;
        if self.caller.may_see(&record) { Ok(record) } else { Err(no_such_box(id.as_str())) }
    }
}

/// What operations do, as they do it, as far as the caller may see.
pub struct Events {
    receiver: broadcast::Receiver<Event>,
    boxes: Boxes,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    /// The next event.
    ///
    /// # Errors
    /// `Lagged` when the caller was slow and some are lost, `Closed` when there will be no more.
    pub async fn recv(&mut self) -> std::result::Result<Event, broadcast::error::RecvError> {
        loop {
            let event = self.receiver.recv().await?;
            if self.boxes.sees(&event.boxes, Some(&event.by)) {
                return Ok(event);
            }
        }
    }
}
