//! What a sweep does about guests that the records do not know: give a guest its record back, or release it.
//!
//! Both take the box's turn in the journal and look again then, so that nothing is done on a listing that has
//! become old.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Asked, Opening, release};
use crate::{
    error::Result,
    guest::{Guest, Owner, Power},
    id::{BackendId, OperationId},
    journal::{Context, Halt, Journal, JournalBuilder},
    kind::Capabilities,
    record::{BoxRecord, BoxState},
    records,
    world::World,
};

const ADOPT: &str = "adopt";
const STRAY: &str = "release-stray";

/// A guest whose record was lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Adopt {
    pub(crate) backend: BackendId,
    pub(crate) owner: Owner,
    pub(crate) guest: Guest,
    pub(crate) capabilities: Option<Capabilities>,
}

/// A guest that no record wants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stray {
    pub(crate) backend: BackendId,
    pub(crate) guest: Guest,
    pub(crate) why: String,
}

/// Begins to write the record of a guest anew.
pub(crate) fn begin_adopt(journal: &Journal, adopt: &Adopt, asked: &Asked) -> Result<OperationId> {
    let opening = Opening::new(ADOPT, &adopt.owner.box_id, asked, adopt);
    super::begin(journal, opening, |_, _| Ok(()))
}

/// Begins to release a guest that is not its box's.
pub(crate) fn begin_stray(journal: &Journal, stray: &Stray, asked: &Asked) -> Result<OperationId> {
    let opening = Opening::new(STRAY, &stray.guest.box_id, asked, stray);
    super::begin(journal, opening, |_, _| Ok(()))
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let (adopting, releasing) = (Arc::clone(world), Arc::clone(world));
    builder.operation(ADOPT, 1, move |cx, args| adopt(cx, Arc::clone(&adopting), args)).operation(
        STRAY,
        1,
        move |cx, args| release_stray(cx, Arc::clone(&releasing), args),
    )
}

async fn adopt(cx: Context, world: Arc<World>, args: Adopt) -> Result<(), Halt> {
    let id = &args.owner.box_id;
    let made = cx
        .decide(
            "adopt",
            async |_| world.registry().backend(&args.backend)?.power(&args.guest).await,
            |tx, power| {
                let state = match power {
                    None | Some(Power::Unknown) => return Ok(false),
                    Some(Power::Running) => BoxState::Ready,
                    Some(Power::Stopped) => BoxState::Stopped,
                };
                if records::get(tx, id)?.is_some() {
                    return Ok(false);
                }
                let mut record = BoxRecord {
                    id: id.clone(),
                    name: args.owner.name.clone(),
                    thread: args.owner.thread.clone(),
                    kind: args.owner.kind.clone(),
                    features: Default::default(),
                    size: args.guest.size,
                    resize_to: None,
                    state,
                    backend: Some(args.backend.clone()),
                    host: args.guest.host.clone(),
                    guest: Some(args.guest.clone()),
                    capabilities: args.capabilities.clone(),
                    made: world.env.now(),
                    ready_by: None,
                    timings: Vec::new(),
                    trouble: None,
                    started_again: None,
                    thread_ended: None,
                    unanswered: None,
                };
                if records::name_taken(tx, &record.name)? {
                    record.name = world.spare_name(tx, &record.kind)?;
                }
                records::take_name(tx, &record.name, id)?;
                records::put(tx, &record)?;
                Ok(true)
            },
        )
        .await?;
    if made {
        world.note(id, "restored", "by bb-box", "its record was lost and is rebuilt from its guest");
    }
    Ok(())
}

async fn release_stray(cx: Context, world: Arc<World>, args: Stray) -> Result<(), Halt> {
    let id = &args.guest.box_id;
    let wanted = cx
        .look("wanted")
        .run(async |_| {
            let record = world.find(id)?;
            let mine = record.is_some_and(|r| r.guest.is_some_and(|g| g.reference == args.guest.reference));
            Ok(mine || world.registry().backend(&args.backend)?.power(&args.guest).await?.is_none())
        })
        .await?;
    if wanted {
        return Ok(());
    }
    cx.step("release")
        .run(async |_| {
            world.registry().backend(&args.backend)?.release(&args.guest, &release::Quiet).await.map(drop)
        })
        .await?;
    world.note(id, "stray-released", "by bb-box", args.why);
    Ok(())
}
