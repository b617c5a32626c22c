//! Round trips between documents, files and changes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::Config;

fn read(text: &str) -> RuleDocuments {
    let variables = [("HOST".to_owned(), "db".to_owned())].into();
    Config::parse(text, "t.yaml", &variables).expect(text).content
}

fn problems(content: &RuleDocuments) -> String {
    content.compile().expect_err("a problem").to_string()
}

const FULL: &str = r#"
tiers: [free, pro]
unmatched: deny
tenants: [ { name: "<b>acme</b>'; DROP TABLE rules; --", description: "é ${HOST} $${HOST}" }, { name: off, disabled: true } ]
overrides: [ { name: vip, rule: payments, identifier: "vip-*", limits: unlimited } ]
keys: [ { name: k, sha256: c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c, identifier: demo, tier: free } ]
rules:
  - name: payments
    limits: [ { algorithm: token_bucket, capacity: 100, refill: 100/60s } ]
    tiers: { pro: unlimited }
    overrides: [ { identifier: alice, limits: [ { algorithm: fixed_window, limit: 0, window: 1d } ] } ]
    cost: 3
  - { name: all, match: { resource: "${HOST}.*" }, per: [tenant, ip], limits: unlimited, mode: off }
"#;

#[test]
fn rule_documents_survive_a_round_trip_through_a_file() {
    let first = read(FULL);
    assert_eq!(first.entries.len(), 8);
    let again = read(&first.file(Keys::Included));
    assert_eq!(first, again);
    assert_eq!(first.file(Keys::Included), again.file(Keys::Included));
}

#[test]
fn variables_are_replaced_once_and_their_values_are_escaped() {
    let content = read(FULL);
    let tenant = content.of(Kind::Tenant).next().expect("a tenant");
    assert_eq!(tenant.value()["description"], "é db $${HOST}");
    assert_eq!(content.get(Kind::Rule, "all").expect("a rule").value()["match"]["resource"], "db.*");
}

#[test]
fn documents_of_a_database_cannot_use_variables() {
    let mut content = read(FULL);
    let rule = json!({ "name": "all", "match": { "resource": "${HOST}" }, "limits": "unlimited" });
    content.set(Kind::Rule, "all", Some(&rule));
    assert!(problems(&content).contains("the variable HOST is not set"), "{}", problems(&content));
}

#[test]
fn overrides_and_disabled_tenants_are_part_of_the_rules() {
    let compiled = read(FULL).compile().expect("good");
    let names: Vec<&str> = compiled.rules.rules().iter().map(|rule| rule.space.name()).collect();
    assert_eq!(names, ["payments", "all", "tenant:off"]);
    let payments = &compiled.rules.rules()[0];
    let whose: Vec<String> = payments.overrides.iter().map(|each| each.identifier.text()).collect();
    assert_eq!(whose, ["alice", "vip-*"]);
    assert_eq!(compiled.keys.len(), 1);
    assert_eq!(compiled.keys[0].0, KeyHash::of(b"demo-key"));
}

#[test]
fn contradicting_documents_are_rejected_by_name() {
    let cases: [(&str, &str, Value, &str); 7] = [
        ("rules", "payments", Value::Null, "no rule is called payments"),
        (
            "overrides",
            "other",
            json!({ "name": "other", "rule": "payments", "identifier": "vip-*", "limits": "unlimited" }),
            "the same identifier",
        ),
        (
            "overrides",
            "other",
            json!({ "name": "other", "rule": "nobody", "identifier": "a", "limits": "unlimited" }),
            "no rule is called nobody",
        ),
        (
            "rules",
            "other",
            json!({ "name": "other", "limits": "unlimited", "tiers": { "gold": "unlimited" } }),
            "unknown tier",
        ),
        ("tenants", "a*", json!({ "name": "a*" }), "write it without *"),
        (
            "keys",
            "l",
            json!({ "name": "l", "sha256": "c48a01f49fd0f2cc404bc3cbbc80e91457a3d41bb429a695243de4c61794155c", "identifier": "x" }),
            "a second one of that key",
        ),
        ("keys", "l", json!({ "name": "l", "sha256": "canary", "identifier": "x" }), "not 64 hexadecimal digits"),
    ];
    for (list, name, body, expected) in cases {
        let kind = Kind::ALL.into_iter().find(|kind| kind.list() == list).expect("a list");
        let mut content = read(FULL);
        content.set(kind, name, Some(&body).filter(|body| !body.is_null())).expect("a change");
        let problems = problems(&content);
        assert!(problems.contains(expected), "{list} {name}: {problems}");
        assert!(!problems.contains("canary"));
    }
}

