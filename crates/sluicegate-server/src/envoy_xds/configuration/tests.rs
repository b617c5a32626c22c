//! From messages to the domains that can take effect, and the errors of the others.

use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use sluicegate::identity::Entry;
use sluicegate::rules::envoy::Unit;
use sluicegate::rules::{Mode, RuleSet};

use super::super::messages::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit,
};
use super::super::resource::{DESCRIPTORS_MAX, METADATA_VALUES_MAX, NESTING_MAX};
use super::*;

fn policy(requests_per_unit: u32) -> RateLimitPolicy {
    RateLimitPolicy { unit: RateLimitUnit::Minute as i32, requests_per_unit, ..RateLimitPolicy::default() }
}

fn descriptor(key: &str, requests: u32) -> RateLimitDescriptor {
    RateLimitDescriptor {
        key: key.to_owned(),
        rate_limit: Some(policy(requests)),
        ..RateLimitDescriptor::default()
    }
}

/// The descriptor with another one below.
fn above(key: &str, below: &RateLimitDescriptor) -> RateLimitDescriptor {
    let descriptors = vec![below.encode_to_vec().into()];
    RateLimitDescriptor { key: key.to_owned(), descriptors, ..RateLimitDescriptor::default() }
}

fn config(domain: &str, descriptors: &[RateLimitDescriptor]) -> RateLimitConfig {
    let descriptors = descriptors.iter().map(|each| each.encode_to_vec().into()).collect();
    RateLimitConfig { name: domain.to_owned(), domain: domain.to_owned(), descriptors }
}

fn any(config: &RateLimitConfig) -> Any {
    Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() }
}

fn one(domain: &str, requests: u32) -> Any {
    any(&config(domain, &[descriptor("user", requests)]))
}

fn taken(current: &Domains, resources: Vec<Any>) -> Taken {
    take(current, resources, &EnvoyOptions::default()).expect("some of it can take effect")
}

/// The domains of resources without errors.
fn good(resources: Vec<Any>) -> Domains {
    let taken = taken(&Domains::new(), resources);
    assert_eq!(taken.problems, Vec::<String>::new());
    taken.domains
}

fn names(domains: &Domains) -> Vec<&str> {
    domains.keys().map(String::as_str).collect()
}

/// The limit of `user` in a domain.
fn limit_of(taken: &Taken, domain: &str) -> Option<(u32, Unit)> {
    let rules = RuleSet::default().with_envoy(taken.config.clone().expect("changed")).expect("valid");
    rules.envoy().expect("there").find(domain, &[Entry::new("user", "ann")])?.limit
}

