//! The part of the schema about `database`, `tenants`, `overrides` and `keys`.

use super::identity::key_property;
use super::{boolean, described, object, override_property, reference, text, unknown};
use crate::config::identity::KEY_KEYS;
use crate::content::read::{APART_KEYS, DESCRIPTION_BYTES_MAX, TENANT_KEYS};
use crate::content::{OVERRIDES_MAX, TENANTS_MAX};
use serde_json::{Value, json};
use sluicegate::identify::api_key::KEYS_MAX;
use sluicegate::identity::NAME_BYTES_MAX;
use sluicegate::rules::file::rule::OVERRIDE_KEYS;

/// `database`.
pub(super) fn database() -> Value {
    json!({
        "description": "Where rules, tenants, overrides and API keys are kept, instead of in this file.",
        "type": "string",
        "anyOf": [
            { "pattern": "^sqlite://[^?:/]" },
            { "pattern": "^sqlite:///[^?]*[^?/]$" },
            { "pattern": "^postgres(ql)?://." },
            reference("variable"),
        ],
        "examples": ["sqlite:///var/lib/sluicegate/rules.db", "postgres://sluicegate@db.internal/sluicegate"],
    })
}

/// `tenants`.
pub(super) fn tenants() -> Value {
    let tenant = object("A tenant.", TENANT_KEYS, &["name"], tenant_property);
    list("Tenants of whom something is known; others are allowed all the same.", tenant, TENANTS_MAX)
}

/// `overrides`.
pub(super) fn overrides() -> Value {
    let keys = [APART_KEYS, OVERRIDE_KEYS].concat();
    let required = ["name", "rule", "identifier", "limits"];
    let apart = object("An override that stands apart from its rule.", &keys, &required, apart_property);
    list("Overrides that stand apart from their rules; they come after the rule's own.", apart, OVERRIDES_MAX)
}

/// `keys`.
pub(super) fn keys() -> Value {
    let keys = [&["name"], KEY_KEYS].concat();
    let key = object("A key and its owner.", &keys, &["name", "sha256", "identifier"], named_key_property);
    list("API keys, good wherever `identity` has an `api_key`.", key, KEYS_MAX)
}

fn list(description: &str, items: Value, count_max: usize) -> Value {
    json!({ "description": description, "type": "array", "items": items, "maxItems": count_max, "default": [] })
}

fn tenant_property(key: &str) -> Value {
    match key {
        "name" => text(
            "As requests name it.",
            &json!({ "minLength": 1, "maxLength": NAME_BYTES_MAX, "pattern": "^[^*\\u0000-\\u001f\\u007f-\\u009f]*$" }),
        ),
        "description" => json!({
            "description": "For people.",
            "type": "string",
            "maxLength": DESCRIPTION_BYTES_MAX,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
        }),
        "disabled" => boolean("Whether all requests of the tenant are denied.", false),
        _ => unknown(),
    }
}

fn apart_property(key: &str) -> Value {
    match key {
        "name" => entry_name(),
        "rule" => described("name", "The rule whose limits do not apply.", &["payments"]),
        key => override_property(key),
    }
}

fn named_key_property(key: &str) -> Value {
    match key {
        "name" => entry_name(),
        key => key_property(key),
    }
}

fn entry_name() -> Value {
    text(
        "Its name, for whoever administers it.",
        &json!({ "minLength": 1, "maxLength": NAME_BYTES_MAX, "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$" }),
    )
}
