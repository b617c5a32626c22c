//! The part of the schema about the section `listen`.

use super::super::listeners::{LISTEN_KEYS, LISTENER_KEYS, PER_ADDRESS_MAX, TLS_KEYS};
use super::identity::networks;
use super::{described, integer, object, reference, unknown};
use serde_json::{Value, json};

/// The section.
pub(super) fn section() -> Value {
    let about = "Where the server listens. Flags and environment variables win over these addresses.";
    object(about, LISTEN_KEYS, &[], property)
}

/// One listener in its long form.
pub(super) fn listener() -> Value {
    object("A listener, and who gets in how.", LISTENER_KEYS, &[], listener_property)
}

fn property(key: &str) -> Value {
    let listener = |description, example| {
        json!({
            "description": description,
            "anyOf": [reference("address"), reference("listener")],
            "examples": [example, "off"],
        })
    };
    match key {
        "gateway" => listener("The gateway.", "127.0.0.1:8080"),
        "api" => listener("The decision API.", "127.0.0.1:8081"),
        "admin" => listener("Health, metrics, administration.", "127.0.0.1:8082"),
        "resp" => listener("The protocol of Redis, with CL.THROTTLE.", "127.0.0.1:6379"),
        _ => unknown(),
    }
}

fn listener_property(key: &str) -> Value {
    let per_address =
        "The most connections of one client address; loopback and trusted proxies have no such bound.";
    match key {
        "address" => described("address", "Where it listens.", &["0.0.0.0:8443", "off"]),
        "tls" => object("The certificate, for TLS.", TLS_KEYS, TLS_KEYS, tls_property),
        "proxy_protocol" => {
            networks("Load balancers that begin each connection with a PROXY header of version 2.")
        }
        "max_connections_per_address" => integer(per_address, 1, PER_ADDRESS_MAX, &[1_024]),
        _ => unknown(),
    }
}

fn tls_property(key: &str) -> Value {
    let file = |description: &str, example: &str| json!({ "description": description, "type": "string", "examples": [example] });
    match key {
        "certificate_file" => file("The certificate chain in PEM, the server's own first.", "server.pem"),
        "key_file" => file("The key of the certificate, in PEM.", "server-key.pem"),
        _ => unknown(),
    }
}
