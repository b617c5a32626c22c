//! From files to limits: valid files, errors and their texts, and the limits of descriptors.

mod matching;
mod reference;
mod values;

use super::*;
use crate::rules::{Mode, OnStoreFailure, RULES_MAX, Unmatched};

fn config(files: &[(&str, &str)], options: EnvoyOptions) -> Result<EnvoyConfig, Mistakes> {
    EnvoyConfig::read(files.iter().copied(), &options)
}

fn read(text: &str) -> RuleSet {
    let config =
        config(&[("t.yaml", text)], EnvoyOptions::default()).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    RuleSet::default().with_envoy(config).unwrap()
}

fn problems(files: &[(&str, &str)], options: EnvoyOptions) -> String {
    match config(files, options) {
        Ok(config) => format!("no problem: {} limits", config.rules().len()),
        Err(mistakes) => mistakes.to_string(),
    }
}

/// Entries as `key=value`, separated by commas.
fn entries(text: &str) -> Vec<Entry<'_>> {
    assert!(text.is_empty() || text.split(',').all(|pair| pair.contains('=')), "{text}");
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| Entry::new(key, value)).collect()
}

/// `problems.txt` contains pairs of a text and its errors, word for word: `%%`, the text, `=>`,
/// one line per error.
#[test]
fn every_error_has_its_place_and_a_remedy() {
    let cases: Vec<(&str, &str)> = include_str!("tests/problems.txt")
        .split("%%\n")
        .skip(1)
        .map(|case| case.split_once("=>\n").expect("a text, `=>`, and its problems"))
        .collect();
    assert!(cases.len() >= 50, "{} cases", cases.len());
    for (text, expected) in cases {
        let found = problems(&[("t.yaml", text)], EnvoyOptions::default()).replace("t.yaml:", "");
        assert_eq!(found, expected.trim_end(), "for this text:\n{text}");
    }
}

const A: &str = "domain: edge\ndescriptors:\n  - { key: a, rate_limit: { unit: day, requests_per_unit: 1 } }\n";
const B: &str = "domain: edge\ndescriptors:\n  - { key: b, rate_limit: { unit: day, requests_per_unit: 2 } }\n";

#[test]
fn a_domain_of_two_files_is_refused_unless_they_are_to_be_merged() {
    let files = [("a.yaml", A), ("b.yaml", B)];
    assert_eq!(
        problems(&files, EnvoyOptions::default()),
        "b.yaml:1:9: domain: a second file for this domain, first at a.yaml:1:9 (value edge): \
         keep one file per domain, or set MERGE_DOMAIN_CONFIG=true to take them together"
    );
    let merge = EnvoyOptions { merge_domains: true, ..EnvoyOptions::default() };
    let rules = RuleSet::default().with_envoy(config(&files, merge).unwrap()).unwrap();
    let envoy = rules.envoy().unwrap();
    let found = |text| envoy.find("edge", &entries(text)).and_then(|found| found.limit);
    assert_eq!((found("a=1"), found("b=1")), (Some((1, Unit::Day)), Some((2, Unit::Day))));
    assert_eq!(
        problems(&[("a.yaml", A), ("b.yaml", A)], merge),
        "b.yaml:3:5: descriptors[0]: a second descriptor with this key and value, first at a.yaml:3:5: \
         keep one of the two, with all that is below both"
    );
}

#[test]
fn errors_of_all_files_are_reported_together() {
    let files = [("a.yaml", "domain: a\ndescriptor: []\n"), ("b.yaml", A), ("c.yaml", "descriptors: [{}]\n")];
    let found = problems(&files, EnvoyOptions::default());
    let places: Vec<&str> = found.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(places, ["a.yaml:2:1", "c.yaml:1:1", "c.yaml:1:15"], "{found}");
}

#[test]
fn every_limit_is_a_rule_after_those_that_were_there() {
    let native =
        RuleSet::new(vec![Rule::new("native", crate::rules::Limits::Unlimited)], Vec::new(), Unmatched::Deny);
    let rules = native.unwrap().with_envoy(config(&[("a.yaml", A)], EnvoyOptions::default()).unwrap()).unwrap();
    let names: Vec<&str> = rules.rules().iter().map(|rule| rule.space.name()).collect();
    assert_eq!((names, rules.unmatched()), (vec!["native", "edge.a"], Unmatched::Deny));
    let rule = &rules.rules()[rules.envoy().unwrap().find("edge", &entries("a=1")).unwrap().rule];
    assert_eq!(rule.space.name(), "edge.a");
    // Envoy decides while the store is down.
    assert_eq!(rule.on_store_failure, OnStoreFailure::Closed);
    // No other request matches it.
    let request = crate::Request::new("edge", "1").tenant("edge");
    let now = sluicegate_core::Timestamp::now(0);
    assert_eq!(rules.charges(&request, now).unwrap().charges.len(), 0);

    let same =
        RuleSet::new(vec![Rule::new("edge.a", crate::rules::Limits::Unlimited)], Vec::new(), Unmatched::Allow);
    let error = same.unwrap().with_envoy(config(&[("a.yaml", A)], EnvoyOptions::default()).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "two rules are called \"edge.a\": rename one of them");
}

