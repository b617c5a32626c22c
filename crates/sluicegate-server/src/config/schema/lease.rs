//! The part of the schema about a rule's `lease`.

use serde_json::Value;
use sluicegate::rules::file::lease::{LEASE_KEYS, LEASE_MODES};

use super::{described, object, unknown, words};

/// The section.
pub(super) fn section() -> Value {
    let about = "Lets a shared store charge requests ahead, so that a server can let them pass by itself.";
    object(about, LEASE_KEYS, &["ttl"], property)
}

fn property(key: &str) -> Value {
    match key {
        "ttl" => described("duration", "How long after its charge a request may pass, 1ms to 10s.", &["100ms"]),
        "mode" => words(
            "strict lets no more pass and needs a part of the capacity for it; bounded lets a little more pass.",
            LEASE_MODES,
            "strict",
        ),
        _ => unknown(),
    }
}
