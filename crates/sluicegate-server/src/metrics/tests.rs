//! Every request is counted once and under the right labels, for all outcomes.

use std::sync::Arc;

use sluicegate::clock::ManualClock;
use sluicegate::core::{Cost, FixedWindow, Timestamp};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{LeaseBounds, Limits, Mode, OnStoreFailure, Unmatched};
use sluicegate::store::{ErrorClass, Savings, UnchargedUsage};
use sluicegate::{Limiter, MemoryStore, Request};
use sluicegate_testkit::faulty_store::{FaultyStore, Trouble};

use super::*;
use crate::telemetry::observer::ServerObserver;
use crate::testing::hourly;

type TestLimiter = Limiter<FaultyStore, ManualClock, Arc<ServerObserver>>;

const GAUGES: Gauges = Gauges {
    is_store_up: true,
    tracked_keys: 0,
    savings: Savings { coalesced_requests: None, denied_from_cache: None, leased_tokens: Vec::new() },
    uncharged_usage: UnchargedUsage { debt: 5, store: 6, unknown: 7 },
    leases: Vec::new(),
    spans: None,
    left_out: 3,
    lost_lines: 4,
    is_config_current: true,
    config_loaded_at_ms: 7_999,
    unauthorized: Vec::new(),
};

/// A limiter with these rules. Each rule matches the resource of its name.
fn limiter(rules: Vec<Rule>) -> (TestLimiter, FaultyStore) {
    let for_its_name = |mut rule: Rule| {
        rule.selector.resource = Some(Pattern::new(rule.space.name()));
        rule
    };
    let rules = rules.into_iter().map(for_its_name).collect();
    let rules = RuleSet::new(rules, Vec::new(), Unmatched::Allow).expect("valid rules");
    let now = Timestamp::now(1_705_312_800_000_000);
    let store = FaultyStore::new(MemoryStore::default());
    let observer = Arc::new(ServerObserver::new(&rules, None, now));
    (Limiter::new(rules, store.clone(), ManualClock::at(now)).observed(observer), store)
}

fn text(limiter: &TestLimiter) -> String {
    limiter.observer().metrics().text(&GAUGES)
}

/// The value of a series as text.
#[track_caller]
fn value(text: &str, series: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).to_owned()
}

/// The decision counts of a rule above zero, by outcome.
fn decisions(text: &str, rule: &str) -> Vec<String> {
    let label = format!("rule=\"{rule}\"}} ");
    let lines = text.lines().filter(|line| line.starts_with("sluicegate_decisions_total{"));
    let of_rule = lines.filter_map(|line| line.split_once(&label)).filter(|(_, count)| *count != "0");
    let outcome = |labels: &str| labels.split('"').nth(3).unwrap_or_default().to_owned();
    of_rule.map(|(labels, count)| format!("{} {count}", outcome(labels))).collect()
}

async fn check(limiter: &TestLimiter, resource: &str, times: usize) {
    for _ in 0..times {
        // The metrics count the outcome, so the result is not needed here.
        let _ = limiter.check(&Request::new(resource, "alice")).await;
    }
}

fn policy(name: &str, on_store_failure: OnStoreFailure) -> Rule {
    Rule { on_store_failure, ..hourly(name, 2) }
}

#[tokio::test]
async fn every_outcome_is_counted_separately() {
    use OnStoreFailure::{Closed, Local, Open};
    let shadow = Rule { mode: Mode::Shadow, ..hourly("shadow", 2) };
    let (limiter, store) =
        limiter(vec![policy("open", Open), policy("closed", Closed), policy("local", Local), shadow]);
    for resource in ["open", "closed", "shadow"] {
        check(&limiter, resource, 5).await;
    }
    store.set(Some(Trouble::Fails(ErrorClass::Busy)));
    for resource in ["open", "closed", "local"] {
        check(&limiter, resource, 3).await;
    }
    let text = text(&limiter);
    assert_eq!(decisions(&text, "open"), ["allowed 2", "denied 3", "failed_open 3"]);
    assert_eq!(decisions(&text, "closed"), ["allowed 2", "denied 3", "failed_closed 3"]);
    assert_eq!(decisions(&text, "local"), ["fallback_allowed 2", "fallback_denied 1"]);
    assert_eq!(decisions(&text, "shadow"), ["allowed 2", "shadow_denied 3"]);
    assert_eq!(value(&text, "sluicegate_store_errors_total{class=\"busy\"}"), "9");
    assert_eq!(value(&text, "sluicegate_decision_duration_seconds_count"), "24");
    assert_eq!(value(&text, "sluicegate_store_duration_seconds_count{operation=\"charge\"}"), "24");
}

