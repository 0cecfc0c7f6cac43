//! The boxes' records in the store.
//!
//! Every function works on the connection of the caller's transaction, so that a record changes together with the
//! step of the operation that changes it. What a box takes of its backend's room stands in columns of its own, as
//! placing a box adds them up.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    capacity::Holding,
    error::{Error, ErrorKind, Result},
    id::{BackendId, BoxId, BoxName, InstallId},
    record::BoxRecord,
    size::Size,
    store::damaged,
};

fn read(row: &Row<'_>) -> rusqlite::Result<String> {
    row.get(0)
}

fn parse(text: &str) -> Result<BoxRecord> {
    serde_json::from_str(text).map_err(|e| damaged("a box's record cannot be read", e))
}

/// The record of `id`.
pub(crate) fn get(tx: &Connection, id: &BoxId) -> Result<Option<BoxRecord>> {
    let text = tx
        .prepare_cached("SELECT record FROM boxes WHERE id = ?1")
        .and_then(|mut s| s.query_row([id.as_str()], read).optional())?;
    text.as_deref().map(parse).transpose()
}

/// The record of the box that `word` names, by its ID or its name.
pub(crate) fn find(tx: &Connection, word: &str) -> Result<Option<BoxRecord>> {
    let text = tx
        .prepare_cached(
            "SELECT record FROM boxes WHERE id = ?1 OR id = (SELECT box FROM box_names WHERE name = ?1) LIMIT 1",
        )
        .and_then(|mut s| s.query_row([word], read).optional())
        ?;
    text.as_deref().map(parse).transpose()
}

/// Every record, oldest first.
pub(crate) fn all(tx: &Connection) -> Result<Vec<BoxRecord>> {
    let mut statement = tx.prepare_cached("SELECT record FROM boxes")?;
    let texts = statement.query_map([], read)?;
    let mut records = Vec::new();
    for text in texts {
        records.push(parse(&text?)?);
    }
    records.sort_by(|a, b| (a.made, &a.id).cmp(&(b.made, &b.id)));
    Ok(records)
}

/// Writes `record`, new or changed.
pub(crate) fn put(tx: &Connection, record: &BoxRecord) -> Result<()> {
    let holding = record.holding();
    let text = serde_json::to_string(record)
        .map_err(|e| Error::failed("could not write a box's record").because(e))?;
    tx.prepare_cached(
        "INSERT INTO boxes (id, state, backend, host, cores, memory_mib, disk_mib, running, record)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (id) DO UPDATE SET state = ?2, backend = ?3, host = ?4, cores = ?5, memory_mib = ?6,
           disk_mib = ?7, running = ?8, record = ?9",
    )
    .and_then(|mut s| {
        s.execute(params![
            record.id.as_str(),
            record.state.as_str(),
            holding.and(record.backend.as_ref()).map(BackendId::as_str),
            record.host,
            holding.map(|h| h.size.cores),
            holding.map(|h| h.size.memory_mib),
            holding.and_then(|h| h.size.disk_mib),
            holding.map(|h| h.running),
            text
        ])
    })
    .map(drop)
    .map_err(Error::from)
}

/// Changes the record of `id` in place; `None` when there is none.
pub(crate) fn change(
    tx: &Connection,
    id: &BoxId,
    with: impl FnOnce(&mut BoxRecord),
) -> Result<Option<BoxRecord>> {
    let Some(mut record) = get(tx, id)? else { return Ok(None) };
    with(&mut record);
    put(tx, &record)?;
    Ok(Some(record))
}

/// Deletes the record of `id` and frees its names.
pub(crate) fn delete(tx: &Connection, id: &BoxId) -> Result<()> {
    for sql in ["DELETE FROM boxes WHERE id = ?1", "DELETE FROM box_names WHERE box = ?1"] {
        tx.prepare_cached(sql).and_then(|mut s| s.execute([id.as_str()]))?;
    }
    Ok(())
}

