//! Batches of requests under one decision: exactly the limit, however the requests share states.

use crate::support::{block_on, hourly};
use proptest::prelude::*;
use sluicegate::clock::{Clock, ManualClock};
use sluicegate::core::{Align, Cost, FixedWindow, Micros, Quota};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{Limits, Mode, OnStoreFailure, Override, Per, Rule, RuleSet, Unmatched};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::{ErrorClass, Store};
use sluicegate::{CheckError, Decision, Limiter, MemoryStore, Request};
use sluicegate_testkit::conformance::START;
use sluicegate_testkit::faulty_store::{FaultyStore, Trouble};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const PEOPLE: [&str; 3] = ["alice", "bob", "carol"];
/// The limit of each client, and the limit of all together.
const OWN: u32 = 8;
const ALL: u32 = 15;

fn yearly(limit: u32) -> Quota {
    FixedWindow::new(limit.into(), Micros::from_secs(31_536_000), Align::Epoch).unwrap().into()
}

fn rule(name: &str, per: Per, limit: u32) -> Rule {
    let limits = Limits::all(name, [(None, yearly(limit))]);
    Rule { per, deadline: Duration::from_secs(10), ..Rule::new(name, limits) }
}

fn set(rules: Vec<Rule>) -> RuleSet {
    RuleSet::new(rules, Vec::new(), Unmatched::Allow).unwrap()
}

fn own_and_all() -> RuleSet {
    set(vec![rule("own", Per::IDENTIFIER, OWN), rule("all", Per::GLOBAL, ALL)])
}

fn memory(rules: RuleSet) -> Limiter<MemoryStore, ManualClock> {
    Limiter::new(rules, MemoryStore::new(MemoryOptions::default(), START), ManualClock::at(START))
}

/// The clients and costs of one call.
type Call = Vec<(usize, u32)>;

fn calls() -> impl Strategy<Value = Vec<Call>> {
    proptest::collection::vec(proptest::collection::vec((0..PEOPLE.len(), 0..4_u32), 0..6), 1..12)
}

fn requests(call: &Call) -> Vec<Request<'_>> {
    let request = |(person, cost): &(usize, u32)| Request::new("r", PEOPLE[*person]).cost(Cost::new(*cost));
    call.iter().map(request).collect()
}

/// Makes all calls and compares every reply with naive counting. A store with a denial cache replies to a denial with
/// the last known numbers, so with `has_exact_denials` off only the outcome is compared.
async fn counts_exactly<S: Store, C: Clock>(limiter: &Limiter<S, C>, calls: &[Call], has_exact_denials: bool) {
    let mut used = [0_u32; PEOPLE.len()];
    for call in calls {
        let mut wanted = used;
        call.iter().for_each(|(person, cost)| wanted[*person] += cost);
        let asks = |person: usize| call.iter().any(|(asking, _)| *asking == person);
        let has_room = |person: usize| wanted[person] <= OWN || wanted[person] == used[person];
        let have_all_room = wanted.iter().sum::<u32>() <= ALL || wanted == used;
        let fits = (0..PEOPLE.len()).all(|person| !asks(person) || has_room(person)) && have_all_room;

        let decisions = limiter.check_all(&limiter.rules(), &requests(call)).await.unwrap();
        assert_eq!(decisions.is_allowed(), fits, "{call:?} after {used:?}");
        assert_eq!(decisions.each().len(), call.len());
        if !fits && !has_exact_denials {
            continue;
        }
        for ((person, _), decision) in call.iter().zip(decisions.each()) {
            assert_eq!(decision.is_allowed(), has_room(*person) && have_all_room, "{call:?} after {used:?}");
            let names: Vec<&str> = decision.limits().map(|report| report.rule).collect();
            assert_eq!(names, ["own", "all"]);
        }
        if fits {
            used = wanted;
        }
        let left =
            |decision: &Decision| decision.limits().map(|report| report.verdict.remaining).collect::<Vec<_>>();
        for ((person, _), decision) in call.iter().zip(decisions.each()) {
            let all: u32 = used.iter().sum();
            assert_eq!(left(decision), [u64::from(OWN - used[*person]), u64::from(ALL - all)]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn batches_are_all_or_nothing_in_memory(calls in calls()) {
        block_on(counts_exactly(&memory(own_and_all()), &calls, true));
    }
}

#[cfg(feature = "redis")]
#[test]
fn batches_are_all_or_nothing_on_redis() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    use sluicegate::clock::SystemClock;
    use sluicegate::store::redis::{KeyEncoder, RedisStore};
    use sluicegate_testkit::redis_server::RedisServer;

    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut runner = TestRunner::deterministic();
        for attempt in 0..30 {
            let encoder = KeyEncoder::new(&format!("run{attempt}")).unwrap();
            let store = RedisStore::start(&server.url().parse().unwrap(), encoder).unwrap();
            store.ready(Duration::from_secs(20)).await.unwrap();
            let limiter = Limiter::new(own_and_all(), store, SystemClock::new());
            let calls = calls().new_tree(&mut runner).unwrap().current();
            counts_exactly(&limiter, &calls, false).await;
        }
    });
}