#[tokio::test]
async fn peeks_refunds_and_resets_count_only_their_store_calls() {
    let (limiter, _) = limiter(vec![hourly("api", 2)]);
    let before = text(&limiter);
    let request = Request::new("api", "alice");
    limiter.peek(&request).await.expect("decided");
    limiter.refund(&request).await.expect("decided");
    limiter.reset(&request).await.expect("decided");
    let after = text(&limiter);
    let changed = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
    assert!(changed.clone().all(|(line, _)| line.starts_with("sluicegate_store_duration_seconds")));
    assert_eq!(changed.filter(|(line, _)| line.contains("_count{")).count(), 3);
}

#[tokio::test]
async fn the_remaining_ratio_is_observed_once_per_limit() {
    let window =
        |limit| Quota::from(FixedWindow::new(limit, Micros::from_secs(3_600), Default::default()).expect("valid"));
    let limits = Limits::all("api", [(None, window(4)), (None, window(100)), (None, window(0))]);
    let (limiter, _) = limiter(vec![Rule::new("api", limits)]);
    check(&limiter, "api", 1).await;
    let text = text(&limiter);
    let below =
        |bound: &str| value(&text, &format!("sluicegate_remaining_ratio_bucket{{rule=\"api\",le=\"{bound}\"}}"));
    // The last limit denies, so no limit is charged: 4 of 4, 100 of 100, and 0 of 0 remain.
    assert_eq!([below("0"), below("0.75"), below("1"), below("+Inf")], ["1", "1", "3", "3"]);
    assert_eq!(value(&text, "sluicegate_remaining_ratio_sum{rule=\"api\"}"), "2");
}

#[tokio::test]
async fn the_snapshot_counts_a_rule_with_several_limits_once_per_request() {
    let window =
        |limit| Quota::from(FixedWindow::new(limit, Micros::from_secs(3_600), Default::default()).expect("valid"));
    let limits = |name: &str| Limits::all(name, [(None, window(4)), (None, window(2))]);
    let shadow = Rule { mode: Mode::Shadow, ..Rule::new("soft", limits("soft")) };
    let (limiter, _) = limiter(vec![Rule::new("hard", limits("hard")), shadow]);
    check(&limiter, "hard", 5).await;
    check(&limiter, "soft", 5).await;
    let rules = limiter.observer().metrics().snapshot().rules;
    let of = |name: &str| rules.iter().find(|rule| &*rule.name == name).expect("counted").outcomes;
    assert_eq!(of("hard"), RuleOutcomes { allowed: 2, denied: 3, shadow_denied: 0, degraded: 0 });
    assert_eq!(of("soft"), RuleOutcomes { allowed: 2, denied: 0, shadow_denied: 3, degraded: 0 });
    assert_eq!(decisions(&text(&limiter), "hard"), ["allowed 7", "denied 3"]);
}

