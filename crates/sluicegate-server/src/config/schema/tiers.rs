//! The part of the schema about who gets which limits: tiers, and how long an override lasts.

use serde_json::{Value, json};
use sluicegate::rules::file::tier::{ALGORITHMS, TIER_KEYS};

use super::{object, reference, text, unknown, word_of};

/// The form of an instant; whether there is such a day is for the reader to say.
const INSTANT: &str =
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$";

/// Until when.
pub(super) fn until() -> Value {
    let mut until = text("When they end, as RFC 3339 writes it.", &json!({ "pattern": INSTANT }));
    until["examples"] = json!(["2026-12-31T00:00:00Z"]);
    until
}

/// A tier in its long form.
pub(super) fn tier() -> Value {
    object("A tier that may use some algorithms only.", TIER_KEYS, &["name"], |key| match key {
        "name" => reference("name"),
        "algorithms" => json!({
            "description": "What its limits may be made of.",
            "type": "array",
            "items": { "anyOf": [word_of(ALGORITHMS), reference("variable")] },
            "minItems": 1,
            "uniqueItems": true,
            "examples": [["fixed_window"]],
        }),
        _ => unknown(),
    })
}
