//! The journal's own rows: what its drivers read and write of operations, steps and undos.
//!
//! Each function is one statement, or a few that belong together, inside a transaction that its caller holds.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Begin, State};
use crate::{
    error::{Error, Result},
    id::{BoxId, OperationId},
    store::damaged,
};

/// An operation as its driver reads it.
#[derive(Clone)]
pub(super) struct Op {
    pub(super) n: i64,
    pub(super) id: OperationId,
    pub(super) kind: String,
    pub(super) version: u32,
    pub(super) boxes: Vec<BoxId>,
    pub(super) by: String,
    pub(super) args: Value,
    pub(super) state: State,
    pub(super) cancel: bool,
    /// Somebody asked to cancel it when it stood still while it was being taken back: it ends, whatever goes wrong.
    pub(super) give_up: bool,
    pub(super) over_unknown: bool,
    /// Whether it ever got its turn.
    pub(super) ran: bool,
    pub(super) cause: Option<Error>,
}

/// A step as replay reads it.
pub(super) struct Step {
    pub(super) state: String,
    pub(super) tries: u32,
    pub(super) failures: u32,
    pub(super) task: Option<String>,
    pub(super) value: Option<String>,
    pub(super) error: Option<String>,
}

/// An undo that is still to be run.
pub(super) struct Undo {
    pub(super) n: i64,
    pub(super) step: String,
    pub(super) kind: String,
    pub(super) payload: String,
    pub(super) tries: u32,
    pub(super) failures: u32,
}

/// Whether the operation did or may have done something that no undo takes back.
const BOUND: &str = "EXISTS(SELECT 1 FROM steps WHERE operation = ?1 AND covered = 0
    AND (touched = 1 OR state IN ('started', 'done')))";

pub(super) fn json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| damaged("the journal is damaged", error))
}

pub(super) fn text(value: &(impl serde::Serialize + ?Sized)) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| Error::invalid("a value could not be written as JSON").because(error))
}

pub(super) fn time(ms: i64) -> Result<Timestamp> {
    Timestamp::from_millisecond(ms).map_err(|error| damaged("the journal is damaged", error))
}

pub(super) fn run(tx: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<usize> {
    Ok(tx.prepare_cached(sql)?.execute(params)?)
}

/// The operation of a request, and what it asked.
pub(super) fn of_request(tx: &Connection, request: &str) -> Result<Option<(OperationId, String, String)>> {
    tx.prepare_cached("SELECT id, kind, asked FROM operations WHERE request = ?1")?
        .query_row([request], |r| Ok((r.get::<_, String>(0)?, r.get(1)?, r.get(2)?)))
        .optional()?
        .map(|(id, kind, asked)| Ok((OperationId::parse(id)?, kind, asked)))
        .transpose()
}

/// Adds an operation, queued, with its boxes.
pub(super) fn add(
    tx: &Connection,
    id: &OperationId,
    begin: &Begin,
    asked: &str,
    now: Timestamp,
) -> Result<i64> {
    run(
        tx,
        "INSERT INTO operations(id, kind, version, request, asked, asker, args, over_unknown, state, began)
         VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'queued', ?9)",
        params![
            id.as_str(),
            begin.kind,
            begin.version,
            begin.request.as_ref().map(AsRef::as_ref),
            asked,
            begin.by,
            text(&begin.args)?,
            begin.over_unknown,
            now.as_millisecond()
        ],
    )?;
    let n = tx.last_insert_rowid();
    for box_id in &begin.boxes {
        run(
            tx,
            "INSERT OR IGNORE INTO operation_boxes(box, operation) VALUES(?1, ?2)",
            params![box_id.as_str(), n],
        )?;
    }
    Ok(n)
}

pub(super) fn number(tx: &Connection, id: &OperationId) -> Result<i64> {
    tx.prepare_cached("SELECT n FROM operations WHERE id = ?1")?
        .query_row([id.as_str()], |r| r.get(0))
        .optional()?
        .ok_or_else(|| Error::gone(format!("there is no operation {id}")).at("operation", id))
}

pub(super) fn boxes(tx: &Connection, n: i64) -> Result<Vec<BoxId>> {
    tx.prepare_cached("SELECT box FROM operation_boxes WHERE operation = ?1 ORDER BY box")?
        .query_map([n], |r| r.get::<_, String>(0))?
        .map(|text| BoxId::parse(text?))
        .collect()
}

