//! The JSON Schema of the whole document, put together from the core's part and each driver's.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::KindEntry;
use crate::{
    driver::{Driver, Drivers},
    kind::STANDARD,
};

/// The schema of `T` with everything in place: no references to follow.
pub(crate) fn of_type<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = SchemaGenerator::new(settings).into_root_schema_for::<T>().to_value();
    if let Value::Object(fields) = &mut schema {
        fields.remove("$schema");
    }
    schema
}

/// The schema of a document for a program with `drivers`.
pub(crate) fn of(drivers: &Drivers) -> Value {
    let kind = of_type::<KindEntry>();
    let kinds: Map<String, Value> = STANDARD
        .iter()
        .map(|row| {
            let mut schema = kind.clone();
            schema["title"] = row.name.into();
            schema["description"] = row.promise.into();
            (row.name.to_owned(), schema)
        })
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of bb-box",
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "revision": {
                "description": "The revision this document was made from. It is only taken while that is the newest.",
                "type": "integer",
                "minimum": 0,
            },
            "backends": {
                "description": "The backends, in the order in which they are tried. Left out: each type once.",
                "type": "array",
                "items": { "oneOf": drivers.iter().map(backend).collect::<Vec<_>>() },
            },
            "kinds": {
                "description": "What is set about kinds. One left out is on, with the standard sizes.",
                "type": "object",
                "additionalProperties": false,
                "properties": kinds,
            },
        },
    })
}

/// The schema of a backend of one type: the driver's fields and those that every backend has.
fn backend(driver: &dyn Driver) -> Value {
    let mut schema = driver.schema().to_value();
    let common = json!({
        "id": {
            "description": "What names this backend; the same for as long as it has boxes.",
            "type": "string",
            "format": "backend-id",
            "pattern": "^[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?$",
        },
        "type": { "description": "Which driver it is of.", "type": "string", "const": driver.backend_type() },
        "on": {
            "description": "Whether it takes new boxes. The boxes of a backend that is off keep working.",
            "type": "boolean",
            "default": true,
        },
    });
    if let (Value::Object(fields), Value::Object(common)) = (&mut schema, common) {
        fields.insert("type".to_owned(), "object".into());
        fields.insert("additionalProperties".to_owned(), false.into());
        let properties = fields.entry("properties").or_insert_with(|| json!({}));
        if let Value::Object(properties) = properties {
            properties.extend(common);
        }
        let required = fields.entry("required").or_insert_with(|| json!([]));
        if let Value::Array(required) = required {
            required.extend(["id".into(), "type".into()]);
        }
    }
    schema
}
