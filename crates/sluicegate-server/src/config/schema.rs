//! The JSON Schema of the configuration file, for editors and for those who make files by program.
//!
//! It is built from the same lists of keys and words that the readers use, and a test changes a file in every
//! way it can think of to see that both agree. Where they cannot, because a schema sees one value at a time
//! (second names, tiers that are not listed, numbers that do not go together), the schema is the laxer one.

use super::identity::TRUSTED_HEADERS;
use super::{HEADERS_KEYS, KEYS, MAX_KEYS_MAX, MEMORY_KEYS, PASSWORD_BYTES_MAX, RESETS, RESP_KEYS, STYLES};
use serde_json::{Map, Value, json};
use sluicegate::core::algorithm::Algorithm as _;
use sluicegate::core::quota::UNITS_MAX;
use sluicegate::core::{FixedWindow, SlidingCounter, SlidingWindow, TokenBucket};
use sluicegate::rules::file::limit::{
    ALIGNS, FIXED_WINDOW_KEYS, LIMIT_KEYS, SLIDING_KEYS, TOKEN_BUCKET_KEYS, UNLIMITED,
};
use sluicegate::rules::file::rule::{
    CREDENTIALS, MATCH_KEYS, METHODS_MAX, MODES, OVERRIDE_KEYS, PARTS, POLICIES, RULE_KEYS,
};
use sluicegate::rules::file::value::{LABEL_BYTES_MAX, METHOD_BYTES_MAX, PATTERN_BYTES_MAX, UNITS};
use sluicegate::rules::file::{self, TIERS_MAX, UNMATCHED};
use sluicegate::rules::{LIMITS_PER_RULE_MAX, RULE_NAME_BYTES_MAX, RULES_MAX};

mod content;
mod descriptor;
mod gateway;
mod identity;
mod lease;
mod listeners;
mod log;
mod matching;
mod redis;
mod tiers;
mod traces;
mod window;

use gateway::{boolean, path_pattern};

