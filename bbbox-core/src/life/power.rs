//! Start and stop. Stopping keeps the disk and frees memory; it never happens by itself.

use std::{sync::Arc, time::Duration};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{Asked, Opening, ready};
use crate::{
    capacity::Holding,
    error::{Effect, Error, ErrorKind, Result},
    guest::Power,
    id::{BoxId, OperationId, ThreadId},
    journal::{Context, Ended, Halt, Journal, JournalBuilder},
    reach::{gone, says_gone},
    record::{BoxRecord, BoxState, Unanswered},
    records, registry,
    sweep::{self, may_start_again},
    world::World,
};

pub(super) const START: &str = "start";
pub(super) const STOP: &str = "stop";

/// How long a started box may take until its commands answer.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// What a start or a stop is given.
#[derive(Debug, Serialize, Deserialize)]
struct Switching {
    #[serde(rename = "box")]
    box_id: BoxId,
    by: String,
    /// The thread that asked.
    #[serde(default)]
    thread: Option<ThreadId>,
    /// Only a box that had stopped by itself.
    #[serde(default)]
    again: bool,
}

/// Begins to start `box_id`. `again`: only if it had stopped by itself and may be started for that.
pub(crate) fn begin_start(
    journal: &Journal,
    world: &World,
    box_id: &BoxId,
    asked: &Asked,
    again: bool,
) -> Result<OperationId> {
    can_switch(world, box_id)?;
    let args =
        Switching { box_id: box_id.clone(), by: asked.by.clone(), thread: asked.thread.clone(), again };
    let now = world.env.now();
    super::begin(journal, Opening::new(START, box_id, asked, &args), |tx, _| {
        let record = open_to_switching(tx, box_id)?;
        if again {
            if !may_start_again(&record, now) {
                return Err(Error::refused(format!(
                    "box {} is not started again by itself now",
                    record.name
                )));
            }
            records::change(tx, box_id, |r| r.started_again = Some(now))?;
        }
        world.note(box_id, "start-asked", &asked.by, "");
        Ok(())
    })
}

/// Begins to stop `box_id`.
pub(crate) fn begin_stop(
    journal: &Journal,
    world: &World,
    box_id: &BoxId,
    asked: &Asked,
) -> Result<OperationId> {
    can_switch(world, box_id)?;
    let args = Switching {
        box_id: box_id.clone(),
        by: asked.by.clone(),
        thread: asked.thread.clone(),
        again: false,
    };
    super::begin(journal, Opening::new(STOP, box_id, asked, &args), |tx, _| {
        open_to_switching(tx, box_id)?;
        world.note(box_id, "stop-asked", &asked.by, "");
        Ok(())
    })
}

fn open_to_switching(tx: &Connection, box_id: &BoxId) -> Result<BoxRecord> {
    let record = super::record_in(tx, box_id)?;
    match record.state {
        BoxState::Gone => Err(gone(&record)),
        BoxState::Releasing => {
            Err(Error::new(ErrorKind::Busy, format!("box {} is being released", record.name))
                .fix("acquire another box"))
        }
        _ => Ok(record),
    }
}

/// Refuses at once where the provider can never do it.
fn can_switch(world: &World, box_id: &BoxId) -> Result<()> {
    let record = world.record(box_id)?;
    let backend = world.backend_of(&record)?;
    if backend.switch().is_some() {
        return Ok(());
    }
    Err(Error::refused(format!("boxes of {} can be neither stopped nor started", backend.id()))
        .fix("release the box when it is not needed any more: `bbbox release BOX`"))
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let (starting, stopping) = (Arc::clone(world), Arc::clone(world));
    builder.operation(START, 1, move |cx, args| start(cx, Arc::clone(&starting), args)).operation(
        STOP,
        1,
        move |cx, args| stop(cx, Arc::clone(&stopping), args),
    )
}

