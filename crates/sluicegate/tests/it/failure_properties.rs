//! Random rules, policies and failures: a denied request is charged nothing, and no instance exceeds its share.

use crate::support::block_on;
use proptest::prelude::*;
use sluicegate::clock::ManualClock;
use sluicegate::core::{
    Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
};
use sluicegate::rules::{Limits, Mode, OnStoreFailure, Per, Rule, RuleSet, Unmatched};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::{Charge, ErrorClass, Verdicts};
use sluicegate::{CheckError, Instances, Limiter, MemoryStore, Request};
use sluicegate_testkit::conformance::START;
use sluicegate_testkit::faulty_store::{FaultyStore, Trouble};
use sluicegate_testkit::model::monitor::{Leak, heaviest_window};
use sluicegate_testkit::model::{Exact, whole};

type TestLimiter = Limiter<FaultyStore, ManualClock>;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() }
}

fn limiter(rules: Vec<Rule>, store: &FaultyStore, clock: &ManualClock, instances: &Instances) -> TestLimiter {
    let rules = RuleSet::new(rules, Vec::new(), Unmatched::Allow).unwrap();
    Limiter::new(rules, store.clone(), clock.clone()).with_fallback(MemoryOptions::default(), instances.clone())
}

fn store() -> FaultyStore {
    FaultyStore::new(MemoryStore::new(MemoryOptions::default(), START))
}

fn quota() -> impl Strategy<Value = Quota> {
    let millis = 50..=2_000_u64;
    prop_oneof![
        (1..=8_u64, 1..=9_u64, millis.clone(), 0..=4_u64).prop_map(|(capacity, amount, period, credits)| {
            let rate = Rate::new(amount, Micros::from_millis(period)).unwrap();
            TokenBucket::with_credits(capacity, rate, credits, Micros::from_secs(1)).unwrap().into()
        }),
        (0..=8_u64, millis.clone()).prop_map(|(limit, window)| SlidingWindow::new(
            limit,
            Micros::from_millis(window)
        )
        .unwrap()
        .into()),
        (0..=8_u64, millis.clone()).prop_map(|(limit, window)| SlidingCounter::new(
            limit,
            Micros::from_millis(window)
        )
        .unwrap()
        .into()),
        (0..=8_u64, millis).prop_map(|(limit, window)| {
            FixedWindow::new(limit, Micros::from_millis(window), Align::Epoch).unwrap().into()
        }),
    ]
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let policy =
        prop_oneof![Just(OnStoreFailure::Open), Just(OnStoreFailure::Closed), Just(OnStoreFailure::Local)];
    let mode = prop_oneof![3 => Just(Mode::Enforce), 1 => Just(Mode::Shadow)];
    let per = prop_oneof![Just(Per::IDENTIFIER), Just(Per::GLOBAL)];
    let rule = (prop::collection::vec(quota(), 1..=2), policy, mode, per);
    prop::collection::vec(rule, 0..=4).prop_map(|rules| {
        let named = rules.into_iter().enumerate().map(|(index, (quotas, on_store_failure, mode, per))| {
            let name = format!("rule-{index}");
            let limits = Limits::all(&name, quotas.into_iter().map(|quota| (None, quota)));
            Rule { on_store_failure, mode, per, ..Rule::new(&name, limits) }
        });
        named.collect()
    })
}

/// One request, the error of the store at that moment, and the time that passes before it.
#[derive(Clone, Copy, Debug)]
struct Step {
    identifier: &'static str,
    cost: u32,
    trouble: Option<ErrorClass>,
    pause_micros: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let trouble = prop_oneof![
        2 => Just(None),
        3 => Just(Some(ErrorClass::Timeout)),
        1 => prop::sample::select(&ErrorClass::ALL[..]).prop_map(Some),
    ];
    let step = (prop::sample::select(&["a", "b"][..]), 0..=3_u32, trouble, 0..=300_000_u64);
    let step = step.prop_map(|(identifier, cost, trouble, pause_micros)| Step {
        identifier,
        cost,
        trouble,
        pause_micros,
    });
    prop::collection::vec(step, 1..60)
}

/// The standing of all limits of a request in this instance's own store, which may not exist yet.
fn local_standing(limiter: &TestLimiter, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
    match limiter.local_store() {
        Some(local) => local.peek_now(charges, now),
        None => {
            MemoryStore::new(MemoryOptions { shards: 1, ..MemoryOptions::default() }, START).peek_now(charges, now)
        }
    }
}