/// Takes `name` for `id`.
///
/// # Errors
/// `Busy` when another box has it.
pub(crate) fn take_name(tx: &Connection, name: &BoxName, id: &BoxId) -> Result<()> {
    let holder: Option<String> = tx
        .prepare_cached("SELECT box FROM box_names WHERE name = ?1")
        .and_then(|mut s| s.query_row([name.as_str()], |r| r.get(0)).optional())?;
    match holder {
        Some(holder) if holder == id.as_str() => Ok(()),
        // Not whose it is: that may be no business of the caller's.
        Some(_) => Err(Error::new(ErrorKind::Busy, format!("another box is called {name}"))
            .fix("choose another name, or see whose it is: `bbbox list`")),
        None => tx
            .prepare_cached("INSERT INTO box_names (name, box) VALUES (?1, ?2)")
            .and_then(|mut s| s.execute([name.as_str(), id.as_str()]))
            .map(drop)
            .map_err(Error::from),
    }
}

/// Frees `name`, if it is `id`'s.
pub(crate) fn free_name(tx: &Connection, id: &BoxId, name: &BoxName) -> Result<()> {
    tx.prepare_cached("DELETE FROM box_names WHERE box = ?1 AND name = ?2")
        .and_then(|mut s| s.execute([id.as_str(), name.as_str()]))
        .map(drop)
        .map_err(Error::from)
}

/// Whether a box has `name`.
pub(crate) fn name_taken(tx: &Connection, name: &BoxName) -> Result<bool> {
    tx.prepare_cached("SELECT EXISTS (SELECT 1 FROM box_names WHERE name = ?1)")
        .and_then(|mut s| s.query_row([name.as_str()], |r| r.get(0)))
        .map_err(Error::from)
}

/// What every box takes of `backend`, with the host it is on.
pub(crate) fn holdings(
    tx: &Connection,
    backend: &BackendId,
) -> Result<Vec<(BoxId, Option<String>, Holding)>> {
    let mut statement = tx.prepare_cached(
        "SELECT id, host, cores, memory_mib, disk_mib, running FROM boxes WHERE backend = ?1",
    )?;
    let rows = statement.query_map([backend.as_str()], |row| {
        let size = Size { cores: row.get(2)?, memory_mib: row.get(3)?, disk_mib: row.get(4)? };
        Ok((row.get::<_, String>(0)?, row.get(1)?, Holding { size, running: row.get(5)? }))
    })?;
    rows.map(|row| {
        let (id, host, holding) = row?;
        Ok((BoxId::parse(id)?, host, holding))
    })
    .collect()
}

/// This install's ID, if it has one yet.
pub(crate) fn install_id(tx: &Connection) -> Result<Option<InstallId>> {
    let text: Option<String> = tx
        .prepare_cached("SELECT value FROM settings WHERE name = 'install'")
        .and_then(|mut s| s.query_row([], |r| r.get(0)).optional())?;
    text.map(InstallId::parse).transpose()
}

/// Sets this install's ID.
pub(crate) fn set_install_id(tx: &Connection, id: &InstallId) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO settings (name, value) VALUES ('install', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1",
    )
    .and_then(|mut s| s.execute([id.as_str()]))
    .map(drop)
        .map_err(Error::from)
}

/// When a sweep was last begun for a process that does not keep sweeping.
pub(crate) fn swept(tx: &Connection) -> Result<Option<Timestamp>> {
    let text: Option<String> = tx
        .prepare_cached("SELECT value FROM settings WHERE name = 'swept'")
        .and_then(|mut s| s.query_row([], |r| r.get(0)).optional())?;
    // What cannot be read only has the next sweep come at once.
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Records that such a sweep begins.
pub(crate) fn set_swept(tx: &Connection, at: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO settings (name, value) VALUES ('swept', ?1) ON CONFLICT (name) DO UPDATE SET value = ?1",
    )
    .and_then(|mut s| s.execute([at.to_string()]))
    .map(drop)
    .map_err(Error::from)
}
