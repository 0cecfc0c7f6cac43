//! The document as text: TOML as people keep it in a file, JSON as interfaces pass it.
//!
//! Reading gives one value for both, and where each field stands in a TOML text, so that a problem can say its line.
//! Writing gives TOML with a section for each backend and kind, and everything inside a section on its own line.
//! It knows nothing of what the fields mean.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    json,
    problem::{Problem, Problems, field, item},
};

/// A text that was read.
#[derive(Debug)]
pub(super) struct Read {
    /// What it says.
    pub(super) value: Value,
    places: Places,
}

impl Read {
    /// The line and column in `text` of the field at `path`, or of what it is missing from.
    pub(super) fn place(&self, text: &str, mut path: &str) -> Option<(usize, usize)> {
        while !path.is_empty() {
            if let Some(offset) = self.places.get(path) {
                return Some(line_and_column(text, *offset));
            }
            path = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
        }
        None
    }
}

/// The offset in the text at which each path stands.
type Places = BTreeMap<String, usize>;

/// Reads `text`: JSON when it begins with `{`, which no TOML does, else TOML.
///
/// # Errors
/// What is malformed, with line and column.
pub(super) fn read(text: &str) -> Result<Read, Problems> {
    if text.trim_start().starts_with('{') {
        let value = json::read(text)?;
        return Ok(Read { value, places: Places::new() });
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    // What a parser says after its first complaint is about its own guesses.
    if let Some(first) = errors.iter().min_by_key(|error| error.span().map(|span| span.start)) {
        return Err(malformed(text, first).into());
    }
    let mut places = Places::new();
    let value = Value::Object(fields(table.get_ref(), "", &mut places));
    Ok(Read { value, places })
}

fn malformed(text: &str, error: &toml::de::Error) -> Problem {
    let (line, column) = line_and_column(text, error.span().map_or(text.len(), |span| span.start));
    let words = error.message().replace('\n', ", ");
    Problem {
        line: Some(line),
        column: Some(column),
        ..Problem::new("", format!("this is not TOML: {words}"))
    }
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line..].chars().count() + 1)
}

fn fields(table: &DeTable<'_>, path: &str, places: &mut Places) -> Map<String, Value> {
    table
        .iter()
        .map(|(key, value)| {
            let name = key.get_ref().to_string();
            let at = field(path, &name);
            places.insert(at.clone(), key.span().start);
            let value = self::value(value, &at, places);
            (name, value)
        })
        .collect()
}

fn value(from: &Spanned<DeValue<'_>>, path: &str, places: &mut Places) -> Value {
    match from.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix())
            .map_or_else(|_| Value::String(n.to_string()), Value::from),
        // Infinity and NaN have no JSON: as text, they are held against the schema and refused.
        DeValue::Float(n) => n
            .as_str()
            .parse()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .map_or_else(|| Value::String(n.to_string()), Value::Number),
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(time) => Value::String(time.to_string()),
        DeValue::Array(items) => Value::Array(
            items
                .iter()
                .enumerate()
                .map(|(index, inner)| {
                    let at = item(path, index);
                    places.insert(at.clone(), inner.span().start);
                    value(inner, &at, places)
                })
                .collect(),
        ),
        DeValue::Table(table) => Value::Object(fields(table, path, places)),
    }
}

/// Removes every null from the tables in `value`: in JSON, nothing is the same as left out.
pub(super) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, inner| !inner.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Writes `document`, an object without nulls, as TOML.
pub(super) fn write(document: &Map<String, Value>) -> String {
    let mut text = String::new();
    let (sections, plain): (Vec<_>, Vec<_>) = document.iter().partition(|(_, value)| is_section(value));
    for (name, value) in plain {
        line(&mut text, &key(name), value);
    }
    for (name, value) in sections {
        match value {
            Value::Array(items) => {
                for fields in items.iter().filter_map(Value::as_object) {
                    section(&mut text, &format!("[[{}]]", key(name)), fields);
                }
            }
            Value::Object(inner) => {
                for (sub, fields) in inner.iter().filter_map(|(sub, v)| v.as_object().map(|f| (sub, f))) {
                    section(&mut text, &format!("[{}.{}]", key(name), key(sub)), fields);
                }
            }
            _ => {}
        }
    }
    text
}

