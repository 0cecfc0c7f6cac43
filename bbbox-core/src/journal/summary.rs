//! Operations as people see them: read in one view, never changed.

use rusqlite::{Connection, Row};

use super::{
    State, StepSummary, Summary, UndoSummary,
    rows::{boxes, json, time},
};
use crate::{error::Result, id::OperationId};

const SUMMARY: &str =
    "SELECT n, id, kind, version, asker, args, state, cancel > 0, coalesce(error, cause), result, began, ended
    FROM operations";

type SummaryRow = (i64, [String; 5], u32, bool, [Option<String>; 2], i64, Option<i64>);

fn summary_row(r: &Row<'_>) -> rusqlite::Result<SummaryRow> {
    let words = [r.get(1)?, r.get(2)?, r.get(4)?, r.get(5)?, r.get(6)?];
    Ok((r.get(0)?, words, r.get(3)?, r.get(7)?, [r.get(8)?, r.get(9)?], r.get(10)?, r.get(11)?))
}

/// The operations that `rest` of a query chooses.
pub(super) fn list(tx: &Connection, rest: &str, params: impl rusqlite::Params) -> Result<Vec<Summary>> {
    let rows = tx
        .prepare_cached(&format!("{SUMMARY} {rest}"))?
        .query_map(params, summary_row)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    rows.into_iter()
        .map(|(n, [id, kind, by, args, state], version, cancel, [error, result], began, ended)| {
            Ok(Summary {
                id: OperationId::parse(id)?,
                kind,
                version,
                boxes: boxes(tx, n)?,
                by,
                args: json(&args)?,
                state: State::parse(&state)?,
                cancel,
                error: error.as_deref().map(json).transpose()?,
                result: result.as_deref().map(json).transpose()?,
                began: time(began)?,
                ended: ended.map(time).transpose()?,
                steps: Vec::new(),
                undos: Vec::new(),
            })
        })
        .collect()
}

pub(super) fn steps(tx: &Connection, n: i64) -> Result<Vec<StepSummary>> {
    let rows = tx
        .prepare_cached(
            "SELECT key, state, tries, task, error, began, ended FROM steps WHERE operation = ?1 ORDER BY seq, key",
        )?
        .query_map([n], |r| {
            let error: Option<String> = r.get(4)?;
            let at: (i64, Option<i64>) = (r.get(5)?, r.get(6)?);
            Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, error, at))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    rows.into_iter()
        .map(|(key, state, tries, task, error, (began, ended))| {
            let error = error.as_deref().map(json).transpose()?;
            Ok(StepSummary {
                key,
                state,
                tries,
                task,
                error,
                began: time(began)?,
                ended: ended.map(time).transpose()?,
            })
        })
        .collect()
}

pub(super) fn undos(tx: &Connection, n: i64) -> Result<Vec<UndoSummary>> {
    let rows = tx
        .prepare_cached(
            "SELECT step, kind, payload, state, failures, error FROM undos WHERE operation = ?1 ORDER BY n",
        )?
        .query_map([n], |r| {
            let text: (String, Option<String>) = (r.get(2)?, r.get(5)?);
            Ok((r.get(0)?, r.get(1)?, text, r.get(3)?, r.get(4)?))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    rows.into_iter()
        .map(|(step, kind, (payload, error), state, failures)| {
            let error = error.as_deref().map(json).transpose()?;
            Ok(UndoSummary { step, kind, payload: json(&payload)?, state, failures, error })
        })
        .collect()
}

/// What could not be taken back, in words.
pub(super) fn stuck(tx: &Connection, n: i64) -> Result<Vec<String>> {
    let stuck = undos(tx, n)?.into_iter().filter(|undo| undo.state == "stuck");
    Ok(stuck
        .map(|undo| {
            let words = undo.error.map(|error| format!(": {}", error.chain())).unwrap_or_default();
            format!("{} of {}{words}", undo.kind, undo.step)
        })
        .collect())
}
