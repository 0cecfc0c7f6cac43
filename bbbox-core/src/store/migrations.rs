//! The database's shape, by number.
//!
//! A migration that was released is never edited. A database that is newer than the program is refused: it may
//! hold what this program would not keep.

use rusqlite::Connection;
use rusqlite_migration::{M, Migrations};

use super::fault;
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
    all.to_latest(connection).map_err(|error| failed("could not bring the database up to date", error))
}

/// Checks that the database has this program's shape, for a reader, which changes nothing.
///
/// # Errors
/// `Refused` when it is newer, `Busy` when it is older, `Gone` when nothing is in it yet.
pub(super) fn check(connection: &Connection) -> Result<()> {
    let behind = behind(&Migrations::from_slice(ALL), connection)?;
    if behind == 0 {
        return Ok(());
    }
    if usize::try_from(behind).is_ok_and(|behind| behind == ALL.len()) {
        return Err(Error::gone("there is no bb-box data in the database yet")
            .fix("acquire a box first, or name the folder that holds the data"));
    }
    Err(Error::new(ErrorKind::Busy, format!("the database is {behind} versions older than this program"))
        .fix("stop the older bbbox that uses the folder, then run this one once in its place"))
}

fn behind(all: &Migrations<'_>, connection: &Connection) -> Result<i32> {
    let behind = all
        .pending_migrations(connection)
        .map_err(|error| failed("could not read the database's version", error))?;
    if behind < 0 {
        return Err(Error::refused(format!(
            "the database was written by a newer bbbox: it is {} versions ahead of this program",
            -behind
        ))
        .fix("use the newer bbbox, or another data folder"));
    }
    Ok(behind)
}

/// The error of a database whose version or shape is not as this program left it.
fn failed(what: &str, error: rusqlite_migration::Error) -> Error {
    match error {
        rusqlite_migration::Error::RusqliteError { err, .. } if fault::is_known(&err) => Error::from(err),
        error => fault::damaged(what, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_migrations_run_on_an_empty_database() {
        Migrations::from_slice(ALL).validate().unwrap();
    }
}
