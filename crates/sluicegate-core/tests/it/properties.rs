//! Properties: random runs, checked step by step against the exact model.
//!
//! Every property draws new random runs each time, counts the steps it took and fails if they were too few.
//! `PROPTEST_CASES` scales all of them (256 is the usual amount). A run that fails is shrunk and printed, and
//! its seed is kept in `proptest-regressions/` next to this file: commit it, it is then tried first for ever.

use crate::harness::{Subject, ensure, quota};
use crate::strategies::{Act, Plan, Step, Tally, damaged, limits, plans, steps};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner};
use sluicegate_core::{Algorithm, Cost, Quota, State, Timestamp, Verdict};
use sluicegate_testkit::model::Limit;
use std::cell::Cell;
use std::fmt::Debug;

/// What `PROPTEST_CASES` is unless somebody says otherwise.
const USUAL_CASES: u64 = 256;

/// Where a property keeps the seeds that failed. The path is spelt out, because the automatic one depends on
/// the directory the test happens to run in.
macro_rules! regressions {
    ($name:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/proptest-regressions/", $name, ".txt")
    };
}

/// Tries `check` on `cases` values, and makes sure that enough happened: at least `steps` steps in all, and
/// whatever else `expected` asks for. With fewer cases than usual nothing is asked.
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
        Err(TestError::Abort(reason)) => panic!("could not go on: {reason}"),
    }
    if scale >= USUAL_CASES {
        let promised = steps * scale / USUAL_CASES;
        assert!(total.steps >= promised, "only {} steps, {promised} were promised", total.steps);
        expected(total);
    }
}

/// Carries out 2,200 plans of a hundred steps on average, in which all that can happen must happen.
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
fn a_token_bucket_is_the_ideal_bucket() {
    let plans = plans(limits::buckets(), limits::buckets());
    plan_property(&plans, regressions!("token_bucket"));
}

#[test]
fn a_token_bucket_with_credits_is_the_ideal_pool() {
    let changed = prop_oneof![limits::buckets_with_credits(), limits::buckets()].boxed();
    let plans = plans(limits::buckets_with_credits(), changed);
    plan_property(&plans, regressions!("token_bucket_with_credits"));
}

#[test]
fn a_sliding_window_is_the_plain_log() {
    let plans = plans(limits::logs(), limits::logs());
    plan_property(&plans, regressions!("sliding_window"));
}

#[test]
fn a_sliding_counter_is_two_weighed_numbers() {
    let plans = plans(limits::counters(), limits::counters());
    plan_property(&plans, regressions!("sliding_counter"));
}

#[test]
fn a_fixed_window_is_one_number_per_window() {
    let plans = plans(limits::fixed(), limits::fixed());
    plan_property(&plans, regressions!("fixed_window"));
}

/// Rules go from windows of one length to a calendar, to another one, and back.
#[test]
fn a_window_of_a_calendar_is_one_number_per_window() {
    let changed = prop_oneof![3 => limits::uneven(), 1 => limits::fixed()].boxed();
    let plans = plans(limits::uneven(), changed);
    plan_property(&plans, regressions!("calendar_window"));
}

#[test]
fn a_change_of_algorithm_starts_fresh_and_breaks_nothing() {
    let plans = plans(limits::all_limits(), limits::all_limits());
    plan_property(&plans, regressions!("algorithm_change"));
}

/// I5, and everything else that is promised of an answer, for states that no history explains: `decide` is
/// total, and a damaged state neither opens the limit nor locks it for ever.
#[test]
fn a_damaged_state_is_answered_as_honestly_as_any() {
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

/// A store that has no room for another entry lets the newest one take the units. The log then remembers
/// them for longer than they count, never for shorter.
#[test]
fn a_log_that_merges_entries_is_never_looser_than_the_plain_one() {
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