#[test]
fn every_series_exists_from_the_start() {
    let window = Quota::from(FixedWindow::new(1, Micros::from_secs(1), Default::default()).expect("valid"));
    let mut rule = hourly("a", 1);
    rule.overrides = vec![sluicegate::rules::Override {
        identifier: Pattern::new("vip"),
        limits: Limits::all("a", [(None, window)]),
        until: None,
    }];
    let rules = RuleSet::new(vec![rule, hourly("b", 1)], Vec::new(), Unmatched::Allow).expect("valid rules");
    let text = Metrics::new(&rules, Some("inline")).text(&GAUGES);
    for (rule, algorithm) in
        [("a", "token_bucket"), ("a", "fixed_window"), ("b", "token_bucket"), ("inline", "token_bucket")]
    {
        for outcome in LimitOutcome::ALL {
            let labels = format!("algorithm=\"{algorithm}\",outcome=\"{}\",rule=\"{rule}\"", outcome.name());
            assert_eq!(value(&text, &format!("sluicegate_decisions_total{{{labels}}}")), "0");
        }
        assert_eq!(value(&text, &format!("sluicegate_remaining_ratio_count{{rule=\"{rule}\"}}")), "0");
    }
    assert_eq!(text.lines().filter(|line| line.starts_with("sluicegate_decisions_total{")).count(), 36);
    for class in ErrorClass::ALL {
        assert_eq!(value(&text, &format!("sluicegate_store_errors_total{{class=\"{}\"}}", class.name())), "0");
    }
    for operation in Operation::ALL {
        let labels = format!("operation=\"{}\"", operation.name());
        assert_eq!(value(&text, &format!("sluicegate_store_duration_seconds_count{{{labels}}}")), "0");
    }
    assert_eq!(value(&text, "sluicegate_decision_duration_seconds_count"), "0");
    assert_eq!(value(&text, "sluicegate_config_last_reload_successful"), "1");
    assert_eq!(value(&text, "sluicegate_config_last_reload_success_timestamp_seconds"), "7");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(value(&text, &format!("sluicegate_build_info{{version=\"{version}\"}}")), "1");
}

/// A store that does not coalesce has no such series. A store that coalesces has it from the start.
#[test]
fn saved_calls_have_series_only_if_the_store_counts_them() {
    let metrics = Metrics::new(&RuleSet::default(), None);
    let plain = metrics.text(&GAUGES);
    assert!(!["coalesced", "from_cache", "lease"].iter().any(|word| plain.contains(word)), "{plain}");
    let leased_tokens = vec![("a".into(), 7)];
    let bounds = |extra, stranded| LeaseBounds { extra, stranded };
    let leases = vec![("a".into(), bounds(20, 36)), ("b".into(), bounds(0, 30))];
    let savings = Savings { coalesced_requests: Some(5), denied_from_cache: Some(0), leased_tokens };
    let text = metrics.text(&Gauges { is_store_up: false, tracked_keys: 3, savings, leases, ..GAUGES });
    for (series, expected) in [
        ("sluicegate_coalesced_requests_total", "5"),
        ("sluicegate_uncharged_usage_units_total{reason=\"debt\"}", "5"),
        ("sluicegate_uncharged_usage_units_total{reason=\"store\"}", "6"),
        ("sluicegate_uncharged_usage_units_total{reason=\"unknown\"}", "7"),
        ("sluicegate_denied_from_cache_total", "0"),
        ("sluicegate_leased_tokens{rule=\"a\"}", "7"),
        ("sluicegate_leased_tokens{rule=\"b\"}", "0"),
        ("sluicegate_lease_extra_tokens{rule=\"a\"}", "20"),
        ("sluicegate_lease_extra_tokens{rule=\"b\"}", "0"),
        ("sluicegate_lease_stranded_tokens_max{rule=\"a\"}", "36"),
        ("sluicegate_lease_stranded_tokens_max{rule=\"b\"}", "30"),
        ("sluicegate_store_up", "0"),
        ("sluicegate_tracked_keys", "3"),
    ] {
        assert_eq!(value(&text, series), expected);
    }
}

#[test]
fn durations_are_written_in_seconds() {
    let metrics = Metrics::new(&RuleSet::default(), None);
    for micros in [0, 1, 3, 15_000, 20_000_000] {
        metrics.store_took(Operation::Charge, Micros::from_micros(micros));
    }
    let text = metrics.text(&GAUGES);
    let below = |bound: &str| {
        value(&text, &format!("sluicegate_store_duration_seconds_bucket{{operation=\"charge\",le=\"{bound}\"}}"))
    };
    assert_eq!([below("0.000001"), below("0.000005"), below("0.01"), below("0.015")], ["2", "3", "3", "4"]);
    assert_eq!([below("10"), below("+Inf")], ["4", "5"]);
    assert_eq!(value(&text, "sluicegate_store_duration_seconds_sum{operation=\"charge\"}"), "20.015004");
}

