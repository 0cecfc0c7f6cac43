//! Acquire: choose where a box goes, make its guest, wait until its commands answer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use super::{Asked, Opening, ready, release};
use crate::{
    backend::{AcquireHooks, Earlier, Order},
    error::{Error, ErrorKind, Result},
    guest::Guest,
    id::{BoxId, OperationId},
    journal::{Attempt, Context, Ended, Halt, Journal, JournalBuilder, State},
    record::{BoxRecord, BoxState},
    records,
    registry::{Ask, PassedOver, Placement, Registry},
    world::{InTime, World},
};

pub(super) const KIND: &str = "acquire";

/// What an acquire is given.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Acquire {
    #[serde(rename = "box")]
    pub(crate) box_id: BoxId,
    pub(crate) ask: Ask,
    pub(crate) by: String,
}

/// The acquire that the same request began before, if it did.
pub(crate) fn begun(
    journal: &Journal,
    asked: &Asked,
    same: &serde_json::Value,
) -> Result<Option<OperationId>> {
    match &asked.request {
        Some(request) => journal.begun(request, KIND, same),
        None => Ok(None),
    }
}

/// Writes `record` and begins to make its box.
pub(crate) fn begin(
    journal: &Journal,
    world: &World,
    acquire: &Acquire,
    record: &BoxRecord,
    asked: &Asked,
    same: serde_json::Value,
) -> Result<OperationId> {
    let opening = Opening { same: Some(same), ..Opening::new(KIND, &acquire.box_id, asked, acquire) };
    super::begin(journal, opening, |tx, _| {
        records::take_name(tx, &record.name, &record.id)?;
        records::put(tx, record)?;
        world.note(&record.id, "acquire-asked", &asked.by, format!("{}, {}", record.kind, record.size));
        Ok(())
    })
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let (run, undo) = (Arc::clone(world), Arc::clone(world));
    builder.operation(KIND, 1, move |cx, args| acquire(cx, Arc::clone(&run), args)).undo(
        "release-guest",
        move |_, box_id: BoxId| {
            let world = Arc::clone(&undo);
            async move { release_guest(&world, &box_id).await }
        },
    )
}

async fn acquire(cx: Context, world: Arc<World>, args: Acquire) -> Result<(), Halt> {
    let mut passed_over: Vec<PassedOver> = Vec::new();
    let placement = loop {
        let placement = place(&cx, &world, &args, &passed_over).await?;
        match make(&cx, &world, &args, &placement).await {
            Err(halt) if halt.error().is_some_and(|e| e.kind() == ErrorKind::NoCapacity) => {
                let full = halt.error().map(Error::chain).unwrap_or_default();
                cx.step("unmake")
                    .undo("release-guest", &args.box_id)
                    .run(async |_| {
                        #[cfg(feature = "simulation")]
                        if crate::simulation::is(crate::simulation::Bug::NothingUnmade) {
                            return Ok(());
                        }
                        release_guest(&world, &args.box_id).await
                    })
                    .await?;
                passed_over.push(PassedOver {
                    backend: placement.backend,
                    host: placement.host,
                    words: full,
                });
            }
            other => {
                other?;
                break placement;
            }
        }
    };
    cx.look("ready")
        .run(async |at| {
            let by = world.deadline(&args.box_id, placement.ready_timeout);
            ready::wait(&world, &args.box_id, &at, by).await
        })
        .await?;
    cx.write("publish", |tx| {
        records::change(tx, &args.box_id, |r| {
            r.state = BoxState::Ready;
            r.trouble = None;
        })
        .map(drop)
    })
    .await?;
    world.note(&args.box_id, "ready", &args.by, "commands answer");
    Ok(())
}

/// Chooses the backend and host, and reserves the room in the same transaction.
async fn place(
    cx: &Context,
    world: &World,
    args: &Acquire,
    passed_over: &[PassedOver],
) -> Result<Placement, Halt> {
    // A refusal is a decision too: whoever asked hears at once that nothing has room or answers.
    let placed: Result<Placement> = cx
        .decide(
            "place",
            async |at| {
                let (registry, install, cancel) = (world.registry(), world.install(), at.cancel_token());
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => Err(Error::cancelled("the acquire was taken back")),
                    survey = registry.survey(&args.ask, &install, &*world.env) => Ok(survey),
                }
            },
            |tx, survey| {
                let chosen = survey.and_then(|survey| {
                    Registry::choose(tx, &args.box_id, args.ask.size, survey, passed_over)
                });
                let placement = match chosen {
                    Ok(placement) => placement,
                    Err(refused) => return Ok(Err(refused)),
                };
                world.give_time(&args.box_id, placement.ready_timeout);
                records::change(tx, &args.box_id, |r| {
                    r.state = BoxState::Acquiring;
                    r.backend = Some(placement.backend.clone());
                    r.host.clone_from(&placement.host);
                    r.capabilities = Some(placement.capabilities.clone());
                    r.passed_over.clone_from(&placement.passed_over);
                    r.guest = None;
                })?;
                Ok(Ok(placement))
            },
        )
        .await?;
    Ok(placed?)
}

