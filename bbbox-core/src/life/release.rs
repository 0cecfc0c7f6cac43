//! Release: give a box's guest back for good, and forget the box once the backend confirmed it.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{Asked, Opening};
use crate::{
    backend::ReleaseHooks,
    error::Result,
    id::{BoxId, OperationId},
    journal::{Attempt, Context, Ended, Halt, Journal, JournalBuilder, State},
    record::BoxState,
    records,
    world::World,
};

pub(super) const KIND: &str = "release";

/// What a release is given.
#[derive(Debug, Serialize, Deserialize)]
struct Release {
    #[serde(rename = "box")]
    box_id: BoxId,
    by: String,
}

/// Begins to release `box_id`, whatever state it is in. Whatever is under way on it is cancelled first.
pub(crate) fn begin(journal: &Journal, world: &World, box_id: &BoxId, asked: &Asked) -> Result<OperationId> {
    for operation in journal.live(box_id)? {
        if operation.kind == KIND && operation.state != State::Unknown {
            return Ok(operation.id);
        }
        journal.cancel(&operation.id)?;
    }
    let args = Release { box_id: box_id.clone(), by: asked.by.clone() };
    let opening = Opening::new(KIND, box_id, asked, &args).over_unknown();
    let id = super::begin(journal, opening, |tx, _| super::record_in(tx, box_id).map(drop))?;
    world.note(box_id, "release-asked", &asked.by, "");
    Ok(id)
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let world = Arc::clone(world);
    builder.operation(KIND, 1, move |cx, args| release(cx, Arc::clone(&world), args))
}

async fn release(cx: Context, world: Arc<World>, args: Release) -> Result<(), Halt> {
    // An acquire that was cancelled for this has taken its record with it.
    let there = cx
        .write("releasing", |tx| {
            records::change(tx, &args.box_id, |r| r.state = BoxState::Releasing).map(|r| r.is_some())
        })
        .await?;
    if !there {
        return Ok(());
    }
    world.runners.close(&args.box_id);
    cx.progress("deleting its guest", None);
    cx.step("release").run(async |at| give_back(&world, &args.box_id, at).await).await?;
    cx.write("forget", |tx| records::delete(tx, &args.box_id)).await?;
    world.note(&args.box_id, "released", &args.by, "");
    Ok(())
}

async fn give_back(world: &World, box_id: &BoxId, at: Attempt) -> Result<()> {
    let record = world.record(box_id)?;
    // Without a claim nothing was made: a claim comes first.
    let Some(guest) = &record.guest else { return Ok(()) };
    let backend = world.backend_of(&record)?;
    // An earlier run may have done it: then the guest is not deleted a second time.
    if at.tries > 0 && backend.power(guest).await?.is_none() {
        return Ok(());
    }
    backend.release(guest, &Watched(at)).await.map(drop)
}

/// A release that fails keeps the record, with the backend's words; the sweep tries again.
pub(super) fn ended(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    let args: Release = super::args(ended)?;
    if let Some(why) = super::trouble(ended) {
        records::change(tx, &args.box_id, |r| r.trouble = Some(why.clone()))?;
        world.note(&args.box_id, "release-failed", "by bb-box", why);
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