/// The schema, draft 2020-12.
pub(crate) fn json_schema() -> Value {
    let keys = [KEYS, file::KEYS].concat();
    let mut schema = object("A configuration file of Sluicegate.", &keys, &["rules"], top_property);
    let more = [
        ("$schema", json!("https://json-schema.org/draft/2020-12/schema")),
        ("title", json!("Sluicegate configuration")),
        ("$defs", definitions()),
        ("examples", json!([{ "rules": [example_rule()] }])),
    ];
    if let Value::Object(members) = &mut schema {
        members.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    schema
}

fn example_rule() -> Value {
    json!({ "name": "payments", "match": { "resource": "api.payment.*" }, "limits": [example_limit()] })
}

fn example_limit() -> Value {
    json!({ "algorithm": TokenBucket::NAME, "capacity": 100, "refill": "100/60s" })
}

/// An object that has these keys and no other.
fn object(description: &str, keys: &[&str], required: &[&str], property: fn(&str) -> Value) -> Value {
    let properties: Map<String, Value> = keys.iter().map(|&key| (key.to_owned(), property(key))).collect();
    json!({
        "description": description,
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// One of these words, or a variable that stands for one.
fn words<T>(description: &str, choices: &[(&str, T)], default: &str) -> Value {
    json!({ "description": description, "anyOf": [word_of(choices), reference("variable")], "default": default })
}

fn word_of<T>(choices: &[(&str, T)]) -> Value {
    json!({ "enum": choices.iter().map(|(word, _)| *word).collect::<Vec<_>>() })
}

fn reference(definition: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}") })
}

fn described(definition: &str, description: &str, examples: &[&str]) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}"), "description": description, "examples": examples })
}

fn integer(description: &str, low: u64, high: u64, examples: &[u64]) -> Value {
    json!({
        "description": description,
        "type": "integer",
        "minimum": low,
        "maximum": high,
        "examples": examples,
    })
}

/// A text of this form, or one with a variable in it.
fn text(description: &str, form: &Value) -> Value {
    json!({ "description": description, "type": "string", "anyOf": [form, reference("variable")] })
}

/// No key of a list may come here: a test sees to that.
fn unknown() -> Value {
    json!(false)
}

fn top_property(key: &str) -> Value {
    match key {
        "store" => json!({
            "description": "Where state is kept: in this process, or in Redis or Valkey, shared with other servers.",
            "anyOf": [
                { "enum": ["memory"] },
                { "type": "string", "pattern": "^rediss?(\\+sentinel|\\+cluster)?://." },
                reference("variable"),
            ],
            "default": "memory",
            "examples": ["redis://127.0.0.1:6379"],
        }),
        "admin" => content::admin(),
        "log" => log::section(),
        "traces" => traces::section(),
        "database" => content::database(),
        "tenants" => content::tenants(),
        "overrides" => content::overrides(),
        "keys" => content::keys(),
        "redis" => redis::section(),
        "gateway" => gateway::section(),
        "trusted_proxies" => identity::proxies(),
        "trusted_header" => words(
            "The field in which trusted proxies name their client; if both are there, they must agree.",
            TRUSTED_HEADERS,
            "either",
        ),
        "identity" => identity::sources(),
        "memory" => object("The embedded store.", MEMORY_KEYS, &[], memory_property),
        "listen" => listeners::section(),
        "resp" => object("The RESP listener.", RESP_KEYS, &[], resp_property),
        "headers" => {
            object("Header fields that tell a client how it stands.", HEADERS_KEYS, &[], headers_property)
        }
        "tiers" => json!({
            "description": "The tiers that rules and requests may name.",
            "type": "array",
            "items": { "anyOf": [reference("name"), tiers::tier()] },
            "maxItems": TIERS_MAX,
            "uniqueItems": true,
            "default": [],
            "examples": [["free", "pro"]],
        }),
        "unmatched" => words("What happens to a request that no rule matches.", UNMATCHED, "allow"),
        "rules" => json!({
            "description": "The rules. All that match a request apply together. Write [] to limit nothing.",
            "type": "array",
            "items": reference("rule"),
            "maxItems": RULES_MAX,
        }),
        _ => unknown(),
    }
}

fn memory_property(key: &str) -> Value {
    let max_keys = "The most keys the store holds at once; newcomers beyond that share one state per rule.";
    match key {
        "max_keys" => integer(max_keys, 1, MAX_KEYS_MAX, &[10_000_000]),
        _ => unknown(),
    }
}

fn resp_property(key: &str) -> Value {
    match key {
        "password" => json!({
            "description": "What clients must send with AUTH; without it everybody is let in.",
            "type": "string",
            "minLength": 1,
            "maxLength": PASSWORD_BYTES_MAX,
            "examples": ["${RESP_PASSWORD}"],
        }),
        "deadline" => described("duration", "How long the store may take for CL.THROTTLE, 1ms to 10s.", &["15ms"]),
        _ => unknown(),
    }
}

fn headers_property(key: &str) -> Value {
    match key {
        "styles" => json!({
            "description": "Which families of fields answers carry: X-RateLimit-*, or RateLimit and RateLimit-Policy.",
            "type": "array",
            "items": { "anyOf": [word_of(STYLES), reference("variable")] },
            "uniqueItems": true,
            "default": ["x-ratelimit", "ietf"],
        }),
        "x_ratelimit_reset" => {
            words("X-RateLimit-Reset in seconds since 1970, or in seconds from now.", RESETS, "epoch")
        }
        "degraded" => boolean("Whether X-RateLimit-Degraded says that the store had no part in an answer.", false),
        _ => unknown(),
    }
}

fn definitions() -> Value {
    json!({
        "rule": object("What applies to whom.", RULE_KEYS, &["name", "limits"], rule_property),
        "limits": limits(),
        "listener": listeners::listener(),
        "limit": { "oneOf": limit_forms() },
        "override": object(
            "Limits of their own for some identifiers.",
            OVERRIDE_KEYS,
            &["identifier", "limits"],
            override_property,
        ),
        "name": text("A name.", &json!({ "pattern": format!("^[A-Za-z0-9._-]{{1,{RULE_NAME_BYTES_MAX}}}$") })),
        "pattern": {
            "description": "A text in which * stands for any run of characters.",
            "type": "string",
            "minLength": 1,
            "maxLength": PATTERN_BYTES_MAX,
            "pattern": "^[^\\u0000-\\u001f\\u007f-\\u009f]*$",
        },
        "secret": traces::secret(),
        "duration": text("A length of time: 250ms, 30s, 5min, 1h, 1d.", &json!({ "pattern": duration_pattern() })),
        "rate": text("N/DURATION, or N/s, N/min, N/h, N/d.", &json!({ "pattern": rate_pattern() })),
        "address": text("HOST:PORT, or off.", &json!({
            "pattern": "^(off|[A-Za-z0-9._-]+:[0-9]{1,5}|\\[[0-9A-Fa-f:.%]+\\]:[0-9]{1,5})$",
        })),
        "variable": {
            "description": "A text with an environment variable: ${NAME}. A plain ${ is written $${.",
            "type": "string",
            "pattern": "\\$\\{",
        },
    })
}

fn units() -> Vec<&'static str> {
    UNITS.iter().map(|(name, _)| *name).collect()
}

