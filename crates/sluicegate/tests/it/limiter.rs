//! The limiter with rules, tiers, overrides, modes and costs, observed through decisions and headers.

use crate::support::{block_on, hourly};
use sluicegate::clock::ManualClock;
use sluicegate::core::{Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingWindow, TokenBucket};
use sluicegate::headers::{HeaderOptions, ResetStyle, write_headers};
use sluicegate::observe::DecisionEvent;
use sluicegate::pattern::Pattern;
use sluicegate::rules::{Limits, Mode, Override, Per, Rule, RuleSet, Unmatched};
use sluicegate::store::{Lease, LeaseMode};
use sluicegate::{CheckError, Decision, Limiter, MemoryStore, Observer, Request, Retry};
use sluicegate_testkit::conformance::START;
use sluicegate_testkit::faulty_store::FaultyStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

type TestLimiter = Limiter<MemoryStore, ManualClock>;

fn limits(rule: &str, capacity: u64) -> Limits {
    Limits::all(rule, [(None, hourly(capacity))])
}

fn limiter(rules: Vec<Rule>) -> TestLimiter {
    let tiers = vec!["free".into(), "pro".into(), "admin".into()];
    let rules = RuleSet::new(rules, tiers, Unmatched::Allow).unwrap();
    Limiter::new(rules, MemoryStore::default(), ManualClock::at(START))
}

fn check(limiter: &TestLimiter, request: Request<'_>) -> Decision {
    block_on(limiter.check(&request)).unwrap()
}

fn admitted(limiter: &TestLimiter, request: Request<'_>) -> usize {
    (0..100).filter(|_| check(limiter, request).is_allowed()).count()
}

#[test]
fn strict_leases_reduce_limits_only_if_the_store_charges_in_advance() {
    let bucket = TokenBucket::new(100, Rate::new(100, Micros::from_secs(1)).unwrap()).unwrap();
    let set = |mode| {
        let lease = Some(Lease { ttl: Micros::from_millis(100), mode });
        let rule = Rule { lease, ..Rule::new("api", Limits::all("api", [(None, Quota::from(bucket.clone()))])) };
        RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow).unwrap()
    };
    let limit = |decision: Result<Decision, CheckError>| decision.unwrap().limits().next().unwrap().verdict.limit;
    for (mode, shared) in [(LeaseMode::Strict, 90), (LeaseMode::Bounded, 100)] {
        let request = Request::new("api.read", "alice");
        let limiter = Limiter::new(set(mode), MemoryStore::default(), ManualClock::at(START));
        assert_eq!(limit(block_on(limiter.check(&request))), 100);
        let limiter = Limiter::new(set(mode), FaultyStore::new(MemoryStore::default()), ManualClock::at(START));
        assert_eq!(limit(block_on(limiter.check(&request))), shared, "{mode:?}");
    }
}

#[test]
fn all_matching_rules_apply() {
    let mut payments = Rule::new("payments", limits("payments", 2));
    payments.selector.resource = Some(Pattern::new("api.payment.*"));
    let mut tenant = Rule::new("acme", limits("acme", 5));
    tenant.selector.tenant = Some(Pattern::new("acme"));
    tenant.per = Per::TENANT;
    let limiter = limiter(vec![payments, tenant]);

    assert_eq!(admitted(&limiter, Request::new("api.payment.create", "a")), 2);
    assert_eq!(admitted(&limiter, Request::new("api.search", "a")), 100, "no rule matches");
    assert_eq!(admitted(&limiter, Request::new("api.payment.create", "a").tenant("acme")), 2);
    // Three of the tenant's five are left, and denied requests took none of them.
    assert_eq!(admitted(&limiter, Request::new("api.search", "b").tenant("acme")), 3);
}

#[test]
fn identifiers_count_within_their_tenant_and_global_rules_across_tenants() {
    let mut global = Rule::new("global", limits("global", 5));
    global.per = Per::GLOBAL;
    let limiter = limiter(vec![Rule::new("each", limits("each", 2)), global]);
    assert_eq!(admitted(&limiter, Request::new("r", "a").tenant("one")), 2);
    assert_eq!(admitted(&limiter, Request::new("r", "a").tenant("two")), 2);
    assert_eq!(admitted(&limiter, Request::new("r", "a").tenant("three")), 1, "five in all");
}

