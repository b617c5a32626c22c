//! The effect of time-of-day corrections on decisions of the embedded store. A correction moves reported times of day
//! and calendar windows, and neither grants nor takes quota that is measured by durations.

use crate::support::block_on;
use sluicegate::clock::{Clock as _, ManualClock};
use sluicegate::core::{
    Align, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
};
use sluicegate::decision::{Decision, Retry};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{Limits, Override, Rule, RuleSet, Unmatched};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::{Limiter, MemoryStore, Request};

/// Ten minutes before noon, UTC.
const START: Timestamp = Timestamp::now(1_705_312_800_000_000 - 600_000_000);
const HOUR: Micros = Micros::from_secs(3_600);
const LIMIT: u64 = 5;

type Bench = (Limiter<MemoryStore, ManualClock>, ManualClock);

fn limiter(rule: Rule) -> Bench {
    let rules = RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow).unwrap();
    let clock = ManualClock::at(START);
    (Limiter::new(rules, MemoryStore::new(MemoryOptions::default(), START), clock.clone()), clock)
}

fn of_quota(quota: impl Into<Quota>) -> Bench {
    limiter(Rule::new("api", Limits::all("api", [(None, quota.into())])))
}

fn check(bench: &Bench) -> Decision {
    block_on(bench.0.check(&Request::new("r", "ann"))).unwrap()
}

fn drain(bench: &Bench) {
    (0..LIMIT).for_each(|_| assert!(check(bench).is_allowed()));
    assert!(!check(bench).is_allowed());
}

fn reset_at(decision: &Decision) -> u64 {
    decision.limits().next().unwrap().reset_at_millis(decision.now())
}

fn by_length() -> [Quota; 3] {
    [
        TokenBucket::new(LIMIT, Rate::new(LIMIT, HOUR).unwrap()).unwrap().into(),
        SlidingWindow::new(LIMIT, HOUR).unwrap().into(),
        SlidingCounter::new(LIMIT, HOUR).unwrap().into(),
    ]
}

/// The steps of a clock: a little, two hours, a day, in both directions, and to before the start of the process.
fn steps() -> [i64; 7] {
    let hours = |hours: i64| hours * 3_600_000_000;
    [1_000_000, -1_000_000, hours(2), hours(-2), hours(24), hours(-24), hours(-24 * 365 * 10)]
}

fn moved(instant: Timestamp, step: i64) -> Timestamp {
    Timestamp::now(instant.as_micros().saturating_add_signed(step))
}

#[test]
fn clock_steps_do_not_affect_limits_measured_by_durations() {
    for quota in by_length() {
        for step in steps() {
            let (bench, undisturbed) = (of_quota(quota.clone()), of_quota(quota.clone()));
            drain(&bench);
            drain(&undisturbed);
            bench.1.set_time_of_day(moved(bench.1.now(), step));
            for _ in 0..200 {
                let (decision, expected) = (check(&bench), check(&undisturbed));
                assert_eq!(decision.is_allowed(), expected.is_allowed(), "{quota:?} after {step}");
                assert_eq!(decision.retry(), expected.retry(), "{quota:?} after {step}");
                assert_eq!(decision.remaining(), expected.remaining(), "{quota:?} after {step}");
                for (_, clock) in [&bench, &undisturbed] {
                    clock.advance(Micros::from_secs(37));
                }
                bench.0.store().sweep(bench.1.now(), bench.0.store().steps_per_round());
            }
        }
    }
}

#[test]
fn reset_time_follows_the_corrected_clock() {
    for quota in by_length() {
        for step in steps() {
            let bench = of_quota(quota.clone());
            drain(&bench);
            let before = reset_at(&check(&bench));
            bench.1.set_time_of_day(moved(bench.1.now(), step));
            let after = check(&bench);
            assert_eq!(after.now(), bench.1.time_of_day());
            assert_eq!(reset_at(&after) as i64 - before as i64, step / 1_000, "{quota:?} after {step}");
            for decision in [
                block_on(bench.0.peek(&Request::new("r", "ann"))).unwrap(),
                block_on(bench.0.refund(&Request::new("r", "ann"))).unwrap(),
                block_on(bench.0.reset(&Request::new("r", "ann"))).unwrap(),
                block_on(bench.0.check_all(&bench.0.rules(), &[Request::new("r", "ann")]))
                    .unwrap()
                    .joint()
                    .clone(),
            ] {
                assert_eq!(decision.now(), bench.1.time_of_day());
            }
        }
    }
}

