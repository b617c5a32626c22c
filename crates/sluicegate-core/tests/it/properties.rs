//! Properties: random runs, checked step by step against the exact model.
//!
//! Every property draws new random runs each time, counts its steps and fails if there were too few. `PROPTEST_CASES`
//! scales all of them (256 is the default). A failing run is shrunk and printed, and its seed is stored in
//! `proptest-regressions/` next to this file. Commit it: later runs try it first.

use crate::harness::{Subject, ensure, quota};
use crate::strategies::{Act, Plan, Step, Tally, damaged, limits, plans, steps};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner};
use sluicegate_core::{Algorithm, Cost, Quota, State, Timestamp, Verdict};
use sluicegate_testkit::model::{Bucket, Limit};
use std::cell::Cell;
use std::fmt::Debug;

/// The default of `PROPTEST_CASES`.
const USUAL_CASES: u64 = 256;

/// The directory for the seeds of failed runs. The path is explicit, because the default depends on the working
/// directory of the test.
macro_rules! regressions {
    ($name:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/proptest-regressions/", $name, ".txt")
    };
}

/// Tries `check` on `cases` values, and checks that enough happened: at least `steps` steps in all, and the other
/// expectations of `expected`. With fewer cases than the default there are no expectations.
fn property<S, C>(strategy: &S, cases: u32, steps: u64, seeds: &'static str, check: C, expected: impl Fn(Tally))
where
    S: Strategy<Value: Debug>,
    C: Fn(S::Value) -> Result<Tally, String>,
{
    let usual = Config::default();
    let scale = u64::from(usual.cases);
    let config = Config {
        cases: u32::try_from(u64::from(cases) * scale / USUAL_CASES).expect("fewer than 2³² cases"),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(seeds))),
        ..usual
    };
    let total = Cell::new(Tally::default());
    let result = TestRunner::new(config).run(strategy, |value| {
        let tally = check(value).map_err(TestCaseError::fail)?;
        total.set(total.get().plus(tally));
        Ok(())
    });
    let total = total.get();
    match result {
        Ok(()) => println!("{total:?}"),
        Err(TestError::Fail(reason, value)) => panic!("{reason}\nthe smallest failing run: {value:#?}"),
        Err(TestError::Abort(reason)) => panic!("the run was aborted: {reason}"),
    }
    if scale >= USUAL_CASES {
        let promised = steps * scale / USUAL_CASES;
        assert!(total.steps >= promised, "only {} steps, {promised} were promised", total.steps);
        expected(total);
    }
}

/// Executes 2,200 plans of a hundred steps on average, in which every kind of event must occur.
fn plan_property(plans: &impl Strategy<Value = Plan>, seeds: &'static str) {
    property(
        plans,
        2_200,
        200_000,
        seeds,
        |plan| plan.carry_out(),
        |tally| {
            for (what, count, share) in [
                ("allowed", tally.allowed, 10),
                ("denied", tally.denied, 10),
                ("never admissible", tally.never, 200),
                ("repaired", tally.repaired, 1_000),
                ("dropped", tally.dropped, 1_000),
                ("changed", tally.changed, 100),
            ] {
                assert!(count * share >= tally.steps, "{what} only {count} times in {} steps", tally.steps);
            }
        },
    );
}

#[test]
fn token_bucket_equals_the_ideal_bucket() {
    let plans = plans(limits::buckets(), limits::buckets());
    plan_property(&plans, regressions!("token_bucket"));
}

#[test]
fn token_bucket_with_credits_equals_the_ideal_pool() {
    let changed = prop_oneof![limits::buckets_with_credits(), limits::buckets()].boxed();
    let plans = plans(limits::buckets_with_credits(), changed);
    plan_property(&plans, regressions!("token_bucket_with_credits"));
}

#[test]
fn sliding_window_equals_the_naive_log() {
    let plans = plans(limits::logs(), limits::logs());
    plan_property(&plans, regressions!("sliding_window"));
}

#[test]
fn sliding_counter_equals_two_weighted_numbers() {
    let plans = plans(limits::counters(), limits::counters());
    plan_property(&plans, regressions!("sliding_counter"));
}

