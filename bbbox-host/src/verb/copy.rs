//! `bbbox copy`: files and folders into a box and out of it.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use bbbox::{
    Error,
    id::{BoxId, BoxName},
    run::Copied,
};
use clap::Args;
use serde_json::json;

use crate::{
    cli::Common,
    fault::Fault,
    folder,
    printer::{Printer, lines},
    progress::Progress,
    words,
};

/// Copy a file or a folder into a box, or out of it
///
/// A file takes its place only once all of it came over unharmed; a copy that is cut off leaves the old one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    bbbox copy notes.txt dev:             (into the box's home folder)\n  \
    bbbox copy src dev:work/src\n  \
    bbbox copy dev:work/report.pdf .\n\n\
    A name here that has a colon is written ./a:b.")]
pub(crate) struct Copy {
    /// What to copy: a path here, or BOX:PATH
    from: OsString,
    /// Where to: a path here, or BOX:PATH, from the box's home folder on
    to: OsString,
}

/// One end of a copy.
enum End<'a> {
    Here(&'a Path),
    In { name: &'a str, path: &'a [u8] },
}

impl<'a> End<'a> {
    /// A box's name or ID before the first colon makes it a path in that box.
    fn of(word: &'a OsStr) -> Self {
        let bytes = word.as_bytes();
        let colon = bytes.iter().position(|byte| *byte == b':');
        let name = colon.and_then(|at| std::str::from_utf8(&bytes[..at]).ok());
        match (name, colon) {
            (Some(name), Some(at)) if BoxName::parse(name).is_ok() || BoxId::parse(name).is_ok() => {
                let path = &bytes[at + 1..];
                // Nothing after the colon is the home folder, as it is for scp.
                Self::In { name, path: if path.is_empty() { b"." } else { path } }
            }
            _ => Self::Here(Path::new(word)),
        }
    }
}

impl Copy {
    pub(crate) fn run(self, common: &Common, printer: Printer) -> Result<u8, Fault> {
        let name = [&self.from, &self.to].into_iter().find_map(|word| match End::of(word) {
            End::In { name, .. } => Some(name),
            End::Here(_) => None,
        });
        let work = async {
            let boxes = folder::reading(common)?;
            let progress = Progress::new(printer, "copying");
            let count = |bytes, total| progress.bytes(bytes, total);
            let copied = match (End::of(&self.from), End::of(&self.to)) {
                (End::Here(from), End::In { name, path }) => {
                    let session = boxes.get(name)?.session()?;
                    progress.during(session.copy_in(from, path, &count)).await?
                }
                (End::In { name, path }, End::Here(to)) => {
                    let session = boxes.get(name)?.session()?;
                    progress.during(session.copy_out(path, to, &count)).await?
                }
                _ => {
                    return Err(Error::invalid("one end of a copy is in a box, and the other is here")
                        .fix("write the end in the box as BOX:PATH, such as dev:work")
                        .into());
                }
            };
            printer.answer(&value(&copied), || told(&copied))?;
            Ok(0)
        };
        folder::block_on(async { folder::noted(common, name.unwrap_or_default(), work.await).await })
    }
}

fn value(copied: &Copied) -> serde_json::Value {
    let skipped: Vec<_> = copied.skipped.iter().map(|path| path.to_string_lossy()).collect();
    json!({ "files": copied.files, "bytes": copied.bytes, "skipped": skipped })
}

fn told(copied: &Copied) -> String {
    let files = if copied.files == 1 { "file" } else { "files" };
    let mut text = format!("{} {files}, {}", copied.files, words::bytes(copied.bytes));
    for path in &copied.skipped {
        text.push_str(&format!(
            "\nleft out, as it is no file, folder or link: {}",
            lines(&path.to_string_lossy())
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_in_a_box(word: &str) -> bool {
        matches!(End::of(OsStr::new(word)), End::In { .. })
    }

    #[test]
    fn only_a_boxs_name_before_the_first_colon_means_a_box() {
        for word in ["dev:", "dev:a:b", "bxabcdefghijkl:/x", "dev:./x"] {
            assert!(is_in_a_box(word), "{word}");
        }
        for word in ["dev", "./dev:x", "/a:b", "Dev:x", "a b:c", ":x", ""] {
            assert!(!is_in_a_box(word), "{word}");
        }
    }
}
