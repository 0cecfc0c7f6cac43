//! The configuration in the database: one row, taken only while its revision is still the newest.
//!
//! What is stored is the checked document as JSON. It is not checked again here: a program with fewer drivers can
//! still read it, and says so where it would build the backend it has no driver for.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use super::{Document, Draft};
use crate::{
    driver::Drivers,
    error::{Error, ErrorKind, Result},
    store::damaged,
};

/// The configuration as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    /// What it says.
    pub document: Document,
    /// How often it was changed; 0 when nothing is stored and `document` is the default.
    pub revision: u64,
    /// When and by whom it was changed last; `None` at revision 0.
    pub changed: Option<Change>,
}

/// A change of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Timestamp,
    /// Who, in the words that people see, such as `by a bbbox command`.
    pub by: String,
}

/// A configuration that was put in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// What holds now.
    pub stored: Stored,
    /// What it leaves to be done, in words: boxes whose backend it does not have.
    pub warnings: Vec<String>,
}

impl Stored {
    /// The stored document with its revision, as it is shown and handed in again.
    #[must_use]
    pub fn draft(&self) -> Draft {
        Draft { document: self.document.clone(), revision: Some(self.revision) }
    }
}

const UNREADABLE: &str = "could not read the configuration from the database";

/// The configuration that holds: what is stored, or the default of `drivers`.
///
/// # Errors
/// `Failed` when the database cannot be read, or holds what no version of this program wrote.
pub(crate) fn load(db: &Connection, drivers: &Drivers) -> Result<Stored> {
    let row = db
        .prepare_cached("SELECT revision, document, changed_at, changed_by FROM configuration")
        .and_then(|mut query| {
            query
                .query_row([], |row| {
                    Ok((
                        row.get::<_, i64>(0)?.unsigned_abs(),
                        row.get::<_, String>(1)?,
                        row.get::<_, String>(2)?,
                        row.get(3)?,
                    ))
                })
                .optional()
        })
        .map_err(|error| Error::failed(UNREADABLE).because(error))?;
    let Some((revision, document, at, by)) = row else {
        return Ok(Stored { document: drivers.default_document(), revision: 0, changed: None });
    };
    let document = serde_json::from_str(&document).map_err(|error| damaged(UNREADABLE, error))?;
    let at = at.parse().map_err(|error: jiff::Error| damaged(UNREADABLE, error))?;
    Ok(Stored { document, revision, changed: Some(Change { at, by }) })
}

/// Stores `draft` when the revision it was made from is still the newest, and gives what is stored then.
///
/// A draft that says what is stored already changes nothing, whatever revision it names. Call it in a transaction
/// that began as a write.
///
/// # Errors
/// `Busy` when the configuration was changed since, or when a draft that names no revision would change one that is
/// stored; nothing is written then. `Failed` when the database cannot be written.
pub(crate) fn save_if(db: &Connection, draft: &Draft, by: &Change, drivers: &Drivers) -> Result<Stored> {
    let now = load(db, drivers)?;
    if now.revision > 0 && now.document == draft.document {
        return Ok(now);
    }
    if draft.revision.unwrap_or(0) != now.revision {
        return Err(conflict(&now, draft));
    }
    let unwritable = || Error::failed("could not store the configuration");
    let document = serde_json::to_string(&draft.document).map_err(|error| unwritable().because(error))?;
    let revision = now.revision + 1;
    db.prepare_cached(
        "INSERT INTO configuration(one, revision, document, changed_at, changed_by) VALUES(1, ?1, ?2, ?3, ?4)
         ON CONFLICT(one) DO UPDATE SET revision = ?1, document = ?2, changed_at = ?3, changed_by = ?4",
    )
    .and_then(|mut change| {
        change.execute(params![revision.cast_signed(), document, by.at.to_string(), by.by])
    })
    .map_err(|error| unwritable().because(error))?;
    Ok(Stored { document: draft.document.clone(), revision, changed: Some(by.clone()) })
}

fn conflict(now: &Stored, draft: &Draft) -> Error {
    let changed =
        now.changed.as_ref().map(|c| format!(", changed {} at {:.0}", c.by, c.at)).unwrap_or_default();
    let yours = match draft.revision {
        Some(revision) => format!("this document was made from revision {revision}"),
        None => "this document does not say which revision it was made from".to_owned(),
    };
    let differ = differing(now, draft);
    Error::new(
        ErrorKind::Busy,
        format!("the configuration is at revision {}{changed}, and {yours}; they differ in {differ}", now.revision),
    )
    .fix(format!(
        "look at what is there now (`bbbox config show`), bring your change into it, and apply that with `revision = {}`",
        now.revision
    ))
    .at("revision", now.revision)
}

/// The fields in which a draft differs from what is stored, at most five by name.
fn differing(now: &Stored, draft: &Draft) -> String {
    let strip = |document: &Document| Draft { document: document.clone(), revision: None }.to_json();
    let mut paths = Vec::new();
    compare(&strip(&now.document), &strip(&draft.document), "", &mut paths);
    let more = paths.len().saturating_sub(5);
    paths.truncate(5);
    let names = paths.join(", ");
    if more == 0 { names } else { format!("{names} and {more} more fields") }
}

fn compare(a: &Value, b: &Value, path: &str, differing: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let both: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for name in both {
                let at = super::problem::field(path, name);
                let of = |map: &serde_json::Map<String, Value>| map.get(name).cloned().unwrap_or_default();
                compare(&of(a), &of(b), &at, differing);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(a, b, &super::problem::item(path, index), differing);
            }
        }
        (a, b) if a != b => differing.push(path.to_owned()),
        _ => {}
    }
}
