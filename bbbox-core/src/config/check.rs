//! From a text or a value to a checked document: every problem at once, or a document that holds.
//!
//! Three passes, each on what the one before left whole: the shape against the published schema, then each part's own
//! rules (a driver's, a kind's), then the rules between parts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    Document, KindEntry, Problem, Problems,
    document::{BackendEntry, check_kind},
    problem::{field, item},
    schema, shape, text,
};
use crate::{driver::Drivers, id::KindId};

/// A document as someone hands it in, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// What it says.
    pub document: Document,
    /// The revision it was made from, where it names one.
    pub revision: Option<u64>,
}

impl Draft {
    /// The draft as TOML: `revision` first, then a section for each backend and kind.
    #[must_use]
    pub fn to_toml(&self) -> String {
        text::write(&self.to_map())
    }

    /// The draft as JSON, as interfaces pass it.
    #[must_use]
    pub fn to_json(&self) -> Value {
        Value::Object(self.to_map())
    }

    fn to_map(&self) -> Map<String, Value> {
        // Cannot fail: every key is text and every value came from JSON.
        let Ok(Value::Object(mut map)) = serde_json::to_value(&self.document) else {
            unreachable!("a document is a table")
        };
        if let Some(revision) = self.revision {
            map.insert("revision".to_owned(), revision.into());
        }
        map
    }
}

/// Checks `text`, TOML or JSON.
///
/// # Errors
/// Every problem, each with its line and column where the text is TOML.
pub fn check_text(text: &str, drivers: &Drivers) -> Result<Draft, Problems> {
    let read = text::read(text)?;
    check_value(read.value.clone(), drivers).map_err(|mut problems| {
        problems.locate(|path| read.place(text, path));
        problems
    })
}

/// Checks a document that came as JSON.
///
/// # Errors
/// Every problem.
pub fn check_value(mut value: Value, drivers: &Drivers) -> Result<Draft, Problems> {
    text::without_nulls(&mut value);
    let mut found = shape::differences(&schema::of(drivers), &value, "");
    found.extend(beyond_toml(&value, ""));
    let whole = |path: &str| !found.iter().any(|problem| is_within(&problem.path, path));

    let mut later = Vec::new();
    let mut document = Document::default();
    let (mut read, mut partly) = (Vec::new(), Vec::new());
    match value.get("backends").and_then(Value::as_array) {
        Some(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                let path = item("backends", index);
                if whole(&path) {
                    read_part(entry, &path, &mut later, |entry: BackendEntry| {
                        document.backends.push(entry.clone());
                        read.push((index, entry));
                    });
                } else if let Some(rest) = without_wrong(entry, &path, &found) {
                    partly.push((index, rest));
                }
            }
            later.extend(check_backends(&read, drivers));
            later.extend(check_rest(&partly, drivers));
        }
        None => document.backends = drivers.default_document().backends,
    }
    for (name, entry) in value.get("kinds").and_then(Value::as_object).into_iter().flatten() {
        let path = field("kinds", name);
        if let (true, Ok(kind)) = (whole(&path), KindId::parse(name.as_str())) {
            read_part(entry, &path, &mut later, |entry: KindEntry| {
                document.kinds.insert(kind, entry);
            });
        }
    }
    for (kind, entry) in &document.kinds {
        let path = field("kinds", kind.as_str());
        later.extend(check_kind(kind, entry).into_iter().map(|problem| problem.inside(&path)));
    }
    found.extend(later);
    Problems::none_of(found)?;
    Ok(Draft { document, revision: value.get("revision").and_then(Value::as_u64) })
}

fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn read_part<T: for<'de> Deserialize<'de>>(
    value: &Value,
    path: &str,
    found: &mut Vec<Problem>,
    take: impl FnOnce(T),
) {
    match T::deserialize(value) {
        Ok(part) => take(part),
        Err(error) => found.push(Problem::new(path, error.to_string())),
    }
}

/// What is left of the entry of a backend without the fields that are wrong in themselves, so that the rules for the
/// others are not a second round.
fn without_wrong(entry: &Value, path: &str, found: &[Problem]) -> Option<BackendEntry> {
    let fields = entry.as_object()?.iter();
    let right = fields.filter(|(name, _)| !found.iter().any(|p| is_within(&p.path, &field(path, name))));
    let rest: Map<_, _> = right.map(|(name, value)| (name.clone(), value.clone())).collect();
    BackendEntry::deserialize(Value::Object(rest)).ok()
}

/// What drivers say about what is left of entries. That a field is missing says nothing here: it may be the wrong one.
fn check_rest(backends: &[(usize, BackendEntry)], drivers: &Drivers) -> Vec<Problem> {
    let said = backends.iter().filter_map(|(index, entry)| {
        let driver = drivers.get(&entry.backend_type)?;
        let wrong = driver.check(&Value::Object(entry.fields.clone())).into_iter();
        Some(wrong.filter(|p| !p.path.is_empty()).map(move |p| p.inside(&item("backends", *index))))
    });
    said.flatten().collect()
}

/// What drivers say about their backends, and what two backends may not share.
fn check_backends(backends: &[(usize, BackendEntry)], drivers: &Drivers) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut ids = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for (index, entry) in backends {
        let (index, path) = (*index, item("backends", *index));
        if let Some(first) = ids.insert(&entry.id, index) {
            found.push(
                Problem::new(
                    field(&path, "id"),
                    format!("{:?} is backends[{first}] already", entry.id.as_str()),
                )
                .allowed("an ID of its own for each backend"),
            );
            ids.insert(&entry.id, first);
        }
        let Some(driver) = drivers.get(&entry.backend_type) else { continue };
        let fields = Value::Object(entry.fields.clone());
        let wrong = driver.check(&fields);
        if wrong.is_empty()
            && let Some(key) = driver.alone(&fields)
            && let Some(first) = keys.insert((entry.backend_type.as_str(), key.clone()), index)
        {
            let words = format!("{key} is what backends[{first}] uses already");
            found.push(
                Problem::new(&path, words).allowed(format!("one {} backend for it", entry.backend_type)),
            );
        }
        found.extend(wrong.into_iter().map(|problem| problem.inside(&path)));
    }
    found
}

/// Numbers that JSON can hold and TOML cannot: what is checked can always be shown as TOML.
fn beyond_toml(value: &Value, path: &str) -> Vec<Problem> {
    match value {
        Value::Number(n) if n.is_u64() && !n.is_i64() => {
            vec![Problem::new(path, format!("is {n}")).allowed(format!("a number up to {}", i64::MAX))]
        }
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(n, inner)| beyond_toml(inner, &item(path, n))).collect()
        }
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, inner)| beyond_toml(inner, &field(path, name))).collect()
        }
        _ => Vec::new(),
    }
}
