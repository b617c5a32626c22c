//! The schema and the reader accept the same files, as far as a schema can know.
//!
//! Keys, words and bounds have one declaration, but the pattern of a text stands beside the function that parses it.
//! The test changes complete files in every place and compares both answers.

use super::*;
use crate::config::schema::{json_of, json_schema};
use serde_json::{Value, json};
use sluicegate::rules::file::field::Declared;
use sluicegate::rules::file::limit::LIMIT;
use sluicegate::rules::file::rule::{OVERRIDE, RULE};
use std::sync::LazyLock;

/// Every mapping that a file may have.
pub(super) fn mappings() -> Vec<&'static Mapping> {
    let mut found: Vec<&'static Mapping> = Vec::new();
    let mut next = vec![&TOP, &RULE, &OVERRIDE, &LIMIT, &listeners::LISTENER];
    while let Some(mapping) = next.pop() {
        if !found.iter().any(|known| std::ptr::eq(*known, mapping)) {
            found.push(mapping);
            mapping.fields.iter().for_each(|field| nested(&field.form(), &mut next));
        }
    }
    found
}

fn nested(form: &Form, found: &mut Vec<&'static Mapping>) {
    match form {
        Form::Mapping(mapping) => found.push(mapping),
        Form::List { item, .. } => nested(item, found),
        Form::Map { value, .. } => nested(value, found),
        Form::Any(forms) => forms.iter().for_each(|form| nested(form, found)),
        _ => {}
    }
}

fn fields() -> impl Iterator<Item = &'static dyn Declared> {
    mappings().into_iter().flat_map(|mapping| mapping.fields.iter().copied())
}

/// The names of all keys, each once.
pub(super) fn keys() -> Vec<&'static str> {
    let mut keys: Vec<&str> = fields().map(Declared::key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[test]
fn every_default_is_a_value_that_the_reader_accepts() {
    assert!(mappings().len() > 25);
    for field in fields() {
        assert!(field.has_readable_default(), "{field:?}");
        assert!(field.doc().ends_with('.'), "{field:?}");
    }
}

#[test]
fn defaults_of_the_file_are_those_of_the_program() {
    assert_eq!(MAX_KEYS.default(), Some(MemoryOptions::default().max_keys));
    assert_eq!(DEADLINE.default(), Some(DEADLINE_DEFAULT));
    let config = good("headers: {}\nredis: {}\nrules: []");
    assert_eq!(format!("{:?}", config.headers), format!("{:?}", HeaderOptions::default()));
    assert_eq!(format!("{:?}", config.redis), format!("{:?}", RedisSettings::default()));
}

static VALIDATOR: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&json_schema()).expect("a schema"));

