//! Starting and ending what runs in a guest, from whatever state an earlier try left it in.
//!
//! Who starts or ends a guest holds its lock, or waits until the first process, which holds it from then on, has
//! come up or gone. So there is never a second one.

use std::{fs::File, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    client::{self, Fence, Handle},
    folder::Folder,
    map::{Mode, Record, Stage},
};
use crate::{Error, ErrorKind, Result, backend::Switched};

/// How long another's start or end of the guest is waited for; each takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(25);
const PAUSE: Duration = Duration::from_millis(2);

/// Starts the guest, or waits for the start that another run of this began.
pub(super) async fn start(folder: &Folder, record: &Record) -> Result<Switched> {
    let start = async {
        loop {
            match alive(folder) {
                Some((_, Stage::Ready)) => return Ok(Switched::Already),
                Some((keeper, Stage::Ending)) => keeper.end().await?,
                Some((_, Stage::Setup)) | None => {}
            }
            if let Some(lock) = folder.try_lock()? {
                sweep(record).await?;
                client::launch(folder.path(), &record.owner.name, record.mode, lock).await?;
                return Ok(Switched::Done);
            }
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, start).await.unwrap_or_else(|_| Err(held(record)))
}

/// Ends all that runs in the guest, and returns its lock and whether anything ran.
pub(super) async fn end(folder: &Folder, record: &Record) -> Result<(File, bool)> {
    let end = async {
        let mut ran = false;
        loop {
            if let Some((keeper, _)) = alive(folder) {
                folder.mark_ending()?;
                keeper.end().await?;
                ran = true;
            }
            if let Some(lock) = folder.try_lock()? {
                sweep(record).await?;
                return Ok((lock, ran));
            }
            sleep(PAUSE).await;
        }
    };
    timeout(PATIENCE, end).await.unwrap_or_else(|_| Err(held(record)))
}

/// The guest's first process, if it lives, and how far it is.
pub(super) fn alive(folder: &Folder) -> Option<(Handle, Stage)> {
    folder.keeper().and_then(|keeper| Some((Handle::of(&keeper)?, keeper.stage)))
}

/// Whether the guest is set up and runs.
pub(super) fn is_ready(folder: &Folder) -> bool {
    alive(folder).is_some_and(|(_, stage)| stage == Stage::Ready)
}

/// Ends what no namespace ended.
async fn sweep(record: &Record) -> Result<()> {
    match record.mode {
        Mode::None => Fence::Marker(record.owner.box_id.clone()).end(|_| true).await,
        Mode::Root | Mode::User => Ok(()),
    }
}

fn held(record: &Record) -> Error {
    let words = format!("box {} is held by another process", record.owner.box_id);
    Error::new(ErrorKind::Busy, words).fix("look for a second bb-box that uses the same folder")
}