#[test]
fn unknown_keys_are_rejected_in_every_document() {
    for kind in [Kind::Tenant, Kind::Rule, Kind::Override, Kind::Key] {
        let mut content = read(FULL);
        let entry = content.of(kind).next().expect("one of each").clone();
        let mut body = entry.value();
        body["zzz"] = json!(1);
        content.set(kind, &entry.name, Some(&body));
        assert!(problems(&content).contains("zzz: unknown key"), "{}", problems(&content));
    }
}

#[test]
fn too_many_rules_are_rejected_with_the_bound() {
    let rules: Vec<String> = (0..100_000).map(|index| format!("{{name: r{index}, limits: unlimited}}")).collect();
    let refused = Config::parse(format!("rules: [{}]", rules.join(",")), "t.yaml", &Environment::new());
    assert!(refused.expect_err("too many").to_string().contains("use at most 1048576 bytes"));
    let mut content = RuleDocuments::default();
    let entry = |index: usize| {
        Entry::new(
            Kind::Rule,
            &format!("r{index}"),
            &json!({ "name": format!("r{index}"), "limits": "unlimited" }),
        )
    };
    content.entries = (0..10_001).map(entry).collect();
    assert!(problems(&content).contains("10001 rules: use at most 10000"), "{}", problems(&content));
}

#[test]
fn a_change_reports_its_action() {
    let mut content = read(FULL);
    let body = json!({ "name": "new", "limits": "unlimited" });
    let created = content.set(Kind::Rule, "new", Some(&body)).expect("news");
    assert_eq!((created.action(), created.before.is_none()), ("create", true));
    assert_eq!(content.set(Kind::Rule, "new", Some(&body)), None);
    let body = json!({ "name": "new", "limits": "unlimited", "mode": "off" });
    assert_eq!(content.set(Kind::Rule, "new", Some(&body)).expect("news").action(), "update");
    assert_eq!(content.set(Kind::Rule, "new", None).expect("news").action(), "delete");
    assert_eq!(content.set(Kind::Rule, "new", None), None);
}

#[test]
fn kinds_without_a_list_in_the_file_stay_unchanged() {
    let mut content = read(FULL);
    let wanted = read("tiers: [free]\nrules: [{ name: all, limits: unlimited }]\ntenants: []");
    let changed = content.take_over(&wanted, |kind| wanted.covers(kind));
    let told: Vec<String> =
        changed.iter().map(|each| format!("{} {} {}", each.action(), each.kind.word(), each.name)).collect();
    for expected in [
        "update setting tiers",
        "delete setting unmatched",
        "update rule all",
        "delete rule payments",
        "delete tenant off",
    ] {
        assert!(told.contains(&expected.to_owned()), "{expected}: {told:?}");
    }
    assert_eq!(told.len(), 6, "{told:?}");
    assert_eq!((content.of(Kind::Override).count(), content.of(Kind::Key).count()), (1, 1));
}

/// Any text that one line can show.
fn names() -> impl Strategy<Value = String> {
    let odd = vec![
        "'; DROP TABLE x; --",
        "<script>alert(1)</script>",
        "${HOME}",
        "$${x}",
        "a\"b\\c",
        "é 漢",
        "off",
        "1",
        "~",
    ];
    prop_oneof![prop::sample::select(odd).prop_map(str::to_owned), "[a-z]{1,8}", "\\PC{1,20}"]
}

