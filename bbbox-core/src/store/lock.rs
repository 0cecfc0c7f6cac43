//! One process owns a data folder.
//!
//! The lock is the operating system's, on the file `lock`, so it ends with its holder however that dies. What is
//! written in the file is only for people.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, SeekFrom, Write},
    path::Path,
    process,
};

use serde::{Deserialize, Serialize};

use super::folder;
use crate::error::{Error, ErrorKind, Result};

#[derive(Serialize, Deserialize)]
struct Holder {
    pid: u32,
    command: String,
}

/// The lock, held until this is dropped.
pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of `dir` for `command`.
    ///
    /// # Errors
    /// `Busy`, naming the holder, and `Unavailable` when the file cannot be made or locked.
    pub(super) fn take(dir: &Path, command: &str) -> Result<Self> {
        let path = dir.join("lock");
        let failed = |error: std::io::Error| {
            Error::unavailable(format!("could not lock {}", path.display()))
                .fix(format!("check that {} can be written and is on a local disk", dir.display()))
                .because(error)
        };
        let mut file = folder::create_file(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(dir, &mut file)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let holder = Holder { pid: process::id(), command: command.to_owned() };
        let text = serde_json::to_string(&holder).unwrap_or_else(|_| unreachable!("a number and a string"));
        file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).map_err(failed)?;
        Ok(Self { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Nobody is misled by a file that names nobody. A failure changes nothing: the lock ends all the same.
        let _ = self.file.set_len(0);
    }
}

fn in_use(dir: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_string(&mut text));
    let holder = read.ok().and_then(|_| serde_json::from_str::<Holder>(&text).ok());
    let folder = dir.display();
    match holder {
        Some(Holder { pid, command }) => {
            Error::new(ErrorKind::Busy, format!("{folder} is in use by process {pid} ({command})"))
                .at("pid", pid)
                .at("command", command)
                .fix(format!("use that process, end it (kill {pid}), or name another data folder"))
        }
        None => Error::new(ErrorKind::Busy, format!("{folder} is in use by another process"))
            .fix("try again, or name another data folder"),
    }
}
