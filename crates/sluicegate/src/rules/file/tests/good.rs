//! Valid files, and the rules that they become.

use super::*;
use crate::calendar::{Cycle, Weekday, Zone};
use crate::rules::{Limits, Mode, OnStoreFailure, Per};
use crate::store::{Lease, LeaseMode};
use sluicegate_core::{Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, TokenBucket};
use std::time::Duration;

fn only_rule(text: &str) -> Rule {
    let set = read(text).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(set.rules().len(), 1);
    set.rules()[0].clone()
}

fn quotas(limits: &Limits) -> Vec<Quota> {
    match limits {
        Limits::All { quotas, .. } => quotas.to_vec(),
        Limits::Unlimited => Vec::new(),
    }
}

fn labels(limits: &Limits) -> Vec<&str> {
    match limits {
        Limits::All { labels, .. } => labels.iter().map(|label| &**label).collect(),
        Limits::Unlimited => Vec::new(),
    }
}

fn bucket(capacity: u64, amount: u64, period: Micros) -> Quota {
    TokenBucket::new(capacity, Rate::new(amount, period).unwrap()).unwrap().into()
}

/// Every key there is.
const FULL: &str = r#"
tiers: [free, pro, admin]
unmatched: deny
rules:
  - name: payments               # unique
    match: { tenant: "*", resource: "api.payment.*" }
    per: identifier
    limits:
      - { algorithm: token_bucket,    capacity: 100, refill: 100/60s, credits: 0, credit_ttl: 24h }
      - { algorithm: sliding_window,  limit: 1000, window: 1h }
      - { algorithm: sliding_counter, limit: 1000, window: 1h, name: hourly }
      - { algorithm: fixed_window,    limit: 10000, window: 24h, align: key }
    tiers: { pro: [ { algorithm: token_bucket, capacity: 1000, refill: 1000/60s } ], admin: unlimited }
    overrides: [ { identifier: "vip-*", limits: [ { algorithm: fixed_window, limit: 0, window: 1s } ] } ]
    mode: shadow
    on_store_failure: local
    deadline: 250ms
    cost: 3
"#;

#[test]
fn every_key_is_read() {
    let set = read(FULL).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(set.unmatched(), Unmatched::Deny);
    assert_eq!(set.tiers().iter().map(|tier| &**tier).collect::<Vec<_>>(), ["free", "pro", "admin"]);

    let rule = &set.rules()[0];
    assert_eq!(rule.space.name(), "payments");
    assert_eq!(rule.selector.tenant.as_ref().unwrap().text(), "*");
    assert_eq!(rule.selector.resource.as_ref().unwrap().text(), "api.payment.*");
    assert_eq!(rule.per, Per::IDENTIFIER);
    assert_eq!(rule.mode, Mode::Shadow);
    assert_eq!((rule.on_store_failure, rule.deadline), (OnStoreFailure::Local, Duration::from_millis(250)));
    assert_eq!(rule.cost, Cost::new(3));
    let (hour, day) = (Micros::from_secs(3_600), Micros::from_secs(86_400));
    let expected = [
        bucket(100, 100, Micros::from_secs(60)),
        SlidingWindow::new(1_000, hour).unwrap().into(),
        SlidingCounter::new(1_000, hour).unwrap().into(),
        FixedWindow::new(10_000, day, Align::Key).unwrap().into(),
    ];
    assert_eq!(quotas(&rule.limits), expected);
    assert_eq!(labels(&rule.limits), ["payments", "payments.2", "hourly", "payments.4"]);

    let (tier, limits) = &rule.tiers[0];
    assert_eq!((&**tier, quotas(limits)), ("pro", vec![bucket(1_000, 1_000, Micros::from_secs(60))]));
    assert!(matches!(&rule.tiers[1], (tier, Limits::Unlimited) if &**tier == "admin"));
    assert_eq!(rule.overrides[0].identifier.text(), "vip-*");
    let nothing = FixedWindow::new(0, Micros::from_secs(1), Align::Epoch).unwrap();
    assert_eq!(quotas(&rule.overrides[0].limits), [nothing.into()]);
}

#[test]
fn absent_keys_have_their_defaults() {
    let text = "rules: [{ name: a, limits: [{ algorithm: token_bucket, capacity: 5, refill: 1/s }] }]";
    let set = read(text).unwrap();
    assert_eq!(set.unmatched(), Unmatched::Allow);
    assert!(set.tiers().is_empty());
    let rule = &set.rules()[0];
    assert!(rule.selector.tenant.is_none() && rule.selector.resource.is_none());
    assert_eq!((rule.per, rule.mode, rule.cost), (Per::IDENTIFIER, Mode::Enforce, Cost::ONE));
    assert_eq!((rule.on_store_failure, rule.deadline), (OnStoreFailure::Open, Duration::from_millis(15)));
    assert!(rule.tiers.is_empty() && rule.overrides.is_empty());
    assert_eq!(quotas(&rule.limits), [bucket(5, 1, Micros::from_secs(1))]);
}

