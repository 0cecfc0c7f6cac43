//! Start and stop. Stopping keeps the disk and frees memory; it never happens by itself.

use std::{sync::Arc, time::Duration};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{Asked, Opening, ready};
use crate::{
    capacity::{Holding, HostRoom},
    error::{Effect, Error, ErrorKind, Result},
    guest::Power,
    id::{BoxId, OperationId},
    journal::{Context, Ended, Halt, Journal, JournalBuilder},
    record::{BoxRecord, BoxState},
    records,
    world::World,
};

pub(super) const START: &str = "start";
pub(super) const STOP: &str = "stop";

/// How long a started box may take until its commands answer.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// What a start or a stop is given.
#[derive(Debug, Serialize, Deserialize)]
struct Turn {
    #[serde(rename = "box")]
    box_id: BoxId,
    by: String,
    /// Whether bb-box starts it because it stopped by itself.
    #[serde(default)]
    again: bool,
}

/// Begins to start `box_id`. `again`: because it had stopped by itself.
pub(crate) fn begin_start(
    journal: &Journal,
    world: &World,
    box_id: &BoxId,
    asked: &Asked,
    again: bool,
) -> Result<OperationId> {
    can_switch(world, box_id)?;
    let args = Turn { box_id: box_id.clone(), by: asked.by.clone(), again };
    let now = world.env.now();
    let opening = Opening::new(START, box_id, asked, &args);
    let id = super::begin(journal, opening, |tx, _| {
        let record = super::record_in(tx, box_id)?;
        match record.state {
            BoxState::Gone => return Err(gone(&record)),
            BoxState::Releasing => return Err(releasing(&record)),
            _ => {}
        }
        if again {
            records::change(tx, box_id, |r| r.started_again = Some(now))?;
        }
        Ok(())
    })?;
    world.note(box_id, "start-asked", &asked.by, "");
    Ok(id)
}

/// Begins to stop `box_id`.
pub(crate) fn begin_stop(
    journal: &Journal,
    world: &World,
    box_id: &BoxId,
    asked: &Asked,
) -> Result<OperationId> {
    can_switch(world, box_id)?;
    let args = Turn { box_id: box_id.clone(), by: asked.by.clone(), again: false };
    let opening = Opening::new(STOP, box_id, asked, &args);
    let id = super::begin(journal, opening, |tx, _| {
        let record = super::record_in(tx, box_id)?;
        match record.state {
            BoxState::Gone => Err(gone(&record)),
            BoxState::Releasing => Err(releasing(&record)),
            _ => Ok(()),
        }
    })?;
    world.note(box_id, "stop-asked", &asked.by, "");
    Ok(id)
}

/// Refuses at once where the provider can never do it.
fn can_switch(world: &World, box_id: &BoxId) -> Result<()> {
    let record = world.record(box_id)?;
    let backend = world.backend_of(&record)?;
    if backend.switch().is_some() {
        return Ok(());
    }
    Err(Error::refused(format!("boxes of {} can be neither stopped nor started", backend.id()))
        .fix("release the box when it is not needed any more"))
}

fn gone(record: &BoxRecord) -> Error {
    Error::gone(format!("the guest of box {} is gone: it was deleted outside bb-box", record.name))
        .fix(format!("release the box: `bbbox release {}`", record.name))
}

fn releasing(record: &BoxRecord) -> Error {
    Error::new(ErrorKind::Busy, format!("box {} is being released", record.name)).fix("acquire another box")
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let (starting, stopping) = (Arc::clone(world), Arc::clone(world));
    builder.operation(START, 1, move |cx, args| start(cx, Arc::clone(&starting), args)).operation(
        STOP,
        1,
        move |cx, args| stop(cx, Arc::clone(&stopping), args),
    )
}

async fn start(cx: Context, world: Arc<World>, args: Turn) -> Result<(), Halt> {
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
            let Some(backend) = &record.backend else { return Err(crate::world::no_such_box(id.as_str())) };
            let held = records::holdings(tx, backend)?;
            if let Some(room) = capacity.hosts.iter().find(|r| r.host == record.host) {
                let here = held.iter().filter(|(_, host, _)| *host == room.host).map(|(id, _, h)| (id, *h));
                let ask = Holding { size: record.size, running: true };
                // A host that takes no new box still starts those it has.
                let open = HostRoom { closed: None, ..room.clone() };
                open.fits(id, ask, here).map_err(|full| {
                    Error::new(
                        ErrorKind::NoCapacity,
                        format!("there is no room to start box {}", record.name),
                    )
                    .because_of(full)
                    .fix("stop or release another box first")
                })?;
            }
            records::change(tx, id, |r| r.state = BoxState::Starting).map(drop)
        },
    )
    .await?;
    cx.step("start")
        .observable()
        .record(|tx, ()| {
            records::change(tx, id, |r| {
                r.state = BoxState::Ready;
                r.trouble = Some("it was started, and its commands do not answer yet".to_owned());
            })
            .map(drop)
        })
        .run(async |_| turn(&world, id, Power::Running).await)
        .await?;
    cx.look("ready")
        .run(async |at| ready::wait(&world, id, &at, world.env.now() + START_TIMEOUT).await)
        .await?;
    cx.write("publish", |tx| {
        records::change(tx, id, |r| {
            r.state = BoxState::Ready;
            r.trouble = None;
            r.unanswered = None;
        })
        .map(drop)
    })
    .await?;
    world.note(id, "started", &args.by, "");
    Ok(())
}

async fn stop(cx: Context, world: Arc<World>, args: Turn) -> Result<(), Halt> {
    let id = &args.box_id;
    cx.write("stopping", |tx| records::change(tx, id, |r| r.state = BoxState::Stopping).map(drop)).await?;
    world.runners.close(id);
    cx.step("stop").observable().run(async |_| turn(&world, id, Power::Stopped).await).await?;
    cx.write("publish", |tx| {
        records::change(tx, id, |r| {
            r.state = BoxState::Stopped;
            r.trouble = None;
            r.unanswered = None;
        })
        .map(drop)
    })
    .await?;
    world.note(id, "stopped", &args.by, "");
    Ok(())
}

/// Turns the guest on or off. When the answer is lost, the guest itself is asked how it is.
async fn turn(world: &World, id: &BoxId, to: Power) -> Result<()> {
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
    if error.effect_of() == Effect::None {
        return Err(error);
    }
    match backend.power(guest).await {
        Ok(Some(power)) if power == to => Ok(()),
        Ok(Some(Power::Unknown)) | Err(_) => Err(error),
        Ok(Some(_)) => Err(error.effect(Effect::None)),
        Ok(None) => Err(gone(&record)),
    }
}

/// A turn that did not come to its end leaves the box as it was, as far as is known; the sweep looks again.
pub(super) fn ended(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    let args: Turn = super::args(ended)?;
    let Some(error) = &ended.error else { return Ok(()) };
    let words = super::trouble(ended).unwrap_or_default();
    records::change(tx, &args.box_id, |r| {
        r.state = match r.state {
            _ if error.kind() == ErrorKind::Gone => BoxState::Gone,
            BoxState::Starting => BoxState::Stopped,
            BoxState::Stopping => BoxState::Ready,
            other => other,
        };
        r.trouble = Some(words.clone()).filter(|w| !w.is_empty());
    })?;
    let event = if ended.kind == START { "start-failed" } else { "stop-failed" };
    world.note(
        &args.box_id,
        event,
        "by bb-box",
        if words.is_empty() { "taken back".to_owned() } else { words },
    );
    Ok(())
}
