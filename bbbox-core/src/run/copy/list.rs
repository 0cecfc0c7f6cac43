//! The list that the box checks files by: shell text of sums and names, made here and run there.

use crate::{error::Result, run::posix};

/// The SHA-256 of a file.
pub(super) type Sum = [u8; 32];

/// Files from this size on are summed by what is fastest for large ones.
const LARGE: u64 = 4 << 20;
/// How many files go into one command line, and how many bytes of names.
const MOST: usize = 200;
const MOST_BYTES: usize = 60_000;

/// A growing list.
#[derive(Default)]
pub(super) struct List {
    text: Vec<u8>,
    sums: Vec<String>,
    names: Vec<u8>,
}

impl List {
    /// Adds one file by its name below the directory where the list is run.
    pub(super) fn file(&mut self, name: &[u8], size: u64, sum: &Sum) -> Result<()> {
        let sum = hex::encode(sum);
        let odd = name.iter().any(|b| matches!(b, b'\n' | b'\r' | b'\\'));
        if size >= LARGE || odd {
            let word = if size >= LARGE { "bb_large " } else { "bb_one " };
            self.text.extend_from_slice(word.as_bytes());
            self.text.extend_from_slice(sum.as_bytes());
            self.text.push(b' ');
            posix::put_word(&mut self.text, name)?;
            self.text.push(b'\n');
            return Ok(());
        }
        self.names.push(b' ');
        posix::put_word(&mut self.names, name)?;
        self.sums.push(sum);
        if self.sums.len() == MOST || self.names.len() > MOST_BYTES {
            self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) {
        if !self.sums.is_empty() {
            let sums = format!("bb_w='{}'; bb_many", std::mem::take(&mut self.sums).join(" "));
            self.text.extend_from_slice(sums.as_bytes());
            self.text.append(&mut self.names);
            self.text.push(b'\n');
        }
    }

    /// The list as it is sent. Its last line is how the box knows that it is whole.
    pub(super) fn finish(mut self, more: &[u8]) -> Vec<u8> {
        self.flush();
        self.text.extend_from_slice(more);
        self.text.extend_from_slice(b"bb_all=yes\n");
        self.text
    }
}

/// The part of a list that says where things go: directories with their modes, and what lies in each.
#[derive(Default)]
pub(super) struct Places {
    text: Vec<u8>,
    dir: Option<Vec<u8>>,
    names: usize,
    bytes: usize,
}

impl Places {
    /// A directory, after its parent.
    pub(super) fn dir(&mut self, name: &[u8], mode: u32) -> Result<()> {
        self.end();
        self.text.extend_from_slice(format!("bb_sub {:o} ", mode | 0o700).as_bytes());
        posix::put_word(&mut self.text, name)?;
        if mode & 0o700 != 0o700 {
            self.text.extend_from_slice(format!(" {mode:o}").as_bytes());
        }
        self.text.push(b'\n');
        Ok(())
    }

    /// A file or a link. `dir` ends in `/` or is empty.
    pub(super) fn put(&mut self, dir: &[u8], name: &[u8]) -> Result<()> {
        if self.dir.as_deref() != Some(dir) || self.names == MOST || self.bytes > MOST_BYTES {
            self.end();
            self.text.extend_from_slice(b"bb_put ");
            posix::put_word(&mut self.text, dir)?;
            self.dir = Some(dir.to_vec());
        }
        self.text.push(b' ');
        posix::put_word(&mut self.text, name)?;
        self.names += 1;
        self.bytes += name.len() + dir.len();
        Ok(())
    }

    fn end(&mut self) {
        if self.dir.take().is_some() {
            self.text.push(b'\n');
        }
        (self.names, self.bytes) = (0, 0);
    }

    /// The function of the list that places everything, and the mode of the top.
    pub(super) fn finish(mut self, top: u32) -> Vec<u8> {
        self.end();
        let mut text = format!("bb_top={top:o}\nbb_place() {{\n:\n").into_bytes();
        text.append(&mut self.text);
        text.extend_from_slice(b"}\n");
        text
    }
}
