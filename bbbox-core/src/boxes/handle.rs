//! One box, as a caller holds it.

use serde::Serialize;

use super::{Boxes, Caller};
use crate::{
    embed::ThreadState,
    error::{Error, Result},
    guest::Power,
    id::{BoxId, BoxName, OperationId, ThreadId},
    journal::{State, Summary},
    kind::standard,
    life::{self, Asked, Change, If, Rename, Resize},
    record::BoxRecord,
    run::{JobSpec, RunResult, Session},
    size::SizeChoice,
    store::Logged,
};

/// One box. Cheap to clone; says nothing about whether the box still exists.
///
/// - *Promise* `a-box-lives-as-it-is-asked`: each operation in its turn, its files kept until it is released, and its
///   log tells what happened.
#[derive(Clone, Debug)]
pub struct BoxHandle {
    boxes: Boxes,
    id: BoxId,
}

/// A box as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its record.
    #[serde(flatten)]
    pub record: BoxRecord,
    /// What its provider says about its guest; `None` when it is gone or was never made.
    pub power: Option<Power>,
    /// Why the provider could not be asked.
    pub power_trouble: Option<String>,
    /// What is under way on it.
    pub operations: Vec<Summary>,
}

impl BoxHandle {
    pub(super) fn new(boxes: Boxes, id: BoxId) -> Self {
        Self { boxes, id }
    }

    /// The box's ID.
    #[must_use]
    pub fn id(&self) -> &BoxId {
        &self.id
    }

    /// The box's record.
    ///
    /// # Errors
    /// `Gone` once it was released.
    pub fn record(&self) -> Result<BoxRecord> {
        self.boxes.record(&self.id)
    }

    /// The box's record, what its provider says now, and what is under way on it.
    ///
    /// # Errors
    /// `Gone` once it was released.
    pub async fn status(&self) -> Result<Status> {
        let record = self.record()?;
        let shared = &self.boxes.shared;
        let (mut power, mut power_trouble) = (None, None);
        if let Some(guest) = &record.guest {
            let asked = match shared.world.backend_of(&record) {
                Ok(backend) => backend.power(guest).await,
                Err(error) => Err(error),
            };
            match asked {
                Ok(now) => power = now,
                Err(error) => power_trouble = Some(error.in_a_line()),
            }
        }
        let operations = shared.journal.live(&self.id)?;
        Ok(Status { record, power, power_trouble, operations })
    }

    /// A session for commands, jobs and files in the box. It never starts a stopped box.
    ///
    /// - *Promise* `a-silent-box-is-noted`: whichever call finds that the box does not answer, until one is answered.
    ///
    /// # Errors
    /// `Gone` when the box is not there, `Refused` when it is not ready.
    pub fn session(&self) -> Result<Session> {
        let record = self.record()?;
        self.boxes.shared.world.session(&record, self.boxes.caller.clone())
    }

    /// Runs a command in the box and waits for it: 270 seconds, then it goes on as a job.
    ///
    /// # Errors
    /// As [`Self::session`], and `Unavailable` when the box does not answer. A command that fails is no error.
    pub async fn run(&self, job: JobSpec) -> Result<RunResult> {
        self.session()?.run(&job, crate::run::DEFAULT_WAIT).await
    }

    /// Starts the box and waits until its commands answer.
    ///
    /// # Errors
    /// `NoCapacity`, `Gone`, `Refused` where its provider cannot, `Unavailable`, `Failed`.
    pub async fn start(&self) -> Result<()> {
        let operation = self.begin_start()?;
        self.boxes.wait(&operation).await
    }

    /// Begins to start the box.
    ///
    /// # Errors
    /// As [`Self::start`], as far as it is known at once.
    pub fn begin_start(&self) -> Result<OperationId> {
        self.may_change()?;
        life::begin_start(
            &self.boxes.shared.journal,
            &self.boxes.shared.world,
            &self.id,
            &self.asked(),
            false,
        )
    }

    /// Stops the box and keeps its disk.
    ///
    /// # Errors
    /// `Refused` while a thread works on it, unless `force`; else as [`Self::start`].
    pub async fn stop(&self, force: bool) -> Result<()> {
        let operation = self.begin_stop(force).await?;
        self.boxes.wait(&operation).await
    }

    /// Begins to stop the box.
    ///
    /// # Errors
    /// As [`Self::stop`], as far as it is known at once.
    pub async fn begin_stop(&self, force: bool) -> Result<OperationId> {
        self.may_end("stopped", force).await?;
        life::begin_stop(&self.boxes.shared.journal, &self.boxes.shared.world, &self.id, &self.asked())
    }

    /// Releases the box: its guest and all it keeps are deleted.
    ///
    /// - *Promise* `a-release-is-done-when-confirmed`: until then the record stays and the sweep tries again.
    ///
    /// # Errors
    /// `Refused` while a thread works on it, unless `force`; else what its provider says. The box is then still
    /// there as `releasing`, and the sweep tries again.
    pub async fn release(&self, force: bool) -> Result<()> {
        let operation = self.begin_release(force).await?;
        self.boxes.wait(&operation).await
    }

    /// Begins to release the box.
    ///
    /// # Errors
    /// As [`Self::release`], as far as it is known at once.
    pub async fn begin_release(&self, force: bool) -> Result<OperationId> {
        self.may_end("released", force).await?;
        {
            let (journal, world) = (&self.boxes.shared.journal, &self.boxes.shared.world);
            let asked = self.asked();
            let only = asked.thread.clone().map_or(If::Always, If::Of);
            life::begin_release(journal, world, &self.id, &asked, only)
        }
    }