fn duration_pattern() -> String {
    format!("^[1-9][0-9]*({})$", units().join("|"))
}

fn rate_pattern() -> String {
    let (all, single) = (units().join("|"), units()[1..].join("|"));
    format!("^[1-9][0-9]*/([1-9][0-9]*({all})|{single})$")
}

fn limits() -> Value {
    json!({
        "description": "All of these must have room, and nothing is charged unless all do; or no limit at all.",
        "anyOf": [
            { "const": UNLIMITED },
            { "type": "array", "items": reference("limit"), "minItems": 1, "maxItems": LIMITS_PER_RULE_MAX },
        ],
        "examples": [[example_limit()], UNLIMITED],
    })
}

fn rule_property(key: &str) -> Value {
    let by_word = json!({ "anyOf": [word_of(PARTS), reference("variable")] });
    match key {
        "name" => described("name", "Unique, and a part of where the rule's state is kept.", &["payments"]),
        "match" => object("Which requests; an absent part matches all.", MATCH_KEYS, &[], match_property),
        "per" => json!({
            "description": "What to count by: each identifier within its tenant, each tenant, each client address, \
                            or everybody together; several of them as a list.",
            "anyOf": [by_word, { "type": "array", "items": by_word, "minItems": 1, "uniqueItems": true }],
            "default": "identifier",
            "examples": ["identifier", ["tenant", "ip"]],
        }),
        "limits" => reference("limits"),
        "tiers" => json!({
            "description": "Limits of a tier instead of the rule's own.",
            "type": "object",
            "propertyNames": reference("name"),
            "additionalProperties": reference("limits"),
            "examples": [{ "admin": UNLIMITED }],
        }),
        "overrides" => json!({
            "description": "Limits of some identifiers instead of any other: exact ones first, then the first \
                            pattern that matches.",
            "type": "array",
            "items": reference("override"),
            "default": [],
        }),
        "mode" => words("enforce decides; shadow counts and reports, and never denies.", MODES, "enforce"),
        "on_store_failure" => words(
            "When the store does not answer: open has no objection, closed refuses, local goes by this server's \
             share of the limits.",
            POLICIES,
            "open",
        ),
        "deadline" => described("duration", "How long the store may take, 1ms to 10s.", &["15ms"]),
        "cost" => integer("What a request costs that does not say.", 0, u32::MAX.into(), &[1]),
        "lease" => lease::section(),
        _ => unknown(),
    }
}

