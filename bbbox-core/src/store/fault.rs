//! SQLite's failures as this crate's errors, and what to do about each: the one table.
//!
//! A full or read-only disk is `Unavailable`: what runs goes on, and the same call may succeed once there is
//! space. The words of SQLite are kept as the source. Which file it was, and so what to do, the store adds with
//! [`in_file`]: what fails does not know it.

use std::{error::Error as StdError, fmt, io, path::Path};

use rusqlite::ErrorCode;

use crate::error::{Error, ErrorKind};

/// What happened to a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Harm {
    /// No room is left on its disk.
    Full,
    /// It, or its folder, may not be written or not even be opened.
    Locked,
    /// Its disk failed.
    Disk,
    /// Another process holds it for longer than is waited for.
    Busy,
    /// It holds what no version of this program writes.
    Damaged,
}

/// What a file holds, and so what is lost with it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// The records, the operations and the configuration.
    Records,
    /// The boxes' history.
    History,
}

/// A source that says that the file it came from is damaged.
#[derive(Debug)]
struct Damage(String);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Damage {}

/// The error of reading something in a database that no version of this program wrote.
pub(crate) fn damaged(what: impl Into<String>, why: impl fmt::Display) -> Error {
    Error::failed(what).because(Damage(why.to_string()))
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        let (kind, words) = match harm(&error) {
            Some(Harm::Full) => (ErrorKind::Unavailable, "the disk is full"),
            Some(Harm::Locked) if error.sqlite_error_code() == Some(ErrorCode::ReadOnly) => {
                (ErrorKind::Unavailable, "the database cannot be written")
            }
            Some(Harm::Locked) => (ErrorKind::Unavailable, "the database cannot be opened"),
            Some(Harm::Disk) => (ErrorKind::Unavailable, "the disk failed"),
            Some(Harm::Busy) => (ErrorKind::Busy, "the database is in use"),
            Some(Harm::Damaged) => (ErrorKind::Failed, "the database is damaged"),
            None => (ErrorKind::Failed, "the database refused it"),
        };
        Self::new(kind, words).because(error)
    }
}

fn harm(error: &rusqlite::Error) -> Option<Harm> {
    use ErrorCode as Code;
    use rusqlite::Error as E;
    match error.sqlite_error_code() {
        Some(Code::DiskFull) => Some(Harm::Full),
        Some(Code::ReadOnly | Code::CannotOpen | Code::PermissionDenied) => Some(Harm::Locked),
        Some(Code::SystemIoFailure) => Some(Harm::Disk),
        Some(Code::DatabaseBusy | Code::DatabaseLocked | Code::FileLockingProtocolFailed) => Some(Harm::Busy),
        Some(Code::DatabaseCorrupt | Code::NotADatabase) => Some(Harm::Damaged),
        // SQLite has no code of its own for a table that is not there.
        Some(Code::Unknown) if error.to_string().contains("no such ") => Some(Harm::Damaged),
        Some(_) => None,
        None => match error {
            E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::Utf8Error(..) => Some(Harm::Damaged),
            _ => None,
        },
    }
}

/// Whether what happened to the file is known from `error`.
pub(super) fn is_known(error: &rusqlite::Error) -> bool {
    harm(error).is_some()
}

/// What an error's chain says that happened to the file it came from.
fn harm_in(error: &Error) -> Option<Harm> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<rusqlite::Error>() {
            return harm(error);
        }
        if cause.is::<Damage>() {
            return Some(Harm::Damaged);
        }
        next = cause.source();
    }
    None
}

/// Names the file in an error that came of it, with what to do. Every other error stays as it is.
pub(super) fn in_file(error: Error, path: &Path, holds: Holds) -> Error {
    let Some(harm) = harm_in(&error) else { return error };
    let folder = path.parent().unwrap_or(path).display();
    let file = path.display();
    let fix = match (harm, holds) {
        (Harm::Full, _) => format!("free space in {folder}, and check that it can be written"),
        (Harm::Locked, _) => {
            format!("free space in {folder}, and make it and {file} writable for the user who runs this")
        }
        (Harm::Disk, _) => format!("free space in {folder}, and check that its disk works"),
        (Harm::Busy, _) => format!("try again; where it stays so, end what else uses {file}"),
        (Harm::Damaged, Holds::Records) => format!(
            "put a copy of {file} back; or move it away, take the old install ID back (it is on every guest) with \
             `bbbox install-id --set ID`, and have the records rebuilt: `bbbox sweep`"
        ),
        (Harm::Damaged, Holds::History) => {
            format!("put a copy of {file} back, or move it away: only what happened to boxes so far is lost")
        }
    };
    let is_named = error.context().iter().any(|(name, _)| name == FILE);
    let error = error.fix(fix);
    if is_named { error } else { error.at(FILE, file) }
}

/// Where an error says which file it is about.
const FILE: &str = "file";

/// The error of a file that the system does not let be made.
pub(super) fn not_made(path: &Path, error: io::Error) -> Error {
    let folder = path.parent().unwrap_or(path).display();
    let fix = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!("free space in {folder}"),
        io::ErrorKind::IsADirectory => "move what is there away: it is no file".to_owned(),
        _ => format!("make {folder} and what is in it writable for the user who runs this"),
    };
    Error::unavailable(format!("could not make {}", path.display())).fix(fix).because(error)
}
