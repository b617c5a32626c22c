//! The schema of the entries that a rule asks of a descriptor.

use super::{described, object, unknown};
use serde_json::{Value, json};
use sluicegate::identity::{ENTRIES_MAX, ENTRY_BYTES_MAX};
use sluicegate::rules::file::descriptor::ENTRY_KEYS;

pub(super) fn descriptor() -> Value {
    json!({
        "description": "Entries that a descriptor of Envoy's protocol must have.",
        "type": "array",
        "items": object("An entry.", ENTRY_KEYS, &["key"], entry_property),
        "minItems": 1,
        "maxItems": ENTRIES_MAX,
        "examples": [[{ "key": "remote_address", "value": "10.*" }]],
    })
}

fn entry_property(key: &str) -> Value {
    match key {
        "key" => json!({
            "description": "Its key, exactly.",
            "type": "string",
            "minLength": 1,
            "maxLength": ENTRY_BYTES_MAX,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
            "examples": ["remote_address"],
        }),
        "value" => described("pattern", "Its value; any if absent.", &["10.*"]),
        _ => unknown(),
    }
}