#[test]
fn per_is_a_word_or_a_list_of_words() {
    let together = |tenant, identifier, address| Per { tenant, identifier, address };
    let cases = [
        ("identifier", Per::IDENTIFIER),
        ("tenant", Per::TENANT),
        ("ip", Per::ADDRESS),
        ("global", Per::GLOBAL),
        ("[identifier]", Per::IDENTIFIER),
        ("[tenant, identifier]", Per::IDENTIFIER),
        ("[tenant, ip]", together(true, false, true)),
        ("[ip, identifier]", together(true, true, true)),
        ("[global]", Per::GLOBAL),
    ];
    for (text, expected) in cases {
        let rule = only_rule(&format!("rules: [{{ name: a, limits: unlimited, per: {text} }}]"));
        assert_eq!(rule.per, expected, "{text}");
    }
}

#[test]
fn a_descriptor_is_a_list_of_keys_with_patterns_for_their_values() {
    let text = "rules: [{ name: a, limits: unlimited, match: { descriptor: [{ key: path }, { key: ip, value: 10.* }] } }]";
    let shown: Vec<String> = only_rule(text).selector.descriptor.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["path", "ip=10.*"]);
}

#[test]
fn a_lease_is_strict_by_default() {
    use LeaseMode::{Bounded, Strict};
    let cases = [
        ("ttl: 100ms", 100, Strict),
        ("ttl: 1ms, mode: bounded", 1, Bounded),
        ("ttl: 10s, mode: strict", 10_000, Strict),
    ];
    for (keys, millis, mode) in cases {
        let rule = only_rule(&format!("rules: [{{ name: a, limits: unlimited, lease: {{ {keys} }} }}]"));
        assert_eq!(rule.lease, Some(Lease { ttl: Micros::from_millis(millis), mode }));
    }
    assert_eq!(only_rule("rules: [{ name: a, limits: unlimited }]").lease, None);
}

#[test]
fn every_policy_and_the_shortest_and_the_longest_deadline_are_read() {
    use OnStoreFailure::{Closed, Local, Open};
    let cases = [("open", Open, "1ms", 1), ("closed", Closed, "10s", 10_000), ("local", Local, "15ms", 15)];
    for (policy, expected, deadline, millis) in cases {
        let keys = format!("on_store_failure: {policy}, deadline: {deadline}");
        let rule = only_rule(&format!("rules: [{{ name: a, limits: unlimited, {keys} }}]"));
        assert_eq!((rule.on_store_failure, rule.deadline), (expected, Duration::from_millis(millis)));
    }
}

#[test]
fn off_is_a_word() {
    let rule = only_rule("rules:\n  - name: off\n    limits: unlimited\n    mode: off\n");
    assert_eq!((rule.space.name(), rule.mode), ("off", Mode::Off));
}

#[test]
fn an_empty_list_of_rules_is_valid() {
    assert!(read("rules: []").unwrap().rules().is_empty());
}

#[test]
fn variables_stand_for_text() {
    let rule = only_rule(
        "rules:
           - name: ${RULE}
             match: { resource: 'x-${RULE}-$${RULE}' }
             limits: [{ algorithm: token_bucket, capacity: 100, refill: \"${RATE}\" }]",
    );
    assert_eq!(rule.space.name(), "payments");
    assert_eq!(rule.selector.resource.unwrap().text(), "x-payments-${RULE}");
    assert_eq!(quotas(&rule.limits), [bucket(100, 100, Micros::from_secs(60))]);
}

#[test]
fn json_is_yaml() {
    let text = r#"{
	"rules": [
		{ "name": "a\/\u0062", "limits": "unlimited" }
	]
}"#;
    assert_eq!(
        problems(text),
        "t.yaml:3:13: rules[0].name: not a name (value \"a/b\"): use 1 to 64 of A-Z a-z 0-9 . _ -"
    );
    let rule = only_rule(&text.replace("\\/", "-"));
    assert_eq!(rule.space.name(), "a-b");
}

#[test]
fn anchors_and_aliases_are_expanded() {
    let rule = only_rule(
        "rules:
           - name: a
             limits: &standard [ &bucket { algorithm: token_bucket, capacity: 5, refill: 1/s } ]
             overrides:
               - { identifier: b, limits: *standard }
               - { identifier: c, limits: [ *bucket ] }",
    );
    for each in &rule.overrides {
        assert_eq!(quotas(&each.limits), [bucket(5, 1, Micros::from_secs(1))]);
    }
}

#[test]
fn a_problem_within_an_alias_has_the_place_of_the_anchor() {
    let text = "
rules:
  - { name: a, limits: &limits [{ algorithm: fixed_window, limit: x, window: 1s }] }
  - { name: b, limits: *limits }
";
    let wrong = "not a whole number (value x): use a whole number from 0 to 999999999999999";
    assert_eq!(
        problems(text),
        format!(
            "t.yaml:3:67: rules[0].limits[0].limit: {wrong}\n\
             t.yaml:3:67: rules[1].limits[0].limit: {wrong}"
        )
    );
}

#[test]
fn crlf_and_a_byte_order_mark_are_accepted() {
    let text = format!("\u{feff}{}", FULL.replace('\n', "\r\n"));
    assert!(read(&text).is_ok());
    assert!(problems("\u{feff}rule: []\r\nrules: 1\r\n").starts_with("t.yaml:1:1: rule: unknown key"));
    assert!(problems("\u{feff}a: 1\r\nrules: 1\r\n").contains("\nt.yaml:2:8: rules: not a list"));
}

#[test]
fn columns_count_characters() {
    let text = "rules: [{ name: 'é', name: 'ü' }]";
    assert!(problems(text).contains("t.yaml:1:22: rules[0].name: duplicate key, first at 1:11"));
}

#[test]
fn hosts_fields_and_claims_are_read_in_the_form_in_which_they_are_compared() {
    let rule = only_rule(
        "rules: [{ name: a, match: { host: '*.Example.COM.', header: { X-Plan: Gold, x-b: '*' }, claim: { Plan: '7' } },
                   limits: unlimited }]",
    );
    let texts = |all: &[crate::rules::NamedPattern]| -> Vec<String> {
        all.iter().map(|each| format!("{}={}", each.name, each.pattern.text())).collect()
    };
    assert_eq!(rule.selector.host.map(|host| host.text()).as_deref(), Some("*.example.com"));
    assert_eq!(texts(&rule.selector.headers), ["x-plan=Gold", "x-b=*"]);
    assert_eq!(texts(&rule.selector.claims), ["Plan=7"]);
    let rule = only_rule("rules: [{ name: a, match: { host: '[2001:DB8::1]' }, limits: unlimited }]");
    assert_eq!(rule.selector.host.map(|host| host.text()).as_deref(), Some("[2001:db8::1]"));
}