#[test]
fn every_field_has_the_meaning_that_it_has_in_a_file() {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let values = [
        ("text", text("off")),
        ("number", Value { kind: Some(Kind::NumberValue(0.5)) }),
        ("flag", Value { kind: Some(Kind::BoolValue(true)) }),
        ("nothing", Value { kind: Some(Kind::NullValue(0)) }),
        ("list", Value { kind: Some(Kind::ListValue(prost_types::ListValue { values: vec![text("1")] })) }),
    ];
    let fields = values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let limit = RateLimitPolicy {
        name: "own".to_owned(),
        unit: RateLimitUnit::Week as i32,
        replaces: vec![RateLimitReplace { name: "other".to_owned() }],
        ..policy(7)
    };
    let full = RateLimitDescriptor {
        value: "null".to_owned(),
        rate_limit: Some(limit),
        shadow_mode: true,
        detailed_metric: true,
        quota_mode: true,
        metadata: Some(Struct { fields }),
        ..descriptor("user", 0)
    };
    let unlimited = RateLimitPolicy { unlimited: true, ..RateLimitPolicy::default() };
    let unlimited = RateLimitDescriptor { rate_limit: Some(unlimited), ..descriptor("free", 0) };
    let pushed = config("edge", &[full, above("true", &descriptor("1", 3)), unlimited]);
    let config = taken(&Domains::new(), vec![any(&pushed)]).config.expect("new");

    let file = "
domain: edge
descriptors:
  - { key: user, value: \"null\", shadow_mode: true, detailed_metric: true, quota_mode: true,
      metadata: { flag: true, list: [\"1\"], nothing: null, number: 0.5, text: \"off\" },
      rate_limit: { requests_per_unit: 7, unit: week, name: own, replaces: [ { name: other } ] } }
  - { key: \"true\", descriptors: [ { key: \"1\", rate_limit: { requests_per_unit: 3, unit: minute } } ] }
  - { key: free, rate_limit: { unlimited: true } }
";
    let from_file = EnvoyConfig::read([("edge.yaml", file)], &EnvoyOptions::default()).expect("valid");
    assert_eq!(config.described().collect::<Vec<_>>(), from_file.described().collect::<Vec<_>>());
    let options = EnvoyOptions { is_shadow: true, ..EnvoyOptions::default() };
    let shadow = take(&Domains::new(), vec![any(&pushed)], &options).expect("valid").config.expect("new");
    assert!(shadow.rules().iter().all(|rule| rule.mode == Mode::Shadow));
}

#[test]
fn contents_are_compared_and_absent_domains_are_removed() {
    let before = good(vec![one("a", 1), one("b", 2)]);
    // The order of resources means nothing.
    let same = taken(&before, vec![one("b", 2), one("a", 1)]);
    assert!(same.config.is_none() && same.problems.is_empty());
    let changed = taken(&before, vec![one("a", 1), one("b", 3)]);
    assert_eq!(limit_of(&changed, "b"), Some((3, Unit::Minute)));
    let removed = taken(&before, vec![one("a", 1)]);
    assert_eq!((names(&removed.domains), limit_of(&removed, "b")), (vec!["a"], None));
    let none = taken(&before, vec![]);
    assert_eq!((none.domains.len(), none.config.expect("changed").rules().len()), (0, 0));
}

#[test]
fn a_bad_domain_keeps_its_last_good_form_and_the_others_take_effect() {
    let before = good(vec![one("a", 1), one("b", 2), one("c", 3)]);
    let unknown = RateLimitPolicy { unit: 9, ..policy(1) };
    let bad = RateLimitDescriptor { rate_limit: Some(unknown), ..descriptor("k", 1) };
    let pushed = vec![one("a", 10), any(&config("b", &[descriptor("ok", 1), above("x", &bad)])), one("d", 4)];
    let after = taken(&before, pushed);
    assert_eq!(names(&after.domains), ["a", "b", "d"]);
    let limits = ["a", "b", "c", "d"].map(|domain| limit_of(&after, domain).map(|(requests, _)| requests));
    assert_eq!(limits, [Some(10), Some(2), None, Some(4)]);
    assert_eq!(
        after.problems,
        [
            "domain b:#3: descriptors[1].descriptors[0].rate_limit.unit: unknown unit (value \"9\"): say which: second, \
          minute, hour, day, week, month, year; or write window: 15min, with any duration"
        ]
    );
    // A domain that has no good form is left out.
    let fresh = taken(&Domains::new(), vec![one("a", 1), any(&config("b", &[bad]))]);
    assert_eq!((names(&fresh.domains), fresh.problems.len()), (vec!["a"], 1));
}

/// The error names the domain, the place and the remedy.
#[test]
fn every_error_is_attributed_to_its_domain() {
    let nested = |depth: usize| (1..depth).fold(descriptor("k", 1), |below, _| above("k", &below));
    let renamed = RateLimitConfig { name: "ns/policy".to_owned(), ..config("e", &[descriptor("", 1)]) };
    let metadata = |count: usize| {
        let fields = (0..count).map(|index| (format!("k{index}"), Value::default())).collect();
        RateLimitDescriptor { metadata: Some(Struct { fields }), ..descriptor("k", 1) }
    };
    let mut half = config("e", &[]);
    let whole = descriptor("k", 1).encode_to_vec();
    half.descriptors.push(whole[..whole.len() - 1].to_vec().into());
    let cases = [
        (
            config("e", &[nested(NESTING_MAX + 1)]),
            "domain e:#137: descriptors are nested too deeply: use at most 136",
        ),
        (
            config("e", &[descriptor("k", 1), descriptor("k", 2)]),
            "domain e:#2: descriptors[1]: a second descriptor with this key and value, first at domain e:#1: keep one",
        ),
        (renamed, "domain e (resource ns/policy):#1: descriptors[0].key: empty: say which entries"),
        (
            config("e", &[metadata(METADATA_VALUES_MAX + 1)]),
            "domain e:#1: too much metadata: use at most 1000 values",
        ),
        (half, "domain e:#1: not a RateLimitDescriptor: "),
        (config("", &[descriptor("k", 1)]), "domain \"\": domain: empty: name the domain"),
        (config("e\n", &[descriptor("k", 1)]), "domain \"e\\n\": domain: a control character"),
    ];
    let before = good(vec![one("a", 1), one("e", 2)]);
    for (pushed, expected) in cases {
        let after = taken(&before, vec![any(&pushed)]);
        assert!(after.problems.len() == 1 && after.problems[0].starts_with(expected), "{:?}", after.problems);
        let left = if pushed.domain == "e" { vec!["e"] } else { vec![] };
        assert_eq!(names(&after.domains), left, "{expected}");
    }
    // The bounds themselves are fine.
    assert_eq!(good(vec![any(&config("e", &[nested(NESTING_MAX)]))]).len(), 1);
    assert_eq!(good(vec![any(&config("e", &[metadata(METADATA_VALUES_MAX)]))]).len(), 1);
}

#[test]
fn domains_may_be_merged_and_are_then_good_or_bad_together() {
    let twice = || vec![any(&config("a", &[descriptor("x", 1)])), any(&config("a", &[descriptor("y", 2)]))];
    let refused = taken(&Domains::new(), twice());
    assert!(refused.domains.is_empty() && refused.problems[0].contains("a second file for this domain"));
    let merging = EnvoyOptions { merge_domains: true, ..EnvoyOptions::default() };
    let merged = take(&Domains::new(), twice(), &merging).expect("good");
    assert_eq!(merged.config.expect("new").rules().len(), 2);
    let [x, _] = <[Any; 2]>::try_from(twice()).expect("two");
    let bad = any(&config("a", &[descriptor("", 3)]));
    let after = take(&merged.domains, vec![x, bad], &merging).expect("nothing changes");
    assert!(after.config.is_none() && after.problems.len() == 1);
}

/// The unreadable resource may be that of any domain that is absent.
#[test]
fn an_unreadable_resource_removes_no_domain() {
    let before = good(vec![one("a", 1), one("b", 2)]);
    let mut half = one("b", 3);
    half.value.truncate(half.value.len() - 1);
    let after = taken(&before, vec![one("a", 10), half.clone()]);
    assert_eq!((names(&after.domains), limit_of(&after, "b")), (vec!["a", "b"], Some((2, Unit::Minute))));
    assert!(after.problems[0].starts_with("a resource is not a RateLimitConfig: "), "{:?}", after.problems);
    let other = Any { type_url: "type.googleapis.com/other".to_owned(), ..half };
    let after = taken(&before, vec![other]);
    assert_eq!(names(&after.domains), ["a", "b"]);
    assert!(after.problems[0].contains("type.googleapis.com/other: send type.googleapis.com/ratelimit"));
}

#[test]
fn bounds_of_the_whole_are_named_and_nothing_takes_effect() {
    let before = good(vec![one("a", 1)]);
    let refused = |pushed| take(&before, pushed, &EnvoyOptions::default()).expect_err("too many");
    let bare = |key: String| RateLimitDescriptor { key, ..RateLimitDescriptor::default() };
    let many = |from: usize, count: usize| {
        let descriptors: Vec<_> = (from..from + count).map(|index| bare(format!("k{index}"))).collect();
        any(&config(&format!("d{from}"), &descriptors))
    };
    assert_eq!(
        refused(vec![one("a", 2), many(0, 100_000)]),
        "the configuration has more than 30000 descriptors: send fewer"
    );
    // All resources count together.
    assert_eq!(good(vec![many(0, DESCRIPTORS_MAX / 2), many(1, DESCRIPTORS_MAX / 2)]).len(), 2);
    assert!(refused(vec![many(0, DESCRIPTORS_MAX / 2), many(1, DESCRIPTORS_MAX / 2 + 1)]).contains("30000"));
    let limits = |from: usize, count: usize| {
        let descriptors: Vec<_> = (0..count).map(|index| descriptor(&format!("k{index}"), 1)).collect();
        any(&config(&format!("d{from}"), &descriptors))
    };
    let too_many = refused(vec![limits(0, 6_000), limits(1, 4_001)]);
    assert!(too_many.contains("one limit too many: use at most 10000"), "{too_many}");
    assert_eq!(refused(vec![one("a", 1); RESOURCES_MAX + 1]), "10001 resources: use at most 10000");
}
