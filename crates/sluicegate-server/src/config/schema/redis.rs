//! The part of the schema about the section `redis`.

use super::super::redis::{CONNECTIONS_MAX, INSTANCES_MAX, KEY_FORMS, REDIS_KEYS};
use super::{described, integer, object, unknown, words};
use serde_json::{Value, json};
use sluicegate::store::redis::key::PREFIX_BYTES_MAX;

/// The section.
pub(super) fn section() -> Value {
    let about = "A store in Redis or Valkey: what its URL does not say.";
    let mut section = object(about, REDIS_KEYS, &[], property);
    section["dependentRequired"] = json!({
        "certificate_file": ["key_file"],
        "key_file": ["certificate_file"],
        "sentinel_user": ["sentinel_password"],
        "key_secret": ["keys"],
    });
    section
}

/// One key of the section.
fn property(key: &str) -> Value {
    let timeout = |description, example| described("duration", description, &[example]);
    match key {
        "prefix" => super::text(
            "What all keys begin with.",
            &json!({ "pattern": format!("^[A-Za-z0-9._:-]{{1,{PREFIX_BYTES_MAX}}}$") }),
        ),
        "keys" => words("Whether keys show identifiers or only a hash of them.", KEY_FORMS, "plain"),
        "key_secret" => file("What the hash is keyed with; the same on every server.", "${KEY_SECRET}"),
        "max_connections" => integer("Connections to each server; calls share them.", 1, CONNECTIONS_MAX, &[1]),
        "connect_timeout" => timeout("How long connecting may take.", "1s"),
        "read_timeout" => timeout("How long answers may take that no request waits for.", "1s"),
        "ca_file" => file("Certificate authorities to trust instead of the system's, in PEM.", "ca.pem"),
        "certificate_file" => file("Our certificate chain, in PEM.", "client.pem"),
        "key_file" => file("The key of our certificate, in PEM.", "client-key.pem"),
        "sentinel_user" => file("Our name for the sentinels.", "sluicegate"),
        "sentinel_password" => file("Our password for the sentinels.", "${SENTINEL_PASSWORD}"),
        "min_instances" => integer(
            "How many servers share the limits at least; their heartbeats may say more.",
            1,
            INSTANCES_MAX,
            &[1],
        ),
        _ => unknown(),
    }
}

fn file(description: &str, example: &str) -> Value {
    json!({ "description": description, "type": "string", "examples": [example] })
}
