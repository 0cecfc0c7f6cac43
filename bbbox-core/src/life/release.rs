//! Release: give a box's guest back for good, and forget the box once the backend confirmed it.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Asked, Opening};
use crate::{
    backend::ReleaseHooks,
    error::{Error, Result},
    id::{BoxId, OperationId, ThreadId},
    journal::{Attempt, Context, Ended, Halt, Journal, JournalBuilder, State, Summary},
    record::{BoxRecord, BoxState},
    records,
    world::World,
};

pub(super) const KIND: &str = "release";

/// Under which condition a box is released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum If {
    /// Whatever it is: somebody asked for it.
    Always,
    /// An earlier release was not finished.
    Releasing,
    /// It is still this thread's, which asked for it.
    Of(ThreadId),
    /// It is still this thread's, and the thread was found ended.
    ThreadEnded(ThreadId),
}

impl If {
    /// Somebody wants the box gone, and is not answered by a release that may keep it.
    fn is_asked(&self) -> bool {
        matches!(self, Self::Always | Self::Of(_))
    }

    fn holds(&self, record: &BoxRecord) -> bool {
        match self {
            Self::Always => true,
            Self::Of(thread) => record.thread.as_ref() == Some(thread),
            Self::Releasing => record.state == BoxState::Releasing,
            Self::ThreadEnded(thread) => {
                record.thread.as_ref() == Some(thread) && record.thread_ended.is_some()
            }
        }
    }
}

/// What a release is given.
#[derive(Debug, Serialize, Deserialize)]
struct Release {
    #[serde(rename = "box")]
    box_id: BoxId,
    by: String,
    only: If,
}

/// Whether a release answers one that asks for `only`: it deletes its box wherever that would.
fn answers(operation: &Summary, only: &If) -> bool {
    match serde_json::from_value(operation.args["only"].clone()) {
        Ok(If::Always) => true,
        Ok(theirs) => !only.is_asked() || theirs == *only,
        Err(_) => false,
    }
}

/// Whether a release that is done has left no box: one whose condition did not hold says `false`.
pub(super) fn released(operation: &Summary) -> bool {
    operation.state == State::Done && operation.result != Some(Value::Bool(false))
}

/// Begins to release `box_id`. Whatever is under way on it is cancelled first, when somebody asked for the release: an
/// agent cancels only what it asked for itself.
pub(crate) fn begin(
    journal: &Journal,
    world: &World,
    box_id: &BoxId,
    asked: &Asked,
    only: If,
) -> Result<OperationId> {
    let mut ended_acquire = false;
    for operation in journal.live(box_id)? {
        let stuck = matches!(operation.state, State::Unknown | State::Suspended);
        let releases = operation.kind == KIND && !stuck;
        // One with a condition may yet find that it does not hold: it is no answer to somebody who wants the box gone.
        if releases && answers(&operation, &only) {
            return Ok(operation.id);
        }
        let may = asked.thread.is_none() || operation.by == asked.by;
        let taken_back = may && (only.is_asked() || stuck) && journal.cancel(&operation.id)?;
        ended_acquire |= taken_back && operation.kind == super::acquire::KIND;
        // What can no longer be taken back deletes the guest, whatever its condition was.
        if releases && may && !taken_back {
            return Ok(operation.id);
        }
    }
    let args = Release { box_id: box_id.clone(), by: asked.by.clone(), only };
    let opening = Opening::new(KIND, box_id, asked, &args).over_unknown();
    super::begin(journal, opening, |tx, _| {
        let record = match records::get(tx, box_id)? {
            Some(record) => record,
            // The acquire has taken it with it already: that is what was asked for.
            None if ended_acquire => return Ok(()),
            None => return Err(crate::world::no_such_box(box_id.as_str())),
        };
        if !args.only.holds(&record) {
            return Err(Error::refused(format!("box {} is not to be released any more", record.name)));
        }
        world.note(box_id, "release-asked", &asked.by, "");
        Ok(())
    })
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let world = Arc::clone(world);
    builder.operation(KIND, 1, move |cx, args| release(cx, Arc::clone(&world), args))
}