fn match_property(key: &str) -> Value {
    match key {
        "tenant" => described("pattern", "The tenant; a request that names none has `default`.", &["acme"]),
        "resource" => described("pattern", "What is asked for.", &["api.payment.*"]),
        "path" => path_pattern("The path of an HTTP request.", "/api/payments/**"),
        "method" => {
            let method =
                text("A method.", &json!({ "pattern": format!("^[A-Za-z0-9_-]{{1,{METHOD_BYTES_MAX}}}$") }));
            json!({
                "description": "The methods of an HTTP request. GET is HEAD, too.",
                "anyOf": [method, { "type": "array", "items": method, "minItems": 1, "maxItems": METHODS_MAX }],
                "examples": [["POST", "PUT"]],
            })
        }
        "host" => matching::host(),
        "header" => matching::header(),
        "claim" => matching::claim(),
        "credential" => json!({
            "description": "unverified: the rule guards the verification of credentials instead of requests, by ip or global.",
            "anyOf": [word_of(CREDENTIALS), reference("variable")],
        }),
        "descriptor" => descriptor::descriptor(),
        _ => unknown(),
    }
}

fn override_property(key: &str) -> Value {
    match key {
        "identifier" => described("pattern", "Whose.", &["vip-*"]),
        "limits" => reference("limits"),
        "until" => tiers::until(),
        _ => unknown(),
    }
}

/// One form for each algorithm, and one for an algorithm that only a variable knows.
fn limit_forms() -> Value {
    let (bucket, windows): (&[&str], &[&str]) =
        (&["algorithm", "capacity", "refill"], &["algorithm", "limit", "window"]);
    let forms = [
        (TokenBucket::NAME, "Capacity that refills at a steady rate.", TOKEN_BUCKET_KEYS, bucket),
        (SlidingWindow::NAME, "Never more than the limit within any window; exact.", SLIDING_KEYS, windows),
        (SlidingCounter::NAME, "The same in little memory; approximate.", SLIDING_KEYS, windows),
        (FixedWindow::NAME, "A counter that starts anew with every window.", FIXED_WINDOW_KEYS, windows),
    ];
    let form = |(name, description, keys, required)| {
        let mut form = object(description, keys, required, limit_property);
        form["properties"]["algorithm"] = json!({ "const": name });
        match name {
            FixedWindow::NAME => form["allOf"] = window::together(),
            SlidingWindow::NAME | SlidingCounter::NAME => form["properties"]["window"] = window::length(),
            _ => {}
        }
        form
    };
    let mut any = object("An algorithm from a variable.", LIMIT_KEYS, &["algorithm"], limit_property);
    any["properties"]["algorithm"] = reference("variable");
    forms.into_iter().map(form).chain([any]).collect()
}

fn limit_property(key: &str) -> Value {
    match key {
        "algorithm" => json!(true),
        "name" => json!({
            "description": "The limit's name in header fields; the rule's name if absent.",
            "type": "string",
            "anyOf": [
                { "pattern": format!("^[ !#-\\[\\]-~]{{1,{LABEL_BYTES_MAX}}}$") },
                reference("variable"),
            ],
            "examples": ["hourly"],
        }),
        "capacity" => integer("How many units pass at once.", 1, UNITS_MAX, &[100]),
        "refill" => described("rate", "How many units come back in which time.", &["100/60s", "5/s"]),
        "credits" => integer("Units above the capacity that can be saved up.", 0, UNITS_MAX, &[0, 50]),
        "credit_ttl" => described("duration", "How long saved units are remembered.", &["24h"]),
        "limit" => integer("How many units pass within the window; 0 denies always.", 0, UNITS_MAX, &[1_000]),
        "window" => window::window(),
        "timezone" => window::timezone(),
        "anchor" => window::anchor(),
        "align" => words("Windows start at multiples of their length, or spread over keys.", ALIGNS, "epoch"),
        _ => unknown(),
    }
}
