//! The outcome of a request when the store fails: each policy, alone and combined.

use crate::support::{block_on, hourly};
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::core::TokenBucket;
use sluicegate::core::{Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp};
use sluicegate::decision::{LimitEvent, LimitOutcome};
use sluicegate::headers::{HeaderOptions, write_headers};
use sluicegate::observe::{DecisionEvent, FailClosedEvent};
use sluicegate::rules::{Limits, Mode, OnStoreFailure, Per, Rule, RuleSet, Unmatched};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::{ErrorClass, Health, Store as _, StoreError};
use sluicegate::{CheckError, Decision, Instances, Limiter, MemoryStore, Observer, Request};
use sluicegate_testkit::conformance::START;
use sluicegate_testkit::faulty_store::{FaultyStore, Trouble};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use OnStoreFailure::{Closed, Local, Open};

const GONE: Option<Trouble> = Some(Trouble::Fails(ErrorClass::Connection));

/// The events of an observer, in order.
#[derive(Debug, Default)]
struct RecordedEvents(Mutex<Vec<String>>);

impl RecordedEvents {
    fn add(&self, words: String) {
        self.0.lock().unwrap().push(words);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn words<'a>(outcomes: impl Iterator<Item = LimitEvent<'a>>) -> String {
    let words: Vec<String> = outcomes.map(|each| format!("{} {}", each.rule, each.outcome.name())).collect();
    words.join(", ")
}

impl Observer for RecordedEvents {
    fn decided(&self, decided: &DecisionEvent<'_>) {
        let outcomes = words(decided.decision.outcomes());
        let mut told = Vec::new();
        decided.decision.for_each_outcome(|observed| told.push(observed));
        assert_eq!(words(told.into_iter()), outcomes);
        self.add(format!("decided: {outcomes}"));
    }

    fn undecided(&self, undecided: &FailClosedEvent<'_>) {
        assert_eq!(undecided.now, START);
        self.add(format!("undecided, {}: {}", undecided.error.class.name(), words(undecided.outcomes())));
    }

    fn store_failed(&self, error: &StoreError) {
        self.add(format!("store failed, {}", error.class.name()));
    }
}

struct Bench {
    store: FaultyStore,
    clock: ManualClock,
    events: Arc<RecordedEvents>,
    limiter: Limiter<FaultyStore, ManualClock, Arc<RecordedEvents>>,
}

impl Bench {
    fn new(rules: Vec<Rule>) -> Self {
        Self::one_of(rules, &Instances::default())
    }

    fn one_of(rules: Vec<Rule>, instances: &Instances) -> Self {
        let rules = RuleSet::new(rules, Vec::new(), Unmatched::Allow).unwrap();
        let store = FaultyStore::new(MemoryStore::new(MemoryOptions::default(), START));
        let (clock, events) = (ManualClock::at(START), Arc::new(RecordedEvents::default()));
        let limiter = Limiter::new(rules, store.clone(), clock.clone())
            .observed(Arc::clone(&events))
            .with_fallback(MemoryOptions { max_keys: 1_000, ..MemoryOptions::default() }, instances.clone());
        Self { store, clock, events, limiter }
    }

    fn check(&self, cost: u32) -> Result<Decision, CheckError> {
        block_on(self.limiter.check(&Request::new("r", "a").cost(Cost::new(cost))))
    }

    fn admitted(&self) -> usize {
        (0..100).filter(|_| self.check(1).unwrap().is_allowed()).count()
    }

