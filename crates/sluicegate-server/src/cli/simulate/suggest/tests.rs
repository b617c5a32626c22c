//! Candidates, the choice among them, and the text of a suggested rule.

use sluicegate::rules::file::Environment;

use super::rule_text::LimitValues;
use super::*;

const RULES: &str = r#"
tiers: [pro]
rules:
  - name: "first: one"
    match: { path: "/a b/**", method: [GET, POST] }
    per: [tenant, ip]
    limits:
      - { algorithm: sliding_window, limit: 100, window: 1h, name: hour }
      - { algorithm: token_bucket, capacity: 10, refill: 100/60s }
    tiers: { pro: unlimited }
    overrides: [ { identifier: "vip-*", limits: [ { algorithm: fixed_window, limit: 5, window: 1s } ] } ]
    mode: "off"
"#;

fn texts() -> RuleTexts {
    // The name of a rule must not contain spaces and colons. The replacement keeps the quotes.
    RuleTexts::read(RULES.replace("first: one", "first").as_bytes(), "rules.yaml").unwrap()
}

#[test]
fn a_rule_is_written_back_unchanged_except_for_its_limit() {
    let (texts, environment) = (texts(), Environment::new());
    assert_eq!(texts.limit_values(0, 0), Some(LimitValues::Window { limit: 100 }));
    assert_eq!(
        texts.limit_values(0, 1),
        Some(LimitValues::Bucket { capacity: 10, tokens: 100, micros: 60_000_000 })
    );
    assert_eq!((texts.limit_values(0, 2), texts.limit_values(1, 0)), (None, None));
    let values = [("capacity", "20".to_owned()), ("refill", "7/s".to_owned())];
    let written = texts.with_limit(0, 1, &values).unwrap();
    assert_eq!(
        written,
        r#"  - name: first
    match: { path: "/a b/**", method: [ GET, POST ] }
    per: [ tenant, ip ]
    limits:
      - { algorithm: sliding_window, limit: 100, window: 1h, name: hour }
      - { algorithm: token_bucket, capacity: 20, refill: 7/s }
    tiers: { pro: unlimited }
    overrides: [ { identifier: "vip-*", limits: [ { algorithm: fixed_window, limit: 5, window: 1s } ] } ]
    mode: off
"#
    );
    let as_it_was = texts.with_limit(0, 1, &[]).unwrap();
    let read = texts.parsed(&as_it_was, &environment).unwrap();
    let first = RuleSet::from_yaml(RULES.replace("first: one", "first"), "rules.yaml", &environment).unwrap();
    assert_eq!(format!("{:?}", read.rules()), format!("{:?}", first.rules()));
    assert_eq!(texts.parsed(&written, &environment).unwrap().rules()[0].limits.quotas()[1].limit(), 20);
}

#[test]
fn every_limit_has_many_candidates_and_one_is_current() {
    let (texts, environment) = (texts(), Environment::new());
    for limit in [0, 1] {
        let candidates = CandidateLimits::new(0, limit, &texts, &environment, Timestamp::now(0)).unwrap();
        let table = candidates.suggestion(&texts, DenialTargets::default()).table;
        assert!((20..=32).contains(&table.len()), "{table:#?}");
        let current: Vec<&str> = table.iter().filter(|row| row.is_current).map(|row| &*row.limit).collect();
        assert_eq!(current, [["limit: 100", "capacity: 10, refill: 100/min"][limit]]);
    }
}

#[test]
fn shares_are_parsed_and_compared_exactly() {
    for (text, part, whole, expected) in [
        ("1%", 1, 100, true),
        ("1%", 2, 199, false),
        ("0.25%", 1, 400, true),
        ("0.25%", 1, 399, false),
        ("0%", 0, 5, true),
        ("0%", 1, 5, false),
        ("100 %", 5, 5, true),
    ] {
        let share: DenialShare = text.parse().unwrap();
        let row = CandidateResult {
            limit: String::new(),
            denied: part,
            identities_denied: 0,
            is_current: false,
            is_knee: false,
            is_suggested: false,
        };
        let targets = DenialTargets { identities: None, requests: Some(share) };
        assert_eq!(targets.first_within(&[row], whole, 1).is_some(), expected, "{text} {part} {whole}");
    }
    for text in ["", "1", "%", "101%", "1.234%", "-1%", "1e1%", "+5%"] {
        assert!(text.parse::<DenialShare>().unwrap_err().contains("for example 1% or 0.25%"), "{text}");
    }
}

#[test]
fn the_knee_is_the_point_where_a_curve_bends_most() {
    assert_eq!(knee(&[1_000, 400, 50, 40, 30, 20, 10]), Some(2));
    assert_eq!(knee(&[100, 100, 100, 0]), None);
    assert_eq!(knee(&[100, 75, 50, 25, 0]), None);
    assert_eq!(knee(&[0, 0, 0]), None);
    assert_eq!(knee(&[]), None);
    assert_eq!(knee(&[7]), None);
}
