//! Forget: drop the record of a box whose backend is no longer configured. Nothing is deleted anywhere.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Asked, Opening};
use crate::{
    error::{Error, Result},
    id::{BoxId, OperationId},
    journal::{Context, Halt, Journal, JournalBuilder},
    record::BoxRecord,
    records,
    world::World,
};

pub(super) const KIND: &str = "forget";

/// What a forget is given.
#[derive(Debug, Serialize, Deserialize)]
struct Forget {
    #[serde(rename = "box")]
    box_id: BoxId,
    by: String,
}

/// Begins to forget `box_id`.
pub(crate) fn begin(journal: &Journal, world: &World, box_id: &BoxId, asked: &Asked) -> Result<OperationId> {
    forgettable(world, &world.record(box_id)?)?;
    for operation in journal.live(box_id)? {
        journal.cancel(&operation.id)?;
    }
    let args = Forget { box_id: box_id.clone(), by: asked.by.clone() };
    super::begin(journal, Opening::new(KIND, box_id, asked, &args).over_unknown(), |_, _| Ok(()))
}

/// A box whose backend could give its guest back is released instead.
fn forgettable(world: &World, record: &BoxRecord) -> Result<()> {
    let backend = record.backend.as_ref().filter(|backend| world.registry().is_configured(backend));
    match (backend, &record.backend) {
        (Some(backend), _) => {
            Err(Error::refused(format!("box {} is on {backend}, which is configured", record.name))
                .fix(format!("release it: `bbbox release {}`", record.name)))
        }
        (None, None) => Err(Error::refused(format!("box {} is just being made", record.name))
            .fix(format!("release it: `bbbox release {}`", record.name))),
        (None, Some(_)) => Ok(()),
    }
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let world = Arc::clone(world);
    builder.operation(KIND, 1, move |cx, args| forget(cx, Arc::clone(&world), args))
}

async fn forget(cx: Context, world: Arc<World>, args: Forget) -> Result<(), Halt> {
    let id = &args.box_id;
    let dropped = cx
        .write("forget", |tx| {
            let Some(record) = records::get(tx, id)? else { return Ok(false) };
            forgettable(&world, &record)?;
            records::delete(tx, id).map(|()| true)
        })
        .await?;
    if dropped {
        world.runners.forget(id);
        world.note(id, "forgotten", &args.by, "its record was dropped; nothing was deleted");
    }
    Ok(())
}
