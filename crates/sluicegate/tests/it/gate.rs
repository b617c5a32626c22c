//! From the head of a request to a decision.

use http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::clock::ManualClock;
use sluicegate::core::Timestamp;
use sluicegate::gate::{Admission, Gate, Head, Refusal};
use sluicegate::identify::api_key::{ApiKeys, KeyHash};
use sluicegate::identify::{Identify, Principal, Reason, Source};
use sluicegate::path::{EncodedSlashes, Path};
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::{Limiter, MemoryStore, Observer};
use std::sync::{Arc, Mutex};

const KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Remembers the tiers that nobody knows.
#[derive(Default)]
struct Tiers(Mutex<Vec<String>>);

impl Observer for Tiers {
    fn unknown_tier(&self, tier: &str) {
        self.0.lock().unwrap().push(tier.to_owned());
    }
}

type TestGate = Gate<MemoryStore, ManualClock, Arc<Tiers>>;

fn gate(rules: &str) -> TestGate {
    let rules = RuleSet::from_yaml(rules, "t.yaml", &Environment::new()).unwrap();
    let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
    let owner = |identifier: &str, tier: Option<&str>| Principal {
        identifier: identifier.into(),
        tier: tier.map(Into::into),
        tenant: None,
    };
    let keys = [
        (KeyHash::of(b"alices"), owner("alice", None)),
        (KeyHash::of(b"pros"), owner("bob", Some("pro"))),
        (KeyHash::of(b"golds"), owner("eve", Some("gold"))),
    ];
    let identify = Identify::new(vec![Source::ApiKeys(ApiKeys::new(KEY, keys)), Source::Address]);
    Gate::new(Limiter::new(rules, MemoryStore::default(), clock).observed(Arc::new(Tiers::default())), identify)
}

async fn ask(gate: &TestGate, method: &str, path: &str, key: Option<&str>) -> Result<Admission, Refusal> {
    let mut headers = HeaderMap::new();
    if let Some(key) = key {
        headers.insert(KEY, HeaderValue::from_str(key).unwrap());
    }
    let path = Path::parse(path, EncodedSlashes::Refuse).unwrap();
    gate.decide(&Head { method, path: &path, headers: &headers }, [192, 0, 2, 7].into()).await
}

async fn outcome(gate: &TestGate, method: &str, path: &str, key: Option<&str>) -> &'static str {
    match ask(gate, method, path, key).await {
        Ok(admission) if admission.decision.is_allowed() => "allowed",
        Ok(_) => "denied",
        Err(Refusal::Unauthorized(error)) => error.reason().name(),
        Err(Refusal::Guarded(_)) => "guarded",
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn rules_see_method_and_path_however_they_are_written() {
    let gate = gate(
        "rules: [{ name: pay, match: { path: /pay/**, method: [GET] }, per: global,
                   limits: [{ algorithm: fixed_window, limit: 3, window: 1h }] }]",
    );
    assert_eq!(outcome(&gate, "GET", "/pay", None).await, "allowed");
    assert_eq!(outcome(&gate, "HEAD", "//PAY/./x", None).await, "allowed");
    assert_eq!(outcome(&gate, "get", "/x/../pay/%61", None).await, "allowed");
    assert_eq!(outcome(&gate, "GET", "/pay;a", None).await, "denied");
    assert_eq!(outcome(&gate, "POST", "/pay", None).await, "allowed");
    assert_eq!(outcome(&gate, "GET", "/payment", None).await, "allowed");
}

#[tokio::test]
async fn keys_and_addresses_have_quotas_of_their_own() {
    let gate = gate("rules: [{ name: one, limits: [{ algorithm: fixed_window, limit: 1, window: 1h }] }]");
    assert_eq!(outcome(&gate, "GET", "/", Some("alices")).await, "allowed");
    assert_eq!(outcome(&gate, "GET", "/", Some("alices")).await, "denied");
    assert_eq!(outcome(&gate, "GET", "/", None).await, "allowed");
    assert_eq!(outcome(&gate, "GET", "/", None).await, "denied");
    assert_eq!(outcome(&gate, "GET", "/", Some("nobodys")).await, Reason::UnknownKey.name());
}

#[tokio::test]
async fn a_tier_that_nobody_knows_means_the_rules_own_limits_and_is_told() {
    let gate = gate(
        "tiers: [pro]
rules: [{ name: one, limits: [{ algorithm: fixed_window, limit: 1, window: 1h }], tiers: { pro: unlimited } }]",
    );
    for key in ["pros", "pros", "golds"] {
        assert_eq!(outcome(&gate, "GET", "/", Some(key)).await, "allowed");
    }
    assert_eq!(outcome(&gate, "GET", "/", Some("golds")).await, "denied");
    assert_eq!(*gate.limiter().observer().0.lock().unwrap(), ["gold", "gold"]);
}

#[tokio::test]
async fn a_guard_limits_how_many_wrong_keys_are_tried_and_nobody_else() {
    let gate = gate(
        "unmatched: deny
rules:
  - { name: guard, match: { credential: unverified }, per: ip, limits: [{ algorithm: fixed_window, limit: 2, window: 1h }] }
  - { name: all, limits: [{ algorithm: fixed_window, limit: 100, window: 1h }] }",
    );
    for expected in ["unknown_key", "unknown_key", "guarded", "guarded"] {
        assert_eq!(outcome(&gate, "GET", "/", Some("nobodys")).await, expected);
    }
    assert_eq!(outcome(&gate, "GET", "/", Some("alices")).await, "allowed");
    assert_eq!(outcome(&gate, "GET", "/", None).await, "allowed");
}

#[tokio::test]
async fn a_guard_of_other_paths_denies_nothing_where_unmatched_is_denied() {
    let gate = gate(
        "unmatched: deny
rules: [{ name: guard, match: { credential: unverified, path: /login }, per: ip, limits: [{ algorithm: fixed_window, limit: 0, window: 1h }] }]",
    );
    assert_eq!(outcome(&gate, "GET", "/login", Some("nobodys")).await, "guarded");
    assert_eq!(outcome(&gate, "GET", "/", Some("nobodys")).await, "unknown_key");
    assert_eq!(outcome(&gate, "GET", "/", Some("alices")).await, "denied");
}