/// The standing of all limits of a request in both stores.
fn standing(limiter: &TestLimiter, charges: &[Charge<'_>], now: Timestamp) -> (Verdicts, Verdicts) {
    (limiter.store().inner().peek_now(charges, now), local_standing(limiter, charges, now))
}

/// Whether every enforced rule that the share decides has room in the instance's own store: local rules, and all
/// rules while the store is overloaded.
fn has_local_room(
    limiter: &TestLimiter,
    charges: &[Charge<'_>],
    now: Timestamp,
    trouble: Option<ErrorClass>,
) -> bool {
    let is_overload = trouble.is_some_and(ErrorClass::is_overload);
    charges.iter().zip(limiter.rules().rules()).all(|(charge, rule)| {
        rule.mode != Mode::Enforce
            || !(is_overload || rule.on_store_failure == OnStoreFailure::Local)
            || local_standing(limiter, &[*charge], now).iter().all(|verdict| verdict.outcome.is_allowed())
    })
}

fn step_holds(limiter: &TestLimiter, clock: &ManualClock, step: Step) -> Result<(), TestCaseError> {
    clock.advance(Micros::from_micros(step.pause_micros));
    let now = sluicegate::clock::Clock::now(clock);
    limiter.store().set(step.trouble.map(Trouble::Fails));
    let request = Request::new("r", step.identifier).cost(Cost::new(step.cost));
    let rules = limiter.rules();
    let charges = rules.charges(&request, now).unwrap().charges;
    let before = standing(limiter, &charges, now);
    let has_local_room = has_local_room(limiter, &charges, now, step.trouble);
    let outcome = block_on(limiter.check(&request));
    let after = standing(limiter, &charges, now);

    let Some(class) = step.trouble.filter(|_| !charges.is_empty()) else {
        let decision = outcome.unwrap();
        prop_assert!(!decision.is_degraded());
        if !decision.is_allowed() {
            prop_assert_eq!(before, after, "a denied request was charged");
        }
        return Ok(());
    };
    prop_assert_eq!(&before.0, &after.0, "the store had reported a failure");
    let refuses = |rule: &Rule| {
        rule.mode == Mode::Enforce
            && !class.is_overload()
            && (rule.on_store_failure == OnStoreFailure::Closed || class == ErrorClass::Protocol)
    };
    if step.cost > 0 && limiter.rules().rules().iter().any(refuses) {
        prop_assert!(matches!(outcome, Err(CheckError::Store(_))), "{outcome:?}");
        prop_assert_eq!(before.1, after.1, "a rejected request was charged");
        return Ok(());
    }
    let decision = outcome.unwrap();
    prop_assert!(decision.is_degraded());
    // If the error is about the request and no rule rejects, only shadow rules match.
    prop_assert_eq!(decision.is_allowed(), has_local_room);
    if !decision.is_allowed() {
        prop_assert_eq!(before.1, after.1, "a denied request was charged");
    }
    Ok(())
}

/// Traffic of `instances` limiters without the store: the instance, the cost, and the pause before it.
fn traffic(instances: usize) -> impl Strategy<Value = Vec<(usize, u32, u64)>> {
    let pause = prop_oneof![2 => Just(0), 2 => 0..=100_000_u64, 1 => 0..=3_000_000_u64];
    prop::collection::vec((0..instances, 1..=3_u32, pause), 1..150)
}

/// The admissions of `instances` limiters for one identity under `quota`, each by its share.
fn admitted(quota: &Quota, instances: u32, traffic: &[(usize, u32, u64)]) -> Vec<(u64, u64)> {
    let clock = ManualClock::at(START);
    let known = Instances::default();
    known.set(instances);
    let limiters: Vec<TestLimiter> =
        (0..instances).map(|_| limiter(vec![local(quota)], &store(), &clock, &known)).collect();
    let mut records = Vec::new();
    for (limiter, cost, pause) in traffic {
        clock.advance(Micros::from_micros(*pause));
        limiters[*limiter].store().set(Some(Trouble::Fails(ErrorClass::Open)));
        record(&limiters[*limiter], &clock, *cost, &mut records);
    }
    records
}

fn record(limiter: &TestLimiter, clock: &ManualClock, cost: u32, records: &mut Vec<(u64, u64)>) -> bool {
    let decision = block_on(limiter.check(&Request::new("r", "a").cost(Cost::new(cost)))).unwrap();
    if decision.is_allowed() {
        records.push((sluicegate::clock::Clock::now(clock).as_micros(), u64::from(cost)));
    }
    decision.is_allowed() && decision.is_degraded()
}

/// Traffic of `instances` limiters with an intermittent store: the instance, the cost, whether the store
/// answers, and the pause before it.
fn uneasy_traffic(instances: usize) -> impl Strategy<Value = Vec<(usize, u32, bool, u64)>> {
    let pause = prop_oneof![2 => Just(0), 2 => 0..=100_000_u64, 1 => 0..=3_000_000_u64];
    let cost = prop_oneof![2 => 1..=3_u32, 1 => 1..=12_u32];
    prop::collection::vec((0..instances, cost, any::<bool>(), pause), 1..150)
}

/// The admissions in order, with instant and cost, and the number of earlier admissions at each local admission.
type Passed = (Vec<(u64, u64)>, Vec<usize>);

/// The admissions of `instances` limiters with one store for one identity under `quota`.
fn admitted_uneasily(quota: &Quota, instances: u32, traffic: &[(usize, u32, bool, u64)]) -> Passed {
    let (clock, store, known) = (ManualClock::at(START), store(), Instances::default());
    known.set(instances);
    let limiters: Vec<TestLimiter> =
        (0..instances).map(|_| limiter(vec![local(quota)], &store, &clock, &known)).collect();
    let (mut records, mut local_ends) = (Vec::new(), Vec::new());
    for (limiter, cost, answers, pause) in traffic {
        clock.advance(Micros::from_micros(*pause));
        store.set((!answers).then_some(Trouble::Fails(ErrorClass::Timeout)));
        if record(&limiters[*limiter], &clock, *cost, &mut records) {
            local_ends.push(records.len());
        }
    }
    (records, local_ends)
}

/// The maximum excess over the rate in any interval that ends with the last record.
fn burst_at_end(records: &[(u64, u64)], amount: u64, period: Micros) -> Exact {
    let rate = whole(amount) / whole(period.as_micros());
    let (end, _) = records[records.len() - 1];
    let mut sum = whole(0);
    let mut most = whole(0);
    for (start, units) in records.iter().rev() {
        sum += whole(*units);
        most = most.max(&sum - &rate * whole(end - start));
    }
    most
}

/// The admissions in the window that ends with the last record.
fn in_last_window(records: &[(u64, u64)], window: Micros) -> u64 {
    let (end, _) = records[records.len() - 1];
    records.iter().filter(|(at, _)| end - at < window.as_micros()).map(|(_, units)| units).sum()
}

fn local(quota: &Quota) -> Rule {
    let limits = Limits::all("api", [(None, quota.clone())]);
    Rule { on_store_failure: OnStoreFailure::Local, ..Rule::new("api", limits) }
}

/// The maximum excess over `amount` per `period` in any interval.
fn burst(records: &[(u64, u64)], amount: u64, period: Micros) -> Exact {
    let mut leak = Leak::new(whole(amount) / whole(period.as_micros()));
    records.iter().for_each(|(at, units)| leak.record(*at, &whole(*units)));
    leak.highest().clone()
}

fn in_window(records: &[(u64, u64)], window: Micros) -> u64 {
    let records: Vec<(u64, i128)> = records.iter().map(|(at, units)| (*at, i128::from(*units))).collect();
    u64::try_from(heaviest_window(&records, window.as_micros())).unwrap()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn policies_hold_and_rejected_requests_are_not_charged(rules in rules(), steps in steps()) {
        let clock = ManualClock::at(START);
        let limiter = limiter(rules, &store(), &clock, &Instances::default());
        for step in steps {
            step_holds(&limiter, &clock, step)?;
        }
    }

    #[test]
    fn bucket_shares_exceed_the_bucket_by_at_most_the_rounding(
        (capacity, credits, amount, millis) in (1..=12_u64, 0..=6_u64, 1..=20_u64, 100..=3_000_u64),
        (instances, traffic) in (1..=4_usize).prop_flat_map(|count| (Just(count), traffic(count))),
    ) {
        let (period, count) = (Micros::from_millis(millis), u32::try_from(instances).unwrap());
        let rate = Rate::new(amount, period).unwrap();
        let quota = TokenBucket::with_credits(capacity, rate, credits, Micros::from_secs(1)).unwrap().into();
        let records = admitted(&quota, count, &traffic);
        let bound = whole(capacity + credits + u64::from(count) - 1);
        prop_assert!(burst(&records, amount, period) <= bound, "{records:?}");
    }

    #[test]
    fn window_shares_exceed_the_window_by_at_most_the_rounding(
        (limit, millis) in (1..=12_u64, 100..=3_000_u64),
        (instances, traffic) in (1..=4_usize).prop_flat_map(|count| (Just(count), traffic(count))),
    ) {
        let (window, count) = (Micros::from_millis(millis), u32::try_from(instances).unwrap());
        let bound = limit + u64::from(count) - 1;
        let log = SlidingWindow::new(limit, window).unwrap().into();
        prop_assert!(in_window(&admitted(&log, count, &traffic), window) <= bound);
        // Twice that, as always where two windows meet.
        let fixed = FixedWindow::new(limit, window, Align::Epoch).unwrap().into();
        prop_assert!(in_window(&admitted(&fixed, count, &traffic), window) <= 2 * bound);
        let counter = SlidingCounter::new(limit, window).unwrap().into();
        prop_assert!(in_window(&admitted(&counter, count, &traffic), window) < 2 * bound);
    }

    /// One server with a store that fails and recovers at any time. Up to each local admission the rule's own bound holds,
    /// because the share has counted everything. The store's admissions after the last of them stay within the
    /// store's own bound. So the total excess is one more B, however often the store returns.
    #[test]
    fn one_server_admits_at_most_one_extra_burst_with_an_intermittent_store(
        (capacity, credits, amount, millis) in (1..=12_u64, 0..=3_u64, 1..=20_u64, 100..=3_000_u64),
        traffic in uneasy_traffic(1),
    ) {
        let period = Micros::from_millis(millis);
        let rate = Rate::new(amount, period).unwrap();
        let bucket = TokenBucket::with_credits(capacity, rate, credits, Micros::from_secs(1)).unwrap().into();
        let (records, local_ends) = admitted_uneasily(&bucket, 1, &traffic);
        for end in local_ends {
            prop_assert!(burst_at_end(&records[..end], amount, period) <= whole(capacity + credits));
        }
        prop_assert!(burst(&records, amount, period) <= whole(2 * (capacity + credits)));

        let log = SlidingWindow::new(capacity, period).unwrap().into();
        let (records, local_ends) = admitted_uneasily(&log, 1, &traffic);
        for end in local_ends {
            prop_assert!(in_last_window(&records[..end], period) <= capacity);
        }
        prop_assert!(in_window(&records, period) <= 2 * capacity);

        let fixed = FixedWindow::new(capacity, period, Align::Epoch).unwrap().into();
        let (records, local_ends) = admitted_uneasily(&fixed, 1, &traffic);
        for end in local_ends {
            let window_of = |at: u64| at / period.as_micros();
            let last = window_of(records[end - 1].0);
            let in_it = records[..end].iter().filter(|(at, _)| window_of(*at) == last);
            prop_assert!(in_it.map(|(_, units)| units).sum::<u64>() <= capacity);
        }
    }

    /// Several servers, with costs that no share has room for: the store admits its own, and the shares theirs.
    #[test]
    fn several_servers_admit_at_most_twice_the_rule_with_an_intermittent_store(
        (capacity, amount, millis) in (1..=12_u64, 1..=20_u64, 100..=3_000_u64),
        (instances, traffic) in (2..=4_usize).prop_flat_map(|count| (Just(count), uneasy_traffic(count))),
    ) {
        let (period, count) = (Micros::from_millis(millis), u32::try_from(instances).unwrap());
        let rounding = u64::from(count) - 1;
        let bucket = TokenBucket::new(capacity, Rate::new(amount, period).unwrap()).unwrap().into();
        let (records, _) = admitted_uneasily(&bucket, count, &traffic);
        prop_assert!(burst(&records, 2 * amount, period) <= whole(2 * capacity + rounding));
        let log = SlidingWindow::new(capacity, period).unwrap().into();
        let (records, _) = admitted_uneasily(&log, count, &traffic);
        prop_assert!(in_window(&records, period) <= 2 * capacity + rounding);
    }

    /// One server with a store that answers first and then fails: the rule's own bound holds from beginning to end.
    #[test]
    fn one_server_never_exceeds_the_rule_when_the_store_fails(
        (capacity, amount, millis) in (1..=12_u64, 1..=20_u64, 100..=3_000_u64),
        traffic in traffic(1),
        gone_after in 0..150_usize,
    ) {
        let period = Micros::from_millis(millis);
        let bucket = TokenBucket::new(capacity, Rate::new(amount, period).unwrap()).unwrap();
        let log = SlidingWindow::new(capacity, period).unwrap();
        for quota in [Quota::from(bucket), Quota::from(log)] {
            let (clock, store) = (ManualClock::at(START), store());
            let limiter = limiter(vec![local(&quota)], &store, &clock, &Instances::default());
            let mut records = Vec::new();
            for (index, (_, cost, pause)) in traffic.iter().enumerate() {
                clock.advance(Micros::from_micros(*pause));
                store.set((index >= gone_after).then_some(Trouble::Fails(ErrorClass::Connection)));
                record(&limiter, &clock, *cost, &mut records);
            }
            match quota {
                Quota::TokenBucket(_) => prop_assert!(burst(&records, amount, period) <= whole(capacity)),
                _ => prop_assert!(in_window(&records, period) <= capacity),
            }
        }
    }
}