/// Has the backend make the guest.
async fn make(cx: &Context, world: &Arc<World>, args: &Acquire, placement: &Placement) -> Result<(), Halt> {
    cx.progress(&format!("making it on {}", placement.backend), None);
    cx.step("make")
        .undo("release-guest", &args.box_id)
        .record(|tx, guest: &Guest| {
            records::change(tx, &args.box_id, |r| {
                // A guest that was found may be larger or smaller than what was asked for.
                r.size = guest.size.or_disk_of(&r.size);
                r.guest = Some(guest.clone());
                r.state = BoxState::Starting;
            })
            .map(drop)
        })
        .run(async |at| {
            let record = world.record(&args.box_id)?;
            let backend = world.backend_of(&record)?;
            // Its own, so that running out of time does not cancel the operation.
            let cancel = at.cancel_token().child_token();
            let order = Order {
                owner: record.owner(&world.install()),
                size: record.size,
                host: placement.host.clone(),
                earlier: Earlier { guest: record.guest.clone(), task: at.task.clone(), tries: at.tries },
                cancel: cancel.clone(),
            };
            let hooks = Hooks { world: Arc::clone(world), at: at.clone(), box_id: args.box_id.clone() };
            let deadline = world.deadline(&args.box_id, placement.ready_timeout);
            match world.until(deadline, &cancel, backend.acquire(&order, &hooks)).await {
                InTime::Done(made) => made,
                InTime::Late(last) => {
                    let error = ready::too_slow(world, &args.box_id, "it was being made");
                    Err(match last {
                        Some(words) if words.kind() != ErrorKind::Cancelled => error.because(words),
                        _ => error,
                    })
                }
            }
        })
        .await
        .map(drop)
}

/// Releases what an acquire claimed, if it claimed anything.
pub(super) async fn release_guest(world: &World, box_id: &BoxId) -> Result<()> {
    let Some(record) = world.find(box_id)? else { return Ok(()) };
    let Some(guest) = &record.guest else { return Ok(()) };
    #[cfg(feature = "simulation")]
    if crate::simulation::is(crate::simulation::Bug::NothingUndone) {
        return Ok(());
    }
    world.runners.forget(box_id);
    world.backend_of(&record)?.release(guest, &release::Quiet).await.map(drop)
}

/// The hooks that a backend is given: they write to the box's record.
struct Hooks {
    world: Arc<World>,
    at: Attempt,
    box_id: BoxId,
}

#[async_trait]
impl AcquireHooks for Hooks {
    async fn claim(&self, guest: &Guest) -> Result<()> {
        let changed =
            self.at.write(|tx| records::change(tx, &self.box_id, |r| r.guest = Some(guest.clone()))).await?;
        // Without a record nobody would ever release what is made now.
        changed.map(drop).ok_or_else(|| crate::world::no_such_box(self.box_id.as_str()))
    }

    async fn task(&self, reference: &str) -> Result<()> {
        self.at.save_task(reference).await
    }

    fn timing(&self, step: &str, took: Duration) {
        ready::note_timing(&self.world, &self.box_id, step, took);
    }

    fn progress(&self, text: &str, fraction: Option<f64>) {
        self.at.progress(text, fraction);
    }
}

/// A box that was not made leaves no record, unless what was claimed could not be taken back.
pub(super) fn ended(world: &World, tx: &Connection, ended: &Ended) -> Result<()> {
    let args: Acquire = super::args(ended)?;
    world.drop_deadline(&args.box_id);
    let why = super::trouble(ended).unwrap_or_default();
    match ended.state {
        State::Failed | State::Cancelled => {
            records::delete(tx, &args.box_id)?;
            let words = if ended.state == State::Cancelled { "taken back".to_owned() } else { why };
            world.note(&args.box_id, "acquire-failed", "by bb-box", words);
        }
        State::Unknown => {
            // The sweep releases it: nobody waits for this box any more.
            records::change(tx, &args.box_id, |r| {
                r.state = BoxState::Releasing;
                r.trouble = Some(why.clone());
            })?;
            world.note(&args.box_id, "acquire-failed", "by bb-box", why);
        }
        _ => {}
    }
    Ok(())
}
