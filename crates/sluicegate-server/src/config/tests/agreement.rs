//! Reader and schema agree: on the keys there are, and on whether a file is good.

use super::*;
use crate::config::admin::{ADMIN_KEYS, TOKEN_KEYS};
use crate::config::gateway::{CORS_KEYS, GATEWAY_KEYS, ROUTE_KEYS, TLS_KEYS};
use crate::config::identity::{API_KEY_KEYS, IP_KEYS, JWT_KEYS, KEY_KEYS, SOURCE_KEYS};
use crate::config::listeners::{LISTEN_KEYS, LISTENER_KEYS, TLS_KEYS as LISTENER_TLS_KEYS};
use crate::config::log::{DECISIONS_KEYS, LOG_KEYS};
use crate::config::redis::REDIS_KEYS;
use crate::config::schema::json_schema;
use crate::config::traces::TRACES_KEYS;
use crate::content::read::{APART_KEYS, TENANT_KEYS};
use serde_json::{Value, json};
use sluicegate::rules::file::descriptor::ENTRY_KEYS;
use sluicegate::rules::file::lease::LEASE_KEYS;
use sluicegate::rules::file::limit::{FIXED_WINDOW_KEYS, LIMIT_KEYS, SLIDING_KEYS, TOKEN_BUCKET_KEYS};
use sluicegate::rules::file::rule::{MATCH_KEYS, OVERRIDE_KEYS, RULE_KEYS};
use sluicegate::rules::file::tier::TIER_KEYS;
use sluicegate::rules::file::tree::{Kind, Meaning, Node};
use std::sync::LazyLock;

/// The keys of every mapping a file may have.
pub(super) const KEYS_OF_ALL: &[&[&str]] = &[
    KEYS,
    file::KEYS,
    MEMORY_KEYS,
    REDIS_KEYS,
    LISTEN_KEYS,
    LISTENER_KEYS,
    LISTENER_TLS_KEYS,
    SOURCE_KEYS,
    JWT_KEYS,
    API_KEY_KEYS,
    KEY_KEYS,
    IP_KEYS,
    RESP_KEYS,
    HEADERS_KEYS,
    GATEWAY_KEYS,
    ROUTE_KEYS,
    TLS_KEYS,
    CORS_KEYS,
    RULE_KEYS,
    MATCH_KEYS,
    OVERRIDE_KEYS,
    LIMIT_KEYS,
    LEASE_KEYS,
    ENTRY_KEYS,
    TENANT_KEYS,
    APART_KEYS,
    ADMIN_KEYS,
    TOKEN_KEYS,
    TIER_KEYS,
    LOG_KEYS,
    DECISIONS_KEYS,
    TRACES_KEYS,
];

static VALIDATOR: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&json_schema()).expect("a schema"));

