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
    gate.decide(&Head { method, path: &path, authority: None, headers: &headers }, [192, 0, 2, 7].into()).await
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

/// Row 61: where a limit comes only after the credential was verified, bad ones are free.
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

/// A gate that knows callers by tokens of two issuers, or else by their address.
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

const SECRET: &[u8] = b"a secret that nobody else knows.";

fn token(secret: &[u8], more: &serde_json::Value) -> String {
    let mut claims =
        serde_json::json!({ "iss": "https://id.example", "aud": "api", "sub": "alice", "exp": 1_705_316_400 });
    claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let key = jsonwebtoken::EncodingKey::from_secret(secret);
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

/// The names of the rules that limit a request for `/` with these header fields, and for this host.
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
async fn rules_see_hosts_and_header_fields() {
    let gate = gate_of_tokens(BY_HEAD);
    let none: [&str; 0] = [];
    assert_eq!(limited_by(&gate, None, &[("host", "API.example.COM:8443")]).await, ["host"]);
    assert_eq!(limited_by(&gate, Some("a.example.com"), &[("host", "elsewhere")]).await, ["host"]);
    assert_eq!(limited_by(&gate, Some("elsewhere"), &[("host", "a.example.com")]).await, none);
    assert_eq!(limited_by(&gate, None, &[]).await, none);
    assert_eq!(limited_by(&gate, None, &[("x-plan", "gold-2"), ("x-region", "eu")]).await, ["header"]);
    // Any of several values; and one that is no text is a value all the same.
    let several = [("x-plan", "free"), ("x-plan", "gold"), ("x-region", "\u{80}")];
    assert_eq!(limited_by(&gate, None, &several).await, ["header"]);
    assert_eq!(limited_by(&gate, None, &[("x-plan", "Gold"), ("x-region", "eu")]).await, none);
    assert_eq!(limited_by(&gate, None, &[("x-plan", "gold")]).await, none);
    // The API has no such things, so these rules are not for it.
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
async fn rules_see_claims_of_verified_tokens_also_of_those_that_were_verified_before_the_rules_came() {
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
    // Nobody claims anything without a token, whatever he sends.
    assert_eq!(limited_by(&gate, None, &[("plan", "gold")]).await, none);
}

/// Row 62: two issuers may use one subject for two people, and who knows only the subject gives them one bucket. Decision
/// 0016 keeps that where nothing else tells them apart, and lets the tenant do so.
#[tokio::test]
async fn issuers_with_the_same_subject_share_a_quota_unless_a_tenant_tells_them_apart() {
    const ONE: &str = "rules: [{ name: one, limits: [{ algorithm: fixed_window, limit: 1, window: 1h }] }]";
    let path = Path::parse("/", EncodedSlashes::Refuse).unwrap();
    for (tenants, expected) in [([None, None], [true, false]), ([Some("a"), Some("b")], [true, true])] {
        let gate = gate_of_tokens(ONE);
        for (index, issuer) in ["https://id.example", "https://other.example"].into_iter().enumerate() {
            let mut claims = serde_json::json!({ "iss": issuer });
            if let Some(tenant) = tenants[index] {
                claims["org"] = tenant.into();
            }
            let mut headers = HeaderMap::new();
            let credential = format!("Bearer {}", token(SECRET, &claims));
            headers.insert(http::header::AUTHORIZATION, HeaderValue::from_str(&credential).unwrap());
            let head = Head { method: "GET", path: &path, authority: None, headers: &headers };
            let admission = gate.decide(&head, [192, 0, 2, 7].into()).await.unwrap();
            assert_eq!(admission.decision.is_allowed(), expected[index], "{issuer} {tenants:?}");
        }
    }
}