#[test]
fn calendar_windows_follow_the_corrected_clock() {
    for align in [Align::Epoch, Align::Key] {
        for hours in [2, 24, 24 * 365] {
            let bench = of_quota(FixedWindow::new(LIMIT, HOUR, align).unwrap());
            // The clock was wrong at the start of the process and is corrected now.
            let corrected = START.plus(Micros::from_secs(hours * 3_600));
            bench.1.set_time_of_day(corrected);
            drain(&bench);
            let reset = reset_at(&check(&bench));
            assert!(reset > corrected.as_micros() / 1_000, "a reset in the past");
            assert!(reset <= corrected.plus(HOUR).as_micros() / 1_000);
            if align == Align::Epoch {
                assert_eq!(reset % (HOUR.as_micros() / 1_000), 0, "windows begin at the full hour");
            }
            // Up to that instant and not a microsecond longer.
            let left = Timestamp::from_micros(reset * 1_000).since(corrected);
            bench.1.advance(Micros::from_micros(left.as_micros() - 1));
            assert!(!check(&bench).is_allowed());
            bench.1.advance(Micros::from_micros(1));
            drain(&bench);
        }
    }
}

#[test]
fn clock_set_back_grants_no_window_twice_and_blocks_at_most_two() {
    for step in steps().into_iter().filter(|step| *step < 0) {
        let bench = of_quota(FixedWindow::new(LIMIT, HOUR, Align::Epoch).unwrap());
        drain(&bench);
        bench.1.set_time_of_day(moved(START, step));
        let denied = check(&bench);
        assert!(!denied.is_allowed(), "a step back granted a window");
        let Some(Retry::After(wait)) = denied.retry() else { panic!("a wait ends") };
        assert!(wait <= Micros::from_secs(2 * 3_600), "{wait:?} after {step}");
        bench.0.store().sweep(bench.1.now(), bench.0.store().steps_per_round());
        bench.1.advance(Micros::from_micros(wait.as_micros() - 1));
        assert!(!check(&bench).is_allowed());
        bench.1.advance(Micros::from_micros(1));
        drain(&bench);
    }
}

#[test]
fn oscillating_clock_grants_each_window_once() {
    let bench = of_quota(FixedWindow::new(LIMIT, HOUR, Align::Epoch).unwrap());
    let mut admitted = 0;
    for round in 0..100 {
        let later = Micros::from_secs(if round % 2 == 0 { 0 } else { 3_600 });
        bench.1.set_time_of_day(START.plus(later));
        admitted += (0..2 * LIMIT).filter(|_| check(&bench).is_allowed()).count() as u64;
        bench.0.store().sweep(bench.1.now(), bench.0.store().steps_per_round());
    }
    assert_eq!(admitted, 2 * LIMIT, "two windows were entered");
}

#[test]
fn fixed_windows_expire_by_time_of_day_and_other_states_by_the_steady_clock() {
    let windows = of_quota(FixedWindow::new(LIMIT, HOUR, Align::Epoch).unwrap());
    let [bucket, ..] = by_length();
    let buckets = of_quota(bucket);
    for (bench, left) in [(&windows, 0), (&buckets, 1)] {
        drain(bench);
        bench.1.set_time_of_day(START.plus(Micros::from_secs(7_200)));
        bench.0.store().sweep(bench.1.now(), bench.0.store().steps_per_round());
        assert_eq!(bench.0.store().used(), left);
        assert_eq!(check(bench).is_allowed(), left == 0);
    }
}

#[test]
fn override_ends_by_the_corrected_clock() {
    let limits = |limit: u64| {
        let quota = Quota::from(FixedWindow::new(limit, Micros::from_secs(86_400), Align::Epoch).unwrap());
        Limits::all("api", [(None, quota)])
    };
    let until = START.plus(HOUR);
    let mut rule = Rule::new("api", limits(1));
    rule.overrides = vec![Override { identifier: Pattern::new("ann"), limits: limits(100), until: Some(until) }];
    let bench = limiter(rule);
    let limit = |bench: &Bench| check(bench).tightest().unwrap().verdict.limit;
    assert_eq!(limit(&bench), 100);
    bench.1.set_time_of_day(START.plus(Micros::from_secs(7_200)));
    assert_eq!(limit(&bench), 1, "it ended an hour ago");
    bench.1.set_time_of_day(START);
    assert_eq!(limit(&bench), 100);
    bench.1.advance(HOUR);
    assert_eq!(limit(&bench), 1);
}
