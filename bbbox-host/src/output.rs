//! What a command wrote, as JSON: text where it is text, base64 where it is not, so that no byte is lost.

use base64::{Engine, prelude::BASE64_STANDARD};
use bbbox::run::{Ended, Kept, RunResult};
use serde_json::{Value, json};

/// A run's result for a program.
pub(crate) fn result(result: &RunResult) -> Value {
    match result {
        RunResult::Running(job) => json!({ "job": job, "state": "running" }),
        RunResult::Ended(ended) => self::ended(ended),
    }
}

/// A job that ended, for a program.
pub(crate) fn ended(ended: &Ended) -> Value {
    json!({
        "job": ended.job,
        "state": "ended",
        "exit": ended.exit,
        "stdout": kept(&ended.stdout),
        "stderr": kept(&ended.stderr),
    })
}

/// What was kept of a stream: all of it, or its beginning and its end.
fn kept(kept: &Kept) -> Value {
    match kept.whole() {
        Some(whole) => {
            let mut value = bytes(&whole);
            value["total"] = kept.total.into();
            value
        }
        None => json!({
            "head": bytes(&kept.head[..whole_characters(&kept.head)]),
            "tail": bytes(&kept.tail[first_character(&kept.tail)..]),
            "total": kept.total,
        }),
    }
}

/// Bytes as `{"text": …}`, or `{"base64": …}` when they are not UTF-8.
pub(crate) fn bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "base64": BASE64_STANDARD.encode(bytes) }),
    }
}

/// Where `bytes` end when a character that was cut at their end is left out.
fn whole_characters(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Where the first whole character begins; 0 when what comes before it is no cut character.
fn first_character(bytes: &[u8]) -> usize {
    let cut = bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    if std::str::from_utf8(&bytes[cut..]).is_ok() { cut } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_survive() {
        assert_eq!(bytes(b"h\xc3\xa4"), json!({ "text": "hä" }));
        assert_eq!(bytes(b"\xff\x00"), json!({ "base64": "/wA=" }));
    }

    #[test]
    fn a_character_that_was_cut_does_not_make_text_into_base64() {
        let part = Kept { head: b"ab\xc3".to_vec(), tail: b"\xa4cd".to_vec(), total: 100 };
        let value = kept(&part);
        assert_eq!(value["head"], json!({ "text": "ab" }));
        assert_eq!(value["tail"], json!({ "text": "cd" }));
        assert_eq!(value["total"], 100);
    }
}
