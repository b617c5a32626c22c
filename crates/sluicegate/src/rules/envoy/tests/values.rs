//! The values of limits: units, windows, algorithms, names and metadata.

use super::*;
use crate::rules::Limits;
use sluicegate_core::{Align, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, TokenBucket};

/// The rules of a file whose only descriptor has this limit.
fn with_limit(limit: &str) -> RuleSet {
    read(&format!("domain: d\ndescriptors: [{{ key: k, rate_limit: {limit} }}]\n"))
}

fn found(rules: &RuleSet) -> Found<'_> {
    rules.envoy().unwrap().find("d", &[Entry::new("k", "v")]).unwrap()
}

#[test]
fn a_limit_is_a_fixed_window_by_default() {
    let fixed =
        |limit, seconds| Quota::from(FixedWindow::new(limit, Micros::from_secs(seconds), Align::Epoch).unwrap());
    let bucket = |capacity, amount, seconds| {
        Quota::from(TokenBucket::new(capacity, Rate::new(amount, Micros::from_secs(seconds)).unwrap()).unwrap())
    };
    let minute = Micros::from_secs(60);
    let cases = [
        ("{ unit: second, requests_per_unit: 1 }", fixed(1, 1), Unit::Second),
        ("{ unit: MINUTE, requests_per_unit: 2 }", fixed(2, 60), Unit::Minute),
        ("{ unit: Hour, requests_per_unit: 3 }", fixed(3, 3_600), Unit::Hour),
        ("{ unit: day, requests_per_unit: 4 }", fixed(4, 86_400), Unit::Day),
        ("{ unit: week, requests_per_unit: 5 }", fixed(5, 604_800), Unit::Week),
        ("{ unit: month, requests_per_unit: 6 }", fixed(6, 2_592_000), Unit::Month),
        ("{ unit: year, requests_per_unit: 7 }", fixed(7, 31_536_000), Unit::Year),
        ("{ unit: day, requests_per_unit: 0 }", fixed(0, 86_400), Unit::Day),
        (
            "{ unit: day, requests_per_unit: 4294967295, unlimited: false }",
            fixed(4_294_967_295, 86_400),
            Unit::Day,
        ),
        ("{ window: 15min, requests_per_unit: 9 }", fixed(9, 900), Unit::Other),
        ("{ window: 60s, requests_per_unit: 9 }", fixed(9, 60), Unit::Minute),
        ("{ window: 7d, requests_per_unit: 9, algorithm: fixed_window }", fixed(9, 604_800), Unit::Week),
        (
            "{ unit: minute, requests_per_unit: 9, algorithm: sliding_window }",
            SlidingWindow::new(9, minute).unwrap().into(),
            Unit::Minute,
        ),
        (
            "{ unit: minute, requests_per_unit: 9, algorithm: sliding_counter }",
            SlidingCounter::new(9, minute).unwrap().into(),
            Unit::Minute,
        ),
        ("{ unit: minute, requests_per_unit: 9, algorithm: token_bucket }", bucket(9, 9, 60), Unit::Minute),
        (
            "{ unit: hour, requests_per_unit: 9, algorithm: token_bucket, burst: 2 }",
            bucket(2, 9, 3_600),
            Unit::Hour,
        ),
        (
            "{ window: 90s, requests_per_unit: 9, algorithm: token_bucket, burst: 20 }",
            bucket(20, 9, 90),
            Unit::Other,
        ),
    ];
    for (text, quota, unit) in cases {
        let rules = with_limit(text);
        let found = found(&rules);
        assert_eq!(rules.rules()[found.rule].limits.quotas(), [quota], "{text}");
        assert_eq!(found.limit.unwrap().1, unit, "{text}");
    }
}

#[test]
fn an_unlimited_limit_is_none() {
    for text in ["{ unlimited: true }", "{ unlimited: yes, requests_per_unit: 5 }"] {
        let rules = with_limit(text);
        assert!(matches!(rules.rules()[0].limits, Limits::Unlimited), "{text}");
        assert_eq!(found(&rules).limit, None, "{text}");
    }
}

#[test]
fn units_have_the_numbers_of_the_protocol_and_their_lengths() {
    let all =
        [Unit::Other, Unit::Second, Unit::Minute, Unit::Hour, Unit::Day, Unit::Month, Unit::Year, Unit::Week];
    assert_eq!(all.map(Unit::number), [0, 1, 2, 3, 4, 5, 6, 7]);
    let seconds = all.map(|unit| unit.length().map(|length| length.as_micros() / 1_000_000));
    let expected = [1, 60, 3_600, 86_400, 2_592_000, 31_536_000, 604_800].map(Some);
    assert_eq!((seconds[0], &seconds[1..]), (None, &expected[..]));
}

#[test]
fn a_name_is_kept_and_is_the_label_where_header_fields_can_carry_it() {
    let cases = [
        ("per-minute", Some("per-minute"), "per-minute"),
        ("5", Some("5"), "5"),
        ("\"häufig\"", Some("häufig"), "d.k"),
        ("\"\"", None, "d.k"),
        ("~", None, "d.k"),
    ];
    for (text, name, label) in cases {
        let rules = with_limit(&format!("{{ unit: day, requests_per_unit: 1, name: {text} }}"));
        assert_eq!(found(&rules).name, name, "{text}");
        assert_eq!(&*rules.rules()[0].limits.labels()[0], label, "{text}");
    }
    let replaces = "{ unit: day, requests_per_unit: 1, name: a, replaces: [{ name: b }, { name: 7 }] }";
    assert_eq!(found(&with_limit(replaces)).replaces, [Box::<str>::from("b"), Box::from("7")]);
    assert!(found(&with_limit("{ unlimited: on, replaces: }")).replaces.is_empty());
}

#[test]
fn metadata_is_any_json() {
    let text = r#"
domain: d
descriptors:
  - key: k
    rate_limit: { unlimited: true }
    detailed_metric: true
    value_to_metric: false
    metadata: { backend: gpt-5, tier: 1, ratio: -0.5, "on": true, none: ~, list: [a, 2, { b: "3" }], empty: {} }
"#;
    let rules = read(text);
    let text = |text: &str| Value::Text(text.into());
    let expected: Metadata = [
        ("backend", text("gpt-5")),
        ("tier", Value::Number(1.0)),
        ("ratio", Value::Number(-0.5)),
        ("on", Value::Boolean(true)),
        ("none", Value::Null),
        (
            "list",
            Value::List([text("a"), Value::Number(2.0), Value::Mapping([("b".into(), text("3"))].into())].into()),
        ),
        ("empty", Value::Mapping([].into())),
    ]
    .map(|(key, value)| (Box::from(key), value))
    .into();
    assert_eq!(found(&rules).metadata, Some(&expected));
}