pub(super) fn operation(tx: &Connection, n: i64) -> Result<Option<Op>> {
    let found = tx
        .prepare_cached(
            "SELECT id, kind, version, args, state, cancel, over_unknown, cause, ran, cancel = 2, asker FROM operations WHERE n = ?1",
        )?
        .query_row([n], |r| {
            let text: (String, String, String, Option<String>) = (r.get(0)?, r.get(3)?, r.get(4)?, r.get(7)?);
            Ok((text, r.get(1)?, (r.get(2)?, r.get(10)?), (r.get(5)?, r.get(9)?), r.get(6)?, r.get(8)?))
        })
        .optional()?;
    let Some(((id, args, state, cause), kind, (version, by), (cancel, give_up), over_unknown, ran)) = found
    else {
        return Ok(None);
    };
    Ok(Some(Op {
        n,
        id: OperationId::parse(id)?,
        kind,
        version,
        boxes: boxes(tx, n)?,
        by,
        args: json(&args)?,
        state: State::parse(&state)?,
        cancel,
        give_up,
        over_unknown,
        ran,
        cause: cause.as_deref().map(json).transpose()?,
    }))
}

pub(super) fn set_running(tx: &Connection, n: i64) -> Result<()> {
    run(tx, "UPDATE operations SET state = 'running', ran = 1, error = NULL WHERE n = ?1", [n]).map(drop)
}

pub(super) fn set_undoing(tx: &Connection, n: i64, cause: &Error) -> Result<()> {
    run(
        tx,
        "UPDATE operations SET state = 'undoing', error = NULL, cause = coalesce(cause, ?2) WHERE n = ?1",
        params![n, text(cause)?],
    )
    .map(drop)
}

pub(super) fn set_suspended(tx: &Connection, n: i64, why: &Error) -> Result<()> {
    run(tx, "UPDATE operations SET state = 'suspended', error = ?2 WHERE n = ?1", params![n, text(why)?])
        .map(drop)
}

pub(super) fn set_cancel(tx: &Connection, n: i64) -> Result<()> {
    run(tx, "UPDATE operations SET cancel = max(cancel, 1) WHERE n = ?1", [n]).map(drop)
}

/// Has an operation that stands still while it is being taken back end, whatever goes wrong.
pub(super) fn give_up(tx: &Connection, n: i64) -> Result<()> {
    run(tx, "UPDATE operations SET cancel = 2 WHERE n = ?1", [n]).map(drop)
}

pub(super) fn cancel_asked(tx: &Connection, n: i64) -> Result<bool> {
    Ok(tx.prepare_cached("SELECT cancel > 0 FROM operations WHERE n = ?1")?.query_row([n], |r| r.get(0))?)
}

/// Whether the operation can only go forward.
pub(super) fn bound(tx: &Connection, n: i64) -> Result<bool> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is(crate::simulation::Bug::LateCancel) {
        return Ok(false);
    }
    Ok(tx.prepare_cached(&format!("SELECT {BOUND}"))?.query_row([n], |r| r.get(0))?)
}

/// Whether something of a failed operation is or may be left.
pub(super) fn left_over(tx: &Connection, n: i64) -> Result<bool> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is(crate::simulation::Bug::LateCancel) {
        return Ok(false);
    }
    let sql =
        format!("SELECT {BOUND} OR EXISTS(SELECT 1 FROM undos WHERE operation = ?1 AND state = 'stuck')");
    Ok(tx.prepare_cached(&sql)?.query_row([n], |r| r.get(0))?)
}

/// Whether a step that may have had an effect has no undo, such as one whose effect can be read back.
pub(super) fn untaken(tx: &Connection, n: i64) -> Result<bool> {
    let sql = "SELECT EXISTS(SELECT 1 FROM steps WHERE operation = ?1 AND touched = 1
        AND NOT EXISTS(SELECT 1 FROM undos WHERE undos.operation = ?1 AND undos.step = steps.key))";
    Ok(tx.prepare_cached(sql)?.query_row([n], |r| r.get(0))?)
}

pub(super) fn set_ended(
    tx: &Connection,
    n: i64,
    state: State,
    error: Option<&Error>,
    result: Option<&Value>,
    now: Timestamp,
) -> Result<()> {
    run(
        tx,
        "UPDATE operations SET state = ?2, error = ?3, result = ?4, ended = max(began, ?5) WHERE n = ?1",
        params![
            n,
            state.as_str(),
            error.map(text).transpose()?,
            result.map(text).transpose()?,
            now.as_millisecond()
        ],
    )
    .map(drop)
}

/// Has what stood still go on, in the queue when it never got its turn, and lists every operation that has not ended, the earliest first.
pub(super) fn revive(tx: &Connection) -> Result<Vec<i64>> {
    run(
        tx,
        "UPDATE operations SET error = NULL,
           state = CASE WHEN cause IS NOT NULL THEN 'undoing' WHEN ran THEN 'running' ELSE 'queued' END
         WHERE state = 'suspended'",
        [],
    )?;
    Ok(tx
        .prepare_cached(
            "SELECT n FROM operations WHERE state IN ('queued','running','undoing','suspended') ORDER BY n",
        )?
        .query_map([], |r| r.get(0))?
        .collect::<rusqlite::Result<_>>()?)
}

