//! What a box says to the runner's reader, for [`crate::fuzzing`].

use std::io::Cursor;

use futures::FutureExt;

use super::{
    message::{Message, Output, parse},
    open::{hello, take_lines},
    runner::Shared,
};
use crate::transport::Source;

pub use super::copy::fuzzing::{archive, guard};

/// The word by which the greeting is known.
const NONCE: &str = "N0123456789abcdef";
/// How much of a file somebody waits for.
const WANTED: usize = 64;

/// A runner's stream: a greeting after whatever noise, then messages, while somebody waits for each kind of them.
pub fn runner(bytes: &[u8]) {
    let mut from: Source = Box::new(Cursor::new(bytes.to_vec()));
    // What has all its bytes waits for nothing.
    if let Some(Ok((dir, rest))) = hello(&mut from, NONCE).now_or_never() {
        assert!(bytes.ends_with(&rest) && !dir.contains('\n'));
    }
    for line in bytes.split(|b| *b == b'\n') {
        let brought = match parse(line) {
            Some(Message::Ended { output: Output::Inline { out, err }, .. }) => out.len() + err.len(),
            Some(Message::Bytes(bytes)) => bytes.len(),
            _ => 0,
        };
        assert!(2 * brought <= line.len(), "{brought} bytes of {}", line.len());
    }
    let shared = Shared::default();
    let waiting = shared.waits_for_all(WANTED);
    let mut seen = bytes.to_vec();
    take_lines(&mut seen, &shared);
    assert!(!seen.contains(&b'\n') && bytes.ends_with(&seen));
    assert!(waiting.brought().is_none_or(|bytes| bytes <= WANTED));
    shared.give_up();
}