    fn local_keys(&self) -> usize {
        self.limiter.local_store().map_or(0, MemoryStore::used)
    }
}

fn rule(name: &str, capacity: u64, policy: OnStoreFailure) -> Rule {
    let mut rule = Rule::new(name, Limits::all(name, [(None, hourly(capacity))]));
    rule.on_store_failure = policy;
    rule
}

fn shadow(rule: Rule) -> Rule {
    Rule { mode: Mode::Shadow, ..rule }
}

fn class_of(outcome: Result<Decision, CheckError>) -> ErrorClass {
    match outcome {
        Err(CheckError::Store(error)) => error.class,
        other => panic!("{other:?}"),
    }
}

/// Row 65: by document, open by default, always open, a choice, or future work. Here each rule has a policy: this
/// test is about `open`, and `closed` and `local` follow.
#[test]
fn open_rule_allows_without_a_verdict() {
    let bench = Bench::new(vec![rule("api", 2, Open)]);
    bench.store.set(GONE);
    assert_eq!(bench.admitted(), 100);
    let decision = bench.check(1).unwrap();
    assert!(decision.is_degraded() && decision.tightest().is_none());
    assert_eq!(decision.degradation().unwrap().error.class, ErrorClass::Connection);
    assert_eq!(decision.limits().count(), 0);
    assert_eq!(bench.local_keys(), 0);
    assert_eq!(bench.events.take().pop().unwrap(), "decided: api failed_open");
}

/// Row 65.
#[test]
fn closed_rule_rejects_and_nothing_is_charged() {
    let bench = Bench::new(vec![rule("own", 5, Local), rule("free", 5, Open), rule("strict", 5, Closed)]);
    bench.store.set(GONE);
    for _ in 0..3 {
        assert_eq!(class_of(bench.check(1)), ErrorClass::Connection);
    }
    assert_eq!((bench.local_keys(), bench.store.inner().used()), (0, 0));
    let events = bench.events.take();
    assert_eq!(events[..2], ["store failed, connection", "undecided, connection: strict failed_closed"]);
    assert_eq!(events.len(), 6);
}

/// Row 65.
#[test]
fn local_rules_decide_by_their_shares_all_or_nothing() {
    let bench = Bench::new(vec![rule("wide", 5, Local), rule("tight", 2, Local), rule("free", 1, Open)]);
    bench.store.set(GONE);
    let first = bench.check(1).unwrap();
    assert!(first.is_allowed() && first.is_degraded());
    assert_eq!(first.limits().map(|each| each.verdict.remaining).collect::<Vec<_>>(), [4, 1]);
    assert_eq!(first.tightest().unwrap().rule, "tight");
    assert!(bench.check(1).unwrap().is_allowed());
    let denied = bench.check(1).unwrap();
    assert!(!denied.is_allowed() && denied.is_degraded());
    assert!(denied.retry().is_some());
    let remaining: Vec<u64> = denied.limits().map(|each| each.verdict.remaining).collect();
    assert_eq!(remaining, [3, 0], "the limit with room was charged for a denied request");
    assert_eq!(
        bench.events.take().pop().unwrap(),
        "decided: wide fallback_allowed, tight fallback_denied, free failed_open"
    );
    assert_eq!(bench.store.inner().used(), 0);
}

#[test]
fn shadow_rule_never_rejects() {
    let rules = vec![shadow(rule("a", 1, Closed)), shadow(rule("b", 1, Open)), shadow(rule("c", 1, Local))];
    let bench = Bench::new(rules);
    bench.store.set(GONE);
    assert_eq!(bench.admitted(), 100);
    let last = bench.events.take().pop().unwrap();
    assert_eq!(last, "decided: c shadow_denied");
}

#[test]
fn error_about_the_request_fails_closed() {
    for policy in [Open, Local, Closed] {
        let bench = Bench::new(vec![rule("api", 5, policy)]);
        bench.store.set(Some(Trouble::Fails(ErrorClass::Protocol)));
        assert_eq!(class_of(bench.check(1)), ErrorClass::Protocol);
        assert_eq!(bench.local_keys(), 0);
    }
    let in_shadow = Bench::new(vec![shadow(rule("api", 5, Open))]);
    in_shadow.store.set(Some(Trouble::Fails(ErrorClass::Protocol)));
    assert!(in_shadow.check(1).unwrap().is_allowed());
    for class in ErrorClass::ALL {
        assert_eq!(class.is_about_the_request(), class == ErrorClass::Protocol);
    }
}

/// Row 49: one document treats no answer as a denial, and an exception as a 500, a third policy that was never
/// chosen.
#[test]
fn every_store_error_class_applies_the_policy() {
    for class in ErrorClass::ALL.into_iter().filter(|class| !class.is_about_the_request() && !class.is_overload())
    {
        let bench = Bench::new(vec![rule("api", 1, Open)]);
        bench.store.set(Some(Trouble::Fails(class)));
        assert!(bench.check(1).unwrap().is_allowed(), "{class:?}");
        let closed = Bench::new(vec![rule("api", 1, Closed)]);
        closed.store.set(Some(Trouble::Fails(class)));
        assert_eq!(class_of(closed.check(1)), class);
    }
}

#[test]
fn closed_rule_allows_a_cost_of_zero() {
    let bench = Bench::new(vec![rule("api", 1, Closed)]);
    bench.store.set(GONE);
    let decision = bench.check(0).unwrap();
    assert!(decision.is_allowed() && decision.is_degraded());
}

#[test]
fn request_without_limits_does_not_call_the_store() {
    let bench = Bench::new(vec![Rule::new("free", Limits::Unlimited)]);
    bench.store.set(GONE);
    let decision = bench.check(1).unwrap();
    assert!(decision.is_allowed() && !decision.is_degraded());
    assert!(bench.store.deadlines().is_empty());
}

#[test]
fn peek_applies_the_policies_and_charges_nothing() {
    let request = Request::new("r", "a");
    let peek = |bench: &Bench| block_on(bench.limiter.peek(&request));
    for policy in [Open, Local] {
        let bench = Bench::new(vec![rule("api", 3, policy)]);
        bench.store.set(GONE);
        for _ in 0..5 {
            let peeked = peek(&bench).unwrap();
            assert!(peeked.is_allowed() && peeked.is_degraded());
            let remaining = peeked.tightest().map(|each| each.verdict.remaining);
            assert_eq!(remaining, (policy == Local).then_some(3));
        }
        assert_eq!(bench.events.take(), ["store failed, connection"; 5], "a peek is no decision");
    }
    let bench = Bench::new(vec![rule("api", 3, Closed)]);
    bench.store.set(GONE);
    class_of(peek(&bench));
    assert_eq!(bench.events.take(), ["store failed, connection"]);
}

#[test]
fn failed_refund_or_reset_is_an_error_under_any_policy() {
    for policy in [Open, Local, Closed] {
        let bench = Bench::new(vec![rule("api", 3, policy)]);
        bench.store.set(GONE);
        let request = Request::new("r", "a");
        assert_eq!(class_of(block_on(bench.limiter.refund(&request))), ErrorClass::Connection);
        assert_eq!(class_of(block_on(bench.limiter.reset(&request))), ErrorClass::Connection);
        assert_eq!(bench.events.take(), ["store failed, connection"; 2]);
    }
}

#[test]
fn store_decides_again_after_it_recovers() {
    let bench = Bench::new(vec![rule("api", 5, Local)]);
    assert!(bench.check(2).unwrap().is_allowed());
    bench.store.set(GONE);
    assert_eq!(bench.store.health(), Health::Down { class: ErrorClass::Connection });
    assert!(bench.check(2).unwrap().is_degraded());
    bench.store.set(None);
    assert_eq!(bench.store.health(), Health::Up);
    let decision = bench.check(1).unwrap();
    assert!(!decision.is_degraded());
    assert_eq!(decision.tightest().unwrap().verdict.remaining, 2, "the store has counted three of five");
}

#[test]
fn admissions_by_the_store_count_against_the_share() {
    let bench = Bench::new(vec![rule("own", 5, Local), rule("other", 50, Open)]);
    assert!(bench.check(4).unwrap().is_allowed());
    assert!(!bench.check(4).unwrap().is_allowed(), "and the requests that it denied do not");
    bench.store.set(GONE);
    assert_eq!(bench.admitted(), 1);
    assert_eq!(bench.local_keys(), 1, "only local rules are kept here");
}

#[test]
fn admissions_beyond_the_share_become_its_debt() {
    let window = Micros::from_secs(3_600);
    let quotas = [
        hourly(100),
        SlidingWindow::new(100, window).unwrap().into(),
        SlidingCounter::new(100, window).unwrap().into(),
        FixedWindow::new(100, window, Align::Epoch).unwrap().into(),
    ];
    for quota in quotas {
        let instances = Instances::default();
        instances.set(2);
        let limits = Limits::all("api", [(None, quota.clone())]);
        let local = Rule { on_store_failure: Local, ..Rule::new("api", limits) };
        let bench = Bench::one_of(vec![local], &instances);
        assert!(bench.check(100).unwrap().is_allowed());
        bench.store.set(GONE);
        assert_eq!(bench.admitted(), 0, "{quota:?}");
    }
}

#[test]
fn follow_charges_each_share_independently() {
    let instances = Instances::default();
    let limits = Limits::all("api", [(None, hourly(4)), (None, hourly(40))]);
    let bench = Bench::one_of(vec![Rule { on_store_failure: Local, ..Rule::new("api", limits) }], &instances);
    instances.set(2);
    assert!(bench.check(4).unwrap().is_allowed());
    bench.store.set(GONE);
    let peeked = block_on(bench.limiter.peek(&Request::new("r", "a"))).unwrap();
    assert_eq!(peeked.limits().map(|each| each.verdict.remaining).collect::<Vec<_>>(), [0, 16]);
}

#[test]
fn share_of_a_shadow_rule_follows_the_store() {
    let in_shadow = shadow(Rule {
        on_store_failure: Local,
        ..Rule::new("in_shadow", Limits::all("in_shadow", [(None, hourly(2)), (None, hourly(20))]))
    });
    let bench = Bench::new(vec![rule("api", 50, Local), in_shadow]);
    assert!(bench.check(2).unwrap().is_allowed());
    assert!(bench.check(1).unwrap().is_allowed(), "the store does not charge shadow limits for this");
    bench.store.set(GONE);
    let peeked = block_on(bench.limiter.peek(&Request::new("r", "a"))).unwrap();
    assert_eq!(peeked.limits().map(|each| each.verdict.remaining).collect::<Vec<_>>(), [47, 0, 18]);
}

/// The runtime's time, which tests can pause.
#[derive(Debug)]
struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        START.plus(Micros::from_micros(u64::try_from(self.0.elapsed().as_micros()).unwrap()))
    }
}

