//! Asking boxes that did not answer again: after 1 minute, 5 minutes, then every 15 minutes.
//!
//! It runs one command with a ten-second limit and never asks a backend.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use jiff::Timestamp;

use crate::{
    record::{BoxRecord, BoxState, Unanswered},
    records,
    world::World,
};

/// How long a box has to answer.
const LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked whether a box is due.
const LOOK: Duration = Duration::from_secs(10);
/// How many boxes are asked at a time.
const AT_A_TIME: usize = 16;

/// When a box that did not answer is asked again, after `tries` times.
pub(crate) fn due(tries: u32) -> Duration {
    Duration::from_secs(match tries {
        0 => 60,
        1 => 300,
        _ => 900,
    })
}

/// Keeps asking boxes that do not answer until it is dropped.
pub(crate) async fn keep_asking(world: Arc<World>) {
    loop {
        ask(&world).await;
        world.env.sleep(LOOK).await;
    }
}

/// Asks each box that is due.
pub(super) async fn ask(world: &Arc<World>) {
    let now = world.env.now();
    let records = match world.store.read(records::all) {
        Ok(records) => records,
        Err(error) => {
            return tracing::warn!(error = error.chain(), "boxes that do not answer were not asked");
        }
    };
    let due = records.into_iter().filter(|r| is_due(r.unanswered.as_ref(), r.state, now));
    stream::iter(due.collect::<Vec<_>>())
        .for_each_concurrent(AT_A_TIME, |record| ask_one(world, record))
        .await;
}

async fn ask_one(world: &Arc<World>, record: BoxRecord) {
    let words = match world.answers_within(&record, LIMIT).await {
        Ok(()) => None,
        Err(error) => Some(error.chain()),
    };
    let now = world.env.now();
    let written = world.store.write(|tx| {
        records::change(tx, &record.id, |r| match (&words, &mut r.unanswered) {
            (None, _) => r.answered(),
            (Some(words), Some(unanswered)) => {
                unanswered.tries += 1;
                unanswered.next = now + due(unanswered.tries);
                unanswered.words.clone_from(words);
            }
            (Some(_), None) => {}
        })
    });
    match (written, words) {
        (Err(error), _) => {
            tracing::warn!(box_id = %record.id, error = error.chain(), "an answer was not recorded")
        }
        (Ok(Some(_)), None) => world.note(&record.id, "answers-again", "by bb-box", ""),
        // A log that ended with the box gets no line after that.
        (Ok(None), _) | (Ok(_), Some(_)) => {}
    }
}

fn is_due(unanswered: Option<&Unanswered>, state: BoxState, now: Timestamp) -> bool {
    // A time that lies further ahead than any pause was written by a clock that has been set back since.
    let due_at = |u: &Unanswered| now >= u.next || u.next > now + due(u.tries);
    state == BoxState::Ready && unanswered.is_some_and(due_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_is_asked_after_one_five_and_then_every_fifteen_minutes() {
        let minutes: Vec<_> = (0..5).map(|n| due(n).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 5, 15, 15, 15]);
    }
}