    /// Gives the box another size.
    ///
    /// # Errors
    /// `Invalid` for a size its kind does not allow, `NoCapacity`, `Refused` where its provider cannot.
    pub async fn resize(&self, size: &SizeChoice) -> Result<()> {
        let operation = self.begin_resize(size)?;
        self.boxes.wait(&operation).await
    }

    /// Begins to give the box another size.
    ///
    /// # Errors
    /// As [`Self::resize`], as far as it is known at once.
    pub fn begin_resize(&self, size: &SizeChoice) -> Result<OperationId> {
        self.may_change()?;
        let record = self.record()?;
        let kind = standard(&record.kind).ok_or_else(|| {
            Error::invalid(format!("there is no kind {}", record.kind)).fix("use the bbbox that made the box")
        })?;
        let size = self.boxes.shared.settings.document().sizes(&record.kind).resolve(Some(size), kind.os)?;
        let size = size.or_disk_of(&record.size);
        let asked = self.asked();
        let resize =
            Resize { box_id: self.id.clone(), size, by: asked.by.clone(), thread: asked.thread.clone() };
        life::begin_resize(&self.boxes.shared.journal, &self.boxes.shared.world, &resize, &asked)
    }

    /// Gives the box another name, at its provider too.
    ///
    /// - *Promise* `a-name-is-one-boxs`: never two boxes' of one install.
    ///
    /// # Errors
    /// `Busy` when another box has the name.
    pub async fn rename(&self, name: BoxName) -> Result<()> {
        let operation = self.begin_rename(name)?;
        self.boxes.wait(&operation).await
    }

    /// Begins to give the box another name.
    ///
    /// # Errors
    /// As [`Self::rename`], as far as it is known at once.
    pub fn begin_rename(&self, name: BoxName) -> Result<OperationId> {
        self.begin_change(Change::Name(name))
    }

    /// Hands the box to another thread, or to none. What the thread before has open in it ends.
    ///
    /// # Errors
    /// `Refused` for an agent: only a person hands boxes on.
    pub async fn hand_to(&self, thread: Option<ThreadId>) -> Result<()> {
        let operation = self.begin_hand_to(thread)?;
        self.boxes.wait(&operation).await
    }

    /// Begins to hand the box to another thread, or to none.
    ///
    /// # Errors
    /// As [`Self::hand_to`], as far as it is known at once.
    pub fn begin_hand_to(&self, thread: Option<ThreadId>) -> Result<OperationId> {
        self.boxes.person_only("hands boxes to other threads")?;
        self.begin_change(Change::Thread(thread))
    }

    fn begin_change(&self, change: Change) -> Result<OperationId> {
        self.may_change()?;
        let asked = self.asked();
        let rename =
            Rename { box_id: self.id.clone(), change, by: asked.by.clone(), thread: asked.thread.clone() };
        life::begin_rename(&self.boxes.shared.journal, &self.boxes.shared.world, &rename, &asked)
    }

    /// Forgets a box whose backend is no longer configured. Nothing is deleted anywhere.
    ///
    /// - *Promise* `forgetting-deletes-nothing`.
    ///
    /// # Errors
    /// `Refused` while its backend is configured, and for an agent: until the backend is configured again, nothing finds
    /// the guest.
    pub async fn forget(&self) -> Result<()> {
        let operation = self.begin_forget()?;
        self.boxes.wait(&operation).await
    }

    /// Begins to forget the box.
    ///
    /// # Errors
    /// As [`Self::forget`], as far as it is known at once.
    pub fn begin_forget(&self) -> Result<OperationId> {
        self.boxes.person_only("forgets boxes")?;
        self.may_change()?;
        let shared = &self.boxes.shared;
        life::begin_forget(&shared.journal, &shared.world, &self.id, &self.asked())
    }

    /// Reads how the guest really is and makes the record say so: at most once a minute, unless something was done
    /// to the box since.
    ///
    /// # Errors
    /// `Unavailable` when its provider does not answer.
    pub async fn check(&self) -> Result<()> {
        self.may_change()?;
        let shared = &self.boxes.shared;
        let last = shared.journal.history(&self.id)?.pop();
        let settled = last.is_some_and(|last| last.kind == life::CHECK && last.state == State::Done);
        if settled && shared.world.was_just_checked(&self.id) {
            return Ok(());
        }
        let operation = life::begin_check(&shared.journal, &shared.world, &self.id, &self.asked(), false)?;
        self.boxes.wait(&operation).await
    }

    /// What happened to the box, oldest first; the newest `most` events. It can be read for a day after the box is
    /// gone.
    ///
    /// # Errors
    /// `Gone` when the box is another thread's by now, `Failed` when the box log cannot be read.
    pub fn log(&self, most: usize) -> Result<Vec<Logged>> {
        self.boxes.log(self.id.as_str(), most)
    }

    fn asked(&self) -> Asked {
        self.boxes.asked()
    }

    fn may_change(&self) -> Result<()> {
        self.boxes.may_change()?;
        self.record().map(drop)
    }

    /// A box that a thread is working on is ended only by that thread, or when forced.
    async fn may_end(&self, how: &str, force: bool) -> Result<()> {
        self.may_change()?;
        let record = self.record()?;
        let Some(thread) = &record.thread else { return Ok(()) };
        if force || self.boxes.caller == Caller::Thread(thread.clone()) {
            return Ok(());
        }
        match self.boxes.shared.world.embedder.thread(thread).await {
            Ok(ThreadState::Working) => {
                Err(Error::refused(format!("thread {thread} is working on box {}", record.name)).fix(
                    format!("wait until it is done, or force it: the box is {how} under its hands then"),
                ))
            }
            Ok(_) => Ok(()),
            Err(error) => {
                Err(Error::unavailable(format!("it is not known whether thread {thread} is working"))
                    .because(error)
                    .fix("try again, or force it"))
            }
        }
    }
}
