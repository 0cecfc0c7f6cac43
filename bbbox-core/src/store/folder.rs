//! The data folder: made so that only its owner reads it.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io,
    path::Path,
};

use crate::error::{Error, Result};

/// Makes `dir`, with its parents, readable for its owner alone.
///
/// # Errors
/// `Unavailable`.
pub(super) fn create(dir: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(|error| {
        let fix = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "name a folder that you may write to, with --data DIR"
            }
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                "something on that path is no folder: name another one, with --data DIR"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space on its disk",
            _ => "mend what is named, or name another folder with --data DIR",
        };
        Error::unavailable(format!("could not make the data folder {}", dir.display()))
            .fix(fix)
            .because(error)
    })
}

/// Opens `path`, making it, readable for its owner alone. SQLite gives a database's other files the same mode.
pub(super) fn create_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}