#[test]
fn limits_come_from_exact_override_then_pattern_then_tier_then_rule() {
    let mut rule = Rule::new("api", limits("api", 1));
    rule.tiers = vec![("pro".into(), limits("api", 2)), ("admin".into(), Limits::Unlimited)];
    let over = |pattern, capacity| Override {
        identifier: Pattern::new(pattern),
        limits: limits("api", capacity),
        until: None,
    };
    rule.overrides = vec![over("vip-*", 3), over("*-7", 9), over("vip-7", 4)];
    let limiter = limiter(vec![rule]);
    assert_eq!(admitted(&limiter, Request::new("r", "other")), 1);
    assert_eq!(admitted(&limiter, Request::new("r", "paying").tier("pro")), 2);
    assert_eq!(admitted(&limiter, Request::new("r", "root").tier("admin")), 100);
    assert_eq!(admitted(&limiter, Request::new("r", "free").tier("free")), 1, "a tier without limits in the rule");
    assert_eq!(admitted(&limiter, Request::new("r", "vip-1").tier("pro")), 3);
    assert_eq!(admitted(&limiter, Request::new("r", "vip-7").tier("pro")), 4, "exact before patterns");
    assert_eq!(admitted(&limiter, Request::new("r", "other-7")), 9);
}

#[test]
fn override_ends_at_its_instant_and_keeps_the_usage() {
    let mut rule = Rule::new("api", limits("api", 1));
    let over = |pattern, capacity, seconds: Option<u64>| {
        let until = seconds.map(|seconds| START.plus(Micros::from_secs(seconds)));
        Override { identifier: Pattern::new(pattern), limits: limits("api", capacity), until }
    };
    rule.overrides = vec![over("vip-*", 5, Some(2)), over("vip-7", 9, Some(1)), over("v*", 3, None)];
    let limiter = limiter(vec![rule]);
    let limit = |identifier| check(&limiter, Request::new("r", identifier)).limits().next().unwrap().verdict.limit;
    assert_eq!((limit("vip-7"), limit("vip-1"), limit("vera")), (9, 5, 3));
    limiter.clock().advance(Micros::from_micros(999_999));
    assert_eq!(limit("vip-7"), 9);
    limiter.clock().advance(Micros::from_micros(1));
    assert_eq!((limit("vip-7"), limit("vip-1")), (5, 5), "the exact one has ended");
    limiter.clock().advance(Micros::from_secs(1));
    assert_eq!((limit("vip-7"), limit("vip-1"), limit("other")), (3, 3, 1));
}

#[test]
fn alternating_tiers_resets_nothing() {
    let window = SlidingWindow::new(2, Micros::from_secs(3_600)).unwrap();
    let mut rule = Rule::new("api", limits("api", 2));
    rule.tiers = vec![("pro".into(), Limits::all("api", [(None, Quota::from(window))]))];
    let limiter = limiter(vec![rule]);
    let (own, pro) = (Request::new("r", "a"), Request::new("r", "a").tier("pro"));
    let admitted =
        (0..20).filter(|turn| check(&limiter, if turn % 2 == 0 { own } else { pro }).is_allowed()).count();
    assert_eq!(admitted, 4, "two under each");
    block_on(limiter.refund(&pro.cost(Cost::ZERO))).unwrap();
    assert!(!check(&limiter, own).is_allowed(), "a refund under one tier changed the other");
}

#[test]
fn cost_of_zero_is_allowed_without_a_matching_rule() {
    let rules = RuleSet::new(Vec::new(), Vec::new(), Unmatched::Deny).unwrap();
    let limiter = Limiter::new(rules, MemoryStore::default(), ManualClock::at(START));
    assert!(check(&limiter, Request::new("r", "a").cost(Cost::ZERO)).is_allowed());
}

#[test]
fn rules_with_similar_names_share_no_state() {
    for (one, other) in [("r1", "r11"), ("v2", "v22"), ("payments", "paymentspayments"), ("a", "aa")] {
        let limiter = limiter(vec![Rule::new(one, limits(one, 3)), Rule::new(other, limits(other, 3))]);
        assert_eq!(admitted(&limiter, Request::new("r", "a")), 3, "{one} and {other}");
    }
}

#[test]
fn unknown_tier_is_rejected_with_the_known_ones() {
    let limiter = limiter(vec![Rule::new("api", limits("api", 1))]);
    let error = block_on(limiter.check(&Request::new("r", "a").tier("gold"))).unwrap_err();
    assert_eq!(error.field(), Some("tier"));
    assert_eq!(error.to_string(), "`tier` is \"gold\": use one of free, pro, admin");
    assert!(check(&limiter, Request::new("r", "a")).is_allowed(), "the rejected request was charged");
}

#[test]
fn shadow_rule_reports_but_never_denies() {
    let mut shadow = Rule::new("tried", limits("tried", 1));
    shadow.mode = Mode::Shadow;
    let mut off = Rule::new("off", limits("off", 1));
    off.mode = Mode::Off;
    let limiter = limiter(vec![shadow, off]);
    let request = Request::new("r", "a");
    assert!(check(&limiter, request).is_allowed());
    let second = check(&limiter, request);
    assert!(second.is_allowed());
    let reports: Vec<_> =
        second.limits().map(|report| (report.rule, report.verdict.outcome.is_allowed())).collect();
    assert_eq!(reports, [("tried", false)]);
    assert!(second.tightest().is_none(), "a shadow rule never determines the decision");
}

