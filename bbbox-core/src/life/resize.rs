//! Resize: give a box other cores, memory or disk. Its files stay.

use std::sync::Arc;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{Asked, Opening};
use crate::{
    capacity::{Holding, HostRoom},
    error::{Error, ErrorKind, Result},
    guest::Guest,
    id::{BoxId, OperationId},
    journal::{Context, Ended, Halt, Journal, JournalBuilder},
    record::BoxState,
    records,
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
        return Err(Error::refused(format!("box {} must be stopped to be resized", record.name))
            .fix(format!("stop it first: `bbbox stop {}`", record.name)));
    }
    let opening = Opening::new(KIND, &resize.box_id, asked, resize);
    let id = super::begin(journal, opening, |tx, _| match super::record_in(tx, &resize.box_id)?.state {
        BoxState::Ready | BoxState::Stopped => Ok(()),
        state => Err(Error::new(ErrorKind::Busy, format!("box {} is {state}", record.name))
            .fix("resize it when it is ready or stopped")),
    })?;
    world.note(&resize.box_id, "resize-asked", &asked.by, format!("from {} to {}", record.size, resize.size));
    Ok(id)
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
            world.backend_of(&record)?.capacity(&record.kind, &world.install()).await
        },
        |tx, capacity| {
            let record = super::record_in(tx, id)?;
            let running = record.state != BoxState::Stopped;
            let held = match &record.backend {
                Some(backend) => records::holdings(tx, backend)?,
                None => Vec::new(),
            };
            if let Some(room) = capacity.hosts.into_iter().find(|r| r.host == record.host) {
                let here = held.iter().filter(|(_, host, _)| *host == room.host).map(|(id, _, h)| (id, *h));
                let open = HostRoom { closed: None, ..room.clone() };
                open.fits(id, Holding { size: args.size, running }, here).map_err(|full| {
                    Error::new(
                        ErrorKind::NoCapacity,
                        format!("there is no room for box {} at {}", record.name, args.size),
                    )
                    .because_of(full)
                    .fix("ask for less, or stop or release another box first")
                })?;
            }
            records::change(tx, id, |r| r.resize_to = Some(args.size)).map(drop)
        },
    )
    .await?;
    // Asked for again, a size is a size: what an answer that was lost did is done again.
    cx.step("resize")
        .observable()
        .record(|tx, guest: &Guest| {
            records::change(tx, id, |r| {
                r.guest = Some(guest.clone());
                r.size = args.size;
                r.resize_to = None;
            })
            .map(drop)
        })
        .run(async |_| {
            let record = world.record(id)?;
            let backend = world.backend_of(&record)?;
            match (backend.resize(), &record.guest) {
                (Some(able), Some(guest)) => able.resize(guest, &args.size).await,
                _ => Err(Error::failed(format!("box {} has no guest that could be resized", record.name))),
            }
        })
        .await?;
    world.note(id, "resized", &args.by, args.size.to_string());
    Ok(())
}

/// A resize that failed leaves the box at its old size, as far as is known.
pub(super) fn ended(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    let args: Resize = super::args(ended)?;
    if ended.error.is_none() {
        return Ok(());
    }
    let words = super::trouble(ended);
    records::change(tx, &args.box_id, |r| {
        r.resize_to = None;
        r.trouble.clone_from(&words);
    })?;
    world.note(&args.box_id, "resize-failed", "by bb-box", words.unwrap_or_else(|| "taken back".to_owned()));
    Ok(())
}
