//! How operations and callers reach into a box: sessions, and whether a box answers.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    boxes::Caller,
    error::{Error, ErrorKind, Result},
    id::BoxId,
    record::{BoxRecord, BoxState, Unanswered},
    records,
    run::{Dial, Session},
    sweep,
    transport::Transport,
    world::{World, no_such_box},
};

/// How a box is reached as it is now: asked anew for each contact.
struct Way {
    world: Arc<World>,
    box_id: BoxId,
    /// Who reaches in: a box that was handed to another thread is as if it did not exist.
    caller: Caller,
    /// Whether it is noted if the box does not answer: not while that is the question.
    noted: bool,
}

impl Way {
    /// The box's record, if its holder may still see it.
    fn record(&self) -> Result<BoxRecord> {
        let record = self.world.record(&self.box_id)?;
        if self.caller.may_see(&record) { Ok(record) } else { Err(no_such_box(self.box_id.as_str())) }
    }
}

#[async_trait]
impl Dial for Way {
    async fn dial(&self) -> Result<Arc<dyn Transport>> {
        let record = self.record()?;
        let guest = record.guest.as_ref().ok_or_else(|| {
            Error::unavailable(format!("box {} has no guest yet", record.name)).fix("wait until it is made")
        })?;
        #[cfg(feature = "simulation")]
        if crate::simulation::is(crate::simulation::Bug::ReachStarts)
            && let backend = self.world.backend_of(&record)?
            && let Some(switch) = backend.switch()
        {
            switch.start(guest).await?;
        }
        Ok(self.world.backend_of(&record)?.reach(guest).await?.command)
    }

    fn allowed(&self) -> Result<()> {
        match self.caller {
            Caller::Thread(_) => self.record().map(drop),
            Caller::Person | Caller::Command => Ok(()),
        }
    }

    fn gone(&self, error: Error) -> Error {
        match self.record() {
            Ok(record) => gone(&record).because(error),
            // It says itself which box there is none of.
            Err(_) => error,
        }
    }

    async fn came_out(&self, error: Option<&Error>) {
        if self.noted
            && let Err(error) = self.world.note_answer(&self.box_id, error)
        {
            tracing::debug!(box_id = %self.box_id, error = error.chain(), "whether a box answers was not noted");
        }
    }
}

/// Where an error says that a box's guest is not there any more.
const GUEST: &str = "guest";

/// The answer of a box whose guest is not there.
pub(crate) fn gone(record: &BoxRecord) -> Error {
    let name = &record.name;
    Error::gone(format!("the guest of box {name} is gone: it was deleted outside bb-box"))
        .at(GUEST, "not there")
        .fix(format!("give up its record, too: `bbbox release {name}`"))
}

/// Whether `error` says that a box's guest is not there any more.
pub(crate) fn says_gone(error: &Error) -> bool {
    error.kind() == ErrorKind::Gone && error.context().iter().any(|(name, _)| name == GUEST)
}

impl World {
    /// A session in `record`'s box, whatever its state says.
    fn reach(self: &Arc<Self>, record: &BoxRecord, caller: Caller, noted: bool) -> Session {
        let way = Way { world: Arc::clone(self), box_id: record.id.clone(), caller, noted };
        self.runners.session(&record.id, Arc::new(way))
    }

    /// A session in `record`'s box for `caller`. Connects when it is first used.
    ///
    /// # Errors
    /// `Refused` when the box is not ready, `Gone` when its guest is.
    pub(crate) fn session(self: &Arc<Self>, record: &BoxRecord, caller: Caller) -> Result<Session> {
        let name = &record.name;
        match record.state {
            BoxState::Gone => Err(gone(record)),
            BoxState::Ready => Ok(self.reach(record, caller, true)),
            BoxState::Stopped => Err(Error::refused(format!("box {name} is stopped"))
                .fix(format!("start it: `bbbox start {name}`"))),
            state => Err(Error::refused(format!("box {name} is {state}")).fix("wait until it is ready")),
        }
    }

    /// Whether the box's commands answer.
    ///
    /// # Errors
    /// `Unavailable` or `Refused` while they do not, `Gone` when the guest is.
    pub(crate) async fn answers(self: &Arc<Self>, record: &BoxRecord) -> Result<()> {
        self.reach(record, Caller::Person, false).ready().await
    }

    /// As [`Self::answers`], at the latest after `limit`.
    pub(crate) async fn answers_within(self: &Arc<Self>, record: &BoxRecord, limit: Duration) -> Result<()> {
        crate::registry::within(&*self.env, limit, self.answers(record)).await
    }

    /// Notes whether a box that should answer did: one that did not is asked again by itself.
    fn note_answer(&self, id: &BoxId, error: Option<&Error>) -> Result<()> {
        let silent = error.filter(|error| error.kind() == ErrorKind::Unavailable);
        if error.is_some() && silent.is_none() {
            return Ok(());
        }
        // Whether this call is the first that says so.
        let is_news =
            |r: &BoxRecord| r.state == BoxState::Ready && r.unanswered.is_some() != silent.is_some();
        if !self.find(id)?.is_some_and(|record| is_news(&record)) {
            return Ok(());
        }
        let now = self.env.now();
        self.store.in_passing(|store| {
            let changed = store.write(|tx| {
                let Some(record) = records::get(tx, id)?.filter(is_news) else { return Ok(false) };
                records::change(tx, &record.id, |r| match silent {
                    Some(error) => {
                        r.unanswered = Some(Unanswered {
                            since: now,
                            tries: 0,
                            next: now + sweep::probe_due(0),
                            words: error.chain(),
                        });
                    }
                    None => r.answered(),
                })?;
                Ok(true)
            })?;
            if changed {
                let (event, words) = match silent {
                    Some(error) => ("does-not-answer", error.chain()),
                    None => ("answers-again", String::new()),
                };
                store.box_log().append(&self.event(id, event, "by bb-box", words));
            }
            Ok(())
        })
    }
}
