//! The limiter: rules, tiers, overrides, modes and costs, seen through decisions and headers.

use crate::support::{block_on, hourly};
use sluicegate::clock::ManualClock;
use sluicegate::core::{Cost, Micros, Quota, Rate, SlidingWindow, TokenBucket};
use sluicegate::headers::{HeaderOptions, ResetStyle, write_headers};
use sluicegate::observe::Decided;
use sluicegate::rules::pattern::Pattern;
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
fn strict_terms_make_limits_smaller_where_the_store_may_charge_ahead_and_nowhere_else() {
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
fn rules_apply_to_what_they_match_and_all_that_match_apply() {
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
fn identifiers_are_counted_within_their_tenant_and_global_spans_tenants() {
    let mut global = Rule::new("global", limits("global", 5));
    global.per = Per::GLOBAL;
    let limiter = limiter(vec![Rule::new("each", limits("each", 2)), global]);
    assert_eq!(admitted(&limiter, Request::new("r", "a").tenant("one")), 2);
    assert_eq!(admitted(&limiter, Request::new("r", "a").tenant("two")), 2);
    assert_eq!(admitted(&limiter, Request::new("r", "a").tenant("three")), 1, "five in all");
}

#[test]
fn limits_come_from_the_exact_override_then_the_wildcard_then_the_tier_then_the_rule() {
    let mut rule = Rule::new("api", limits("api", 1));
    rule.tiers = vec![("pro".into(), limits("api", 2)), ("admin".into(), Limits::Unlimited)];
    let over = |pattern, capacity| Override {
        identifier: Pattern::new(pattern),
        limits: limits("api", capacity),
        until: None,
    };
    rule.overrides = vec![over("vip-*", 3), over("*-7", 9), over("vip-7", 4)];
    let limiter = limiter(vec![rule]);
    assert_eq!(admitted(&limiter, Request::new("r", "anyone")), 1);
    assert_eq!(admitted(&limiter, Request::new("r", "paying").tier("pro")), 2);
    assert_eq!(admitted(&limiter, Request::new("r", "root").tier("admin")), 100);
    assert_eq!(admitted(&limiter, Request::new("r", "free").tier("free")), 1, "a tier the rule does not name");
    assert_eq!(admitted(&limiter, Request::new("r", "vip-1").tier("pro")), 3);
    assert_eq!(admitted(&limiter, Request::new("r", "vip-7").tier("pro")), 4, "exact before patterns");
    assert_eq!(admitted(&limiter, Request::new("r", "other-7")), 9);
}

#[test]
fn an_override_ends_at_its_instant_and_leaves_what_was_used() {
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
fn going_back_and_forth_between_tiers_resets_nothing() {
    let window = SlidingWindow::new(2, Micros::from_secs(3_600)).unwrap();
    let mut rule = Rule::new("api", limits("api", 2));
    rule.tiers = vec![("pro".into(), Limits::all("api", [(None, Quota::from(window))]))];
    let limiter = limiter(vec![rule]);
    let (own, pro) = (Request::new("r", "a"), Request::new("r", "a").tier("pro"));
    let admitted =
        (0..20).filter(|turn| check(&limiter, if turn % 2 == 0 { own } else { pro }).is_allowed()).count();
    assert_eq!(admitted, 4, "two under each");
    block_on(limiter.refund(&pro.cost(Cost::ZERO))).unwrap();
    assert!(!check(&limiter, own).is_allowed(), "a refund under one tier forgot the other");
}

#[test]
fn a_cost_of_nothing_is_allowed_even_where_nothing_matches() {
    let rules = RuleSet::new(Vec::new(), Vec::new(), Unmatched::Deny).unwrap();
    let limiter = Limiter::new(rules, MemoryStore::default(), ManualClock::at(START));
    assert!(check(&limiter, Request::new("r", "a").cost(Cost::ZERO)).is_allowed());
}

#[test]
fn rules_with_names_that_are_alike_are_strangers() {
    for (one, other) in [("r1", "r11"), ("v2", "v22"), ("payments", "paymentspayments"), ("a", "aa")] {
        let limiter = limiter(vec![Rule::new(one, limits(one, 3)), Rule::new(other, limits(other, 3))]);
        assert_eq!(admitted(&limiter, Request::new("r", "a")), 3, "{one} and {other}");
    }
}

#[test]
fn an_unknown_tier_is_refused_and_the_known_ones_named() {
    let limiter = limiter(vec![Rule::new("api", limits("api", 1))]);
    let error = block_on(limiter.check(&Request::new("r", "a").tier("gold"))).unwrap_err();
    assert_eq!(error.field(), Some("tier"));
    assert_eq!(error.to_string(), "`tier` is \"gold\": use one of free, pro, admin");
    assert!(check(&limiter, Request::new("r", "a")).is_allowed(), "the refused request was charged");
}

#[test]
fn a_shadow_rule_reports_and_never_denies_and_off_does_nothing() {
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
    assert!(second.tightest().is_none(), "a rule that is only tried does not speak");
}

#[test]
fn the_request_s_cost_wins_over_the_rule_s() {
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
fn what_no_rule_matches_can_be_denied() {
    let rules = RuleSet::new(Vec::new(), Vec::new(), Unmatched::Deny).unwrap();
    let limiter = Limiter::new(rules, MemoryStore::default(), ManualClock::at(START));
    let decision = check(&limiter, Request::new("r", "a"));
    assert!(!decision.is_allowed());
    assert_eq!(decision.retry(), Some(Retry::Never));
}

#[test]
fn a_peek_changes_nothing_a_refund_gives_back_and_a_reset_spares_what_is_shared() {
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
fn malformed_requests_are_refused_before_anything_is_charged() {
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
    fn decided(&self, decided: &Decided<'_>) {
        let count = if decided.decision.is_allowed() { &self.allowed } else { &self.denied };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn the_observer_hears_of_every_decision_once_and_of_no_peek() {
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
fn headers_speak_for_every_limit_and_the_x_headers_for_the_tightest() {
    let limiter = payments();
    let allowed = check(&limiter, Request::new("r", "a"));
    // 1705312800.123456 s, and one token of 100 a minute lasts 0.6 s.
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
fn a_denial_that_waiting_does_not_mend_has_no_retry_after() {
    let never = check(&payments(), Request::new("r", "a").cost(Cost::new(1_000)));
    assert!(!headers(&never, HeaderOptions::default()).iter().any(|line| line.starts_with("retry-after")));
}

#[test]
fn headers_that_nobody_asked_for_are_not_written() {
    let decision = check(&payments(), Request::new("r", "a"));
    let options = HeaderOptions { x_ratelimit: false, ietf: false, ..HeaderOptions::default() };
    assert_eq!(headers(&decision, options), Vec::<String>::new());
}

#[test]
fn rule_sets_that_cannot_work_are_refused() {
    let refused = |rules| RuleSet::new(rules, Vec::new(), Unmatched::Allow).unwrap_err().to_string();
    let twice = vec![Rule::new("a", limits("a", 1)), Rule::new("a", limits("a", 1))];
    assert_eq!(refused(twice), "two rules are called \"a\": rename one of them");
    let none = vec![Rule::new("a", Limits::all("a", []))];
    assert_eq!(refused(none), "rule \"a\" has 0 limits in one list: use 1 to 16, or unlimited");
    let mut tiered = Rule::new("a", limits("a", 1));
    tiered.tiers = vec![("gold".into(), Limits::Unlimited)];
    assert_eq!(refused(vec![tiered]), "rule \"a\" names the tier \"gold\": list it among the tiers");
}