/// Whether there is no box any more.
async fn release(cx: Context, world: Arc<World>, args: Release) -> Result<bool, Halt> {
    let id = &args.box_id;
    // An acquire that was cancelled for this has taken its record with it; and what was true when this was asked
    // for may be so no longer.
    let found = cx
        .write("releasing", |tx| {
            let Some(record) = records::get(tx, id)? else { return Ok(Found::NoBox) };
            if let If::Of(thread) = &args.only {
                super::still_its(Some(thread), &record)?;
            }
            if !args.only.holds(&record) {
                return Ok(Found::NotToRelease);
            }
            records::change(tx, id, |r| r.turn(BoxState::Releasing))?;
            Ok(Found::Was(record.state))
        })
        .await?;
    let was = match found {
        Found::NoBox => return Ok(true),
        Found::NotToRelease => return Ok(false),
        Found::Was(state) => state,
    };
    world.runners.close(id);
    cx.progress("deleting its guest", None);
    let again = was == BoxState::Releasing;
    cx.step("release")
        .run(async |at| {
            let given = give_back(&world, id, at, again).await;
            #[cfg(feature = "simulation")]
            if crate::simulation::is(crate::simulation::Bug::ForgetsAnyway) {
                return Ok(());
            }
            given
        })
        .await?;
    cx.write("forget", |tx| records::delete(tx, id)).await?;
    world.runners.forget(id);
    world.note(id, "released", &args.by, "");
    Ok(true)
}

/// What a release finds in its turn.
#[derive(Debug, Serialize, Deserialize)]
enum Found {
    NoBox,
    NotToRelease,
    Was(BoxState),
}

/// `again`: an earlier release may have done it. Then the guest is asked for first, and is not deleted twice.
async fn give_back(world: &World, box_id: &BoxId, at: Attempt, again: bool) -> Result<()> {
    let record = world.record(box_id)?;
    // Without a claim nothing was made: a claim comes first.
    let Some(guest) = &record.guest else { return Ok(()) };
    let backend = world.backend_of(&record)?;
    #[cfg(feature = "simulation")]
    if crate::simulation::is(crate::simulation::Bug::OneListing)
        && !backend.held(&guest.install).await?.iter().any(|held| held.owner.box_id == *box_id)
    {
        return Ok(());
    }
    if (again || at.tries > 0) && backend.power(guest).await?.is_none() {
        return Ok(());
    }
    backend.release(guest, &Watched(at)).await.map(drop).map_err(|error| match error.how_to_fix() {
        Some(_) => error,
        None => error.fix("the next sweep tries again: `bbbox sweep`"),
    })
}

/// A release that fails keeps the record, with the backend's words, and the sweep tries again. One that was taken
/// back in time leaves the box as it was.
pub(super) fn ended(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    let args: Release = super::args(ended)?;
    match (ended.state, super::trouble(ended)) {
        (State::Cancelled, _) => {
            records::change(tx, &args.box_id, |r| {
                r.turn_back();
                r.mended(KIND);
            })?;
            world.note(&args.box_id, "release-failed", "by bb-box", "taken back");
        }
        (_, Some(why)) => {
            records::change(tx, &args.box_id, |r| r.trouble = Some(why.clone()))?;
            world.note(&args.box_id, "release-failed", "by bb-box", why);
        }
        _ => {}
    }
    Ok(())
}

/// Passes a release's progress on.
struct Watched(Attempt);

#[async_trait]
impl ReleaseHooks for Watched {
    async fn resetting(&self) -> Result<()> {
        self.0.save_task("resetting").await
    }

    fn progress(&self, text: &str, fraction: Option<f64>) {
        self.0.progress(text, fraction);
    }
}

/// A release that nobody watches: the undo of an acquire.
pub(super) struct Quiet;

#[async_trait]
impl ReleaseHooks for Quiet {
    async fn resetting(&self) -> Result<()> {
        Ok(())
    }

    fn progress(&self, text: &str, _fraction: Option<f64>) {
        tracing::debug!(text, "releasing");
    }
}
