//! Forget: drop the record of a box whose backend is no longer configured. Nothing is deleted anywhere.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Asked, Opening};
use crate::{
    error::{Error, Result},
    id::{BoxId, OperationId},
    journal::{Context, Journal, JournalBuilder},
    records,
    world::World,
};

pub(super) const KIND: &str = "forget";

/// What a forget is given.
#[derive(Debug, Serialize, Deserialize)]
struct Forget {
    #[serde(rename = "box")]
    box_id: BoxId,
}

/// Begins to forget `box_id`.
pub(crate) fn begin(journal: &Journal, world: &World, box_id: &BoxId, asked: &Asked) -> Result<OperationId> {
    let record = world.record(box_id)?;
    if let Some(backend) = &record.backend
        && world.registry().is_configured(backend)
    {
        return Err(Error::refused(format!("box {} is on {backend}, which is configured", record.name))
            .fix(format!("release it: `bbbox release {}`", record.name)));
    }
    for operation in journal.live(box_id)? {
        journal.cancel(&operation.id)?;
    }
    let args = Forget { box_id: box_id.clone() };
    let opening = Opening::new(KIND, box_id, asked, &args).over_unknown();
    let id = super::begin(journal, opening, |_, _| Ok(()))?;
    world.note(box_id, "forgotten", &asked.by, "its record was dropped; nothing was deleted");
    Ok(id)
}

pub(super) fn register(builder: JournalBuilder, _world: &Arc<World>) -> JournalBuilder {
    builder.operation(KIND, 1, |cx: Context, args: Forget| async move {
        cx.write("forget", |tx| records::delete(tx, &args.box_id)).await
    })
}