/// A configuration file cannot contain such names, but the library accepts them.
#[tokio::test]
async fn rule_names_are_escaped_in_labels() {
    let name = "a\"b\\c\nd é🚦";
    let (limiter, _) = limiter(vec![hourly("x", 1)]);
    let rules = RuleSet::new(vec![hourly(name, 1)], Vec::new(), Unmatched::Allow).expect("valid rules");
    let text = Metrics::new(&rules, None).text(&GAUGES);
    assert_eq!(value(&text, "sluicegate_remaining_ratio_count{rule=\"a\\\"b\\\\c\\nd é🚦\"}"), "0");
    assert_eq!(text.lines().count(), self::text(&limiter).lines().count(), "a name adds no line");
}

/// Row 68: a label for every identity makes more series than any server can keep.
#[tokio::test]
async fn identities_appear_in_no_series() {
    let (limiter, _) = limiter(vec![hourly("api", 1)]);
    let before = text(&limiter);
    for number in 0..1_000 {
        let identifier = format!("canary-{number}");
        let request = Request::new("api", &identifier).tenant(&identifier).cost(Cost::new(1));
        limiter.check(&request).await.expect("decided");
    }
    let after = text(&limiter);
    assert_eq!(before.lines().count(), after.lines().count());
    assert!(!after.contains("canary"), "{after}");
    assert_eq!(decisions(&after, "api"), ["allowed 1000"]);
}

#[test]
fn concurrent_threads_lose_no_counts() {
    let (limiter, _) = limiter(vec![hourly("api", 1_000)]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                runtime.block_on(check(&limiter, "api", 500));
            });
        }
    });
    let text = text(&limiter);
    assert_eq!(decisions(&text, "api"), ["allowed 1000", "denied 3000"]);
    assert_eq!(value(&text, "sluicegate_decision_duration_seconds_count"), "4000");
    assert_eq!(value(&text, "sluicegate_remaining_ratio_count{rule=\"api\"}"), "4000");
}

/// Rules with these names. Each matches the resource of its name.
fn named(names: &[&str]) -> RuleSet {
    let rule = |name: &&str| {
        let mut rule = hourly(name, 2);
        rule.selector.resource = Some(Pattern::new(name));
        rule
    };
    RuleSet::new(names.iter().map(rule).collect(), Vec::new(), Unmatched::Allow).expect("valid rules")
}

#[tokio::test]
async fn a_kept_rule_keeps_its_counts_and_a_removed_rule_loses_its_series() {
    let (limiter, _) = limiter(vec![hourly("stays", 2), hourly("goes", 2)]);
    check(&limiter, "stays", 3).await;
    check(&limiter, "goes", 3).await;
    limiter.replace_rules(named(&["comes", "stays"]));
    check(&limiter, "stays", 1).await;
    let after = text(&limiter);
    assert_eq!(decisions(&after, "stays"), ["allowed 2", "denied 2"]);
    assert!(!after.contains("\"goes\""), "{after}");
    assert_eq!(
        value(&after, "sluicegate_remaining_ratio_count{rule=\"comes\"}"),
        "0",
        "the series exists from the start"
    );
}

#[tokio::test]
async fn a_rule_in_a_reused_slot_starts_from_zero() {
    let (limiter, _) = limiter(vec![hourly("first", 2)]);
    check(&limiter, "first", 3).await;
    limiter.replace_rules(named(&["second"]));
    limiter.replace_rules(named(&["third"]));
    assert_eq!(limiter.rules().slots(), [0], "the slot of the first rules is free again");
    check(&limiter, "third", 1).await;
    let after = text(&limiter);
    assert_eq!(decisions(&after, "third"), ["allowed 1"]);
    assert_eq!(value(&after, "sluicegate_remaining_ratio_count{rule=\"third\"}"), "1");
    assert_eq!(value(&after, "sluicegate_remaining_ratio_sum{rule=\"third\"}"), "0.5");
}
