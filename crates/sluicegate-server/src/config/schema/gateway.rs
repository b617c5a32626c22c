//! The part of the schema about the section `gateway`.

use super::super::gateway::{
    CONCURRENCY_MAX, CORS_KEYS, EXEMPT_MAX, GATEWAY_KEYS, MAX_BODY_BYTES_MAX, ORIGIN_BYTES_MAX, ORIGINS_MAX,
    PREFLIGHTS, ROUTE_KEYS, ROUTES_MAX, TLS_KEYS, UPSTREAMS_MAX,
};
use super::{described, integer, object, reference, text, unknown, words};
use crate::http::gateway::host::HOST_BYTES_MAX;
use serde_json::{Value, json};
use sluicegate::rules::file::value::PATTERN_BYTES_MAX;

/// The section.
pub(super) fn section() -> Value {
    object("The reverse proxy.", GATEWAY_KEYS, &[], property)
}

/// One key of the section.
fn property(key: &str) -> Value {
    match key {
        "routes" => json!({
            "description": "Which requests go where. Of those that match, the most specific host and then path wins.",
            "type": "array",
            "items": object("Where some requests go.", ROUTE_KEYS, &["path", "upstream"], route_property),
            "maxItems": ROUTES_MAX,
            "default": [],
        }),
        "exempt" => json!({
            "description": "Paths that are passed on and not decided, such as health checks.",
            "type": "array",
            "items": path_pattern("Some paths.", "/healthz"),
            "maxItems": EXEMPT_MAX,
            "default": [],
        }),
        "preflights" => {
            words("Whether the questions of browsers before a request are decided.", PREFLIGHTS, "count")
        }
        "identity_headers" => boolean("Whether upstreams are told who asks, in X-Sluicegate-*.", false),
        "cors" => object(
            "Whose scripts may read the gateway's own answers.",
            CORS_KEYS,
            &["allow_origins"],
            cors_property,
        ),
        _ => unknown(),
    }
}

fn route_property(key: &str) -> Value {
    let time = |description, example| described("duration", description, &[example]);
    match key {
        "host" => text(
            "For which hosts; any if absent.",
            &json!({
                "pattern": "^((\\*\\.)?[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+)*|\\[[0-9A-Fa-f:.]+\\])$",
                "maxLength": HOST_BYTES_MAX,
            }),
        ),
        "path" => path_pattern("For which paths.", "/api/**"),
        "upstream" => {
            let upstream = text("Where requests go.", &json!({ "pattern": "^https?://[^/@?#]+$" }));
            json!({
                "description": "Where requests go; several take turns.",
                "anyOf": [upstream, { "type": "array", "items": upstream, "minItems": 1, "maxItems": UPSTREAMS_MAX }],
                "examples": ["http://127.0.0.1:9000"],
            })
        }
        "timeout" => time("How long the head of an answer may take, 1ms to 24h.", "30s"),
        "connect_timeout" => time("How long connecting may take, 1ms to 60s.", "5s"),
        "idle_timeout" => time("How long a body or a tunnel may pause, 1ms to 24h.", "60s"),
        "keep_alive" => time("How long connections are kept that nobody uses, 1ms to 1h.", "4s"),
        "concurrency" => integer("Requests under way to each upstream.", 1, CONCURRENCY_MAX, &[4_096]),
        "max_body_bytes" => integer("The longest body of a request.", 1, MAX_BODY_BYTES_MAX, &[10_485_760]),
        "http2" => boolean("Whether HTTP/2 is spoken; with https absent means whichever is agreed on.", false),
        "preserve_host" => boolean("Whether the upstream is told the host that the client asked for.", true),
        "strip_prefix" => text(
            "What is taken off the path.",
            &json!({ "pattern": "^/([A-Za-z0-9/._~!$&'()+,=:@%-]*[A-Za-z0-9._~!$&'()+,=:@%-])$", "maxLength": PATTERN_BYTES_MAX }),
        ),
        "retry" => boolean("Whether a safe request is sent again when a kept connection broke.", true),
        "tls" => {
            let mut tls = object("Encryption towards the upstreams.", TLS_KEYS, &[], tls_property);
            tls["dependentRequired"] =
                json!({ "certificate_file": ["key_file"], "key_file": ["certificate_file"] });
            tls
        }
        _ => unknown(),
    }
}

fn tls_property(key: &str) -> Value {
    let file = |description: &str, example: &str| json!({ "description": description, "type": "string", "examples": [example] });
    match key {
        "ca_file" => file("Certificate authorities to trust instead of the system's, in PEM.", "ca.pem"),
        "server_name" => text(
            "The name in the upstream's certificate, if it is not its host.",
            &json!({ "pattern": format!("^[A-Za-z0-9._:-]{{1,{HOST_BYTES_MAX}}}$") }),
        ),
        "certificate_file" => file("Our certificate chain, in PEM.", "client.pem"),
        "key_file" => file("The key of our certificate, in PEM.", "client-key.pem"),
        _ => unknown(),
    }
}

fn cors_property(key: &str) -> Value {
    match key {
        "allow_origins" => json!({
            "description": "Origins as browsers write them, or * for all.",
            "type": "array",
            "items": {
                "type": "string",
                "anyOf": [
                    { "pattern": "^(\\*|[a-z]+://[a-z0-9._:\\[\\]-]+)$", "maxLength": ORIGIN_BYTES_MAX },
                    reference("variable"),
                ],
            },
            "minItems": 1,
            "maxItems": ORIGINS_MAX,
            "examples": [["https://app.example.com"]],
        }),
        "allow_credentials" => boolean("Whether they may read answers to requests with cookies.", false),
        _ => unknown(),
    }
}

/// Yes or no.
pub(super) fn boolean(description: &str, default: bool) -> Value {
    json!({
        "description": description,
        "anyOf": [{ "enum": [true, false, "true", "false"] }, reference("variable")],
        "default": default,
    })
}

/// A pattern of paths.
pub(super) fn path_pattern(description: &str, example: &str) -> Value {
    json!({
        "description": format!("{description} * is any run of characters within a segment, ** any run of segments."),
        "type": "string",
        "anyOf": [{ "pattern": "^/[^?\\\\]*$", "maxLength": 1024 }, reference("variable")],
        "examples": [example],
    })
}
