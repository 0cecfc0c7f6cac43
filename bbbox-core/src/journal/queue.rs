//! Each box's queue.
//!
//! An operation runs when it is the earliest live one on each of its boxes. Operations are numbered when they
//! begin, with all their boxes at once, so no two can wait for each other. An operation that ended unknown keeps
//! its boxes: only one that was begun to run over it may, and when that comes to nothing the box is as it was.

use rusqlite::{Connection, OptionalExtension, params};

use super::{
    State,
    rows::{self, run},
};
use crate::{
    error::{Error, Result},
    id::OperationId,
};

/// Whether an operation may run.
pub(super) enum Turn {
    /// It runs from now on.
    Now,
    /// An earlier one goes first.
    Later,
    /// The box's last operation ended unknown, and this one may not run over that.
    Never(Error),
}

/// Takes the turn of operation `n` if it has come.
pub(super) fn take_turn(tx: &Connection, n: i64, over_unknown: bool) -> Result<Turn> {
    let earlier = "SELECT 1 FROM operation_boxes AS mine
        JOIN operation_boxes AS other ON other.box = mine.box AND other.operation < mine.operation AND other.holds = 1
        JOIN operations ON operations.n = other.operation
        WHERE mine.operation = ?1 AND operations.state <> 'unknown' LIMIT 1";
    if tx.prepare_cached(earlier)?.exists([n])? {
        return Ok(Turn::Later);
    }
    let unknown = "SELECT operations.id, operations.kind, mine.box FROM operation_boxes AS mine
        JOIN operation_boxes AS other ON other.box = mine.box AND other.operation < mine.operation AND other.holds = 1
        JOIN operations ON operations.n = other.operation
        WHERE mine.operation = ?1 ORDER BY operations.n LIMIT 1";
    let held = tx
        .prepare_cached(unknown)?
        .query_row([n], |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?, r.get::<_, String>(2)?)))
        .optional()?;
    if let Some((id, kind, box_id)) = held {
        if !over_unknown {
            return Ok(Turn::Never(
                Error::refused(format!(
                    "how {kind} {id} left box {box_id} is not known, so nothing else may change the box"
                ))
                .at("box", box_id)
                .at("operation", id)
                .fix("have it looked at, `bbbox sweep`, or release it: `bbbox release BOX`"),
            ));
        }
        run(
            tx,
            "UPDATE operation_boxes SET holds = 0, taken_by = ?1
             WHERE holds = 1 AND operation < ?1 AND box IN (SELECT box FROM operation_boxes WHERE operation = ?1)",
            [n],
        )?;
    }
    rows::set_running(tx, n)?;
    Ok(Turn::Now)
}

/// The operation that stands still before queued operation `n` on one of its boxes, if one does: its ID and its kind.
pub(super) fn stands_before(tx: &Connection, n: i64) -> Result<Option<(OperationId, String)>> {
    let sql = "WITH RECURSIVE before(n) AS (
          VALUES(?1)
          UNION SELECT other.operation FROM before
            JOIN operation_boxes AS mine ON mine.operation = before.n
            JOIN operation_boxes AS other
              ON other.box = mine.box AND other.operation < mine.operation AND other.holds = 1)
        SELECT id, kind FROM operations WHERE n IN (SELECT n FROM before) AND n <> ?1 AND state = 'suspended'
        ORDER BY n LIMIT 1";
    let found: Option<(String, String)> =
        tx.prepare_cached(sql)?.query_row([n], |r| Ok((r.get(0)?, r.get(1)?))).optional()?;
    found.map(|(id, kind)| Ok((OperationId::parse(id)?, kind))).transpose()
}

/// Lets go of the boxes of an operation that ends in `state`, and says which queued ones now come first.
pub(super) fn let_go(tx: &Connection, n: i64, state: State) -> Result<Vec<i64>> {
    if state != State::Unknown {
        run(tx, "UPDATE operation_boxes SET holds = 0 WHERE operation = ?1", [n])?;
    }
    if matches!(state, State::Failed | State::Cancelled) {
        run(tx, "UPDATE operation_boxes SET holds = 1, taken_by = NULL WHERE taken_by = ?1", [n])?;
    }
    let next = "SELECT min(other.operation) FROM operation_boxes AS mine
        JOIN operation_boxes AS other ON other.box = mine.box AND other.holds = 1
        JOIN operations ON operations.n = other.operation AND operations.state = 'queued'
        WHERE mine.operation = ?1 GROUP BY mine.box";
    Ok(tx.prepare_cached(next)?.query_map(params![n], |r| r.get(0))?.collect::<rusqlite::Result<Vec<_>>>()?)
}