async fn start(cx: Context, world: Arc<World>, args: Switching) -> Result<(), Halt> {
    let id = &args.box_id;
    // A stopped box has no memory of its own: it takes room again in the transaction that finds it.
    cx.decide(
        "room",
        async |_| {
            let record = world.record(id)?;
            world.backend_of(&record)?.capacity(&record.kind, &world.install()).await
        },
        |tx, capacity| {
            let record = super::record_in(tx, id)?;
            super::still_its(args.thread.as_ref(), &record)?;
            // Somebody's stop may have gone before.
            let by_itself = record.stopped_by.as_ref().is_some_and(|cause| !cause.by_guest);
            if args.again && !(record.state == BoxState::Stopped && by_itself) {
                return Err(Error::cancelled("the box is not to be started again any more"));
            }
            registry::room_to_grow(tx, &record, &capacity, Holding { size: record.size, running: true })?;
            records::change(tx, id, |r| r.turn(BoxState::Starting)).map(drop)
        },
    )
    .await?;
    cx.step("start")
        .observable()
        .record(|tx, ()| {
            records::change(tx, id, |r| {
                r.settle(BoxState::Ready);
                r.stopped_by = None;
                r.trouble = Some("start: its commands do not answer yet".to_owned());
            })
            .map(drop)
        })
        .run(async |_| switch(&world, id, Power::Running).await)
        .await?;
    cx.look("ready")
        .run(async |at| ready::wait(&world, id, &at, world.env.elapsed() + START_TIMEOUT).await)
        .await?;
    cx.write("answers", |tx| {
        records::change(tx, id, |r| {
            r.trouble = None;
            r.unanswered = None;
        })
        .map(drop)
    })
    .await?;
    world.note(id, "started", &args.by, "");
    Ok(())
}

async fn stop(cx: Context, world: Arc<World>, args: Switching) -> Result<(), Halt> {
    let id = &args.box_id;
    cx.write("stopping", |tx| {
        super::still_its(args.thread.as_ref(), &super::record_in(tx, id)?)?;
        records::change(tx, id, |r| r.turn(BoxState::Stopping)).map(drop)
    })
    .await?;
    world.runners.close(id);
    cx.step("stop")
        .observable()
        .record(|tx, ()| {
            records::change(tx, id, |r| {
                r.settle(BoxState::Stopped);
                r.stopped_by = None;
                r.trouble = None;
                r.unanswered = None;
            })
            .map(drop)
        })
        .run(async |_| switch(&world, id, Power::Stopped).await)
        .await?;
    world.note(id, "stopped", &args.by, "");
    Ok(())
}

/// Turns the guest on or off. When the answer is lost, or says that the guest is gone, the guest itself is asked.
async fn switch(world: &World, id: &BoxId, to: Power) -> Result<()> {
    let record = world.record(id)?;
    let backend = world.backend_of(&record)?;
    let (Some(switch), Some(guest)) = (backend.switch(), &record.guest) else {
        return Err(Error::failed(format!(
            "box {} has no guest that could be turned on or off",
            record.name
        )));
    };
    let asked = if to == Power::Running { switch.start(guest).await } else { switch.stop(guest).await };
    let Err(error) = asked else { return Ok(()) };
    #[cfg(feature = "simulation")]
    if crate::simulation::is(crate::simulation::Bug::LostIsDone) && error.effect_of() != Effect::None {
        return Ok(());
    }
    if error.effect_of() == Effect::None && error.kind() != ErrorKind::Gone {
        return Err(error);
    }
    match backend.power(guest).await {
        Ok(Some(power)) if power == to => Ok(()),
        Ok(Some(Power::Unknown)) | Err(_) => Err(error),
        Ok(Some(_)) => Err(error.effect(Effect::None)),
        Ok(None) => Err(gone(&record)),
    }
}

/// Whether a person's turn was refused, or taken back, with nothing done. A start that was tried and failed tells of a
/// box that does not run any more; and of what bb-box began by itself only the record tells.
fn changed_nothing(args: &Switching, ended: &Ended, state: BoxState) -> bool {
    let Some(error) = &ended.error else { return false };
    let runs_or_failed = state == BoxState::Ready || error.kind() == ErrorKind::Failed;
    error.effect_of() == Effect::None && !args.again && !(ended.kind == START && runs_or_failed)
}

/// A turn that did not come to its end gives the box its state back; the sweep looks again.
pub(super) fn ended(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    let args: Switching = super::args(ended)?;
    let Some(error) = &ended.error else { return Ok(()) };
    let words = super::trouble(ended);
    let now = world.env.now();
    records::change(tx, &args.box_id, |r| {
        r.turn_back();
        if says_gone(error) {
            r.settle(BoxState::Gone);
        } else if changed_nothing(&args, ended, r.state) {
            // Whoever asked was told; with the box nothing is wrong that was not before.
            return;
        } else if ended.kind == START && r.state == BoxState::Ready && words.is_some() {
            // It runs and does not answer: it is asked again by itself.
            let words = words.clone().unwrap_or_default();
            r.unanswered = Some(Unanswered { since: now, tries: 0, next: now + sweep::probe_due(0), words });
        }
        r.trouble.clone_from(&words);
    })?;
    let event = if ended.kind == START { "start-failed" } else { "stop-failed" };
    world.note(&args.box_id, event, "by bb-box", words.unwrap_or_else(|| "taken back".to_owned()));
    Ok(())
}