/// A request that waited for the store decides by the time after the wait. By the time before it, the state of later
/// requests would seem to be from the future and would be pulled back.
#[tokio::test(start_paused = true)]
async fn request_that_waited_decides_by_the_time_after_the_wait() {
    let bucket = TokenBucket::new(5, Rate::new(50, Micros::from_secs(1)).unwrap()).unwrap();
    let limits = Limits::all("api", [(None, Quota::from(bucket))]);
    let local = Rule { on_store_failure: Local, deadline: Duration::from_secs(5), ..Rule::new("api", limits) };
    let rules = RuleSet::new(vec![local], Vec::new(), Unmatched::Allow).unwrap();
    let store = FaultyStore::new(MemoryStore::new(MemoryOptions::default(), START));
    let limiter = Limiter::new(rules, store.clone(), RuntimeClock(tokio::time::Instant::now()));
    let request = Request::new("r", "a");
    store.set(Some(Trouble::Hangs));
    let later = async {
        tokio::time::sleep(Duration::from_millis(4_990)).await;
        store.set(GONE);
        assert!(limiter.check(&request.cost(Cost::new(5))).await.unwrap().is_allowed());
    };
    let (waited, ()) = tokio::join!(limiter.check(&request), later);
    assert!(!waited.unwrap().is_allowed());
    assert!(!limiter.check(&request).await.unwrap().is_allowed());
}

