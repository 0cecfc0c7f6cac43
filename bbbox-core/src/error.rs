//! The one error type of this crate's boundary.
//!
//! An error carries what a program should do (`kind`), whether the thing may have happened all the same
//! (`effect`), the words for a person, what to do about it, and its source. A provider's own words are kept
//! as the source, never rewritten. No secret may ever be put into an error.

use std::{error::Error as StdError, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller should make of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// Nothing that may be tried has room now.
    NoCapacity,
    /// It does not answer now; the same call may succeed later.
    Unavailable,
    /// What was named does not exist any more, or never did.
    Gone,
    /// It exists and is in use or locked.
    Busy,
    /// A rule forbids it; the words say which.
    Refused,
    /// It is not the caller's.
    Denied,
    /// The caller's input is wrong.
    Invalid,
    /// The caller took the request back.
    Cancelled,
    /// It was tried and went wrong.
    Failed,
}

impl ErrorKind {
    /// The kind as one word, the same in JSON and in text.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoCapacity => "no-capacity",
            Self::Unavailable => "unavailable",
            Self::Gone => "gone",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// Whether what was asked for may have happened although an error came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// Nothing was changed.
    #[default]
    None,
    /// It may have happened: look before trying again.
    Unknown,
    /// It did happen.
    Applied,
}

/// What failed, why, and what to do.
///
/// Cheap to clone: an operation's one error goes to everyone who waits for it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Error(Box<Inner>);

#[derive(Clone, Serialize, Deserialize)]
struct Inner {
    kind: ErrorKind,
    #[serde(default)]
    effect: Effect,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    context: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "source_as_text")]
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `message` says what was attempted, with its values.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            effect: Effect::None,
            message: message.into(),
            fix: None,
            context: Vec::new(),
            source: None,
        }))
    }

    /// A fault in the caller's input.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// A rule that forbids it.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, message)
    }

    /// What was named is not there.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Gone, message)
    }

    /// It does not answer now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// It was tried and went wrong.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// The caller took the request back.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cancelled, message)
    }

    /// Says whether it may have happened all the same.
    #[must_use]
    pub fn effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Says what to do about it: an imperative without a full stop.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.0.fix = Some(fix.into());
        self
    }

    /// Adds where it happened, such as `.at("box", id)`. Never a secret.
    #[must_use]
    pub fn at(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.0.context.push((name.to_owned(), value.to_string()));
        self
    }

    /// Keeps what caused it.
    #[must_use]
    pub fn because(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Keeps a cause that is only words, such as a provider's answer.
    #[must_use]
    pub fn because_of(self, words: impl Into<String>) -> Self {
        self.because(Words { text: words.into(), source: None })
    }

    /// What a program should make of it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether it may have happened all the same.
    #[must_use]
    pub fn effect_of(&self) -> Effect {
        self.0.effect
    }

    /// What to do about it, if that is known.
    #[must_use]
    pub fn how_to_fix(&self) -> Option<&str> {
        self.0.fix.as_deref()
    }

    /// Where it happened, in the order it was added.
    #[must_use]
    pub fn context(&self) -> &[(String, String)] {
        &self.0.context
    }

    /// The message, then each cause once, joined by `: `. The one way a chain is printed.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(cause) = next {
            let words = cause.to_string();
            if !text.ends_with(&words) {
                text.push_str(": ");
                text.push_str(&words);
            }
            next = cause.source();
        }
        text
    }

    /// The chain and, in brackets, what to do about it: how an error stands in a list, where it has one line.
    #[must_use]
    pub fn in_a_line(&self) -> String {
        match self.how_to_fix() {
            Some(fix) => format!("{} ({fix})", self.chain()),
            None => self.chain(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, effect {:?}", self.chain(), self.0.kind.as_str(), self.0.effect)?;
        for (name, value) in &self.0.context {
            write!(f, ", {name} {value}")?;
        }
        f.write_str(")")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

/// A cause that is only words: a provider's answer, or a source read back from the journal.
#[derive(Debug)]
struct Words {
    text: String,
    source: Option<Box<Words>>,
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Words {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

/// The journal and JSON keep a source as the list of its words.
mod source_as_text {
    use super::{Arc, StdError, Words};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Source = Option<Arc<dyn StdError + Send + Sync>>;

    pub(super) fn serialize<S: Serializer>(source: &Source, to: S) -> Result<S::Ok, S::Error> {
        let mut words = Vec::new();
        let mut next = source.as_deref().map(|e| e as &dyn StdError);
        while let Some(cause) = next {
            words.push(cause.to_string());
            next = cause.source();
        }
        words.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Source, D::Error> {
        let mut chain: Option<Words> = None;
        for text in Vec::<String>::deserialize(from)?.into_iter().rev() {
            chain = Some(Words { text, source: chain.map(Box::new) });
        }
        Ok(chain.map(|words| Arc::new(words) as _))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_read_back_from_the_journal_says_the_same() {
        let error = Error::unavailable("could not start box bx1")
            .effect(Effect::Unknown)
            .fix("start the engine")
            .at("backend", "local")
            .because(std::io::Error::other("connection refused"));
        let text = serde_json::to_string(&error).unwrap();
        let back: Error = serde_json::from_str(&text).unwrap();
        assert_eq!(format!("{back:?}"), format!("{error:?}"));
        assert_eq!(back.how_to_fix(), error.how_to_fix());
    }

    #[test]
    fn in_a_line_stand_what_why_and_what_to_do() {
        let error = Error::unavailable("no answer").because_of("refused");
        assert_eq!(error.in_a_line(), "no answer: refused");
        assert_eq!(error.fix("start it").in_a_line(), "no answer: refused (start it)");
    }

    #[test]
    fn a_chain_says_each_cause_once() {
        let error = Error::failed("a").because(Error::failed("b: c").because_of("c"));
        assert_eq!(error.chain(), "a: b: c");
    }
}
