//! Holds a value against a JSON Schema and says every difference, each with its path and what is allowed there.
//!
//! The schema is the one that is published, so that what an editor underlines and what a check refuses are the same.
//! It reads the keywords that `schemars` writes for configuration types; what only code can say (a pattern of a
//! driver's own, two fields that exclude each other) is left to serde and to the type's own check, which run after.

use serde_json::{Map, Value};

use super::{
    Amount,
    problem::{Problem, field, item, nearest},
};
use crate::{
    id::{BackendId, KindId},
    size::parse_mib,
};

/// Everything about `value`, at `path`, that `schema` does not allow.
pub(super) fn differences(schema: &Value, value: &Value, path: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    walk(schema, value, path, &mut found);
    found
}

fn walk(schema: &Value, value: &Value, path: &str, found: &mut Vec<Problem>) {
    if let Some(branches) = branches(schema) {
        return choose(schema, branches, value, path, found);
    }
    if let Some(wrong) = wrong_type(schema, value) {
        found.push(Problem::new(path, wrong).allowed(describe(schema)));
        return;
    }
    if let Some(words) = words(schema) {
        if !words.contains(&value.as_str().unwrap_or_default()) {
            found.push(not_one_of(path, value, &words));
        }
        return;
    }
    match value {
        Value::Object(fields) => object(schema, fields, path, found),
        Value::Array(items) => array(schema, items, path, found),
        Value::String(text) => {
            if let Some(wrong) = wrong_text(schema, text) {
                found.push(Problem::new(path, wrong).allowed(describe(schema)));
            }
        }
        Value::Number(_) => {
            let n = value.as_f64().unwrap_or_default();
            let (least, most) = range(schema);
            if least.is_some_and(|least| n < least) || most.is_some_and(|most| n > most) {
                found.push(Problem::new(path, format!("is {value}")).allowed(describe(schema)));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// A value that may be one of several: by its tag where the branches have one, else by its type.
fn choose(schema: &Value, branches: &[Value], value: &Value, path: &str, found: &mut Vec<Problem>) {
    if let (Some(tag), Some(fields)) = (tag(branches), value.as_object()) {
        let names: Vec<&str> = branches.iter().filter_map(|branch| constant(branch, tag)).collect();
        match fields.get(tag) {
            None => found.push(Problem::new(field(path, tag), "is missing").allowed(one_of(&names))),
            Some(Value::String(given)) => match branches.iter().find(|b| constant(b, tag) == Some(given)) {
                Some(branch) => walk(branch, value, path, found),
                None => found.push(not_one_of(&field(path, tag), &fields[tag], &names)),
            },
            Some(other) => found.push(
                Problem::new(field(path, tag), format!("is {}", type_of(other))).allowed(one_of(&names)),
            ),
        }
        return;
    }
    let fitting: Vec<&Value> = branches.iter().filter(|b| wrong_type(b, value).is_none()).collect();
    if fitting.iter().any(|branch| differences(branch, value, path).is_empty()) {
        return;
    }
    match fitting.as_slice() {
        // The branch that was meant says more than "none of these".
        [branch] => walk(branch, value, path, found),
        _ => found.push(Problem::new(path, format!("is {}", shown(value))).allowed(describe(schema))),
    }
}

fn object(schema: &Value, fields: &Map<String, Value>, path: &str, found: &mut Vec<Problem>) {
    let none = Map::new();
    let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    for (name, value) in fields {
        let at = field(path, name);
        match (known.get(name), schema.get("additionalProperties")) {
            (Some(inner), _) => walk(inner, value, &at, found),
            (None, Some(Value::Bool(false))) => found.push(unknown(&at, name, known)),
            (None, Some(inner @ Value::Object(_))) => walk(inner, value, &at, found),
            (None, _) => {}
        }
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    for name in required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name)) {
        let allowed = known.get(name).map(describe).unwrap_or_default();
        found.push(Problem::new(field(path, name), "is missing").allowed(allowed));
    }
}

fn array(schema: &Value, items: &[Value], path: &str, found: &mut Vec<Problem>) {
    if let Some(inner) = schema.get("items") {
        for (index, value) in items.iter().enumerate() {
            walk(inner, value, &item(path, index), found);
        }
    }
    let bound = |name| schema.get(name).and_then(Value::as_u64);
    let count = items.len() as u64;
    if bound("minItems").is_some_and(|least| count < least)
        || bound("maxItems").is_some_and(|most| count > most)
    {
        found.push(Problem::new(path, format!("has {count} items")).allowed(describe(schema)));
    }
}

fn unknown(path: &str, name: &str, known: &Map<String, Value>) -> Problem {
    let names: Vec<&str> = known.keys().map(String::as_str).collect();
    let message = match nearest(name, names.iter().copied()) {
        Some(near) => format!("there is no field {name:?}; did you mean {near:?}?"),
        None => format!("there is no field {name:?}"),
    };
    Problem::new(path, message).allowed(names.join(", "))
}

fn not_one_of(path: &str, value: &Value, words: &[&str]) -> Problem {
    let near = value.as_str().and_then(|given| nearest(given, words.iter().copied()));
    let message = match near {
        Some(near) => format!("is {}; did you mean {near:?}?", shown(value)),
        None => format!("is {}", shown(value)),
    };
    Problem::new(path, message).allowed(one_of(words))
}

fn wrong_type(schema: &Value, value: &Value) -> Option<String> {
    let allowed: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    let fits = |name: &&str| match (*name, value) {
        ("integer", Value::Number(n)) => n.is_i64() || n.is_u64(),
        ("number", Value::Number(_))
        | ("null", Value::Null)
        | ("boolean", Value::Bool(_))
        | ("string", Value::String(_))
        | ("array", Value::Array(_))
        | ("object", Value::Object(_)) => true,
        _ => false,
    };
    (!allowed.iter().any(fits)).then(|| format!("is {}", shown(value)))
}

fn wrong_text(schema: &Value, text: &str) -> Option<String> {
    let count = text.chars().count() as u64;
    let bound = |name| schema.get(name).and_then(Value::as_u64);
    if bound("minLength").is_some_and(|least| count < least)
        || bound("maxLength").is_some_and(|most| count > most)
    {
        return Some(format!("has {count} characters"));
    }
    let fits = match schema.get("format").and_then(Value::as_str) {
        Some("amount") => parse_mib(text).and_then(Amount::from_mib).is_ok(),
        Some("backend-id") => BackendId::parse(text).is_ok(),
        Some("word") => KindId::parse(text).is_ok(),
        _ => true,
    };
    (!fits).then(|| format!("is {text:?}"))
}

/// The least and the most of a number.
fn range(schema: &Value) -> (Option<f64>, Option<f64>) {
    let bound = |name| schema.get(name).and_then(Value::as_f64);
    let most = match schema.get("format").and_then(Value::as_str) {
        Some("uint8") => Some(f64::from(u8::MAX)),
        Some("uint16") => Some(f64::from(u16::MAX)),
        Some("uint32") => Some(f64::from(u32::MAX)),
        Some("int32") => Some(f64::from(i32::MAX)),
        _ => None,
    };
    (bound("minimum"), bound("maximum").or(most))
}

/// What a schema allows, for people.
pub(super) fn describe(schema: &Value) -> String {
    if let Some(words) = words(schema) {
        return one_of(&words);
    }
    if let Some(branches) = branches(schema) {
        let mut parts: Vec<String> =
            branches.iter().filter(|b| b.get("type") != Some(&"null".into())).map(describe).collect();
        parts.dedup();
        return parts.join(", or ");
    }
    let name = match schema.get("type") {
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        one => one.and_then(Value::as_str),
    };
    match name {
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => bounded("a whole number", schema),
        Some("number") => bounded("a number", schema),
        Some("string") => text(schema),
        Some("array") => {
            let inner = schema.get("items").map(describe).unwrap_or_default();
            format!("a list, each of it {inner}")
        }
        Some("object") => match schema.get("properties").and_then(Value::as_object) {
            Some(known) => {
                format!("a table with {}", known.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
            }
            None => "a table".to_owned(),
        },
        _ => "another value".to_owned(),
    }
}

fn text(schema: &Value) -> String {
    match schema.get("format").and_then(Value::as_str) {
        Some("amount") => "an amount such as \"512 MiB\" or \"4 GiB\", up to 64 TiB".to_owned(),
        Some("backend-id" | "word") => "a lower-case letter, then up to 39 of a-z, 0-9 and '-'".to_owned(),
        _ => match (schema.get("minLength"), schema.get("maxLength")) {
            (None, None) => "text".to_owned(),
            (Some(least), None) => format!("text of at least {least} characters"),
            (None, Some(most)) => format!("text of at most {most} characters"),
            (Some(least), Some(most)) => format!("text of {least} to {most} characters"),
        },
    }
}

fn bounded(what: &str, schema: &Value) -> String {
    match range(schema) {
        (Some(least), Some(most)) => format!("{what} from {least} to {most}"),
        (Some(least), None) => format!("{what}, at least {least}"),
        (None, Some(most)) => format!("{what}, at most {most}"),
        (None, None) => what.to_owned(),
    }
}

/// The branches of a choice, without those that are only words (see [`words`]).
fn branches(schema: &Value) -> Option<&[Value]> {
    if words(schema).is_some() {
        return None;
    }
    let all = schema.get("oneOf").or_else(|| schema.get("anyOf"))?;
    all.as_array().map(Vec::as_slice)
}

/// The words of a choice that is only words.
fn words(schema: &Value) -> Option<Vec<&str>> {
    if let Some(word) = schema.get("const").and_then(Value::as_str) {
        return Some(vec![word]);
    }
    if let Some(all) = schema.get("enum").and_then(Value::as_array) {
        return all.iter().filter(|v| !v.is_null()).map(Value::as_str).collect();
    }
    let all = schema.get("oneOf")?.as_array()?;
    let lists: Option<Vec<Vec<&str>>> = all.iter().map(words).collect();
    lists.map(|lists| lists.into_iter().flatten().collect())
}

/// The field that tells branches of objects apart, where every branch fixes it.
fn tag(branches: &[Value]) -> Option<&str> {
    let first = branches.first()?.get("properties")?.as_object()?;
    first.keys().map(String::as_str).find(|name| branches.iter().all(|b| constant(b, name).is_some()))
}

fn constant<'a>(branch: &'a Value, name: &str) -> Option<&'a str> {
    branch.get("properties")?.get(name)?.get("const")?.as_str()
}

fn one_of(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [one] => format!("{one:?}"),
        many => format!("one of {}", many.iter().map(|w| format!("{w:?}")).collect::<Vec<_>>().join(", ")),
    }
}

/// A value as a message shows it: a scalar as it is, cut where it is long, and the type of what has parts.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().count() > 60 => {
            format!("{:?} and more", text.chars().take(60).collect::<String>())
        }
        Value::String(text) => format!("{text:?}"),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => type_of(value).to_owned(),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::{super::tests::any_json, *};

    fn said(schema: &Value, value: &Value) -> Vec<String> {
        differences(schema, value, "").iter().map(ToString::to_string).collect()
    }

    fn sample() -> Value {
        json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["name", "mode"],
            "properties": {
                "name": { "type": "string", "minLength": 1, "maxLength": 5 },
                "count": { "type": ["integer", "null"], "format": "uint8", "minimum": 1 },
                "memory": { "anyOf": [{ "type": "string", "format": "amount" }, { "type": "null" }] },
                "mode": { "oneOf": [{ "type": "string", "const": "on" }, { "type": "string", "const": "off" }] },
                "hosts": { "type": "array", "maxItems": 2, "items": { "type": "boolean" } },
            },
        })
    }

    #[test]
    fn what_fits_has_no_problem() {
        let value = json!({ "name": "x", "count": 255, "memory": "4GiB", "mode": "on", "hosts": [true] });
        assert_eq!(said(&sample(), &value), [""; 0]);
    }

    #[test]
    fn every_problem_is_said_at_once_with_what_is_allowed() {
        let value = json!({
            "nam": 1, "count": 256, "memory": "4 GB", "mode": "onn", "hosts": [1, true, "x"]
        });
        assert_eq!(
            said(&sample(), &value),
            [
                "count: is 256; allowed: a whole number from 1 to 255",
                "hosts[0]: is 1; allowed: true or false",
                "hosts[2]: is \"x\"; allowed: true or false",
                "hosts: has 3 items; allowed: a list, each of it true or false",
                "memory: is \"4 GB\"; allowed: an amount such as \"512 MiB\" or \"4 GiB\", up to 64 TiB",
                "mode: is \"onn\"; did you mean \"on\"?; allowed: one of \"on\", \"off\"",
                "nam: there is no field \"nam\"; did you mean \"name\"?; allowed: count, hosts, memory, mode, name",
                "name: is missing; allowed: text of 1 to 5 characters",
            ]
        );
    }

    #[test]
    fn a_tagged_choice_is_held_against_the_branch_its_tag_names() {
        let schema = json!({ "oneOf": [
            { "type": "object", "properties": { "type": { "const": "a" }, "x": { "type": "integer" } } },
            { "type": "object", "properties": { "type": { "const": "b" }, "x": { "type": "string" } } },
        ] });
        assert_eq!(
            said(&schema, &json!({ "type": "a", "x": "1" })),
            ["x: is \"1\"; allowed: a whole number"]
        );
        assert_eq!(said(&schema, &json!({ "type": "b", "x": "1" })), [""; 0]);
        assert_eq!(said(&schema, &json!({})), ["type: is missing; allowed: one of \"a\", \"b\""]);
        assert_eq!(said(&schema, &json!({ "type": "q" })), ["type: is \"q\"; allowed: one of \"a\", \"b\""]);
    }

    const NAMES: &str = "name|count|memory|mode|hosts|type|.*";

    proptest! {
        #[test]
        fn no_value_and_no_schema_makes_it_panic(schema in any_json(NAMES), value in any_json(NAMES)) {
            differences(&schema, &value, "");
            differences(&sample(), &value, "");
            describe(&schema);
        }
    }
}
