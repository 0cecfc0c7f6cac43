//! Rename and hand over: another name or another thread for a box, recorded at the provider too.

use std::sync::Arc;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{Asked, Opening};
use crate::{
    error::{Error, ErrorKind, Result},
    guest::Guest,
    id::{BoxId, BoxName, OperationId, ThreadId},
    journal::{Context, Ended, Halt, Journal, JournalBuilder},
    record::{BoxRecord, BoxState},
    records,
    world::World,
};

pub(super) const KIND: &str = "rename";

/// What is to change about whose a box is: the rest stays as it is when its turn comes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// Its name.
    Name(BoxName),
    /// The thread that has it.
    Thread(Option<ThreadId>),
}

impl Change {
    fn apply(&self, record: &mut BoxRecord) {
        match self {
            Self::Name(name) => record.name = name.clone(),
            Self::Thread(thread) => {
                record.thread.clone_from(thread);
                // What was found about the thread before says nothing about this one.
                record.thread_ended = None;
            }
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Name(name) => format!("to {name}"),
            Self::Thread(Some(thread)) => format!("to thread {thread}"),
            Self::Thread(None) => "to no thread".to_owned(),
        }
    }
}

/// What a rename is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rename {
    #[serde(rename = "box")]
    pub(crate) box_id: BoxId,
    pub(crate) change: Change,
    pub(crate) by: String,
    /// The thread that asked.
    #[serde(default)]
    pub(crate) thread: Option<ThreadId>,
}

/// Begins to rename a box. Until that is settled it has both names.
pub(crate) fn begin(journal: &Journal, world: &World, rename: &Rename, asked: &Asked) -> Result<OperationId> {
    super::begin(journal, Opening::new(KIND, &rename.box_id, asked, rename), |tx, _| {
        let record = super::record_in(tx, &rename.box_id)?;
        if !matches!(record.state, BoxState::Ready | BoxState::Stopped) {
            return Err(Error::new(ErrorKind::Busy, format!("box {} is {}", record.name, record.state))
                .fix("rename it when it is ready or stopped"));
        }
        match &rename.change {
            Change::Name(name) => records::take_name(tx, name, &rename.box_id)?,
            Change::Thread(_) => {}
        }
        world.note(&rename.box_id, "rename-asked", &asked.by, rename.change.words());
        Ok(())
    })
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let world = Arc::clone(world);
    builder.operation(KIND, 1, move |cx, args| rename(cx, Arc::clone(&world), args))
}

async fn rename(cx: Context, world: Arc<World>, args: Rename) -> Result<(), Halt> {
    let id = &args.box_id;
    cx.step("relabel")
        .observable()
        .record(|tx, guest: &Option<Guest>| {
            let before = super::record_in(tx, id)?;
            records::change(tx, id, |r| {
                r.guest = guest.clone().or_else(|| r.guest.take());
                args.change.apply(r);
            })?;
            match &args.change {
                Change::Name(name) if *name != before.name => {
                    records::take_name(tx, name, id)?;
                    records::free_name(tx, id, &before.name)
                }
                _ => Ok(()),
            }
        })
        .run(async |_| {
            let mut record = world.record(id)?;
            super::still_its(args.thread.as_ref(), &record)?;
            args.change.apply(&mut record);
            let backend = world.backend_of(&record)?;
            match (backend.relabel(), &record.guest) {
                (Some(able), Some(guest)) => {
                    able.relabel(guest, &record.owner(&world.install())).await.map(Some)
                }
                // Where the provider cannot record it, the record alone has it.
                _ => Ok(None),
            }
        })
        .await?;
    if matches!(args.change, Change::Thread(_)) {
        // What another thread has open in the box ends here.
        world.runners.close(id);
    }
    world.note(id, "renamed", &args.by, args.change.words());
    Ok(())
}

/// A rename that failed frees the name it had taken.
pub(super) fn ended(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    let args: Rename = super::args(ended)?;
    if ended.error.is_none() {
        return Ok(());
    }
    if let (Change::Name(name), Some(record)) = (&args.change, records::get(tx, &args.box_id)?)
        && record.name != *name
    {
        records::free_name(tx, &args.box_id, name)?;
    }
    let words = super::trouble(ended).unwrap_or_else(|| "taken back".to_owned());
    world.note(&args.box_id, "rename-failed", "by bb-box", words);
    Ok(())
}
