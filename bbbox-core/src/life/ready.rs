//! Waiting until a box's commands answer, within its time.

use std::{sync::Arc, time::Duration};

use crate::{
    error::{Effect, Error, ErrorKind, Result},
    id::BoxId,
    journal::Attempt,
    record::{BoxState, Timing},
    records,
    run::needs_sh,
    world::World,
};

/// Waits until the box's commands answer, at the latest until `by`, as [`Env::elapsed`](crate::env::Env::elapsed) counts.
///
/// Starting the box's runner is the question, so the first command costs no more than the tenth.
///
/// # Errors
/// `Failed` when its time is over, with the steps that were done and how long they took.
pub(super) async fn wait(world: &Arc<World>, box_id: &BoxId, at: &Attempt, by: Duration) -> Result<()> {
    at.progress("waiting until its commands answer", None);
    let began = world.env.elapsed();
    let record = world.record(box_id)?;
    if let Some(command) = record.capabilities.as_ref().and_then(|can| can.command.as_ref()) {
        // No wait would change it.
        needs_sh(command.shell)?;
    }
    let cancel = at.cancel_token();
    let mut words = "nothing was heard from it".to_owned();
    loop {
        let left = by.saturating_sub(world.env.elapsed());
        // An attempt that hangs is given up: it only looks.
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                return Err(Error::cancelled(format!("box {box_id} was not waited for any longer")));
            }
            answer = world.answers(&record) => answer,
            () = world.env.sleep(left) => {
                return Err(too_slow(world, box_id, &format!("its commands did not answer ({words})")));
            }
        };
        match answer {
            Ok(()) => break,
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Refused) => {
                words = error.chain()
            }
            Err(error) => return Err(error),
        }
        // One that is refused at once never lets the wait above come to its end.
        if world.env.elapsed() >= by {
            return Err(too_slow(world, box_id, &format!("its commands did not answer ({words})")));
        }
        world.env.sleep(Duration::from_millis(100)).await;
    }
    if record.state == BoxState::Starting || record.state == BoxState::Acquiring {
        let took = world.env.elapsed().saturating_sub(began);
        note_timing(world, box_id, "answer", took);
    }
    Ok(())
}

/// The error of a box that was not ready in time: the step it was at, and what the others took.
pub(super) fn too_slow(world: &World, box_id: &BoxId, at: &str) -> Error {
    let timings = world.find(box_id).ok().flatten().map(|r| r.timings).unwrap_or_default();
    let timings: Vec<_> = timings.iter().map(|t| format!("{} {} ms", t.step, t.ms)).collect();
    let so_far = if timings.is_empty() { "none".to_owned() } else { timings.join(", ") };
    Error::failed(format!("box {box_id} was not ready within its time: {at}; steps done: {so_far}"))
        .effect(Effect::Unknown)
        .fix("look at the backend's host, or try again")
}

/// Adds how long a step took to the box's record.
pub(super) fn note_timing(world: &World, box_id: &BoxId, step: &str, took: Duration) {
    let timing = Timing { step: step.to_owned(), ms: took.as_millis().try_into().unwrap_or(u64::MAX) };
    let written = world.store.write(|tx| records::change(tx, box_id, |r| r.timings.push(timing)));
    if let Err(error) = written {
        tracing::warn!(%box_id, step, error = error.chain(), "a timing was not recorded");
    }
}
