//! What must change together, in one SQLite database in one folder that one process owns.
//!
//! `Store::write` is one transaction: it happens whole or not at all, and is on the disk when it returns.
//! Other processes may read beside the owner. The store knows nothing of what its tables mean; the journal and
//! the records bring their own.

mod box_log;
mod connection;
mod fault;
mod folder;
mod lock;
mod migrations;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rusqlite::Connection;

pub use box_log::{LogEvent, Logged};

pub(crate) use self::box_log::BoxLog;

pub(crate) use self::fault::damaged;

use self::{
    connection::{Inside, Transaction},
    fault::Holds,
    lock::Lock,
};
use crate::error::{Error, Result};

const DATABASE: &str = "bbbox.db";

/// How a folder is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access<'a> {
    /// To change it. One process at a time.
    Own {
        /// What the process is, for whoever finds the folder in use. Never a secret.
        command: &'a str,
    },
    /// To read it, also while another process owns it.
    Read,
}

/// An open data folder.
pub(crate) struct Store {
    dir: Option<PathBuf>,
    connections: Connections,
    box_log: BoxLog,
    /// The last field: the lock ends after the connections are closed.
    _lock: Option<Lock>,
}

enum Connections {
    Own { writer: Mutex<Connection>, reader: Mutex<Connection> },
    Read(Mutex<Connection>),
    Memory(Mutex<Connection>),
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the folder `dir`; an owner makes it, locks it and brings its database up to date.
    ///
    /// # Errors
    /// `Busy`, naming the holder, when another process owns it; `Gone` when there is nothing to read yet; `Refused`
    /// when a newer program wrote it; `Unavailable` when the disk is full or cannot be written.
    pub(crate) fn open(dir: &Path, access: Access<'_>) -> Result<Self> {
        match access {
            Access::Own { command } => Self::own(dir, command),
            Access::Read => Self::look(dir),
        }
        .map_err(|error| named(error, dir).at("folder", dir.display()))
    }

    /// A store that ends with this value, for tests and simulation.
    ///
    /// # Errors
    /// `Failed` when SQLite has no memory.
    pub(crate) fn memory() -> Result<Self> {
        let mut connection = connection::in_memory()?;
        migrations::apply(&mut connection)?;
        Ok(Self {
            dir: None,
            connections: Connections::Memory(Mutex::new(connection)),
            box_log: BoxLog::memory(),
            _lock: None,
        })
    }

    fn own(dir: &Path, command: &str) -> Result<Self> {
        folder::create(dir)?;
        let lock = Lock::take(dir, command)?;
        let path = dir.join(DATABASE);
        not_emptied(dir)?;
        folder::create_file(&path).map_err(|error| fault::not_made(&path, error))?;
        let mut writer = connection::open(&path)?;
        migrations::apply(&mut writer)?;
        let reader = connection::open_to_read(&path)?;
        Ok(Self {
            dir: Some(dir.to_owned()),
            connections: Connections::Own { writer: Mutex::new(writer), reader: Mutex::new(reader) },
            box_log: BoxLog::own(dir),
            _lock: Some(lock),
        })
    }

    fn look(dir: &Path) -> Result<Self> {
        let path = dir.join(DATABASE);
        if !path.exists() {
            return Err(Error::gone(format!("there is no bb-box data in {}", dir.display()))
                .fix("acquire a box first, or name the folder that holds the data"));
        }
        not_emptied(dir)?;
        let reader = connection::open_to_read(&path)?;
        migrations::check(&reader)?;
        Ok(Self {
            dir: Some(dir.to_owned()),
            connections: Connections::Read(Mutex::new(reader)),
            box_log: BoxLog::look(dir),
            _lock: None,
        })
    }

    /// Each box's history.
    #[must_use]
    pub(crate) fn box_log(&self) -> &BoxLog {
        &self.box_log
    }

    /// One transaction: when `f` or the commit fails, nothing of it happened.
    ///
    /// Inside `f` only the given connection is used, never the store: `f` holds the one writer.
    ///
    /// # Errors
    /// What `f` returns; `Unavailable` when the disk is full or cannot be written; `Refused` when the folder was
    /// opened to read.
    pub(crate) fn write<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.transact(f).map_err(|error| self.named(error))
    }

    /// Does `f` with a store that can be written: one that was opened to read owns the folder for as long as that
    /// takes, where nobody else does.
    ///
    /// # Errors
    /// What `f` returns; `Busy` when another process owns the folder.
    pub(crate) fn in_passing<T>(&self, f: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        match (&self.connections, &self.dir) {
            (Connections::Read(_), Some(dir)) => {
                f(&Self::open(dir, Access::Own { command: "a bbbox that notes whether a box answers" })?)
            }
            _ => f(self),
        }
    }

    /// Names the database in an error that came of it, with what to do.
    pub(crate) fn named(&self, error: Error) -> Error {
        match &self.dir {
            Some(dir) => named(error, dir),
            None => error,
        }
    }

    /// [`Store::write`] with a caller's own kind of error.
    pub(crate) fn transact<T, E: From<Error>>(
        &self,
        f: impl FnOnce(&Connection) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let (Connections::Own { writer, .. } | Connections::Memory(writer)) = &self.connections else {
            return Err(E::from(
                Error::refused("the data folder was opened to read")
                    .fix("ask the process that owns the folder"),
            ));
        };
        let named = |error| E::from(self.named(error));
        let _inside = Inside::enter();
        let connection = locked(writer);
        let transaction = Transaction::begin(&connection, "BEGIN IMMEDIATE").map_err(named)?;
        let value = f(&transaction)?;
        transaction.commit().map_err(named)?;
        Ok(value)
    }

    /// Reads, with one view of the database from the first query to the last. It sees what was committed.
    ///
    /// # Errors
    /// What `f` returns, with the file's name and what to do where it came of the file.
    pub(crate) fn read<T>(&self, f: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let (Connections::Own { reader: connection, .. }
        | Connections::Read(connection)
        | Connections::Memory(connection)) = &self.connections;
        let _inside = Inside::enter();
        let connection = locked(connection);
        let read = Transaction::begin(&connection, "BEGIN").and_then(|transaction| f(&transaction));
        read.map_err(|error| self.named(error))
    }
}

/// Names the database of `dir` in an error that came of it.
fn named(error: Error, dir: &Path) -> Error {
    fault::in_file(error, &dir.join(DATABASE), Holds::Records)
}

/// Refuses a database that something emptied: taken as new, it would get another install ID, and nobody would look
/// for the guests of the old one. One that is only just made has no history beside it yet.
fn not_emptied(dir: &Path) -> Result<()> {
    let size = |file| std::fs::metadata(dir.join(file)).map(|file| file.len());
    match (size(DATABASE), size(box_log::FILE)) {
        (Ok(0), Ok(1..)) => Err(fault::damaged("the database is damaged", "it is empty")),
        _ => Ok(()),
    }
}

/// A panic inside a transaction rolled it back, so the connection is as good as before.
fn locked(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}
