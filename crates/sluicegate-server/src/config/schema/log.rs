//! The part of the schema about the section `log`.

use serde_json::{Value, json};

use super::super::log::{DECISIONS_KEYS, IDENTITY_FORMS, LOG_KEYS};
use super::super::share::SHARE_PATTERN;
use super::{object, text, unknown, words};

/// The section.
pub(super) fn section() -> Value {
    object("What the log says of decisions.", LOG_KEYS, &[], property)
}

/// A share such as `5%`.
pub(super) fn share(description: &str, default: &str) -> Value {
    let mut share = text(description, &json!({ "pattern": SHARE_PATTERN }));
    share["default"] = json!(default);
    share["examples"] = json!(["5%", "0.01%"]);
    share
}

fn property(key: &str) -> Value {
    match key {
        "decisions" => {
            let about = "Writes decisions down, this share of each kind; without it none is.";
            object(about, DECISIONS_KEYS, &[], decisions_property)
        }
        "identities" => words(
            "How the decision log and spans tell identities: by a keyed hash, by their beginning, or whole.",
            IDENTITY_FORMS,
            "hashed",
        ),
        "hash_secret" => json!({
            "description": "What hashes are keyed with, if several servers are to agree; otherwise each start has its own.",
            "type": "string",
            "minLength": 1,
            "examples": ["${LOG_HASH_SECRET}"],
        }),
        _ => unknown(),
    }
}

fn decisions_property(key: &str) -> Value {
    match key {
        "denied" => share("Of requests that are denied, or refused because the store could not decide.", "100%"),
        "shadow_denied" => share("Of requests that a shadow rule would have denied.", "100%"),
        "allowed" => share("Of all other requests.", "0%"),
        _ => unknown(),
    }
}
