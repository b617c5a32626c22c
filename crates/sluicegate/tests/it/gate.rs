//! From the head of a request to a decision.

use http::{HeaderMap, HeaderName, HeaderValue};
use sluicegate::clock::ManualClock;
use sluicegate::core::Timestamp;
use sluicegate::gate::{Admission, Gate, Head, Refusal};
use sluicegate::identify::api_key::{ApiKeys, KeyHash};
use sluicegate::identify::token::{IssuerOptions, Keys, Tokens};
use sluicegate::identify::{Identify, Principal, Reason, Source};
use sluicegate::path::{EncodedSlashes, Path};
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;
use sluicegate::{Limiter, MemoryStore, Observer};
use std::sync::{Arc, Mutex};

const KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Records the unknown tiers.
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

async fn send(gate: &TestGate, method: &str, path: &str, key: Option<&str>) -> Result<Admission, Refusal> {
    let mut headers = HeaderMap::new();
    if let Some(key) = key {
        headers.insert(KEY, HeaderValue::from_str(key).unwrap());
    }
    let path = Path::parse(path, EncodedSlashes::Refuse).unwrap();
    gate.decide(&Head { method, path: &path, authority: None, headers: &headers }, [192, 0, 2, 7].into()).await
}

async fn outcome(gate: &TestGate, method: &str, path: &str, key: Option<&str>) -> &'static str {
    match send(gate, method, path, key).await {
        Ok(admission) if admission.decision.is_allowed() => "allowed",
        Ok(_) => "denied",
        Err(Refusal::Unauthorized(error)) => error.reason().name(),
        Err(Refusal::Guarded(_)) => "guarded",
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn rules_match_normalized_methods_and_paths() {
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
async fn keys_and_addresses_have_separate_quotas() {
    let gate = gate("rules: [{ name: one, limits: [{ algorithm: fixed_window, limit: 1, window: 1h }] }]");
    assert_eq!(outcome(&gate, "GET", "/", Some("alices")).await, "allowed");
    assert_eq!(outcome(&gate, "GET", "/", Some("alices")).await, "denied");
    assert_eq!(outcome(&gate, "GET", "/", None).await, "allowed");
    assert_eq!(outcome(&gate, "GET", "/", None).await, "denied");
    assert_eq!(outcome(&gate, "GET", "/", Some("nobodys")).await, Reason::UnknownKey.name());
}

#[tokio::test]
async fn unknown_tier_falls_back_to_the_own_limits_and_is_reported() {
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

/// Row 61: if a limit applies only after the credential is verified, wrong credentials are free.
#[tokio::test]
async fn guard_limits_wrong_keys_and_no_other_clients() {
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
async fn guard_of_other_paths_does_not_deny_unmatched_requests() {
    let gate = gate(
        "unmatched: deny
rules: [{ name: guard, match: { credential: unverified, path: /login }, per: ip, limits: [{ algorithm: fixed_window, limit: 0, window: 1h }] }]",
    );
    assert_eq!(outcome(&gate, "GET", "/login", Some("nobodys")).await, "guarded");
    assert_eq!(outcome(&gate, "GET", "/", Some("nobodys")).await, "unknown_key");
    assert_eq!(outcome(&gate, "GET", "/", Some("alices")).await, "denied");
}

/// A gate that identifies clients by tokens of two issuers, or else by their address.
fn gate_of_tokens(rules: &str) -> TestGate {
    let rules = RuleSet::from_yaml(rules, "t.yaml", &Environment::new()).unwrap();
    let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
    let issuer = |name: &str| {
        let mut issuer = IssuerOptions::new(name, ["api"], Keys::secret(SECRET).unwrap());
        issuer.tenant_claim = Some("org".to_owned());
        issuer
    };
    let tokens = Tokens::new(["https://id.example", "https://other.example"].map(issuer).into()).unwrap();
    let identify = Identify::new(vec![Source::Tokens(tokens), Source::Address]);
    Gate::new(Limiter::new(rules, MemoryStore::default(), clock).observed(Arc::new(Tiers::default())), identify)
}

const SECRET: &[u8] = b"a secret that no one else knows.";

fn token(secret: &[u8], more: &serde_json::Value) -> String {
    let mut claims =
        serde_json::json!({ "iss": "https://id.example", "aud": "api", "sub": "alice", "exp": 1_705_316_400 });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let key = jsonwebtoken::EncodingKey::from_secret(secret);
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

/// The names of the rules that limit a request for `/` with these header fields and this host.
async fn limited_by(gate: &TestGate, authority: Option<&str>, fields: &[(&'static str, &str)]) -> Vec<String> {
    let named = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let headers: HeaderMap = fields.iter().map(named).collect();
    let path = Path::parse("/", EncodedSlashes::Refuse).unwrap();
    let head = Head { method: "GET", path: &path, authority, headers: &headers };
    let admission = gate.decide(&head, [192, 0, 2, 7].into()).await.unwrap();
    admission.decision.limits().map(|limit| limit.rule.to_owned()).collect()
}

const BY_HEAD: &str = "
rules:
  - { name: host, match: { host: '*.Example.com' }, limits: [{ algorithm: fixed_window, limit: 100, window: 1h }] }
  - { name: header, match: { header: { X-Plan: gold*, x-region: '*' } },
      limits: [{ algorithm: fixed_window, limit: 100, window: 1h }] }
";

#[tokio::test]
async fn rules_match_hosts_and_header_fields() {
    let gate = gate_of_tokens(BY_HEAD);
    let none: [&str; 0] = [];
    assert_eq!(limited_by(&gate, None, &[("host", "API.example.COM:8443")]).await, ["host"]);
    assert_eq!(limited_by(&gate, Some("a.example.com"), &[("host", "elsewhere")]).await, ["host"]);
    assert_eq!(limited_by(&gate, Some("elsewhere"), &[("host", "a.example.com")]).await, none);
    assert_eq!(limited_by(&gate, None, &[]).await, none);
    assert_eq!(limited_by(&gate, None, &[("x-plan", "gold-2"), ("x-region", "eu")]).await, ["header"]);
    // A field matches by any of its values, and a value that is not text is still a value.
    let several = [("x-plan", "free"), ("x-plan", "gold"), ("x-region", "\u{80}")];
    assert_eq!(limited_by(&gate, None, &several).await, ["header"]);
    assert_eq!(limited_by(&gate, None, &[("x-plan", "Gold"), ("x-region", "eu")]).await, none);
    assert_eq!(limited_by(&gate, None, &[("x-plan", "gold")]).await, none);
    // The API has no such fields, so these rules do not apply to it.
    let plain = gate.limiter().check(&sluicegate::Request::new("r", "alice")).await.unwrap();
    assert_eq!(plain.limits().count(), 0);
}

const BY_CLAIM: &str = "
rules:
  - { name: plan, match: { claim: { plan: gold } }, limits: [{ algorithm: fixed_window, limit: 100, window: 1h }] }
  - { name: groups, match: { claim: { groups: team-*, staff: 'true' } },
      limits: [{ algorithm: fixed_window, limit: 100, window: 1h }] }
";

#[tokio::test]
async fn rules_match_claims_of_tokens_verified_before_the_rules() {
    let gate = gate_of_tokens("rules: []");
    let bearer = |token: String| format!("Bearer {token}");
    let gold = bearer(token(SECRET, &serde_json::json!({ "plan": "gold" })));
    let team =
        bearer(token(SECRET, &serde_json::json!({ "groups": ["x", "team-1"], "staff": true, "plan": "free" })));
    let none: [&str; 0] = [];
    for credential in [&gold, &team] {
        assert_eq!(limited_by(&gate, None, &[("authorization", credential)]).await, none);
    }
    gate.replace_rules(RuleSet::from_yaml(BY_CLAIM, "t.yaml", &Environment::new()).unwrap());
    for _ in 0..2 {
        assert_eq!(limited_by(&gate, None, &[("authorization", &gold)]).await, ["plan"]);
        assert_eq!(limited_by(&gate, None, &[("authorization", &team)]).await, ["groups"]);
    }
    // Without a token there are no claims, whatever the client sends.
    assert_eq!(limited_by(&gate, None, &[("plan", "gold")]).await, none);
}

/// Row 62: two issuers may use one subject for two people. If only the subject counts, they share a bucket.
#[tokio::test]
async fn same_subject_of_two_issuers_has_separate_limits() {
    let gate = gate_of_tokens(
        "rules:
  - { name: one, limits: [{ algorithm: fixed_window, limit: 1, window: 1h }],
      overrides: [{ identifier: 'https://other.example|alice', limits: [{ algorithm: fixed_window, limit: 2, window: 1h }] }] }",
    );
    let send = async |issuer: &str| {
        let token = token(SECRET, &serde_json::json!({ "iss": issuer }));
        let value = HeaderValue::from_str(&format!("Bearer {token}")).unwrap();
        let headers: HeaderMap = [(http::header::AUTHORIZATION, value)].into_iter().collect();
        let path = Path::parse("/", EncodedSlashes::Refuse).unwrap();
        let head = Head { method: "GET", path: &path, authority: None, headers: &headers };
        let admission = gate.decide(&head, [192, 0, 2, 7].into()).await.unwrap();
        admission.decision.is_allowed()
    };
    assert!(send("https://id.example").await);
    assert!(!send("https://id.example").await);
    let others = [send("https://other.example").await, send("https://other.example").await];
    assert_eq!(others, [true, true], "a client of another issuer, and its override");
    assert!(!send("https://other.example").await);
}