#[test]
fn cost_of_the_request_overrides_that_of_the_rule() {
    let mut rule = Rule::new("api", limits("api", 10));
    rule.cost = Cost::new(4);
    let limiter = limiter(vec![rule]);
    assert_eq!(check(&limiter, Request::new("r", "a")).tightest().unwrap().verdict.remaining, 6);
    assert_eq!(check(&limiter, Request::new("r", "a").cost(Cost::ONE)).tightest().unwrap().verdict.remaining, 5);
    assert_eq!(check(&limiter, Request::new("r", "a").cost(Cost::ZERO)).tightest().unwrap().verdict.remaining, 5);
    let never = check(&limiter, Request::new("r", "a").cost(Cost::new(11)));
    assert_eq!(never.retry(), Some(Retry::Never));
}

#[test]
fn unmatched_requests_can_be_denied() {
    let rules = RuleSet::new(Vec::new(), Vec::new(), Unmatched::Deny).unwrap();
    let limiter = Limiter::new(rules, MemoryStore::default(), ManualClock::at(START));
    let decision = check(&limiter, Request::new("r", "a"));
    assert!(!decision.is_allowed());
    assert_eq!(decision.retry(), Some(Retry::Never));
}

#[test]
fn peek_refund_and_reset_have_their_effects() {
    let mut global = Rule::new("global", limits("global", 10));
    global.per = Per::GLOBAL;
    let limiter = limiter(vec![Rule::new("each", limits("each", 5)), global]);
    let request = Request::new("r", "a").cost(Cost::new(3));
    let remaining =
        |decision: Decision| -> Vec<u64> { decision.limits().map(|each| each.verdict.remaining).collect() };
    assert_eq!(remaining(check(&limiter, request)), [2, 7]);
    let peeked = block_on(limiter.peek(&request)).unwrap();
    assert!(!peeked.is_allowed());
    assert_eq!(remaining(peeked), [2, 7]);
    assert_eq!(remaining(block_on(limiter.refund(&request.cost(Cost::ONE))).unwrap()), [3, 8]);
    assert_eq!(remaining(block_on(limiter.reset(&request)).unwrap()), [5, 8]);
}

#[test]
fn invalid_requests_are_rejected_before_any_charge() {
    let limiter = limiter(vec![Rule::new("api", limits("api", 1))]);
    for (request, field) in [
        (Request::new("", "a"), "resource"),
        (Request::new("r", ""), "identifier"),
        (Request::new("r", "a").tenant(""), "tenant"),
        (Request::new("r", "a\nb"), "identifier"),
        (Request::new("r\0", "a"), "resource"),
    ] {
        let error = block_on(limiter.check(&request)).unwrap_err();
        assert!(matches!(error, CheckError::InvalidText(_)));
        assert_eq!(error.field(), Some(field));
    }
    assert_eq!(limiter.store().used(), 0);
}

#[derive(Default)]
struct Counts {
    allowed: AtomicU64,
    denied: AtomicU64,
}

