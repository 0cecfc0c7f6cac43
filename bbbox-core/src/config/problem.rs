//! What is wrong with a configuration: every problem with its field's path and what is allowed there.
//!
//! A check never stops at the first problem: people mend a file once, not once a field.

use std::fmt;

use serde::Serialize;

use crate::error::Error;

/// One thing that is wrong in a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The field, such as `backends[1].memory-reserve`; empty for the document itself.
    pub path: String,
    /// What is wrong, with the value that was given.
    pub message: String,
    /// What is allowed there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// Where it is in the text, from 1, where there is a text that has lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The column in that line, in characters from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
}

impl Problem {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into(), allowed: None, line: None, column: None }
    }

    /// Says what is allowed.
    #[must_use]
    pub fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(allowed.into());
        self
    }

    /// The same problem in a field of something larger: `inside("backends[1]")` of `socket`.
    #[must_use]
    pub fn inside(mut self, outer: &str) -> Self {
        self.path = match (outer, self.path.as_str()) {
            ("", _) => self.path,
            (_, "") => outer.to_owned(),
            (_, inner) if inner.starts_with('[') => format!("{outer}{inner}"),
            (_, inner) => format!("{outer}.{inner}"),
        };
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "line {line}, column {column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        self.allowed.as_ref().map_or(Ok(()), |allowed| write!(f, "; allowed: {allowed}"))
    }
}

/// Every problem of one document; never empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// `found` as an error, or `Ok` when there is none.
    ///
    /// # Errors
    /// The problems, in the order in which they were found.
    pub fn none_of(found: Vec<Problem>) -> Result<(), Self> {
        if found.is_empty() { Ok(()) } else { Err(Self(found)) }
    }

    /// The problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// Puts each problem where `place` says its path stands in a text, and them all in the text's order.
    pub(super) fn locate(&mut self, place: impl Fn(&str) -> Option<(usize, usize)>) {
        for problem in &mut self.0 {
            if let Some((line, column)) = place(&problem.path) {
                (problem.line, problem.column) = (Some(line), Some(column));
            }
        }
        self.0.sort_by_key(|problem| (problem.line, problem.column));
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.0.iter().enumerate() {
            write!(f, "{}{problem}", if n == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl From<Problems> for Error {
    fn from(problems: Problems) -> Self {
        let message = match problems.0.as_slice() {
            [_] => "the configuration has a problem".to_owned(),
            many => format!("the configuration has {} problems", many.len()),
        };
        Self::invalid(message).because(problems)
    }
}

/// The path of the field `name` of what is at `outer`.
pub(super) fn field(outer: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    match (outer.is_empty(), bare) {
        (true, true) => name.to_owned(),
        (false, true) => format!("{outer}.{name}"),
        (_, false) => format!("{outer}[{name:?}]"),
    }
}

/// The path of the item `index` of the list at `outer`.
pub(super) fn item(outer: &str, index: usize) -> String {
    format!("{outer}[{index}]")
}

/// The one of `names` that `given` was most likely meant to be.
pub(crate) fn nearest<'a>(given: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        .filter(|(distance, _)| *distance <= (given.len() / 3).max(1) && *distance < given.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_a_person_would_write_it() {
        assert_eq!(field(&item("backends", 1), "memory-reserve"), "backends[1].memory-reserve");
        assert_eq!(field("kinds", "a b"), "kinds[\"a b\"]");
        assert_eq!(Problem::new("[0]", "x").inside("hosts").path, "hosts[0]");
        assert_eq!(Problem::new("", "x").inside("hosts").path, "hosts");
    }

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["memory", "cores", "disk", "on"];
        assert_eq!(nearest("memry", names.into_iter()), Some("memory"));
        assert_eq!(nearest("core", names.into_iter()), Some("cores"));
        assert_eq!(nearest("colour", names.into_iter()), None);
    }

    #[test]
    fn an_error_says_every_problem() {
        let error = Error::from(Problems(vec![
            Problem::new("a", "is missing").allowed("true or false"),
            Problem { line: Some(2), column: Some(3), ..Problem::new("b", "is text") },
        ]));
        assert_eq!(
            error.chain(),
            "the configuration has 2 problems: a: is missing; allowed: true or false\n\
             line 2, column 3: b: is text"
        );
    }
}
