//! One SQLite connection: its settings, and its transactions.

use std::{cell::Cell, ops::Deref, path::Path, time::Duration};

use rusqlite::{Connection, OpenFlags};

use crate::error::Result;

/// Statements that stay parsed. An operation uses about thirty; parsing was a quarter of a step's time.
const CACHED_STATEMENTS: usize = 256;

/// Opens the database at `path`, which exists, to change it.
pub(super) fn open(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    connection.busy_timeout(Duration::from_secs(5))?;
    // On macOS an ordinary sync does not reach the disk; elsewhere the two settings change nothing.
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;",
    )?;
    Ok(connection)
}

/// Opens the database at `path`, which exists, to read it while another connection may change it.
pub(super) fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    // A connection opened read-only could not read what a killed owner left in the write-ahead log.
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch("PRAGMA query_only = ON;")?;
    Ok(connection)
}

/// A database that ends with its connection.
pub(super) fn in_memory() -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    connection.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
    connection.execute_batch("PRAGMA foreign_keys = ON;")?;
    Ok(connection)
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A transaction that is rolled back unless it is committed, also when its user panics.
pub(super) struct Transaction<'c> {
    connection: &'c Connection,
}

impl<'c> Transaction<'c> {
    /// Begins with `begin`, which is `BEGIN` or `BEGIN IMMEDIATE`.
    pub(super) fn begin(connection: &'c Connection, begin: &str) -> Result<Self> {
        connection.prepare_cached(begin)?.execute([])?;
        Ok(Self { connection })
    }

    pub(super) fn commit(self) -> Result<()> {
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;
    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.connection.is_autocommit() {
            // When even this fails, the next BEGIN says so.
            let _ = self.connection.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
        }
    }
}

/// Marks this thread as inside the store, where using the store again would wait for itself for ever.
pub(super) struct Inside(());

impl Inside {
    pub(super) fn enter() -> Self {
        let nested = INSIDE.replace(true);
        assert!(
            !nested,
            "the store was used inside one of its own transactions: use the connection that it gave"
        );
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}
