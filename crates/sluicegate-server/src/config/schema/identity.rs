//! The part of the schema about `trusted_proxies` and `identity`.

use super::super::identity::{
    API_KEY_HEADER, API_KEY_KEYS, IP_KEYS, IPV6_PREFIXES, JWT_KEYS, KEY_KEYS, KEYS_FROM, SOURCE_KEYS, SOURCES_MAX,
};
use super::{described, integer, object, reference, text, unknown};
use serde_json::{Value, json};
use sluicegate::identify::address::{IPV6_PREFIX_BITS, NETWORKS_MAX};
use sluicegate::identify::api_key::KEYS_MAX;
use sluicegate::identity::{IDENTIFIER_BYTES_MAX, NAME_BYTES_MAX};

/// `trusted_proxies`.
pub(super) fn proxies() -> Value {
    networks("Networks of proxies whose X-Forwarded-For or Forwarded is believed.")
}

/// A list of networks.
pub(super) fn networks(description: &str) -> Value {
    json!({
        "description": description,
        "type": "array",
        "items": { "type": "string", "anyOf": [{ "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$" }, reference("variable")] },
        "maxItems": NETWORKS_MAX,
        "default": [],
        "examples": [["10.0.0.0/8", "2001:db8::/32"]],
    })
}

/// `identity`.
pub(super) fn sources() -> Value {
    let mut source = object("One way to know callers.", SOURCE_KEYS, &[], source_property);
    source["minProperties"] = json!(1);
    source["maxProperties"] = json!(1);
    json!({
        "description": "How callers are known, in this order: the first way that applies counts.",
        "type": "array",
        "items": source,
        "minItems": 1,
        "maxItems": SOURCES_MAX,
        "examples": [[{ "ip": { "ipv6_prefix": 64 } }]],
    })
}

fn source_property(key: &str) -> Value {
    match key {
        "jwt" => {
            let mut jwt =
                object("By a token in Authorization: Bearer.", JWT_KEYS, &["issuer", "audience"], jwt_property);
            let one: Vec<Value> = KEYS_FROM.iter().map(|key| json!({ "required": [key] })).collect();
            jwt["oneOf"] = one.into();
            jwt
        }
        "api_key" => object("By a key in a header field.", API_KEY_KEYS, &[], api_key_property),
        "ip" => object("By the client's address.", IP_KEYS, &[], ip_property),
        _ => unknown(),
    }
}

fn jwt_property(key: &str) -> Value {
    let plain = |description: &str, example: &str| json!({ "description": description, "type": "string", "minLength": 1, "examples": [example] });
    match key {
        "issuer" => plain("The `iss` of its tokens, exactly.", "https://id.example"),
        "audience" => {
            let audience = plain("Whom tokens are for.", "api");
            json!({
                "description": "Whom tokens are for: `aud` must name one of these.",
                "anyOf": [audience, { "type": "array", "items": audience, "minItems": 1, "maxItems": SOURCES_MAX }],
            })
        }
        "jwks_url" => json!({
            "description": "Where its public keys are published: https, or http on this machine.",
            "type": "string",
            "anyOf": [
                { "pattern": "^https://[^/]" },
                { "pattern": "^http://(localhost|127\\.0\\.0\\.1|\\[::1\\])([:/]|$)" },
                reference("variable"),
            ],
            "examples": ["https://id.example/.well-known/jwks.json"],
        }),
        "jwks_file" => plain("A file with its public keys, as a JSON Web Key Set.", "keys.json"),
        "secret_env" => plain("The environment variable with the secret that is shared with it.", "JWT_SECRET"),
        "public_key_file" => plain("A file with its public key in PEM.", "issuer.pem"),
        "claim" => plain("The claim with the identifier.", "sub"),
        "tier_claim" => plain("The claim with the tier.", "tier"),
        "tenant_claim" => plain("The claim with the tenant.", "org"),
        "leeway" => json!({
            "description": "How far its clock may be from ours, at most 60s.",
            "anyOf": [reference("duration"), { "const": "0s" }],
            "default": "0s",
        }),
        "refresh" => described("duration", "How often its keys are fetched, 10s to 1d.", &["5min"]),
        "keep" => {
            described("duration", "How long keys are good that cannot be fetched again, at most 7d.", &["24h"])
        }
        "ca_file" => plain("Certificates in PEM to trust for jwks_url, instead of the system's.", "ca.pem"),
        _ => unknown(),
    }
}

fn api_key_property(key: &str) -> Value {
    match key {
        "header" => json!({
            "description": "The field that carries the key.",
            "type": "string",
            "anyOf": [{ "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" }, reference("variable")],
            "default": API_KEY_HEADER,
        }),
        "keys" => json!({
            "description": "The keys there are.",
            "type": "array",
            "items": object("A key and its owner.", KEY_KEYS, &["sha256", "identifier"], key_property),
            "maxItems": KEYS_MAX,
        }),
        "verify" => json!({
            "description": "Whether a key must be among `keys`. Without it any key is the name of its sender: pair it with a rule per ip.",
            "anyOf": [{ "enum": [true, false, "true", "false"] }, reference("variable")],
            "default": true,
        }),
        _ => unknown(),
    }
}

pub(super) fn key_property(key: &str) -> Value {
    let name = |description: &str, max: usize| {
        json!({
            "description": description,
            "type": "string",
            "minLength": 1,
            "maxLength": max,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
        })
    };
    match key {
        "sha256" => text("The SHA-256 of the key, in hexadecimal.", &json!({ "pattern": "^[0-9A-Fa-f]{64}$" })),
        "identifier" => name("Whose key it is.", IDENTIFIER_BYTES_MAX),
        "tier" => name("The tier of its owner.", NAME_BYTES_MAX),
        "tenant" => name("The tenant of its owner.", NAME_BYTES_MAX),
        _ => unknown(),
    }
}

fn ip_property(key: &str) -> Value {
    let (low, high) = IPV6_PREFIXES;
    match key {
        "ipv6_prefix" => {
            let about = "The bits of an IPv6 address that count: whoever has one has at least a /64 of them.";
            integer(about, low, high, &[IPV6_PREFIX_BITS.into()])
        }
        _ => unknown(),
    }
}
