//! Resize: give a box other cores, memory or disk. Its files stay.

use std::sync::Arc;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{Asked, Opening};
use crate::{
    capacity::Holding,
    error::{Effect, Error, ErrorKind, Result},
    guest::Guest,
    id::{BoxId, OperationId, ThreadId},
    journal::{Context, Ended, Halt, Journal, JournalBuilder},
    record::{BoxRecord, BoxState},
    records, registry,
    size::Size,
    world::World,
};

pub(super) const KIND: &str = "resize";

/// What a resize is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Resize {
    #[serde(rename = "box")]
    pub(crate) box_id: BoxId,
    pub(crate) size: Size,
    pub(crate) by: String,
    /// The thread that asked.
    #[serde(default)]
    pub(crate) thread: Option<ThreadId>,
}

/// Begins to resize a box.
pub(crate) fn begin(journal: &Journal, world: &World, resize: &Resize, asked: &Asked) -> Result<OperationId> {
    let record = world.record(&resize.box_id)?;
    let backend = world.backend_of(&record)?;
    let Some(able) = backend.resize() else {
        return Err(Error::refused(format!("boxes of {} keep the size they were made with", backend.id()))
            .fix("acquire another box of the size you need"));
    };
    if able.needs_stop() && record.state != BoxState::Stopped {
        return Err(must_stop(&record));
    }
    let opening = Opening::new(KIND, &resize.box_id, asked, resize);
    super::begin(journal, opening, |tx, _| match super::record_in(tx, &resize.box_id)?.state {
        BoxState::Ready | BoxState::Stopped => {
            let sizes = format!("from {} to {}", record.size, resize.size);
            world.note(&resize.box_id, "resize-asked", &asked.by, sizes);
            Ok(())
        }
        state => Err(Error::new(ErrorKind::Busy, format!("box {} is {state}", record.name))
            .fix("resize it when it is ready or stopped")),
    })
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let world = Arc::clone(world);
    builder.operation(KIND, 1, move |cx, args| resize(cx, Arc::clone(&world), args))
}

async fn resize(cx: Context, world: Arc<World>, args: Resize) -> Result<(), Halt> {
    let id = &args.box_id;
    cx.decide(
        "room",
        async |_| {
            let record = world.record(id)?;
            let backend = world.backend_of(&record)?;
            let needs_stop = backend.resize().is_some_and(crate::backend::Resize::needs_stop);
            Ok((needs_stop, backend.capacity(&record.kind, &world.install()).await?))
        },
        |tx, (needs_stop, capacity)| {
            let record = super::record_in(tx, id)?;
            super::still_its(args.thread.as_ref(), &record)?;
            let running = record.state != BoxState::Stopped;
            if needs_stop && running {
                return Err(must_stop(&record));
            }
            registry::room_to_grow(tx, &record, &capacity, Holding { size: args.size, running })?;
            #[cfg(feature = "simulation")]
            if crate::simulation::is(crate::simulation::Bug::ResizeAtEnd) {
                return Ok(());
            }
            records::change(tx, id, |r| r.resize_to = Some(args.size)).map(drop)
        },
    )
    .await?;
    cx.step("resize")
        .observable()
        .record(|tx, guest: &Guest| {
            records::change(tx, id, |r| {
                r.guest = Some(guest.clone());
                r.size = args.size;
                r.resize_to = None;
                r.mended(KIND);
            })
            .map(drop)
        })
        .run(async |at| give(&world, &args, at.tries > 0).await)
        .await?;
    world.note(id, "resized", &args.by, args.size.to_string());
    Ok(())
}

/// Gives the guest its size. When the answer is lost, now or in a run before (`again`), the backend is asked at which
/// size it counts the box.
async fn give(world: &World, args: &Resize, again: bool) -> Result<Guest> {
    let record = world.record(&args.box_id)?;
    let backend = world.backend_of(&record)?;
    let (Some(able), Some(guest)) = (backend.resize(), &record.guest) else {
        return Err(Error::failed(format!("box {} has no guest that could be resized", record.name)));
    };
    let error = match able.resize(guest, &args.size).await {
        Ok(guest) => return Ok(guest),
        Err(error) if error.effect_of() == Effect::None && !again => return Err(error),
        Err(error) => error,
    };
    let Ok(capacity) = backend.capacity(&record.kind, &world.install()).await else { return Err(error) };
    match capacity.counted(&record.id) {
        Some(counted) if counted.size == args.size => Ok(Guest { size: args.size, ..guest.clone() }),
        Some(_) if error.effect_of() == Effect::Unknown => Err(error.effect(Effect::None)),
        // Where the backend knows that it happened, what it counts may be older.
        Some(_) | None => Err(error),
    }
}

fn must_stop(record: &BoxRecord) -> Error {
    Error::refused(format!("box {} must be stopped to be resized", record.name))
        .fix(format!("stop it first: `bbbox stop {}`", record.name))
}

/// A resize that failed leaves the box at its old size; where that is not known, it keeps taking the larger one.
pub(super) fn ended(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    let args: Resize = super::args(ended)?;
    let Some(error) = &ended.error else { return Ok(()) };
    let words = super::trouble(ended);
    records::change(tx, &args.box_id, |r| {
        let settled = error.effect_of() == Effect::None;
        #[cfg(feature = "simulation")]
        let settled = settled && !crate::simulation::is(crate::simulation::Bug::ReservationKept);
        if settled {
            r.resize_to = None;
            // Whoever asked was told; with the box nothing is wrong.
            r.mended(KIND);
        } else {
            r.trouble.clone_from(&words);
        }
    })?;
    world.note(&args.box_id, "resize-failed", "by bb-box", words.unwrap_or_else(|| "taken back".to_owned()));
    Ok(())
}
