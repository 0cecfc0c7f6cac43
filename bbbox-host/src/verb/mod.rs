//! The verbs, a file each: its arguments, its help, and how its answer is shown.

pub(crate) mod acquire;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod copy;
pub(crate) mod forget;
pub(crate) mod image;
pub(crate) mod install_id;
pub(crate) mod job;
pub(crate) mod kinds;
pub(crate) mod list;
pub(crate) mod log;
pub(crate) mod release;
pub(crate) mod rename;
pub(crate) mod resize;
pub(crate) mod run;
pub(crate) mod start;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod sweep;
pub(crate) mod r#try;

use std::{io::Read, path::Path};

use crate::fault::Fault;

/// How messages name a file; `-` is stdin.
pub(crate) fn file_name(file: &Path) -> String {
    if file == Path::new("-") { "stdin".to_owned() } else { file.display().to_string() }
}

/// Everything in a file; `-` is stdin.
pub(crate) fn read_bytes(file: &Path) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map(|_| bytes).map_err(|error| Fault::file("read", &file_name(file), error))
}
