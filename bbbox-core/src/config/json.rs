//! A JSON document as a value, in which no field stands twice: of two, one would be dropped without a word.

use std::{cell::RefCell, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use super::problem::{Problem, Problems, field, item};

/// Reads `text`.
///
/// # Errors
/// What is malformed, with line and column; every field that stands there twice, by its path.
pub(super) fn read(text: &str) -> Result<Value, Problems> {
    let doubled = RefCell::new(Vec::new());
    let mut from = serde_json::Deserializer::from_str(text);
    let reading = Reading { path: String::new(), doubled: &doubled };
    let value = reading.deserialize(&mut from).and_then(|value| from.end().map(|()| value));
    let value = value.map_err(|error| malformed(&error))?;
    let problem = |path| Problem::new(path, "stands there twice").allowed("once");
    Problems::none_of(doubled.into_inner().into_iter().map(problem).collect())?;
    Ok(value)
}

fn malformed(error: &serde_json::Error) -> Problem {
    let words = error.to_string();
    // serde_json ends its words with the place, which is said apart here.
    let words = words.split(" at line ").next().unwrap_or_default().to_owned();
    Problem {
        line: Some(error.line()),
        // A line's end within a string is told as before the first column of the next line.
        column: Some(error.column().max(1)),
        ..Problem::new("", format!("this is not JSON: {words}"))
    }
}

/// The value at `path`.
struct Reading<'a> {
    path: String,
    doubled: &'a RefCell<Vec<String>>,
}

impl Reading<'_> {
    fn inner(&self, path: String) -> Self {
        Self { path, doubled: self.doubled }
    }
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("this number is too large"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(value) = items.next_element_seed(self.inner(item(&self.path, all.len())))? {
            all.push(value);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let path = field(&self.path, &name);
            let value = fields.next_value_seed(self.inner(path.clone()))?;
            if all.insert(name, value).is_some() {
                self.doubled.borrow_mut().push(path);
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::tests::any_json, *};

    #[test]
    fn a_field_that_stands_twice_is_refused_by_its_path() {
        let text = r#"{"revision": 1, "backends": [{"id": "a"}, {"id": "b", "id": "c"}], "revision": 1}"#;
        let problems = read(text).unwrap_err();
        assert_eq!(
            problems.to_string(),
            "backends[1].id: stands there twice; allowed: once\nrevision: stands there twice; allowed: once"
        );
    }

    #[test]
    fn a_string_that_a_lines_end_cuts_has_a_column() {
        let problems = read("{\"a\": \"b\n\"}").unwrap_err();
        assert!(problems.to_string().starts_with("line 2, column 1: this is not JSON: "), "{problems}");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in any_json(".*")) {
            prop_assert_eq!(read(&value.to_string()).unwrap(), value);
        }

        #[test]
        fn anything_reads_as_serde_reads_it_or_not_at_all(text in "[\\[\\]{}:,\"a1. \\\\-]{0,40}") {
            if let Ok(value) = read(&text) {
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            }
        }
    }
}
