//! Rename and relabel: another name or another thread for a box, recorded at the provider too.

use std::sync::Arc;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{Asked, Opening};
use crate::{
    error::{Error, ErrorKind, Result},
    guest::Guest,
    id::{BoxId, BoxName, OperationId, ThreadId},
    journal::{Context, Ended, Halt, Journal, JournalBuilder},
    record::BoxState,
    records,
    world::World,
};

pub(super) const KIND: &str = "rename";

/// What a rename is given: the name and the thread that the box is to have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rename {
    #[serde(rename = "box")]
    pub(crate) box_id: BoxId,
    pub(crate) name: BoxName,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) by: String,
}

/// Begins to rename a box. Until that is settled it has both names.
pub(crate) fn begin(journal: &Journal, world: &World, rename: &Rename, asked: &Asked) -> Result<OperationId> {
    let opening = Opening::new(KIND, &rename.box_id, asked, rename);
    let id = super::begin(journal, opening, |tx, _| {
        let record = super::record_in(tx, &rename.box_id)?;
        if !matches!(record.state, BoxState::Ready | BoxState::Stopped) {
            return Err(Error::new(ErrorKind::Busy, format!("box {} is {}", record.name, record.state))
                .fix("rename it when it is ready or stopped"));
        }
        records::take_name(tx, &rename.name, &rename.box_id)
    })?;
    world.note(&rename.box_id, "rename-asked", &asked.by, words(rename));
    Ok(id)
}

fn words(rename: &Rename) -> String {
    match &rename.thread {
        Some(thread) => format!("{} of thread {thread}", rename.name),
        None => rename.name.to_string(),
    }
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let world = Arc::clone(world);
    builder.operation(KIND, 1, move |cx, args| rename(cx, Arc::clone(&world), args))
}

async fn rename(cx: Context, world: Arc<World>, args: Rename) -> Result<(), Halt> {
    let id = &args.box_id;
    // Asked for again, a name is a name; a failure is settled by giving the old one back in `ended`.
    cx.step("relabel")
        .observable()
        .record(|tx, guest: &Option<Guest>| {
            records::change(tx, id, |r| {
                r.guest = guest.clone().or_else(|| r.guest.take());
                r.name = args.name.clone();
                r.thread.clone_from(&args.thread);
            })?;
            records::free_names(tx, id, &args.name)
        })
        .run(async |_| {
            let mut record = world.record(id)?;
            record.name = args.name.clone();
            record.thread.clone_from(&args.thread);
            let backend = world.backend_of(&record)?;
            match (backend.relabel(), &record.guest) {
                (Some(able), Some(guest)) => {
                    able.relabel(guest, &record.owner(&world.install())).await.map(Some)
                }
                // Where the provider cannot record it, the record alone has the new name.
                _ => Ok(None),
            }
        })
        .await?;
    world.note(id, "renamed", &args.by, words(&args));
    Ok(())
}

/// A rename that failed frees the name it had taken.
pub(super) fn ended(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    let args: Rename = super::args(ended)?;
    if ended.error.is_none() {
        return Ok(());
    }
    if let Some(record) = records::get(tx, &args.box_id)? {
        records::free_names(tx, &args.box_id, &record.name)?;
    }
    let words = super::trouble(ended).unwrap_or_else(|| "taken back".to_owned());
    world.note(&args.box_id, "rename-failed", "by bb-box", words);
    Ok(())
}
