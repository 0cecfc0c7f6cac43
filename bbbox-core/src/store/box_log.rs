//! Each box's history, in a file of its own with a cap.
//!
//! History never stops what it tells of: an event that cannot be written is lost, with one warning, and the
//! caller goes on. Kept are a box's last seven days and its latest event of each kind, and for a day those of a box
//! that is gone: its last event is one of [`ENDS`]. When the file is full the oldest go first, whoever's they are.
//!
//! A failure that is tried over and over, such as a release while its backend is down, is kept once: a `…-failed`
//! with the words of the box's last one of that kind, with nothing between but its own `…-asked` by the same asker,
//! is not added, and that `…-asked` goes.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::{
    connection,
    fault::{self, Holds},
    folder,
};
use crate::{
    error::{Error, Result},
    id::{BoxId, OperationId},
};

pub(super) const FILE: &str = "box-log.db";
/// The database's own pages, of 4 KiB: 7 MiB. What the cap of 8 MiB leaves is for the write-ahead log.
const MOST_PAGES: u32 = 7 * 256;
const KEPT: Duration = Duration::from_hours(7 * 24);
const KEPT_WHEN_GONE: Duration = Duration::from_hours(24);
const TIDY_EVERY: Duration = Duration::from_hours(1);
/// The longest words of one event, in bytes.
pub(super) const LONGEST_WORDS: usize = 2048;

/// The last events of a box that is gone.
const ENDS: [&str; 4] = ["released", "forgotten", "acquire-failed", "stray-released"];

const SHAPE: &str = "
    CREATE TABLE IF NOT EXISTS events(
      seq INTEGER PRIMARY KEY AUTOINCREMENT,
      at INTEGER NOT NULL, box TEXT NOT NULL, kind TEXT NOT NULL, asker TEXT NOT NULL, words TEXT NOT NULL,
      operation TEXT) STRICT;
    CREATE INDEX IF NOT EXISTS events_box ON events(box, seq);";

/// One thing that happened to a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEvent {
    /// When.
    pub at: Timestamp,
    /// The box.
    #[serde(rename = "box")]
    pub box_id: BoxId,
    /// What, as one word such as `acquire-asked`, `ready`, `stopped` or `released`.
    pub kind: String,
    /// Who wanted it, for people.
    pub by: String,
    /// More about it, for people. Never a secret.
    pub words: String,
    /// The operation it belongs to.
    pub operation: Option<OperationId>,
}

/// An event as the log holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Logged {
    /// Its place: later events have higher ones.
    pub seq: i64,
    /// The event.
    #[serde(flatten)]
    pub event: LogEvent,
}

/// The log of all boxes.
pub(crate) struct BoxLog(Mutex<Log>);

struct Log {
    /// Why the file could not be opened, where it could not.
    connection: Result<Connection>,
    path: PathBuf,
    /// Whether the last event was lost, so that one warning stands for all.
    failing: bool,
    tidied: Option<Timestamp>,
}

impl fmt::Debug for BoxLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxLog")
    }
}

impl BoxLog {
    pub(super) fn own(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let opened = folder::create_file(&path)
            .map_err(|error| fault::not_made(&path, error))
            .and_then(|_| Ok(connection::open(&path)?))
            .and_then(|connection| shape(connection, true));
        Self::with(opened, &path)
    }

    pub(super) fn look(dir: &Path) -> Self {
        let path = dir.join(FILE);
        if !path.exists() {
            return Self::memory();
        }
        Self::with(connection::open_to_read(&path).map_err(Error::from), &path)
    }

    pub(super) fn memory() -> Self {
        let opened =
            connection::in_memory().map_err(Error::from).and_then(|connection| shape(connection, false));
        Self::with(opened, Path::new(FILE))
    }

    fn with(opened: Result<Connection>, path: &Path) -> Self {
        let connection = opened.map_err(|error| named(error, path)).inspect_err(|error| {
            tracing::warn!(error = error.chain(), fix = error.how_to_fix(), "boxes' history is not kept");
        });
        Self(Mutex::new(Log { connection, path: path.to_owned(), failing: false, tidied: None }))
    }

    /// Adds an event, unless it is a failure that only repeats the last one. When it cannot be written it is lost, with a warning for the first one.
    pub(crate) fn append(&self, event: &LogEvent) {
        let mut log = self.log();
        let Ok(connection) = &log.connection else { return };
        let due = log.tidied.is_none_or(|at| event.at.duration_since(at).unsigned_abs() >= TIDY_EVERY);
        let tidied = if due { tidy(connection, event.at) } else { Ok(()) };
        let written = tidied.and_then(|()| match repeats(connection, event)? {
            Some(first) => drop_asked(connection, event, first),
            None => insert(connection, event),
        });
        match written {
            Ok(()) => {
                log.failing = false;
                if due {
                    log.tidied = Some(event.at);
                }
            }
            Err(error) if !log.failing => {
                log.failing = true;
                let error = named(error.into(), &log.path);
                tracing::warn!(
                    error = error.chain(),
                    fix = error.how_to_fix(),
                    "boxes' history cannot be written"
                );
            }
            Err(_) => {}
        }
    }