/// Each call reads the clock three milliseconds after the last reading.
#[derive(Debug)]
struct TickingClock(ManualClock);

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        self.0.advance(Micros::from_millis(3));
        self.0.now()
    }
}

#[test]
fn reset_with_two_store_calls_has_one_deadline() {
    let global = Rule { per: Per::GLOBAL, ..rule("global", 10, Open) };
    let rules = RuleSet::new(vec![rule("own", 5, Open), global], Vec::new(), Unmatched::Allow).unwrap();
    let store = FaultyStore::new(MemoryStore::new(MemoryOptions::default(), START));
    let limiter = Limiter::new(rules, store.clone(), TickingClock(ManualClock::at(START)));
    block_on(limiter.reset(&Request::new("r", "a"))).unwrap();
    assert_eq!(store.deadlines(), [15, 12].map(Duration::from_millis));
}

#[test]
fn share_follows_refunds_and_resets() {
    let mut global = rule("global", 10, Local);
    global.per = Per::GLOBAL;
    let bench = Bench::new(vec![rule("own", 5, Local), global]);
    let request = Request::new("r", "a");
    let left = || {
        bench.store.set(GONE);
        let peeked = block_on(bench.limiter.peek(&request)).unwrap();
        bench.store.set(None);
        peeked.limits().map(|each| each.verdict.remaining).collect::<Vec<_>>()
    };
    bench.check(4).unwrap();
    assert_eq!(left(), [1, 6]);
    block_on(bench.limiter.refund(&request.cost(Cost::new(2)))).unwrap();
    assert_eq!(left(), [3, 8]);
    block_on(bench.limiter.reset(&request)).unwrap();
    assert_eq!(left(), [5, 8], "shared states are unchanged");
}

