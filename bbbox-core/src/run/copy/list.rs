//! The list that the box checks files by: shell text of sums and names, made here and run there.

use std::fmt;

use crate::{error::Result, run::posix};

/// What a file is checked by: its CRC and its size, as POSIX `cksum` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) crc: u32,
    pub(super) size: u64,
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.crc, self.size)
    }
}

/// A sum of bytes as they pass.
pub(super) struct Summing {
    crc: crc_fast::Digest,
    size: u64,
}

impl Summing {
    pub(super) fn new() -> Self {
        Self { crc: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Cksum), size: 0 }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
        self.size += bytes.len() as u64;
    }

    pub(super) fn finish(mut self) -> Sum {
        // POSIX: the size counts too, its lowest byte first and without zero bytes at its end.
        let size = self.size.to_le_bytes();
        let significant = size.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        self.crc.update(&size[..significant]);
        // The CRC has 32 bits, whatever the type that holds it.
        Sum { crc: self.crc.finalize() as u32, size: self.size }
    }
}

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
    pub(super) fn file(&mut self, name: &[u8], sum: Sum) -> Result<()> {
        if name.iter().any(|b| matches!(b, b'\n' | b'\r' | b'\\')) {
            self.text.extend_from_slice(format!("bb_one '{sum}' ").as_bytes());
            posix::put_word(&mut self.text, name)?;
            self.text.push(b'\n');
            return Ok(());
        }
        self.names.push(b' ');
        posix::put_word(&mut self.names, name)?;
        self.sums.push(sum.to_string());
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

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };

    use super::Summing;

    /// Sizes around the bytes that the size itself adds.
    #[test]
    fn a_sum_is_what_cksum_says() {
        for size in [0, 1, 3, 255, 256, 65_535, 65_536, 1 << 20, (1 << 24) + 5] {
            let bytes: Vec<u8> =
                (0..size).map(|n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            let mut sum = Summing::new();
            bytes.chunks(1000).for_each(|some| sum.update(some));
            let mut cksum =
                Command::new("cksum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            cksum.stdin.take().unwrap().write_all(&bytes).unwrap();
            let said = String::from_utf8(cksum.wait_with_output().unwrap().stdout).unwrap();
            assert_eq!(sum.finish().to_string(), said.trim());
        }
    }
}