#[test]
fn batch_refund_returns_all_and_batch_peek_charges_nothing() {
    block_on(async {
        let limiter = memory(own_and_all());
        let call = vec![(0, 3), (1, 2), (0, 4)];
        let left = |decision: &Decision| decision.limits().map(|report| report.verdict.remaining).min();
        let charged = limiter.check_all(&limiter.rules(), &requests(&call)).await.unwrap();
        assert_eq!(charged.each().iter().map(left).collect::<Vec<_>>(), [Some(1), Some(6), Some(1)]);
        let peeked = limiter.peek_all(&limiter.rules(), &requests(&call)).await.unwrap();
        assert!(!peeked.is_allowed());
        assert_eq!(left(peeked.joint()), Some(1));
        let refunded = limiter.refund_all(&limiter.rules(), &requests(&call)).await.unwrap();
        assert_eq!(refunded.each().iter().map(left).collect::<Vec<_>>(), [Some(8), Some(8), Some(8)]);
    });
}

#[test]
fn uncovered_request_prevents_all_charges_of_a_batch() {
    let mut covered = rule("covered", Per::IDENTIFIER, 1);
    covered.selector.resource = Some(Pattern::new("r"));
    let rules = RuleSet::new(vec![covered], Vec::new(), Unmatched::Deny).unwrap();
    block_on(async {
        let limiter = memory(rules);
        let (known, unknown) = (Request::new("r", "alice"), Request::new("other", "alice"));
        let refused = limiter.check_all(&limiter.rules(), &[known, unknown]).await.unwrap();
        assert!(!refused.is_allowed() && !refused.joint().is_allowed());
        assert!(refused.each()[0].is_allowed() && !refused.each()[1].is_allowed());
        assert!(limiter.check_all(&limiter.rules(), &[known]).await.unwrap().is_allowed());
    });
}

#[test]
fn shadow_rule_denies_no_request_of_a_batch() {
    let watching = Rule { mode: Mode::Shadow, ..rule("watching", Per::GLOBAL, 1) };
    block_on(async {
        let limiter = memory(set(vec![watching, rule("own", Per::IDENTIFIER, 1)]));
        let requests = [Request::new("r", "alice"), Request::new("r", "bob")];
        assert!(limiter.check_all(&limiter.rules(), &requests).await.unwrap().is_allowed());
        assert!(!limiter.check_all(&limiter.rules(), &requests).await.unwrap().is_allowed());
    });
}

/// The override has a state of its own beside that of the rule: both must have room, and both are charged.
#[test]
fn override_on_a_shared_subject_has_its_own_limit() {
    let mut shared = rule("shared", Per::GLOBAL, 5);
    let limits = Limits::all("shared", [(None, yearly(2))]);
    shared.overrides = vec![Override { identifier: Pattern::new("alice"), limits, until: None }];
    block_on(async {
        for order in [["alice", "bob"], ["bob", "alice"]] {
            let limiter = memory(set(vec![shared.clone()]));
            let requests = order.map(|person| Request::new("r", person));
            let both = async || limiter.check_all(&limiter.rules(), &requests).await.unwrap().is_allowed();
            assert!(both().await && both().await);
            assert!(!both().await, "the override allows two");
            let left = |decision: Decision| decision.limits().next().unwrap().verdict.remaining;
            let bob = limiter.peek(&Request::new("r", "bob")).await.unwrap();
            assert_eq!(left(bob), 3, "a denied call charges nothing");
        }
    });
}