impl Observer for Counts {
    fn decided(&self, decided: &DecisionEvent<'_>) {
        let count = if decided.decision.is_allowed() { &self.allowed } else { &self.denied };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn observer_receives_each_decision_once_and_no_peeks() {
    let counts = Arc::new(Counts::default());
    let limiter = limiter(vec![Rule::new("api", limits("api", 2))]).observed(Arc::clone(&counts));
    let request = Request::new("r", "a");
    for _ in 0..5 {
        block_on(limiter.check(&request)).unwrap();
        block_on(limiter.peek(&request)).unwrap();
    }
    assert_eq!(counts.allowed.load(Ordering::Relaxed), 2);
    assert_eq!(counts.denied.load(Ordering::Relaxed), 3);
}

fn headers(decision: &Decision, options: HeaderOptions) -> Vec<String> {
    let mut lines = Vec::new();
    write_headers(decision, options, |name, value| lines.push(format!("{name}: {value}")));
    lines
}

fn payments() -> TestLimiter {
    let bucket = TokenBucket::new(100, Rate::new(100, Micros::from_secs(60)).unwrap()).unwrap();
    let log = SlidingWindow::new(150, Micros::from_secs(3_600)).unwrap();
    let limits = Limits::all("payments", [(None, Quota::from(bucket)), (None, Quota::from(log))]);
    limiter(vec![Rule::new("payments", limits)])
}

#[test]
fn headers_list_every_limit_and_x_headers_the_tightest() {
    let limiter = payments();
    let allowed = check(&limiter, Request::new("r", "a"));
    // 1705312800.123456 s; at 100 a minute a token lasts 0.6 s.
    assert_eq!(
        headers(&allowed, HeaderOptions::default()),
        [
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 99",
            "x-ratelimit-reset: 1705312801",
            "ratelimit-policy: \"payments\";q=100;w=60, \"payments.2\";q=150;w=3600",
            "ratelimit: \"payments\";r=99;t=1, \"payments.2\";r=149;t=3600",
        ]
    );
    check(&limiter, Request::new("r", "a").cost(Cost::new(99)));
    let denied = check(&limiter, Request::new("r", "a").cost(Cost::new(2)));
    let options = HeaderOptions { reset: ResetStyle::Delta, ..HeaderOptions::default() };
    assert_eq!(
        headers(&denied, options),
        [
            "retry-after: 2",
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 60",
            "ratelimit-policy: \"payments\";q=100;w=60, \"payments.2\";q=150;w=3600",
            "ratelimit: \"payments\";r=0;t=2, \"payments.2\";r=50;t=3600",
        ]
    );
}

#[test]
fn permanent_denial_has_no_retry_after() {
    let never = check(&payments(), Request::new("r", "a").cost(Cost::new(1_000)));
    assert!(!headers(&never, HeaderOptions::default()).iter().any(|line| line.starts_with("retry-after")));
}

/// The limit with the longest wait determines a denial, but another limit may have less left. The largest admissible
/// cost is the minimum of all.
#[test]
fn remaining_of_a_denial_is_the_largest_admissible_cost() {
    for cost in [3, 4] {
        let window = FixedWindow::new(7, Micros::from_secs(86_400), Align::Epoch).unwrap();
        let bucket = TokenBucket::new(6, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap();
        let limits = Limits::all("r", [(None, Quota::from(window)), (None, Quota::from(bucket))]);
        let shadow = Rule { mode: Mode::Shadow, ..Rule::new("tried", limits_of_one("tried")) };
        let limiter = limiter(vec![Rule::new("r", limits), shadow]);
        assert!(check(&limiter, Request::new("r", "a").cost(Cost::new(5))).is_allowed());
        let denied = check(&limiter, Request::new("r", "a").cost(Cost::new(cost)));
        let spokesman = denied.tightest().unwrap().verdict;
        assert_eq!((denied.is_allowed(), spokesman.limit, spokesman.remaining), (false, 7, 2));
        assert_eq!(denied.remaining(), Some(1), "the bucket has one token left");
        let lines = headers(&denied, HeaderOptions::default());
        assert!(lines.contains(&"x-ratelimit-remaining: 1".to_owned()), "{lines:?}");
        assert!(!check(&limiter, Request::new("r", "a").cost(Cost::new(2))).is_allowed());
        assert!(check(&limiter, Request::new("r", "a").cost(Cost::new(1))).is_allowed());
    }
}

fn limits_of_one(label: &str) -> Limits {
    Limits::all(label, [(None, FixedWindow::new(1, Micros::from_secs(60), Align::Epoch).unwrap().into())])
}

/// `t` of a denial is the wait. If no wait helps, it is absent.
#[test]
fn permanent_denial_has_no_t_parameter() {
    let never = check(&payments(), Request::new("r", "a").cost(Cost::new(101)));
    let lines = headers(&never, HeaderOptions::default());
    assert!(lines.contains(&"ratelimit: \"payments\";r=100, \"payments.2\";r=150;t=0".to_owned()), "{lines:?}");
    let closed = FixedWindow::new(0, Micros::from_secs(60), Align::Epoch).unwrap();
    let limiter = limiter(vec![Rule::new("closed", Limits::all("closed", [(None, closed.into())]))]);
    let lines = headers(&check(&limiter, Request::new("r", "a")), HeaderOptions::default());
    assert!(lines.contains(&"ratelimit: \"closed\";r=0".to_owned()), "{lines:?}");
}

#[test]
fn headers_are_written_only_if_enabled() {
    let decision = check(&payments(), Request::new("r", "a"));
    let options = HeaderOptions { x_ratelimit: false, ietf: false, ..HeaderOptions::default() };
    assert_eq!(headers(&decision, options), Vec::<String>::new());
}

#[test]
fn invalid_rule_sets_are_rejected() {
    let refused = |rules| RuleSet::new(rules, Vec::new(), Unmatched::Allow).unwrap_err().to_string();
    let twice = vec![Rule::new("a", limits("a", 1)), Rule::new("a", limits("a", 1))];
    assert_eq!(refused(twice), "two rules are called \"a\": rename one of them");
    let none = vec![Rule::new("a", Limits::all("a", []))];
    assert_eq!(refused(none), "rule \"a\" has 0 limits in one list: use 1 to 16, or unlimited");
    let mut tiered = Rule::new("a", limits("a", 1));
    tiered.tiers = vec![("gold".into(), Limits::Unlimited)];
    assert_eq!(refused(vec![tiered]), "rule \"a\" names the tier \"gold\": list it among the tiers");
}
