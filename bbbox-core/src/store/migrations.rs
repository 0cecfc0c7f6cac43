//! The database's shape, by number.
//!
//! A migration that was released is never edited. A database that is newer than the program is refused: it may
//! hold what this program would not keep.

use rusqlite::Connection;
use rusqlite_migration::{M, Migrations};

use crate::error::{Error, ErrorKind, Result};

const ALL: &[M<'static>] = &[
    M::up(include_str!("migrations/001-journal.sql")),
    M::up(include_str!("migrations/002-boxes.sql")),
    M::up(include_str!("migrations/003-configuration.sql")),
    M::up(include_str!("migrations/004-ran.sql")),
];

/// Brings the database up to this program's shape.
///
/// # Errors
/// `Refused` when it is newer, `Failed` when a migration does not run.
pub(super) fn apply(connection: &mut Connection) -> Result<()> {
    let all = Migrations::from_slice(ALL);
    if behind(&all, connection)? == 0 {
        return Ok(());
    }
    all.to_latest(connection)
        .map_err(|error| Error::failed("could not bring the database up to date").because(error))
}

/// Checks that the database has this program's shape, for a reader, which changes nothing.
///
/// # Errors
/// `Refused` when it is newer, `Busy` when it is older.
pub(super) fn check(connection: &Connection) -> Result<()> {
    let behind = behind(&Migrations::from_slice(ALL), connection)?;
    if behind == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Busy, format!("the database is {behind} versions older than this program"))
        .fix("stop the older bbbox that uses the folder, then run this one once in its place"))
}

fn behind(all: &Migrations<'_>, connection: &Connection) -> Result<i32> {
    let behind = all
        .pending_migrations(connection)
        .map_err(|error| Error::failed("could not read the database's version").because(error))?;
    if behind < 0 {
        return Err(Error::refused(format!(
            "the database was written by a newer bbbox: it is {} versions ahead of this program",
            -behind
        ))
        .fix("use the newer bbbox, or another data folder"));
    }
    Ok(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migrations_run_on_an_empty_database() {
        Migrations::from_slice(ALL).validate().unwrap();
    }
}