pub(super) fn steps(tx: &Connection, n: i64) -> Result<Vec<(String, Step)>> {
    Ok(tx
        .prepare_cached(
            "SELECT key, state, tries, failures, task, value, error FROM steps WHERE operation = ?1",
        )?
        .query_map([n], |r| {
            let step = Step {
                state: r.get(1)?,
                tries: r.get(2)?,
                failures: r.get(3)?,
                task: r.get(4)?,
                value: r.get(5)?,
                error: r.get(6)?,
            };
            Ok((r.get(0)?, step))
        })?
        .collect::<rusqlite::Result<_>>()?)
}

/// Records that a run of a step begins. What a crash cut off may have had an effect.
pub(super) fn intend(
    tx: &Connection,
    n: i64,
    key: &str,
    seq: i64,
    covered: bool,
    now: Timestamp,
) -> Result<()> {
    run(
        tx,
        "INSERT INTO steps(operation, key, seq, state, covered, tries, began) VALUES(?1, ?2, ?3, 'started', ?4, 1, ?5)
         ON CONFLICT DO UPDATE SET tries = tries + 1, touched = touched OR state = 'started', state = 'started'",
        params![n, key, seq, covered, now.as_millisecond()],
    )
    .map(drop)
}

/// How a run of a step ended.
pub(super) struct Outcome<'a> {
    pub(super) state: &'static str,
    pub(super) value: Option<String>,
    pub(super) error: Option<&'a Error>,
    /// Whether it did not succeed and may have had an effect.
    pub(super) touched: bool,
    /// Whether it failed in a way that may pass.
    pub(super) failed: bool,
}

/// Records how a run ended. A step without an effect may have no row yet.
pub(super) fn record(
    tx: &Connection,
    n: i64,
    key: &str,
    seq: i64,
    end: &Outcome<'_>,
    at: [Timestamp; 2],
) -> Result<()> {
    run(
        tx,
        "INSERT INTO steps(operation, key, seq, state, covered, tries, failures, value, error, began, ended)
         VALUES(?1, ?2, ?3, ?4, 1, 1, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT DO UPDATE SET state = ?4, tries = tries + (state <> 'started'), failures = failures + ?5,
           value = ?6, error = ?7, ended = max(began, ?9),
           touched = touched OR ?10",
        params![
            n,
            key,
            seq,
            end.state,
            end.failed,
            end.value,
            end.error.map(text).transpose()?,
            at[0].as_millisecond(),
            at[1].max(at[0]).as_millisecond(),
            end.touched
        ],
    )
    .map(drop)
}

pub(super) fn set_task(tx: &Connection, n: i64, key: &str, task: &str) -> Result<()> {
    run(tx, "UPDATE steps SET task = ?3 WHERE operation = ?1 AND key = ?2", params![n, key, task]).map(drop)
}

/// Arms a step's undo. A repeat of the step changes nothing: the first run may have made what the undo names.
pub(super) fn arm(tx: &Connection, n: i64, step: &str, nth: usize, kind: &str, payload: &str) -> Result<()> {
    let nth = i64::try_from(nth).unwrap_or(i64::MAX);
    run(
        tx,
        "INSERT OR IGNORE INTO undos(operation, step, nth, kind, payload) VALUES(?1, ?2, ?3, ?4, ?5)",
        params![n, step, nth, kind, payload],
    )
    .map(drop)
}

/// The newest undo that is still armed.
pub(super) fn next_undo(tx: &Connection, n: i64) -> Result<Option<Undo>> {
    Ok(tx
        .prepare_cached(
            "SELECT n, step, kind, payload, tries, failures FROM undos
             WHERE operation = ?1 AND state = 'armed' ORDER BY n DESC LIMIT 1",
        )?
        .query_row([n], |r| {
            Ok(Undo {
                n: r.get(0)?,
                step: r.get(1)?,
                kind: r.get(2)?,
                payload: r.get(3)?,
                tries: r.get(4)?,
                failures: r.get(5)?,
            })
        })
        .optional()?)
}

/// Records that a run of an undo begins.
pub(super) fn intend_undo(tx: &Connection, undo: i64) -> Result<()> {
    run(tx, "UPDATE undos SET tries = tries + 1 WHERE n = ?1", [undo]).map(drop)
}

pub(super) fn set_undo(
    tx: &Connection,
    undo: i64,
    state: &str,
    failed: bool,
    error: Option<&Error>,
) -> Result<()> {
    run(
        tx,
        "UPDATE undos SET state = ?2, failures = failures + ?3, error = ?4 WHERE n = ?1",
        params![undo, state, failed, error.map(text).transpose()?],
    )
    .map(drop)
}