#[test]
fn fixed_window_equals_one_number_per_window() {
    let plans = plans(limits::fixed(), limits::fixed());
    plan_property(&plans, regressions!("fixed_window"));
}

/// Rules change from even windows to a calendar, to another one, and back.
#[test]
fn calendar_window_equals_one_number_per_window() {
    let changed = prop_oneof![3 => limits::uneven(), 1 => limits::fixed()].boxed();
    let plans = plans(limits::uneven(), changed);
    plan_property(&plans, regressions!("calendar_window"));
}

#[test]
fn change_of_algorithm_starts_fresh() {
    let plans = plans(limits::all_limits(), limits::all_limits());
    plan_property(&plans, regressions!("algorithm_change"));
}

/// I5 and all other invariants for states that no history explains: `decide` is total, and a damaged state neither
/// opens the limit nor blocks it forever.
#[test]
fn damaged_states_keep_all_invariants() {
    let seeds = regressions!("damaged_state");
    property(
        &damaged::damaged(),
        20_000,
        180_000,
        seeds,
        |damaged| damaged.carry_out(),
        |tally| {
            assert!(tally.repaired > 1_000 && tally.denied > 10_000, "{tally:?}");
        },
    );
}

/// A store without capacity for another entry merges units into the newest one. The log then holds them for longer
/// than necessary, never for shorter.
#[test]
fn merged_log_never_admits_more_than_the_naive_log() {
    let runs = (limits::logs(), vec((steps(limits::logs()), any::<bool>()), 1..=100));
    let seeds = regressions!("merged_log");
    property(
        &runs,
        2_000,
        80_000,
        seeds,
        |(limit, steps)| merged_run(&limit, &steps),
        |tally| {
            assert!(tally.allowed > 10_000 && tally.denied > 10_000, "{tally:?}");
        },
    );
}

fn merged_run(limit: &Limit, steps: &[(Step, bool)]) -> Result<Tally, String> {
    let Ok(Quota::SlidingWindow(quota)) = quota(limit) else { panic!("{limit:?} is no log") };
    let mut subject = Subject::new(quota.clone().into(), None, 1_705_312_800_000_000);
    let mut charged: Vec<(u64, u64)> = Vec::new();
    let mut tally = Tally::default();
    for (step, merge) in steps {
        subject.now = step.time.resolve(&subject).clamp(subject.now, Timestamp::NOW_MAX.as_micros());
        let cost = if let Act::Check(units) = step.act { Cost::new(units.resolve(&subject)) } else { Cost::ONE };
        let now = subject.timestamp();
        let entries_before = entry_count(subject.state.as_ref());
        let outcome = subject.quota.outcome(subject.state.as_ref(), cost, now);
        match subject.state.take() {
            Some(State::SlidingWindow(log)) if *merge && outcome.is_allowed() && !cost.is_zero() => {
                let merged = quota.charge_merged(log, cost, now);
                ensure!(merged.entry_count() <= entries_before.max(1), "merging grew the log: {merged:?}");
                subject.state = Some(State::SlidingWindow(merged));
            }
            state => {
                subject.state = state;
                let verdict = subject.check(cost.get())?;
                ensure!(verdict.outcome == outcome, "{outcome:?} became {verdict:?}");
            }
        }
        if outcome.is_allowed() {
            charged.push((subject.now, cost.units()));
        }
        let verdict = subject.check(0)?;
        let window = quota.window().as_micros();
        let used: u64 = charged.iter().filter(|(at, _)| subject.now - at < window).map(|(_, units)| units).sum();
        ensure!(used <= quota.limit(), "I1: {used} of {} within one window", quota.limit());
        ensure!(verdict.remaining <= quota.limit() - used, "{} remain, {used} are used", verdict.remaining);
        tally.count(Verdict { outcome, ..verdict });
    }
    Ok(tally)
}

fn entry_count(state: Option<&State>) -> usize {
    match state {
        Some(State::SlidingWindow(log)) => log.entry_count(),
        _ => 0,
    }
}

/// One instant, with the units charged and the units refunded at it.
type Booking = (u64, u128, u128);