#[test]
fn an_override_with_an_end_shadows_no_later_one() {
    let rule = only_rule(
        "rules: [{ name: a, limits: unlimited, overrides: [
            { identifier: '*', until: 2026-12-31T00:00:00Z, limits: unlimited },
            { identifier: '*', until: '2027-01-31T00:00:00+01:00', limits: unlimited },
            { identifier: vip-*, limits: unlimited }] }]",
    );
    let until: Vec<Option<u64>> =
        rule.overrides.iter().map(|each| each.until.map(sluicegate_core::Timestamp::as_micros)).collect();
    assert_eq!(until, [Some(1_798_675_200_000_000), Some(1_801_350_000_000_000), None]);
}

#[test]
fn a_tier_may_be_restricted_to_algorithms() {
    let text = "
tiers: [{ name: free, algorithms: [fixed_window, sliding_counter] }, { name: pro }, admin]
rules:
  - name: a
    limits: [{ algorithm: token_bucket, capacity: 1, refill: 1/s }]
    tiers: { free: [{ algorithm: fixed_window, limit: 1, window: 1h }, { algorithm: sliding_counter, limit: 1, window: 1d }] }
  - { name: b, limits: [{ algorithm: fixed_window, limit: 1, window: 1h }] }
  - { name: c, limits: unlimited }
";
    let tiers: Vec<String> = read(text).unwrap().tiers().iter().map(ToString::to_string).collect();
    assert_eq!(tiers, ["free", "pro", "admin"]);
}

#[test]
fn windows_of_a_calendar_are_those_of_its_zone() {
    let quota = |keys: &str| {
        let limit = format!("{{ algorithm: fixed_window, limit: 5, {keys} }}");
        let set = read(format!("rules: [{{ name: a, limits: [{limit}] }}]"))
            .unwrap_or_else(|problems| panic!("{problems}"));
        quotas(&set.rules()[0].limits).remove(0)
    };
    let calendar = |zone, cycle| {
        let calendar = Zone::named(zone).unwrap().calendar(cycle).unwrap();
        Quota::from(FixedWindow::on_calendar(5, calendar).unwrap())
    };
    let cases = [
        ("window: month", "UTC", Cycle::Month(1)),
        ("window: month, anchor: 31, timezone: Europe/Berlin", "Europe/Berlin", Cycle::Month(31)),
        ("window: week", "UTC", Cycle::Week(Weekday::Monday)),
        (
            "window: week, anchor: sunday, timezone: America/New_York",
            "America/New_York",
            Cycle::Week(Weekday::Sunday),
        ),
        ("window: \"day\", timezone: \"Asia/Kolkata\"", "Asia/Kolkata", Cycle::Day),
        ("window: hour, timezone: Australia/Lord_Howe", "Australia/Lord_Howe", Cycle::Hour),
    ];
    for (keys, zone, cycle) in cases {
        assert_eq!(quota(keys), calendar(zone, cycle), "{keys}");
    }
    assert_ne!(quota("window: day"), quota("window: 1d"));
}