/// Whether a top value is only tables: a list of them or a table of them.
fn is_section(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_object),
        Value::Object(fields) => !fields.is_empty() && fields.values().all(Value::is_object),
        _ => false,
    }
}

fn section(text: &mut String, head: &str, fields: &Map<String, Value>) {
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(head);
    text.push('\n');
    let first = ["id", "type", "on"];
    for name in first.iter().filter(|name| fields.contains_key(**name)) {
        line(text, name, &fields[*name]);
    }
    for (name, value) in fields.iter().filter(|(name, _)| !first.contains(&name.as_str())) {
        line(text, &key(name), value);
    }
}

fn line(text: &mut String, name: &str, value: &Value) {
    match value {
        // A table of tables, such as presets, reads better a line each.
        Value::Object(inner) if !inner.is_empty() && inner.values().all(Value::is_object) => {
            for (sub, value) in inner {
                line(text, &format!("{name}.{}", key(sub)), value);
            }
        }
        _ => {
            text.push_str(&format!("{name} = {}\n", inline(value)));
        }
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let parts: Vec<_> = fields.iter().map(|(k, v)| format!("{} = {}", key(k), inline(v))).collect();
            format!("{{ {} }}", parts.join(", "))
        }
        Value::String(text) => quoted(text),
        Value::Number(n) if n.is_f64() => toml::Value::Float(n.as_f64().unwrap_or_default()).to_string(),
        other => other.to_string(),
    }
}

fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    if bare { name.to_owned() } else { quoted(name) }
}

/// A basic string of TOML: one line, whatever is in it.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn malformed_text_says_line_and_column() {
        let problems = read("[[backends]]\nid = \"a\nx = [1,\n").unwrap_err();
        let first = problems.iter().next().unwrap();
        assert_eq!((first.line, first.path.as_str()), (Some(2), ""), "{problems}");
        assert!(first.column.is_some_and(|column| column > 5), "{problems}");
        let problems = read("{\"a\": 1,\n \"b\" 2}").unwrap_err();
        assert_eq!(problems.to_string(), "line 2, column 6: this is not JSON: expected `:`");
        let prose = "some words\nthat are no document: at all\n".repeat(50);
        let problems = read(&prose).unwrap_err();
        assert_eq!(problems.iter().count(), 1, "{problems}");
        assert!(problems.to_string().starts_with("line 1, column 6: this is not TOML: "), "{problems}");
    }

    #[test]
    fn a_problem_is_placed_at_its_field_or_at_what_lacks_it() {
        let text = "[[backends]]\nid = \"a\"\n\n[[backends]]\n  size = 1\n";
        let read = read(text).unwrap();
        let at = |path: &str| read.place(text, path);
        assert_eq!(at("backends[1].size"), Some((5, 3)));
        assert_eq!(at("backends[1].id"), Some((4, 1)));
        assert_eq!(at("kinds"), None);
    }

    #[test]
    fn a_document_is_written_in_sections() {
        let document = json!({
            "backends": [{ "type": "t", "id": "a", "on": true, "hosts": ["x y"] }],
            "kinds": { "linux": { "default": "small", "presets": { "small": { "cores": 1, "memory": "2 GiB" } } } },
            "revision": 3,
        });
        let text = write(document.as_object().unwrap());
        assert_eq!(
            text,
            "revision = 3\n\n[[backends]]\nid = \"a\"\ntype = \"t\"\non = true\nhosts = [\"x y\"]\n\n\
             [kinds.linux]\ndefault = \"small\"\npresets.small = { cores = 1, memory = \"2 GiB\" }\n"
        );
        assert_eq!(read(&text).unwrap().value, document);
    }

    fn any_table() -> impl Strategy<Value = Map<String, Value>> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            prop::num::f64::NORMAL.prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-z-]{0,4}|.*", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-z-]{0,4}|.*", value, 0..4).prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(table in any_table()) {
            let text = write(&table);
            let back = read(&text).map_err(|p| TestCaseError::fail(format!("{p}\n{text}")))?;
            prop_assert_eq!(back.value, Value::Object(table));
        }

        #[test]
        fn reading_never_panics(text in "(\\PC|[\\[\\]{}=\",.\n#0-9a-z])*") {
            if let Ok(read) = read(&text) {
                read.place(&text, "a.b[1]");
            }
        }
    }
}
