//! The files and pages that people copy from, and the specification's own sample.

use super::agreement::{json, schema_problems};
use super::*;
use std::path::{Path, PathBuf};

pub(super) fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Both the reader and the schema take the text.
fn check_good(name: &str, text: &str) {
    let problems = Config::parse(text, name, &environment()).err();
    assert!(problems.is_none(), "{}", problems.unwrap());
    let problems = schema_problems(&json(text));
    assert!(problems.is_empty(), "{name}: {problems:#?}");
}

#[test]
fn every_example_is_a_good_file() {
    let mut count = 0;
    for entry in std::fs::read_dir(docs().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        check_good(&path.to_string_lossy(), &std::fs::read_to_string(&path).unwrap());
        count += 1;
    }
    assert!(count >= 6);
}

#[test]
fn the_demo_is_the_example_called_demo() {
    let example = std::fs::read_to_string(docs().join("examples/demo.yaml")).unwrap();
    let example = Config::parse(example, "demo.yaml", &environment()).unwrap();
    assert_eq!(format!("{:?}", example.rules), format!("{:?}", Config::demo().unwrap().rules));
    check_good("demo", DEMO_FILE);
}

/// What stands between "```yaml" and "```".
fn yaml_of(page: &str) -> Vec<&str> {
    let after_opening = page.split("\n```yaml\n").skip(1);
    after_opening.map(|rest| rest.split("\n```\n").next().unwrap()).collect()
}

#[test]
fn every_file_on_the_pages_is_good_and_every_key_is_explained() {
    let page = |name: &str| std::fs::read_to_string(docs().join(name)).unwrap();
    let pages =
        ["configuration.md", "identity.md", "gateway.md", "observability.md"].map(|name| (name, page(name)));
    for (name, page) in &pages {
        let files = yaml_of(page);
        assert!(!files.is_empty(), "{name}");
        files.into_iter().for_each(|file| check_good(name, file));
    }
    for key in agreement::keys() {
        let named = format!("`{key}`");
        assert!(pages.iter().any(|(_, page)| page.contains(&named)), "{key} is not explained");
    }
}

/// The sample of the specification.
const SAMPLE: &str = r#"store: memory
trusted_proxies: []
headers: { styles: [x-ratelimit, ietf], x_ratelimit_reset: epoch, degraded: false }
identity:
  - jwt:     { issuer: https://id.example, audience: api, jwks_file: keys.json, claim: sub }
  - ip:      { ipv6_prefix: 64 }
gateway:
  routes: [ { path: "/api/**", upstream: "http://127.0.0.1:9000", timeout: 30s } ]
tiers: [free, pro, admin]
rules:
  - name: payments               # unique; a stable part of the state's key
    match: { tenant: "*", resource: "api.payment.*", path: "/api/payments/**", method: [POST] }
    per: identifier              # identifier | tenant | ip | global | [tenant, identifier] …
    limits:                      # all must allow; nothing is charged unless all do
      - { algorithm: token_bucket,    capacity: 100, refill: 100/60s, credits: 0, credit_ttl: 24h }
      - { algorithm: sliding_window,  limit: 1000, window: 1h }
      - { algorithm: sliding_counter, limit: 1000, window: 1h }
      - { algorithm: fixed_window,    limit: 10000, window: 24h }
    tiers: { pro: [ { algorithm: token_bucket, capacity: 1000, refill: 1000/60s } ], admin: unlimited }
    overrides: [ { identifier: "vip-*", limits: [ … ] } ]
    mode: enforce                # enforce | shadow (decides, counts and reports, never denies) | off
    on_store_failure: open       # open | closed | local
    deadline: 15ms               # whole time the store may take before on_store_failure answers
    cost: 1
database: sqlite://rules.db
redis: { keys: hashed }
"#;

#[test]
fn the_sample_is_good() {
    let sample = SAMPLE.replace("[ … ]", "[ { algorithm: fixed_window, limit: 5, window: 1s } ]");
    check_good("sample", &sample);
    let line = validate_command("sample.yaml", &sample, &environment());
    assert_eq!(line.unwrap(), "sample.yaml: ok, 1 rule, 6 limits, 3 tiers");
}