fn limits() -> impl Strategy<Value = Value> {
    let window = (prop::sample::select(vec!["sliding_window", "sliding_counter", "fixed_window"]), 0..1_000_u64)
        .prop_map(|(algorithm, limit)| json!([{ "algorithm": algorithm, "limit": limit, "window": "1h" }]));
    let bucket = (1..1_000_u64, 1..100_u64).prop_map(|(capacity, rate)| {
        json!([{ "algorithm": "token_bucket", "capacity": capacity, "refill": format!("{rate}/s") }])
    });
    prop_oneof![Just(json!("unlimited")), window, bucket]
}

/// Values for a file, with `$` so that nothing is a variable.
fn files() -> impl Strategy<Value = Value> {
    let rule = (limits(), limits(), names(), prop::sample::select(vec!["enforce", "shadow", "off"]), any::<u32>());
    let rules = prop::collection::vec(rule, 0..6);
    let tenants = prop::collection::btree_map(names(), any::<bool>(), 0..4);
    let keys = prop::collection::btree_map(names(), names(), 0..4);
    let apart = prop::collection::btree_map(names(), limits(), 0..4);
    (rules, tenants, keys, apart, prop::sample::select(vec!["allow", "deny"])).prop_map(
        |(rules, tenants, keys, apart, unmatched)| {
            let escaped = |text: &str| text.replace("${", "$${");
            let is_none = rules.is_empty();
            let rule = |(index, (own, of_tier, resource, mode, cost)): (usize, (Value, Value, String, &str, u32))| {
                json!({ "name": format!("r{index}"), "limits": own, "tiers": { "pro": of_tier },
                        "match": { "resource": escaped(&resource) }, "mode": mode, "cost": cost })
            };
            let key = |(index, (name, identifier)): (usize, (String, String))| {
                json!({ "name": escaped(&name), "identifier": escaped(&identifier), "sha256": format!("{index:064x}") })
            };
            let over = |(index, (name, limits)): (usize, (String, Value))| {
                json!({ "name": escaped(&name), "rule": "r0", "identifier": format!("i{index}"), "limits": limits })
            };
            let tenants = tenants.into_iter().filter(|(name, _)| !name.contains('*'));
            json!({
                "tiers": ["pro"],
                "unmatched": unmatched,
                "rules": rules.into_iter().enumerate().map(rule).collect::<Vec<_>>(),
                "tenants": tenants.map(|(name, disabled)| json!({ "name": escaped(&name), "disabled": disabled })).collect::<Vec<_>>(),
                "keys": keys.into_iter().enumerate().map(key).collect::<Vec<_>>(),
                "overrides": if is_none { Vec::new() } else { apart.into_iter().enumerate().map(over).collect() },
            })
        },
    )
}

proptest! {
    /// Import, then export: the same values, and rules that decide the same.
    #[test]
    fn export_after_import_is_the_file(file in files()) {
        let config = Config::parse(file.to_string(), "t.json", &Environment::new());
        let config = config.map_err(|problems| TestCaseError::fail(format!("{file}: {problems}")))?;
        let exported = config.content.file(Keys::Included);
        let again: Value = serde_json::from_str(&exported).expect("JSON");
        prop_assert_eq!(&again, &file);
        let compiled = config.content.compile().map_err(|problems| TestCaseError::fail(problems.to_string()))?;
        prop_assert_eq!(format!("{:?}", compiled.rules), format!("{:?}", config.rules));
        prop_assert_eq!(format!("{:?}", compiled.keys), format!("{:?}", config.keys));
    }

    /// However a content came to be, taking over another makes it that other.
    #[test]
    fn taking_over_makes_documents_equal(one in files(), other in files()) {
        let read_value = |file: &Value| Config::parse(file.to_string(), "t.json", &Environment::new()).expect("good").content;
        let (mut content, wanted) = (read_value(&one), read_value(&other));
        content.take_over(&wanted, |_| true);
        prop_assert_eq!(content.file(Keys::Included), wanted.file(Keys::Included));
        prop_assert!(content.take_over(&wanted, |_| true).is_empty());
    }
}