pub(super) fn schema_problems(value: &Value) -> Vec<String> {
    VALIDATOR.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// The text as plain YAML, as other programs read it.
pub(super) fn json(text: &str) -> Value {
    let environment = Environment::new();
    let document = Document::parse(text, "t.yaml", &environment);
    json_of(document.root().expect("readable").node())
}

#[test]
fn the_schema_is_a_schema() {
    let schema = json_schema();
    assert!(jsonschema::meta::is_valid(&schema));
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

/// A file with every key.
const FULL: &str = r#"
store: memory
demo: false
api: { token: "${API_TOKEN}", origins: ["https://app.example:8443"], hosts: [limits.example, "::1"] }
memory: { max_keys: 1000 }
redis: { prefix: sg, keys: hashed, key_secret: s, max_connections: 2, connect_timeout: 1s, read_timeout: 250ms,
  ca_file: a.pem, certificate_file: b.pem, key_file: c.pem, sentinel_user: u, sentinel_password: p, min_instances: 3 }
listen:
  gateway: { address: 127.0.0.1:8080, tls: { certificate_file: a.pem, key_file: b.pem }, proxy_protocol: [10.0.0.0/8],
    max_connections_per_address: 100 }
  api: off
  admin: "[::1]:0"
  resp: off
resp: { password: s3cret, deadline: 15ms }
log: { decisions: { denied: 100%, shadow_denied: 12.5%, allowed: 0.01% }, identities: cut, hash_secret: s }
traces: { endpoint: http://127.0.0.1:4317, headers: { authorization: Bearer x, x-scope: a }, sample: 5%, parents: anyone,
  service_name: limits, ca_file: ca.pem }
headers: { styles: [x-ratelimit, ietf], x_ratelimit_reset: epoch, degraded: true }
trusted_proxies: [10.0.0.0/8, "2001:db8::1"]
trusted_header: either
identity:
  - jwt: { issuer: https://id.example, audience: [api], jwks_url: https://id.example/keys, claim: sub, tier_claim: tier,
      tenant_claim: org, namespace: staff, leeway: 30s, refresh: 5min, keep: 24h, ca_file: ca.pem }
  - jwt: { issuer: other, audience: api, secret_env: JWT_SECRET }
  - api_key: { header: X-API-Key, verify: true, keys: [
      { sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c, identifier: demo, tier: free, tenant: t } ] }
  - ip: { ipv6_prefix: 64 }
tiers: [{ name: free, algorithms: [fixed_window] }, pro]
unmatched: allow
rules:
  - name: payments
    match:
      tenant: "*"
      resource: api.*
      path: /api/**
      method: [GET, POST]
      host: "*.example.com"
      header: { X-Plan: gold* }
      claim: { plan: pro }
    per: [tenant, identifier]
    limits:
      - { algorithm: token_bucket, capacity: 100, refill: 100/60s, credits: 5, credit_ttl: 24h, name: burst }
      - { algorithm: sliding_window, limit: 1000, window: 1h }
      - { algorithm: sliding_counter, limit: 1000, window: 250ms }
      - { algorithm: fixed_window, limit: 0, window: 1d, align: key }
      - { algorithm: fixed_window, limit: 9, window: month, timezone: Europe/Berlin, anchor: 31 }
      - { algorithm: fixed_window, limit: 9, window: week, anchor: sunday }
      - { algorithm: fixed_window, limit: 9, window: hour, timezone: Asia/Kolkata }
    tiers: { pro: unlimited, free: [ { algorithm: fixed_window, limit: 5, window: 1min } ] }
    overrides: [ { identifier: vip-*, limits: unlimited, until: "2026-12-31T00:00:00Z" } ]
    mode: shadow
    on_store_failure: closed
    deadline: 15ms
    cost: 1
  - { name: envoy, match: { descriptor: [{ key: path }, { key: user, value: a* }] }, limits: unlimited }
  - { name: other, per: ip, limits: unlimited, lease: { ttl: 100ms, mode: strict } }
"#;

/// A file with every key of the gateway, apart from the other so that neither becomes much larger by the other's changes.
const FULL_GATEWAY: &str = r#"
gateway:
  routes:
    - { host: "*.example.com", path: /api/**, upstream: [https://a.internal, "https://[::1]:8443"], timeout: 30s,
        connect_timeout: 5s, idle_timeout: 60s, keep_alive: 4s, concurrency: 64, max_body_bytes: 1048576, min_body_rate: 240, http2: true,
        preserve_host: false, strip_prefix: /api, retry: false, tls: { ca_file: ca.pem, server_name: app.internal,
        certificate_file: c.pem, key_file: k.pem } }
    - { host: api.example.com, path: /**, upstream: http://127.0.0.1:9000 }
  exempt: [/healthz, /assets/**]
  preflights: exempt
  encoded_slashes: refuse
  identity_headers: true
  cors: { allow_origins: [https://app.example.com, "*"], allow_credentials: true }
rules: []
"#;

/// A file with everything that a database would hold besides rules.
const FULL_CONTENT: &str = r#"
database: sqlite:///var/lib/sluicegate/rules.db
tenants: [ { name: acme, description: "A customer", disabled: true } ]
overrides: [ { name: vip, rule: payments, identifier: vip-*, limits: unlimited } ]
keys:
  - { name: demo, sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c, identifier: demo, tier: free,
      tenant: acme }
admin: { tokens: [ { name: ops, role: operate, env: OPS_TOKEN } ] }
rules:
  - { name: payments, limits: [ { algorithm: fixed_window, limit: 5, window: 1min } ] }
"#;

/// The pointers to all values.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| pointers(value, &format!("{at}/{key}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

/// Texts that a value may be replaced by.
const TEXTS: &[&str] = &[
    "",
    "x",
    "5",
    "off",
    "unlimited",
    "memory",
    "redis://h",
    "redis+proxy://h",
    "sqlite://",
    "sqlite://r.db",
    "sqlite:///r.db?mode=ro",
    "postgres://u@h/d",
    "postgres://",
    "hashed",
    "ietf",
    "global",
    "deny",
    "free",
    "token_bucket",
    "a b",
    "é",
    "*",
    "a\u{7}",
    "a\"b",
    "a\\b",
    "30s",
    "month",
    "day",
    "sunday",
    "UTC",
    "0s",
    "05s",
    "5m",
    "1.5h",
    "5 min",
    "99999999999999999999s",
    "1/s",
    "5%",
    "100.1%",
    "05%",
    "1/ms",
    "0/s",
    "1/0s",
    "01/s",
    "1/1h",
    "1/1m",
    "-1/s",
    "localhost:80",
    "http://app:80",
    "https://app",
    "http://app/x",
    "http://169.254.1.1",
    "/x/**",
    "/x/",
    "*.example.com",
    "[::1]",
    "[::1]:80",
    ":80",
    "h:65536",
    "${RATE}",
    "${NOT_SET}",
    "${",
    "$${",
    "\n",
    " ",
];

/// The replacements for a value.
fn replacements() -> Vec<Value> {
    let mut values = vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(-1),
        json!(1.5),
        json!(1e30),
        json!(10_001),
        json!(u64::MAX),
        json!(999_999_999_999_999_u64),
        json!([]),
        json!([null]),
        json!(["ip", "ip"]),
        json!({}),
        json!({ "zzz": 1 }),
        json!([{ "algorithm": "fixed_window", "limit": 1, "window": "1s" }]),
        json!({ "algorithm": "${ALGORITHM}" }),
    ];
    values.extend(TEXTS.iter().copied().map(Value::from));
    values.extend([64, 65, 256, 257].map(|length| Value::from("n".repeat(length))));
    values
}

/// All files changed in one place, in every way.
fn changes() -> Vec<Value> {
    [FULL, FULL_GATEWAY, FULL_CONTENT].into_iter().flat_map(changes_of).collect()
}

fn changes_of(full: &str) -> Vec<Value> {
    let full = json(full);
    let mut all = Vec::new();
    pointers(&full, "", &mut all);
    let mut changed = Vec::new();
    let mut change = |pointer: &str, change: &dyn Fn(&mut Value)| {
        let mut copy = full.clone();
        change(copy.pointer_mut(pointer).expect("it points there"));
        changed.push(copy);
    };
    for pointer in &all {
        for replacement in replacements() {
            change(pointer, &|value| *value = replacement.clone());
        }
        match full.pointer(pointer) {
            Some(Value::Object(members)) => {
                change(pointer, &|value| value["zzz"] = json!(1));
                for key in members.keys() {
                    change(pointer, &|value| drop(value.as_object_mut().and_then(|members| members.remove(key))));
                }
                for key in keys() {
                    change(pointer, &|value| value[key] = json!("30s"));
                }
            }
            Some(Value::Array(items)) => {
                let first = items.first().cloned();
                change(pointer, &|value| value.as_array_mut().expect("a list").extend(first.clone()));
            }
            _ => {}
        }
    }
    changed
}

/// Problems that a schema cannot detect: it checks one value at a time, in characters, and knows no variables.
const BEYOND_A_SCHEMA: &[&str] = &[
    "a second one of that name",
    "unknown tier",
    "never applies",
    "has the same name in header fields",
    "global among others",
    "cannot be charged ahead",
    "not a network",
    "a second entry for the issuer",
    "a second one of that key",
    "counts unverified credentials",
    "matches unverified credentials by claims",
    "not an instant",
    "unknown time zone",
    "gives the tier",
    "named twice, in upper or lower case",
    "shorter than `refresh`",
    "no credential could ever be valid",
    "the field of tokens",
    "a field about the way of a request",
    "all origins with cookies",
    "not 64 hexadecimal digits",
    "not a network",
    "matches no path",
    "** within a segment",
    "without hashed keys",
    "out of range",
    "is not set: ",
    "${ without }",
    "(value \"${",
    "(value \"$${",
    "a second route for this host and path",
    "an upstream without encryption",
    "an address of the local link",
    "a URL with a port that is none",
    "matches no path",
    "** within a segment",
    "no rule is called",
    "cannot be sent to a collector",
    "not an origin",
    "not a host",
    "so it serves no demo application",
    "a token that is too short",
    "its name is no namespace",
];

#[test]
fn reader_and_schema_reject_the_same_changed_files() {
    let changes = changes();
    assert!(changes.len() > 4_000, "{}", changes.len());
    let (mut good, mut both, mut only_reader) = (0, 0, 0);
    for value in changes {
        let text = value.to_string();
        let schema = schema_problems(&value);
        match (parse(&text), schema.as_slice()) {
            (Ok(_), []) => good += 1,
            (Ok(_), _) => panic!("only the schema refuses {text}: {schema:#?}"),
            (Err(_), [_, ..]) => both += 1,
            (Err(problems), []) => {
                let problems = problems.to_string();
                let is_beyond = |line: &str| BEYOND_A_SCHEMA.iter().any(|words| line.contains(words));
                assert!(problems.lines().all(is_beyond), "only the reader refuses {text}: {problems}");
                only_reader += 1;
            }
        }
    }
    assert!(good > 100 && both > 3_000 && only_reader > 10, "{good} {both} {only_reader}");
}