    /// A box's events, oldest first: the first `limit` after `since`, or without `since` the last `limit`.
    ///
    /// # Errors
    /// `Unavailable` when the history cannot be opened, `Failed` when it is damaged; each names the file.
    pub(crate) fn read(&self, box_id: &BoxId, since: Option<i64>, limit: usize) -> Result<Vec<Logged>> {
        let log = self.log();
        let connection = log.connection.as_ref().map_err(Clone::clone)?;
        read(connection, box_id, since, limit).map_err(|error| named(error, &log.path))
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn named(error: Error, path: &Path) -> Error {
    fault::in_file(error, path, Holds::History)
}

fn read(connection: &Connection, box_id: &BoxId, since: Option<i64>, limit: usize) -> Result<Vec<Logged>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let columns = "seq, at, box, kind, asker, words, operation";
    let rows = if let Some(since) = since {
        connection
            .prepare_cached(&format!(
                "SELECT {columns} FROM events WHERE box = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"
            ))?
            .query_map(params![box_id.as_str(), since, limit], row)?
            .collect::<rusqlite::Result<Vec<_>>>()?
    } else {
        let mut rows = connection
            .prepare_cached(&format!(
                "SELECT {columns} FROM events WHERE box = ?1 ORDER BY seq DESC LIMIT ?2"
            ))?
            .query_map(params![box_id.as_str(), limit], row)?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        rows.reverse();
        rows
    };
    rows.into_iter().collect()
}

fn shape(connection: Connection, file: bool) -> Result<Connection> {
    if file {
        // A power cut may lose the last events and nothing else. The log stays small beside the database.
        connection.execute_batch(
            "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 128; PRAGMA journal_size_limit = 524288;",
        )?;
    }
    connection.pragma_update(None, "max_page_count", MOST_PAGES)?;
    connection.execute_batch(SHAPE)?;
    Ok(connection)
}

fn insert(connection: &Connection, event: &LogEvent) -> rusqlite::Result<()> {
    let write = || {
        connection
            .prepare_cached(
                "INSERT INTO events(at, box, kind, asker, words, operation) VALUES(?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                event.at.as_millisecond(),
                event.box_id.as_str(),
                event.kind,
                event.by,
                clipped(&event.words),
                event.operation.as_ref().map(OperationId::as_str)
            ])
    };
    match write() {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
            shed(connection)?;
            write()
        }
        other => other,
    }
    .map(drop)
}

/// The failure that `event` repeats, if it repeats one.
fn repeats(connection: &Connection, event: &LogEvent) -> rusqlite::Result<Option<i64>> {
    let Some(what) = event.kind.strip_suffix("-failed") else { return Ok(None) };
    let last: Option<(i64, String)> = connection
        .prepare_cached(
            "SELECT seq, words FROM events WHERE box = ?1 AND kind = ?2 ORDER BY seq DESC LIMIT 1",
        )?
        .query_row(params![event.box_id.as_str(), event.kind], |r| Ok((r.get(0)?, r.get(1)?)))
        .optional()?;
    let Some((first, _)) = last.filter(|(_, words)| *words == clipped(&event.words)) else { return Ok(None) };
    let other = connection
        .prepare_cached(
            "SELECT 1 FROM events WHERE box = ?1 AND seq > ?2 AND NOT (kind = ?3 AND asker IS
               (SELECT asker FROM events WHERE box = ?1 AND seq < ?2 AND kind = ?3 ORDER BY seq DESC LIMIT 1))",
        )?
        .exists(params![event.box_id.as_str(), first, format!("{what}-asked")])?;
    Ok((!other).then_some(first))
}

/// Drops what asked for a failure that repeats the one at `first`: nothing else follows that one.
fn drop_asked(connection: &Connection, event: &LogEvent, first: i64) -> rusqlite::Result<()> {
    connection
        .execute("DELETE FROM events WHERE box = ?1 AND seq > ?2", params![event.box_id.as_str(), first])
        .map(drop)
}

/// Drops the oldest eighth of all events.
fn shed(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .execute(
            "DELETE FROM events WHERE seq <= (SELECT seq FROM events ORDER BY seq LIMIT 1
               OFFSET (SELECT count(*) / 8 FROM events))",
            [],
        )
        .map(drop)
}

/// Drops what need not be kept at `now`.
fn tidy(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let before = |kept: Duration| now.saturating_sub(kept).map_or(i64::MIN, Timestamp::as_millisecond);
    connection.execute(
        "DELETE FROM events WHERE box IN (SELECT box FROM events AS last WHERE at < ?1
           AND kind IN (?2, ?3, ?4, ?5)
           AND seq = (SELECT max(seq) FROM events WHERE box = last.box))",
        params![before(KEPT_WHEN_GONE), ENDS[0], ENDS[1], ENDS[2], ENDS[3]],
    )?;
    connection.execute(
        "DELETE FROM events WHERE at < ?1 AND seq NOT IN (SELECT max(seq) FROM events GROUP BY box, kind)",
        [before(KEPT)],
    )?;
    Ok(())
}

/// The words, or when they are long their beginning and their end: the cause stands last.
pub(super) fn clipped(words: &str) -> String {
    if words.len() <= LONGEST_WORDS {
        return words.to_owned();
    }
    let head = words.floor_char_boundary(LONGEST_WORDS / 2);
    let tail = words.ceil_char_boundary(words.len() - LONGEST_WORDS / 2);
    format!("{} … {}", &words[..head], &words[tail..])
}

fn row(row: &Row<'_>) -> rusqlite::Result<Result<Logged>> {
    let operation: Option<String> = row.get(6)?;
    let (seq, at, box_id): (i64, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (kind, by, words) = (row.get(3)?, row.get(4)?, row.get(5)?);
    Ok((|| {
        let at = Timestamp::from_millisecond(at)
            .map_err(|error| fault::damaged("the history is damaged", error))?;
        let operation = operation.map(OperationId::parse).transpose()?;
        let event = LogEvent { at, box_id: BoxId::parse(box_id)?, kind, by, words, operation };
        Ok(Logged { seq, event })
    })())
}