#[test]
fn store_that_cannot_fail_needs_no_fallback() {
    let rules = RuleSet::new(vec![rule("api", 5, Local)], Vec::new(), Unmatched::Allow).unwrap();
    let limiter = Limiter::new(rules, MemoryStore::default(), ManualClock::at(START));
    assert!(block_on(limiter.check(&Request::new("r", "a"))).unwrap().is_allowed());
    assert!(limiter.local_store().is_none());
}

/// Row 66: K instances with the whole limit each admit K times as much without their store.
#[test]
fn share_follows_the_number_of_instances() {
    let instances = Instances::default();
    let mut tiered = rule("api", 12, Local);
    tiered.tiers = vec![("pro".into(), Limits::all("api", [(None, hourly(100))]))];
    let rules = RuleSet::new(vec![tiered], vec!["pro".into()], Unmatched::Allow).unwrap();
    let store = FaultyStore::new(MemoryStore::default());
    let limiter = Limiter::new(rules, store.clone(), ManualClock::at(START))
        .with_fallback(MemoryOptions::default(), instances.clone());
    store.set(GONE);
    for (count, own, pro) in [(1, 12, 100), (3, 4, 34), (3, 4, 34), (5, 3, 20), (0, 12, 100)] {
        instances.set(count);
        let limit = |request| block_on(limiter.peek(&request)).unwrap().tightest().unwrap().verdict.limit;
        assert_eq!(limit(Request::new("r", "a")), own, "of {count}");
        assert_eq!(limit(Request::new("r", "a").tier("pro")), pro, "of {count}");
    }
    assert_eq!(limiter.instances().count().get(), 1);
}