pub(super) fn schema_problems(value: &Value) -> Vec<String> {
    VALIDATOR.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

/// What a program sees that reads the text as plain YAML.
pub(super) fn json(text: &str) -> Value {
    let environment = Environment::new();
    let document = Document::parse(text, "t.yaml", &environment);
    to_json(document.root().expect("readable").node())
}

fn to_json(node: &Node) -> Value {
    match &node.kind {
        Kind::List(items) => items.iter().map(to_json).collect(),
        Kind::Mapping(entries) => {
            let member = |key: &Node| to_json(key).as_str().expect("keys are texts").to_owned();
            entries.iter().map(|entry| (member(&entry.key), to_json(&entry.value))).collect()
        }
        Kind::Scalar(scalar) => match scalar.meaning() {
            Meaning::Null => Value::Null,
            Meaning::Boolean | Meaning::Number => scalar.text.parse().expect("JSON has it too"),
            Meaning::Text => Value::from(&*scalar.text),
        },
        Kind::Broken => panic!("an unreadable text"),
    }
}

#[test]
fn the_schema_is_a_schema() {
    let schema = json_schema();
    assert!(jsonschema::meta::is_valid(&schema));
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

/// Every object of a schema, with its properties if it has any.
fn objects(schema: &Value, found: &mut Vec<Value>) {
    match schema {
        Value::Object(members) => {
            if members.get("type") == Some(&json!("object")) {
                found.push(schema.clone());
            }
            members.values().for_each(|value| objects(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| objects(item, found)),
        _ => {}
    }
}

#[test]
fn the_keys_of_the_schema_are_those_of_the_readers() {
    let mut found = Vec::new();
    objects(&json_schema(), &mut found);
    let sorted = |keys: &[&str]| {
        let mut keys: Vec<String> = keys.iter().map(|&key| key.to_owned()).collect();
        keys.sort();
        keys
    };
    let mut in_schema: Vec<Vec<String>> = Vec::new();
    for object in &found {
        let Some(properties) = object["properties"].as_object() else {
            // The mappings with free keys: a rule's tiers, header fields and claims. What stands there has a form all the same.
            assert!(object["propertyNames"].is_object(), "{object}");
            assert!(object["additionalProperties"]["$ref"].is_string(), "{object}");
            continue;
        };
        assert_eq!(object["additionalProperties"], json!(false), "{object}");
        assert!(object["description"].is_string(), "{object}");
        assert!(properties.values().all(|property| *property != json!(false)), "{object}");
        in_schema.push(properties.keys().cloned().collect());
    }
    let top = [KEYS, file::KEYS].concat();
    let of_limits = [TOKEN_BUCKET_KEYS, SLIDING_KEYS, SLIDING_KEYS, FIXED_WINDOW_KEYS, LIMIT_KEYS];
    let (apart, named_key) = ([APART_KEYS, OVERRIDE_KEYS].concat(), [&["name"], KEY_KEYS].concat());
    let others = [
        &top,
        &apart,
        &named_key,
        TENANT_KEYS,
        ADMIN_KEYS,
        TOKEN_KEYS,
        LOG_KEYS,
        DECISIONS_KEYS,
        TRACES_KEYS,
        MEMORY_KEYS,
        REDIS_KEYS,
        LISTEN_KEYS,
        LISTENER_KEYS,
        LISTENER_TLS_KEYS,
        SOURCE_KEYS,
        JWT_KEYS,
        API_KEY_KEYS,
        KEY_KEYS,
        IP_KEYS,
        RESP_KEYS,
        HEADERS_KEYS,
        GATEWAY_KEYS,
        ROUTE_KEYS,
        TLS_KEYS,
        CORS_KEYS,
        RULE_KEYS,
        MATCH_KEYS,
        OVERRIDE_KEYS,
        TIER_KEYS,
        LEASE_KEYS,
        ENTRY_KEYS,
    ];
    let mut in_readers: Vec<Vec<String>> = others.iter().chain(&of_limits).map(|keys| sorted(keys)).collect();
    in_schema.sort();
    in_readers.sort();
    assert_eq!(in_schema, in_readers);
}

/// A file with every key.
const FULL: &str = r#"
store: memory
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
      tenant_claim: org, leeway: 30s, refresh: 5min, keep: 24h, ca_file: ca.pem }
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
        connect_timeout: 5s, idle_timeout: 60s, keep_alive: 4s, concurrency: 64, max_body_bytes: 1048576, http2: true,
        preserve_host: false, strip_prefix: /api, retry: false, tls: { ca_file: ca.pem, server_name: app.internal,
        certificate_file: c.pem, key_file: k.pem } }
    - { host: api.example.com, path: /**, upstream: http://127.0.0.1:9000 }
  exempt: [/healthz, /assets/**]
  preflights: exempt
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

/// What a value may be replaced by.
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
                for key in KEYS_OF_ALL.concat() {
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

/// What a schema cannot see: it looks at one value at a time, in characters, and knows no variables.
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
    "nobody could ever be let in",
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
];

#[test]
fn a_change_that_one_of_them_refuses_the_other_refuses_too() {
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
