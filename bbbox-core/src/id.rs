//! Typed identifiers.
//!
//! Parsing validates, so nothing unvalidated is ever spliced into a label, a path or a command. Generated IDs
//! are a two-letter prefix and twelve characters of `a-z0-9`: lower case, because some providers fold case in
//! tags and host names.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How many characters follow the prefix of a generated ID: 36^12 is about 4.7e18.
const RANDOM_LEN: usize = 12;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Draws the random part of an ID from `next`, a source of 64-bit numbers.
fn draw(prefix: &str, mut next: impl FnMut() -> u64) -> String {
    let mut text = String::with_capacity(prefix.len() + RANDOM_LEN);
    text.push_str(prefix);
    while text.len() < prefix.len() + RANDOM_LEN {
        // The top of the range is dropped, so that every character is equally likely.
        let byte = (next() >> 32) as u8;
        if byte < 252 {
            text.push(ALPHABET[usize::from(byte % 36)] as char);
        }
    }
    text
}

fn is_drawn(prefix: &str, text: &str) -> bool {
    text.strip_prefix(prefix)
        .is_some_and(|rest| rest.len() == RANDOM_LEN && rest.bytes().all(|b| ALPHABET.contains(&b)))
}

fn is_word(text: &str, longest: usize) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.len() <= longest
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
        && !text.ends_with('-')
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:expr, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks `text` and takes it as an ID.
            ///
            /// # Errors
            /// `Invalid`, with the rule, when `text` is not of this ID's form.
            pub fn parse(text: impl Into<String>) -> Result<Self> {
                let text = text.into();
                let valid: fn(&str) -> bool = $valid;
                if valid(&text) {
                    Ok(Self(text))
                } else {
                    Err(Error::invalid(format!("{text:?} is not {}", $what)).fix(format!("use {}", $rule)))
                }
            }

            /// The ID as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = Error;
            fn from_str(text: &str) -> Result<Self> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                Self::parse(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

macro_rules! drawn_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $what:literal) => {
        id!($(#[$doc])* $name, $what, concat!($prefix, " and 12 characters of a-z and 0-9"), |t| is_drawn($prefix, t));

        impl $name {
            /// Draws a new ID from `next`, a source of 64-bit random numbers.
            pub fn draw(next: impl FnMut() -> u64) -> Self {
                Self(draw($prefix, next))
            }
        }
    };
}

drawn_id!(
    /// One box: `bx` and 12 characters. Never used twice.
    BoxId, "bx", "a box ID"
);
drawn_id!(
    /// One install of bb-box: `in` and 12 characters. It is on every guest the install makes.
    InstallId, "in", "an install ID"
);
drawn_id!(
    /// One command in a box: `jb` and 12 characters, chosen before the command starts.
    JobId, "jb", "a job ID"
);
drawn_id!(
    /// One journalled operation: `op` and 12 characters.
    OperationId, "op", "an operation ID"
);
drawn_id!(
    /// One snapshot: `sn` and 12 characters.
    SnapshotId, "sn", "a snapshot ID"
);
id!(
    /// A thread of the program around bb-box, in that program's own words.
    ThreadId, "a thread ID", "1 to 128 characters of a-z, A-Z, 0-9, '.', '_', ':' and '-', not beginning with '-'",
    |t| (1..=128).contains(&t.len())
        && !t.starts_with('-')
        && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(&b))
);
id!(
    /// One configured backend, such as `local`: what `on` names and what a box's record holds.
    BackendId, "a backend ID", "a lower-case letter, then up to 39 of a-z, 0-9 and '-'", |t| is_word(t, 40)
);
id!(
    /// A kind of box: a shared word for what a box promises.
    KindId, "a kind", "a lower-case letter, then up to 39 of a-z, 0-9 and '-'", |t| is_word(t, 40)
);
id!(
    /// A box's name: what people type, and the box's host name. One live box of an install has it.
    BoxName, "a box name", "a lower-case letter, then up to 62 of a-z, 0-9 and '-', not the form of a box ID",
    |t| is_word(t, 63) && !is_drawn("bx", t)
);
id!(
    /// The caller's own ID for a request: the same request said again is the same operation.
    RequestId, "a request ID", "1 to 128 characters of a-z, A-Z, 0-9, '.', '_', ':', '/' and '-'",
    |t| (1..=128).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b))
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_drawn_id_parses_and_keeps_its_text(seed: u64) {
            let mut n = seed;
            let id = BoxId::draw(|| { n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); n });
            prop_assert_eq!(BoxId::parse(id.as_str()).unwrap(), id);
        }

        #[test]
        fn nothing_that_parses_could_leave_a_path_or_a_command(text in any::<String>()) {
            for ok in [BoxId::parse(text.clone()).is_ok(), BackendId::parse(text.clone()).is_ok(),
                       BoxName::parse(text.clone()).is_ok(), ThreadId::parse(text.clone()).is_ok()] {
                if ok {
                    prop_assert!(!text.contains(['/', ' ', '\'', '"', '$', '\n', '\\', ';', '`', '\0']));
                    prop_assert!(!text.starts_with('-') && !text.is_empty());
                }
            }
        }
    }

    #[test]
    fn a_name_cannot_be_mistaken_for_an_id() {
        assert!(BoxName::parse("bxabcdefghijkl").is_err());
        assert!(BoxName::parse("bx").is_ok());
    }

    #[test]
    fn a_bad_id_says_what_was_given_and_what_is_right() {
        let error = BoxId::parse("bx; rm -rf").unwrap_err();
        assert!(error.to_string().contains("\"bx; rm -rf\""), "{error}");
        assert!(error.how_to_fix().is_some_and(|f| f.contains("12 characters")), "{error:?}");
    }
}