#[test]
fn share_of_a_bucket_refills_at_its_part_of_the_rate() {
    let bucket = TokenBucket::new(4, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap();
    let mut rule = Rule::new("api", Limits::all("api", [(None, Quota::from(bucket))]));
    rule.on_store_failure = Local;
    let instances = Instances::default();
    instances.set(2);
    let bench = Bench::one_of(vec![rule], &instances);
    bench.store.set(GONE);
    assert_eq!(bench.admitted(), 2);
    bench.clock.advance(Micros::from_micros(1_999_999));
    assert_eq!(bench.admitted(), 0);
    bench.clock.advance(Micros::from_micros(1));
    assert_eq!(bench.admitted(), 1);
}

#[test]
fn request_has_the_shortest_deadline_of_its_rules() {
    let with = |name, millis, limits| Rule { deadline: Duration::from_millis(millis), ..Rule::new(name, limits) };
    let limits = || Limits::all("x", [(None, hourly(9))]);
    let off = Rule { mode: Mode::Off, ..with("off", 2, limits()) };
    let free = with("free", 1, Limits::Unlimited);
    let bench = Bench::new(vec![with("slow", 900, limits()), with("quick", 7, limits()), off, free]);
    let request = Request::new("r", "a");
    block_on(bench.limiter.check(&request)).unwrap();
    block_on(bench.limiter.peek(&request)).unwrap();
    block_on(bench.limiter.refund(&request)).unwrap();
    block_on(bench.limiter.reset(&request)).unwrap();
    assert_eq!(bench.store.deadlines(), [Duration::from_millis(7); 4]);
    let default = Bench::new(vec![rule("api", 1, Open)]);
    default.check(1).unwrap();
    assert_eq!(default.store.deadlines(), [Duration::from_millis(15)]);
}

#[tokio::test(start_paused = true)]
async fn hanging_store_is_awaited_until_the_deadline() {
    let bench = Bench::new(vec![rule("api", 3, Local)]);
    bench.store.set(Some(Trouble::Hangs));
    let before = tokio::time::Instant::now();
    let decision = bench.limiter.check(&Request::new("r", "a")).await.unwrap();
    assert_eq!(before.elapsed(), Duration::from_millis(15));
    assert_eq!(decision.degradation().unwrap().error.class, ErrorClass::Timeout);
}

/// Row 64: a header that shows every client when limits are off.
#[test]
fn degraded_header_appears_only_on_degraded_decisions() {
    let bench = Bench::new(vec![rule("api", 3, Open)]);
    let names = |decision: &Decision, degraded| {
        let mut names = Vec::new();
        let options = HeaderOptions { x_ratelimit: false, ietf: false, degraded, ..HeaderOptions::default() };
        write_headers(decision, options, |name, value| names.push(format!("{name}: {value}")));
        names
    };
    let whole = bench.check(1).unwrap();
    bench.store.set(GONE);
    let degraded = bench.check(1).unwrap();
    assert!(names(&whole, true).is_empty() && names(&degraded, false).is_empty());
    assert_eq!(names(&degraded, true), ["x-ratelimit-degraded: true"]);
    assert!(!HeaderOptions::default().degraded);
}

#[test]
fn deadline_out_of_range_is_rejected() {
    for deadline in [Duration::ZERO, Duration::from_micros(999), Duration::from_millis(10_001)] {
        let rule = Rule { deadline, ..rule("api", 1, Open) };
        let error = RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow).unwrap_err().to_string();
        assert_eq!(error, format!("rule \"api\" has a deadline of {deadline:?}: use 1 ms to 10 s"));
    }
}

#[test]
fn rules_fail_closed_if_all_enforced_ones_do() {
    let closed = |rules| RuleSet::new(rules, Vec::new(), Unmatched::Allow).unwrap().is_closed_without_store();
    assert!(!closed(Vec::new()));
    assert!(!closed(vec![shadow(rule("a", 1, Closed))]), "nothing decides");
    assert!(closed(vec![rule("a", 1, Closed), shadow(rule("b", 1, Open))]));
    assert!(!closed(vec![rule("a", 1, Closed), rule("b", 1, Local)]));
    assert!(!closed(vec![rule("a", 1, Closed), rule("b", 1, Open)]));
}

#[test]
fn outcome_names_are_distinct() {
    let names: std::collections::BTreeSet<&str> = LimitOutcome::ALL.iter().map(|each| each.name()).collect();
    assert_eq!(names.len(), LimitOutcome::ALL.len());
}

/// An overloaded store has not failed: a flood neither opens a limit nor closes a service.
#[test]
fn share_decides_in_overload_under_any_policy() {
    for policy in [Open, Closed, Local] {
        let instances = Instances::default();
        instances.set(2);
        let bench = Bench::one_of(vec![rule("api", 8, policy), shadow(rule("in_shadow", 2, policy))], &instances);
        bench.store.set(Some(Trouble::Fails(ErrorClass::Overloaded)));
        let decision = bench.check(1).unwrap();
        assert!(decision.is_allowed() && decision.is_degraded());
        let expected = "decided: api overload_allowed, in_shadow overload_allowed";
        assert_eq!(bench.events.take(), ["store failed, overloaded", expected]);
        assert_eq!(bench.admitted(), 3, "{policy:?}: a half of eight, and one has passed");
        let denied = bench.check(1).unwrap();
        assert!(!denied.is_allowed());
        let outcomes = words(denied.outcomes());
        assert_eq!(outcomes, "api overload_denied, in_shadow shadow_denied");
        let request = Request::new("r", "a").cost(Cost::new(1));
        assert!(matches!(block_on(bench.limiter.refund(&request)), Err(CheckError::Store(_))));
    }
}