/// The bound of docs/algorithms.md with refunds: in any interval at most the bound of the algorithm passes, plus the units that
/// were refunded within the interval.
#[test]
fn refunds_raise_the_bound_of_an_interval_by_no_more_than_what_was_refunded_in_it() {
    let limits = prop_oneof![
        limits::buckets(),
        limits::buckets_with_credits(),
        limits::logs(),
        limits::counters(),
        limits::fixed()
    ];
    let pause = prop_oneof![6 => Just((0, 1)), 1 => Just((1, u64::MAX)), 4 => (1..=5u64, Just(4))];
    let runs = (limits, vec((pause, any::<bool>(), 0..=3u64), 1..=60));
    let seeds = regressions!("refunds");
    property(
        &runs,
        2_000,
        40_000,
        seeds,
        |(limit, steps)| refunded_run(&limit, &steps),
        |tally| {
            assert!(tally.allowed > 10_000 && tally.denied > 1_000, "{tally:?}");
            assert!(tally.changed > 1_000, "the bound without refunds is hardly ever exceeded: {tally:?}");
        },
    );
}

/// A step is a pause as a fraction of the limit's length, whether it refunds, and the cost in quarters of the available units.
fn refunded_run(limit: &Limit, steps: &[((u64, u64), bool, u64)]) -> Result<Tally, String> {
    let (length, most) = match limit {
        Limit::Bucket(bucket) => {
            let most = bucket.capacity + bucket.credits;
            let filled = u128::from(most) * u128::from(bucket.period) / u128::from(bucket.amount);
            (u64::try_from(filled).unwrap_or(u64::MAX), most)
        }
        Limit::Log(log) => (log.window, log.limit),
        Limit::Counter(counter) => (counter.window, counter.limit),
        Limit::Fixed(fixed) => (fixed.window, fixed.limit),
        Limit::Uneven(_) => return Ok(Tally::default()),
    };
    let mut subject = Subject::new(quota(limit).map_err(|error| error.to_string())?, None, 1_705_312_800_000_000);
    let mut bookings: Vec<Booking> = Vec::new();
    let mut tally = Tally::default();
    for ((pieces, of), is_refund, quarters) in steps {
        // Of so many pieces that a piece has no length, one is a microsecond.
        let pause = u128::from(*pieces) * u128::from(length / of).max(1);
        let now = u128::from(subject.now) + pause;
        subject.now = u64::try_from(now).unwrap_or(u64::MAX).min(Timestamp::NOW_MAX.as_micros());
        let units = |all: u64| u32::try_from((all * quarters).div_ceil(4).max(1)).unwrap_or(u32::MAX);
        if *is_refund {
            let cost = units(most.min(u64::from(u32::MAX)));
            subject.refund(cost)?;
            bookings.push((subject.now, 0, cost.into()));
            tally.steps += 1;
        } else {
            let cost = units(subject.remaining().min(u64::from(u32::MAX)));
            let verdict = subject.check(cost)?;
            tally.count(verdict);
            if verdict.outcome.is_allowed() {
                bookings.push((subject.now, cost.into(), 0));
            }
        }
    }
    for first in 0..bookings.len() {
        let (mut charged, mut refunded) = (0, 0);
        for (at, more_charged, more_refunded) in &bookings[first..] {
            charged += more_charged;
            refunded += more_refunded;
            let Some(bound) = bound(limit, u128::from(at - bookings[first].0)) else { continue };
            ensure!(charged <= bound + refunded, "{charged} of {bound}, and {refunded} were refunded");
            tally.changed += u64::from(charged > bound);
        }
    }
    Ok(tally)
}

/// The units that pass in an interval of this length at most, where the algorithm bounds them.
fn bound(limit: &Limit, micros: u128) -> Option<u128> {
    match limit {
        Limit::Bucket(Bucket { capacity, credits, amount, period, .. }) => {
            let gained = u128::from(*amount) * micros / u128::from(*period);
            Some(u128::from(capacity + credits) + gained)
        }
        Limit::Log(log) => (micros < log.window.into()).then_some(log.limit.into()),
        Limit::Counter(counter) => {
            (micros < counter.window.into()).then_some((2 * u128::from(counter.limit)).saturating_sub(1))
        }
        Limit::Fixed(fixed) => Some((micros / u128::from(fixed.window) + 2) * u128::from(fixed.limit)),
        Limit::Uneven(_) => None,
    }
}