/// A large batch lets other tasks run meanwhile, and still charges each state once, with the sum of its costs.
#[test]
fn large_batch_yields_and_charges_every_state_with_the_sum_of_its_costs() {
    let names: Vec<String> = (0..100).map(|number: u32| number.to_string()).collect();
    let limiter = memory(set(vec![rule("own", Per::IDENTIFIER, 4)]));
    let requests: Vec<Request<'_>> =
        (0..3).flat_map(|_| names.iter().map(|name| Request::new("r", name))).collect();
    let mut polls = 0;
    let mut decide = |requests: &[Request<'_>]| {
        let rules = limiter.rules();
        let mut deciding = pin!(limiter.check_all(&rules, requests));
        loop {
            polls += 1;
            if let Poll::Ready(decided) = deciding.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return decided.unwrap();
            }
        }
    };
    let charged = decide(&requests);
    let left = |decision: &Decision| decision.limits().next().unwrap().verdict.remaining;
    assert!(charged.is_allowed() && charged.each().iter().all(|each| left(each) == 1));
    assert!(!decide(&requests).is_allowed());
    // One of each is left, and the last one is charged once more.
    assert!(decide(&requests[..100]).is_allowed());
    assert!(!decide(&requests[99..100]).is_allowed());
    assert!(polls > 4, "{polls} polls for four batches");
}

/// A state may be limited by two sets of terms in one batch: of an enforced one and one in shadow mode the first applies, and of two
/// enforced ones the smaller.
#[test]
fn enforced_terms_apply_to_a_state_that_is_also_in_shadow_mode() {
    let enforced = rule("own", Per::IDENTIFIER, 1);
    let watching = Rule { mode: Mode::Shadow, ..rule("own", Per::IDENTIFIER, 5) };
    block_on(async {
        for order in [[&enforced, &watching], [&watching, &enforced]] {
            let limiter = memory(set(vec![enforced.clone()]));
            let terms = order.iter().map(|rule| (0, (*rule).clone())).collect();
            let rules = Arc::new(limiter.rules().selection(terms).unwrap());
            let both = [0, 1].map(|place| Request { rule: Some(place), ..Request::new("r", "alice") });
            assert!(!limiter.check_all(&rules, &both).await.unwrap().is_allowed());
            assert!(limiter.check_all(&limiter.rules(), &both[..1]).await.unwrap().is_allowed());
        }
    });
}

#[test]
fn cost_sum_beyond_the_range_is_rejected() {
    block_on(async {
        let limiter = memory(own_and_all());
        let most = Request::new("r", "alice").cost(Cost::new(u32::MAX));
        let refused = limiter.check_all(&limiter.rules(), &[most, most]).await.unwrap_err();
        assert!(matches!(refused, CheckError::TooMuch));
        assert_eq!(refused.to_string(), "`cost` adds up to more than 4294967295: ask for less at once");
    });
}

/// Each policy, alone and combined, without the store.
#[test]
fn policies_apply_to_the_whole_batch() {
    let with = |on_store_failure, name: &str, per| Rule {
        on_store_failure,
        ..Rule { per, ..Rule::new(name, Limits::all(name, [(None, hourly(3))])) }
    };
    let limiter = |rules: Vec<Rule>| {
        let store = FaultyStore::new(MemoryStore::new(MemoryOptions::default(), START));
        store.set(Some(Trouble::Fails(ErrorClass::Connection)));
        Limiter::new(set(rules), store, ManualClock::at(START))
    };
    let requests = [Request::new("r", "alice"), Request::new("r", "bob")];
    block_on(async {
        let open = limiter(vec![with(OnStoreFailure::Open, "own", Per::IDENTIFIER)]);
        let decisions = open.check_all(&open.rules(), &requests).await.unwrap();
        assert!(decisions.is_allowed() && decisions.each().iter().all(Decision::is_degraded));

        let local = limiter(vec![
            with(OnStoreFailure::Open, "own", Per::IDENTIFIER),
            with(OnStoreFailure::Local, "all", Per::GLOBAL),
        ]);
        let decisions = local.check_all(&local.rules(), &requests).await.unwrap();
        assert!(decisions.is_allowed());
        let said: Vec<_> =
            decisions.each()[1].limits().map(|report| (report.rule, report.verdict.remaining)).collect();
        assert_eq!(said, [("all", 1)]);
        assert!(!local.check_all(&local.rules(), &requests).await.unwrap().is_allowed());

        let closed = limiter(vec![
            with(OnStoreFailure::Local, "all", Per::GLOBAL),
            with(OnStoreFailure::Closed, "own", Per::IDENTIFIER),
        ]);
        assert!(closed.check_all(&closed.rules(), &requests).await.is_err());
        assert!(closed.refund_all(&closed.rules(), &requests).await.is_err());
    });
}
