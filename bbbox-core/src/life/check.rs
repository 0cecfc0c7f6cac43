//! Check: read how a box's guest really is, and make the record say so.
//!
//! It settles what an operation left unknown, and it is what *check now* does.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Asked, Opening};
use crate::{
    error::{Error, Result},
    guest::{Power, StopCause},
    id::{BoxId, OperationId},
    journal::{Context, Halt, Journal, JournalBuilder},
    record::{BoxRecord, BoxState},
    records,
    size::Size,
    world::World,
};

pub(crate) const KIND: &str = "check";

/// What a check is given.
#[derive(Debug, Serialize, Deserialize)]
struct Check {
    #[serde(rename = "box")]
    box_id: BoxId,
    /// Whether its size is in doubt too.
    #[serde(default)]
    size: bool,
}

/// What a check saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    power: Option<Power>,
    cause: Option<StopCause>,
    /// Its size as its backend counts it, where that was in doubt.
    size: Option<Size>,
}

/// Begins to check `box_id`. `size`: its guest was seen at another size than the record knows of.
pub(crate) fn begin(
    journal: &Journal,
    world: &World,
    box_id: &BoxId,
    asked: &Asked,
    size: bool,
) -> Result<OperationId> {
    world.record(box_id)?;
    let args = Check { box_id: box_id.clone(), size };
    let opening = Opening::new(KIND, box_id, asked, &args).over_unknown();
    super::begin(journal, opening, |_, _| Ok(()))
}

pub(super) fn register(builder: JournalBuilder, world: &Arc<World>) -> JournalBuilder {
    let world = Arc::clone(world);
    builder.operation(KIND, 1, move |cx, args| check(cx, Arc::clone(&world), args))
}

async fn check(cx: Context, world: Arc<World>, args: Check) -> Result<(), Halt> {
    let id = &args.box_id;
    let event = cx
        .decide(
            "look",
            async |_| {
                let Some(record) = world.find(id)? else { return Ok(None) };
                let Some(guest) = &record.guest else { return Ok(None) };
                let backend = world.backend_of(&record)?;
                let power = backend.power(guest).await;
                #[cfg(feature = "simulation")]
                let power = match power {
                    Err(_) if crate::simulation::is(crate::simulation::Bug::SilenceIsGone) => Ok(None),
                    power => power,
                };
                let power = power?;
                // Nothing is settled by that: what was unknown stays so.
                if power == Some(Power::Unknown) {
                    let words = format!("its provider does not say now whether box {} runs", record.name);
                    return Err(Error::failed(words).fix("check it again in a moment"));
                }
                if power == Some(Power::Paused) {
                    return Err(Error::refused(format!("box {} is paused at its provider", record.name))
                        .fix("have it go on there, then check it again"));
                }
                let cause = match (power, backend.switch()) {
                    (Some(Power::Stopped), Some(switch)) if record.state == BoxState::Ready => {
                        switch.stopped(guest).await?
                    }
                    _ => None,
                };
                let size = if args.size || record.resize_to.is_some() {
                    let capacity = backend.capacity(&record.kind, &world.install()).await?;
                    capacity.counted(id).map(|counted| counted.size)
                } else {
                    None
                };
                world.note_checked(id);
                Ok(Some(Seen { power, cause, size }))
            },
            |tx, seen| {
                let (Some(record), Some(seen)) = (records::get(tx, id)?, seen) else { return Ok(None) };
                let resized = seen.size.filter(|size| is_other(&record, size));
                if let Some(size) = resized {
                    records::change(tx, id, |r| take_size(r, size))?;
                }
                let Some((state, event, words)) = verdict(&record, &seen) else {
                    let settled = matches!(
                        (record.state, seen.power),
                        (BoxState::Ready, Some(Power::Running)) | (BoxState::Stopped, Some(Power::Stopped))
                    );
                    if settled
                        && record.trouble.as_ref().is_some_and(|words| words.contains(super::NOT_KNOWN))
                    {
                        // How it is was asked, and is as the record says.
                        records::change(tx, id, |r| {
                            ["start", "stop"].iter().for_each(|kind| r.mended(kind))
                        })?;
                    }
                    return Ok(
                        resized.map(|size| ("seen-resized".to_owned(), format!("its guest has {size}")))
                    );
                };
                records::change(tx, id, |r| {
                    r.settle(state);
                    r.stopped_by = seen.cause.filter(|_| event == "stopped-by-itself");
                    r.trouble = matches!(event, "gone" | "stopped-by-itself").then(|| words.clone());
                })?;
                Ok(Some((event.to_owned(), words)))
            },
        )
        .await?;
    if let Some((event, words)) = event {
        let event = EVENTS.iter().find(|e| **e == event).copied().unwrap_or("seen");
        world.note(id, event, "by bb-box", words);
    }
    Ok(())
}

const EVENTS: &[&str] = &["gone", "stopped-by-itself", "seen-stopped", "seen-running", "seen-resized"];

/// Whether the guest has another size than the record says, or it was not known which.
fn is_other(record: &BoxRecord, size: &Size) -> bool {
    let known = record.guest.as_ref().map_or(record.size, |guest| guest.size);
    record.resize_to.is_some() || (size.cores, size.memory_mib) != (known.cores, known.memory_mib)
}

/// The record says what the guest has; a disk that the backend does not count stays as it was.
fn take_size(record: &mut BoxRecord, size: Size) {
    record.size = size.or_disk_of(&record.size);
    record.resize_to = None;
    record.mended("resize");
    if let Some(guest) = &mut record.guest {
        guest.size = record.size;
    }
}

/// What the record should say instead, with the event and the words for it; `None` when it is right.
fn verdict(record: &BoxRecord, seen: &Seen) -> Option<(BoxState, &'static str, String)> {
    match (record.state, seen.power) {
        // What is gone stays gone, and what is being given back is the release's to settle.
        (BoxState::Gone | BoxState::Releasing | BoxState::Requested, _)
        | (_, Some(Power::Unknown | Power::Paused)) => None,
        (_, None) => Some((BoxState::Gone, "gone", "its guest was deleted outside bb-box".to_owned())),
        (BoxState::Ready, Some(Power::Stopped)) => {
            let words = seen.cause.as_ref().map_or("it stopped by itself", |c| c.words.as_str());
            Some((BoxState::Stopped, "stopped-by-itself", words.to_owned()))
        }
        (BoxState::Ready, Some(Power::Running)) | (BoxState::Stopped, Some(Power::Stopped)) => None,
        (_, Some(Power::Running)) => Some((BoxState::Ready, "seen-running", "its guest runs".to_owned())),
        (_, Some(Power::Stopped)) => {
            Some((BoxState::Stopped, "seen-stopped", "its guest is stopped".to_owned()))
        }
    }
}
