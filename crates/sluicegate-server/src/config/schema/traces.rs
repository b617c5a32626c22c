//! The part of the schema about the section `traces`.

use serde_json::{Value, json};

use super::super::traces::{HEADER_NAME_PATTERN, HEADERS_MAX, PARENTS, SERVICE_NAME_MAX, TRACES_KEYS};
use super::{log, object, reference, text, unknown, words};

/// The section.
pub(super) fn section() -> Value {
    object("Sends spans to a collector of OpenTelemetry.", TRACES_KEYS, &[], property)
}

/// A text that no message shows.
pub(super) fn secret() -> Value {
    json!({ "description": "A text that no message shows.", "type": "string" })
}

fn property(key: &str) -> Value {
    match key {
        "endpoint" => {
            let form = json!({ "pattern": "^https?://[^/@?#]+$" });
            let mut endpoint = text("Where the collector takes OTLP over gRPC.", &form);
            endpoint["examples"] = json!(["http://127.0.0.1:4317"]);
            endpoint
        }
        "headers" => json!({
            "description": "What the collector is sent along, such as a token.",
            "type": "object",
            "propertyNames": { "pattern": HEADER_NAME_PATTERN },
            "additionalProperties": reference("secret"),
            "maxProperties": HEADERS_MAX,
            "examples": [{ "authorization": "Bearer ${OTLP_TOKEN}" }],
        }),
        "sample" => {
            log::share("Of requests that come without a context; the others do as their callers do.", "100%")
        }
        "parents" => words("Whose spans ours may be children of.", PARENTS, "anyone"),
        "service_name" => text(
            "What this service is called.",
            &json!({
                "minLength": 1,
                "maxLength": SERVICE_NAME_MAX,
                "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
            }),
        ),
        "ca_file" => json!({
            "description": "Certificate authorities to trust instead of the system's, in PEM.",
            "type": "string",
            "examples": ["ca.pem"],
        }),
        _ => unknown(),
    }
}
