//! SQLite's failures as this crate's errors: the one table.
//!
//! A full or read-only disk is `Unavailable`: what runs goes on, and the same call may succeed once there is
//! space. The words of SQLite are kept as the source.

use std::path::Path;

use rusqlite::ErrorCode;

use crate::error::{Error, ErrorKind};

/// Where an error says that it is about the disk, so that the store can name the folder.
const DISK: &str = "disk";

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        use ErrorCode as Code;
        let (kind, words) = match error.sqlite_error_code() {
            Some(Code::DiskFull) => (ErrorKind::Unavailable, "the disk is full"),
            Some(Code::ReadOnly) => (ErrorKind::Unavailable, "the database cannot be written"),
            Some(Code::SystemIoFailure) => (ErrorKind::Unavailable, "the disk failed"),
            Some(Code::CannotOpen | Code::PermissionDenied) => {
                (ErrorKind::Unavailable, "the database cannot be opened")
            }
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => {
                return Self::new(ErrorKind::Busy, "the database is in use").because(error);
            }
            Some(Code::DatabaseCorrupt | Code::NotADatabase) => {
                return Self::failed("the database is damaged")
                    .fix("put a copy of bbbox.db back into the data folder; or move it away, take the old install ID back (it is on \
                          every guest) with `bbbox install-id --set ID`, and have the records rebuilt: `bbbox sweep`")
                    .because(error);
            }
            Some(_) | None => return Self::failed("the database refused it").because(error),
        };
        Self::new(kind, words).at(DISK, words).because(error)
    }
}

/// Names the folder in an error that is about its disk.
pub(super) fn in_folder(error: Error, folder: Option<&Path>) -> Error {
    match folder {
        Some(folder) if error.context().iter().any(|(name, _)| name == DISK) => {
            error.fix(format!("free space in {0}, and check that it can be written", folder.display()))
        }
        _ => error,
    }
}
