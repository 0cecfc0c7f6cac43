//! Words and scripts for a POSIX sh, as bytes.
//!
//! The one place that quotes: nothing else puts a value into shell text. Every byte but NUL arrives as it is.

use crate::error::{Error, Result};

/// `word` as one word of shell text.
///
/// # Errors
/// `Invalid` when it holds a NUL, which no argument can.
pub fn quote(word: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::with_capacity(word.len() + 2);
    put_word(&mut text, word)?;
    Ok(text)
}

/// Appends `word` to `text` as one word.
pub(super) fn put_word(text: &mut Vec<u8>, word: &[u8]) -> Result<()> {
    put(text, word, b"\n")
}

/// Appends `word` as one word without a newline; the shell's variable `bb_n` must hold one.
pub(super) fn put_word_in_line(text: &mut Vec<u8>, word: &[u8]) -> Result<()> {
    put(text, word, b"'\"$bb_n\"'")
}

fn put(text: &mut Vec<u8>, word: &[u8], newline: &[u8]) -> Result<()> {
    text.push(b'\'');
    for &byte in word {
        match byte {
            0 => {
                return Err(Error::invalid("a command's words cannot hold a NUL byte")
                    .fix("pass it through the command's input or a file"));
            }
            b'\'' => text.extend_from_slice(b"'\\''"),
            b'\n' => text.extend_from_slice(newline),
            _ => text.push(byte),
        }
    }
    text.push(b'\'');
    Ok(())
}

/// Whether a shell can export a variable of this name.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The argv that makes a shell read `len` bytes of its stdin and run them as a script. What follows on stdin is
/// the script's own: dd with blocks of one byte never reads ahead. The text is the same in every shell.
pub(super) fn loader(len: usize) -> [String; 3] {
    let dd = format!("PATH=${{PATH:+$PATH:}}/usr/bin:/bin; dd bs=1 count={len} 2>/dev/null");
    ["/bin/sh".to_owned(), "-c".to_owned(), format!("eval \"$({dd})\"")]
}

/// A guest script as it is sent: without the lines that are only comments.
pub(super) fn sent(script: &str) -> String {
    let mut text = String::with_capacity(script.len());
    for line in script.lines().filter(|line| !line.trim_start().starts_with('#')) {
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn shells() -> [&'static [&'static str]; 3] {
        [&["dash"], &["bash", "--posix"], &["busybox", "sh"]]
    }

    fn printed(shell: &[&str], text: &[u8]) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let text = std::ffi::OsStr::from_bytes(text);
        let out = Command::new(shell[0]).args(&shell[1..]).arg("-c").arg(text).output().unwrap();
        assert!(out.stderr.is_empty(), "{shell:?} said {:?}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn words_of_any_bytes_reach_a_command_unharmed(
            words in prop::collection::vec(prop::collection::vec(1_u8..=255, 0..40), 1..6)
        ) {
            let (mut plain, mut line) = (b"LC_ALL=C; printf '%s\\n' ".to_vec(), b"LC_ALL=C; bb_n='\n'; printf '%s\\n' ".to_vec());
            let mut want = Vec::new();
            for word in &words {
                put_word(&mut plain, word).unwrap();
                put_word_in_line(&mut line, word).unwrap();
                plain.push(b' ');
                line.push(b' ');
                want.extend_from_slice(word);
                want.push(b'\n');
            }
            for shell in shells() {
                prop_assert_eq!(&printed(shell, &plain), &want);
                prop_assert_eq!(&printed(shell, &line), &want);
            }
        }
    }

    #[test]
    fn a_nul_is_refused() {
        assert!(quote(b"a\0b").is_err());
    }

    #[test]
    fn only_identifiers_are_names() {
        assert!(is_name("PATH") && is_name("_a1"));
        assert!(!is_name("") && !is_name("1a") && !is_name("a-b") && !is_name("a b") && !is_name("ä"));
    }

    #[test]
    fn comments_are_not_sent() {
        assert_eq!(sent("#!/bin/sh\n# a\nb # c\n  # d\ne\n"), "b # c\ne\n");
    }
}
