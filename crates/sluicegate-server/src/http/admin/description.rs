//! The OpenAPI description of the admin API: a file, completed by the schemas of entries from the configuration file.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::config::schema::json_schema;

/// The description without the schemas of entries. A test compares it with the routes.
const FILE: &str = include_str!("../../../ui/admin-openapi.json");

/// The complete description.
pub(super) static OPENAPI: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document()));

/// Builds the description. The file is part of the binary, so only a programming error makes it empty; a test checks
/// it.
pub(super) fn document() -> Value {
    let mut document: Value = serde_json::from_str(FILE).unwrap_or_default();
    let schema = json_schema();
    let items = |list: &str| schema["properties"][list]["items"].clone();
    let (tenant, named, key) = (items("tenants"), items("overrides"), items("keys"));
    let rule = schema["$defs"]["rule"].clone();
    let mut schemas = schema["$defs"].as_object().cloned().unwrap_or_default();
    for (name, whole) in [("rule", &rule), ("tenant", &tenant), ("namedOverride", &named), ("key", &key)] {
        // The path contains the name of the changed entry.
        schemas.insert(format!("{name}Change"), without_required(whole, &["name", "sha256"]));
    }
    schemas.insert("sentKey".to_owned(), without_required(&key, &["name", "sha256"]));
    schemas.insert("shownKey".to_owned(), shown_key(&key, None));
    schemas.insert("createdKey".to_owned(), shown_key(&key, Some("The key itself, sent only this once.")));
    schemas.extend(
        [("tenant", tenant), ("namedOverride", named), ("key", key)].map(|(name, is)| (name.to_owned(), is)),
    );
    if let Some(components) = document["components"]["schemas"].as_object_mut() {
        components.extend(schemas.into_iter().map(|(name, mut schema)| {
            refer_to_components(&mut schema);
            (name, schema)
        }));
    }
    document
}

fn without_required(schema: &Value, names: &[&str]) -> Value {
    let mut schema = schema.clone();
    if let Some(required) = schema["required"].as_array_mut() {
        required.retain(|name| !names.iter().any(|other| name == other));
    }
    schema
}

/// A key without its hash, and with the generated key where it is sent.
fn shown_key(key: &Value, secret_text: Option<&str>) -> Value {
    let mut key = without_required(key, &["sha256"]);
    if let Some(properties) = key["properties"].as_object_mut() {
        properties.remove("sha256");
        let secret = |description| serde_json::json!({ "description": description, "type": "string" });
        properties.extend(secret_text.map(|description| ("secret".to_owned(), secret(description))));
    }
    key
}

/// Definitions move to the components of this document.
fn refer_to_components(schema: &mut Value) {
    match schema {
        Value::Object(members) => refer(members),
        Value::Array(items) => items.iter_mut().for_each(refer_to_components),
        _ => {}
    }
}

fn refer(members: &mut Map<String, Value>) {
    for (key, value) in members.iter_mut() {
        match value {
            Value::String(target) if key == "$ref" => {
                *target = target.replace("#/$defs/", "#/components/schemas/");
            }
            value => refer_to_components(value),
        }
    }
}
