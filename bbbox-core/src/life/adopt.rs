//! What a sweep does about guests that the records do not know: give a guest its record back, or release it.
//!
//! Both take the box's turn in the journal and look again then, so that nothing is done on a listing that has
//! become old.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Asked, Opening, release};
use crate::{
    error::Result,
    guest::{Guest, Owner, Power},
    id::{BackendId, OperationId},
    journal::{Context, Halt, Journal, JournalBuilder},
    kind::Capabilities,
    record::{Beginning, BoxRecord, BoxState, Unanswered},
    records,
    world::World,
};

/// How long a box whose record was restored has to answer before it is asked again by itself.
const PATIENCE: Duration = Duration::from_secs(10);

const ADOPT: &str = "adopt";
const STRAY: &str = "release-stray";

/// A guest whose record was lost.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Adopt {
    pub(crate) backend: BackendId,
    pub(crate) owner: Owner,
    pub(crate) guest: Guest,
    /// What its kind is offered with.
    pub(crate) offered: Capabilities,
    /// When its thread was found ended: the next sweep decides then, as for any box.
    pub(crate) thread_ended: Option<Timestamp>,
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
    let opening = Opening::new(ADOPT, &adopt.owner.box_id, asked, adopt).over_unknown();
    super::begin(journal, opening, |_, _| Ok(()))
}

/// Begins to release a guest that is not its box's.
pub(crate) fn begin_stray(journal: &Journal, stray: &Stray, asked: &Asked) -> Result<OperationId> {
    let opening = Opening::new(STRAY, &stray.guest.box_id, asked, stray).over_unknown();
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
            async |_| {
                let backend = world.registry().backend(&args.backend)?;
                let power = backend.power(&args.guest).await?;
                let as_offered = match power {
                    Some(_) => backend.as_offered(&args.guest).await?,
                    None => None,
                };
                Ok((power, as_offered))
            },
            |tx, (power, as_offered)| {
                let state = match power {
                    None | Some(Power::Unknown) => return Ok(false),
                    Some(Power::Running | Power::Paused) => BoxState::Ready,
                    Some(Power::Stopped) => BoxState::Stopped,
                };
                if records::get(tx, id)?.is_some() {
                    return Ok(false);
                }
                let mut record = BoxRecord::new(Beginning {
                    id: id.clone(),
                    name: args.owner.name.clone(),
                    thread: args.owner.thread.clone(),
                    kind: args.owner.kind.clone(),
                    size: args.guest.size,
                    // A record that comes back is not a new box.
                    made: args.guest.made().unwrap_or_else(|| world.env.now()),
                });
                record.state = state;
                record.backend = Some(args.backend.clone());
                record.host.clone_from(&args.guest.host);
                record.guest = Some(args.guest.clone());
                record.features.clone_from(&args.owner.features);
                record.capabilities = Some(match as_offered {
                    Some(true) => args.offered.clone(),
                    Some(false) | None => args.offered.at_least(&args.owner.features),
                });
                if state == BoxState::Ready {
                    // Its provider says that it runs; that its commands answer is for the box to say.
                    record.unanswered = Some(unasked(&world));
                }
                record.thread_ended = args.thread_ended;
                if records::name_taken(tx, &record.name)? {
                    record.name = world.spare_name(tx, &record.kind)?;
                }
                records::take_name(tx, &record.name, id)?;
                records::put(tx, &record)?;
                Ok(true)
            },
        )
        .await?;
    if !made {
        return Ok(());
    }
    world.note(id, "restored", "by bb-box", "its record was lost and is rebuilt from its guest");
    let silent: Option<String> = cx
        .look("answers")
        .run(async |_| {
            let record = world.record(id)?;
            if record.state != BoxState::Ready {
                return Ok(None);
            }
            let answer = world.answers_within(&record, PATIENCE).await;
            Ok(answer.err().map(|error| error.chain()))
        })
        .await?;
    cx.write("heard", |tx| {
        records::change(tx, id, |r| match (silent, &mut r.unanswered) {
            (None, _) => r.answered(),
            (Some(words), Some(unanswered)) => unanswered.words = words,
            (Some(_), None) => {}
        })
        .map(drop)
    })
    .await
}

/// A box that was not asked yet whether it answers, and is due.
fn unasked(world: &World) -> Unanswered {
    let now = world.env.now();
    Unanswered { since: now, tries: 0, next: now, words: "it was not asked yet".to_owned() }
}

async fn release_stray(cx: Context, world: Arc<World>, args: Stray) -> Result<(), Halt> {
    let id = &args.guest.box_id;
    let wanted = cx
        .look("wanted")
        .run(async |_| {
            // A reference means something only at its backend.
            let is_its = |r: &BoxRecord| {
                r.state != BoxState::Gone
                    && r.backend.as_ref() == Some(&args.backend)
                    && r.guest.as_ref().is_some_and(|guest| guest.reference == args.guest.reference)
            };
            let mine = world.find(id)?.is_some_and(|record| is_its(&record));
            Ok(mine || world.registry().backend(&args.backend)?.power(&args.guest).await?.is_none())
        })
        .await?;
    if wanted {
        return Ok(());
    }
    // Whether it is gone can be asked at any time, so a lost answer leaves nothing unknown.
    cx.step("release")
        .observable()
        .run(async |_| {
            world.registry().backend(&args.backend)?.release(&args.guest, &release::Quiet).await.map(drop)
        })
        .await?;
    world.note(id, "stray-released", "by bb-box", args.why);
    Ok(())
}