#[test]
fn modes_are_those_of_the_descriptor_or_of_all() {
    let text = "
domain: edge
descriptors:
  - { key: a, shadow_mode: true, quota_mode: yes, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: b, shadow_mode: off, quota_mode: No, rate_limit: { unit: day, requests_per_unit: 1 } }
";
    let modes = |options| {
        let rules = RuleSet::default().with_envoy(config(&[("t.yaml", text)], options).unwrap()).unwrap();
        ["a=1", "b=1"].map(|text| {
            let found = rules.envoy().unwrap().find("edge", &entries(text)).unwrap();
            (rules.rules()[found.rule].mode, found.is_quota)
        })
    };
    assert_eq!(modes(EnvoyOptions::default()), [(Mode::Shadow, true), (Mode::Enforce, false)]);
    let shadow = EnvoyOptions { is_shadow: true, ..EnvoyOptions::default() };
    assert_eq!(modes(shadow), [(Mode::Shadow, true), (Mode::Shadow, false)]);
    let quota = EnvoyOptions { is_quota: true, ..EnvoyOptions::default() };
    assert_eq!(modes(quota), [(Mode::Shadow, true), (Mode::Enforce, true)]);
}

#[test]
fn the_most_limits_are_allowed_and_one_more_is_not() {
    let limits = |count: usize| {
        let limit = |index: usize| format!("- {{ key: k, value: v{index}, rate_limit: *l }}\n");
        let rest: String = (1..count).map(limit).collect();
        format!("domain: d\ndescriptors:\n- {{ key: k, rate_limit: &l {{ unlimited: true }} }}\n{rest}")
    };
    let most = limits(RULES_MAX);
    let rules = read(&most);
    assert_eq!(rules.rules().len(), RULES_MAX);
    // Among ten thousand siblings the right one is found.
    let found = rules.envoy().unwrap().find("d", &[Entry::new("k", "v9999")]).unwrap();
    assert_eq!(rules.rules()[found.rule].space.name(), "d.k--v9999");
    assert_eq!(
        problems(&[("t.yaml", &limits(RULES_MAX + 1))], EnvoyOptions::default()),
        "t.yaml:10003:3: descriptors[10000]: one limit too many: use at most 10000 in all files"
    );
}

#[test]
fn a_match_takes_nothing_from_the_allocator_but_the_identifier() {
    let rules = read(matching::EDGE);
    let envoy = rules.envoy().unwrap();
    for (text, allocations) in [
        ("user=vip-1", 1),
        ("path=/files/a,method=GET", 1),
        ("path=/login,ip=10.7.7.7", 1),
        ("path=/login", 0),
        ("x=1", 0),
    ] {
        let entries = entries(text);
        let counted = allocation_counter::measure(|| _ = std::hint::black_box(envoy.find("edge", &entries)));
        assert_eq!(counted.count_total, allocations, "{text}");
    }
}

/// A file may have descriptors as deep as a request may have entries.
#[test]
fn descriptors_nest_as_deep_as_requests_do() {
    let nested = |depth: usize| {
        let open = "[{ key: k, descriptors: ".repeat(depth - 1);
        let close = "}]".repeat(depth - 1);
        format!("{{ domain: d, descriptors: {open}[{{ key: k, rate_limit: {{ unlimited: yes }} }}]{close} }}")
    };
    for depth in [1, 15, ENTRIES_MAX] {
        let rules = read(&nested(depth));
        let entries = [Entry::new("k", "v"); ENTRIES_MAX + 1];
        for count in 0..=entries.len() {
            let found = rules.envoy().unwrap().find("d", &entries[..count]);
            assert_eq!(found.is_some(), count == depth, "{count} of {depth}");
        }
    }
    let too_deep = problems(&[("t.yaml", &nested(ENTRIES_MAX + 4))], EnvoyOptions::default());
    assert!(too_deep.contains("levels of nesting"), "{too_deep}");
}
