//! Clocks that differ, step back or repeat a second: nobody gains by it, and nobody waits for ever.
//!
//! Two promises pull at each other. If a state from ahead of `now` is believed, a clock that stepped back far
//! makes everybody wait; if it is pulled back to `now`, the next request that is in time is given the same
//! moments again. So a state a little ahead is believed, and one far ahead is pulled back once, for good.

use crate::harness::{Run, quota};
use sluicegate_core::{Cost, Outcome, Quota, Timestamp};
use sluicegate_testkit::model::{Bucket, Counter, Fixed, Limit, Log};

const START: u64 = 1_705_312_800 * SECOND;
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;

/// The same pace four times: ten units at once or per window of 10 ms.
fn limits() -> [Limit; 4] {
    let (limit, window) = (10, 10 * MILLI);
    [
        Limit::Bucket(Bucket { capacity: limit, credits: 0, amount: limit, period: window, credit_ttl: SECOND }),
        Limit::Log(Log { limit, window }),
        Limit::Counter(Counter { limit, window }),
        Limit::Fixed(Fixed { limit, window }),
    ]
}

/// How many units pass if one is asked for at each of these instants, in this order.
fn passed(quota: &Quota, instants: impl Iterator<Item = u64>) -> u64 {
    let mut state = None;
    let mut passed = 0;
    for now in instants {
        let (next, verdict) = quota.decide(state, Cost::ONE, Timestamp::now(now));
        passed += u64::from(verdict.outcome.is_allowed());
        state = next;
    }
    passed
}

/// Threads read the clock, then wait for the lock: what was read first may be decided last. A hundred
/// thousand requests within a second, every other one late. Pulled back for each of them, the bucket would
/// have given out the time between over and over, and let all that were in time pass.
#[test]
fn requests_decided_out_of_order_gain_nothing() {
    let in_time = |request: u64| START + SECOND + request * 10;
    for limit in limits() {
        let quota = quota(&limit).expect("a valid limit");
        let ordered = passed(&quota, (0..100_000).map(in_time));
        for late in [1, 50, 5 * MILLI, 500 * MILLI] {
            let lag = |request: u64| if request.is_multiple_of(2) { 0 } else { late };
            let mixed = passed(&quota, (0..100_000).map(|request| in_time(request) - lag(request)));
            assert!(mixed <= ordered, "{limit:?}, {late} µs late: {mixed} passed, {ordered} in order");
            // Those in time are served as ever: being late harms the late.
            assert!(mixed + 20 >= ordered, "{limit:?}, {late} µs late: {mixed} passed, {ordered} in order");
        }
    }
}

/// The clock steps back by a year. Nobody waits a year: a bucket no longer than it takes to fill, a log no
/// longer than its window, a counter of windows until the end of the next one. And the wait that is promised
/// comes to an end as the clock runs on, although every question finds the clock behind the state.
#[test]
fn a_clock_that_steps_back_a_year_makes_nobody_wait_a_year() {
    for (limit, windows) in limits().into_iter().zip([1, 1, 3, 2]) {
        let mut run = Run::new(&limit, START + YEAR);
        assert!(run.check(10).expect("no promise broken").outcome.is_allowed(), "{limit:?}");
        run.set_clock(START);
        let Outcome::Denied { retry_after } = run.check(10).expect("no promise broken").outcome else {
            panic!("{limit:?} gave ten twice");
        };
        assert!(retry_after.as_micros() <= windows * 10 * MILLI, "{limit:?}: {retry_after:?}");
        for wait in (0..retry_after.as_micros()).step_by(100) {
            run.set_clock(START + wait);
            assert!(!run.check(10).expect("no promise broken").outcome.is_allowed(), "{limit:?} after {wait} µs");
        }
        run.set_clock(START + retry_after.as_micros());
        assert!(run.check(10).expect("no promise broken").outcome.is_allowed(), "{limit:?}");
        run.verify_bound().expect("no more than the bound");
    }
}

/// A step back by less than a second is not distinguished from a clock that differs: the wait is longer by
/// the step, and nothing passes twice.
#[test]
fn a_clock_that_steps_back_a_little_costs_that_little() {
    for limit in limits() {
        let step = 900 * MILLI;
        let mut run = Run::new(&limit, START + step);
        assert!(run.check(10).expect("no promise broken").outcome.is_allowed(), "{limit:?}");
        let before = run.check(1).expect("no promise broken").outcome;
        run.set_clock(START);
        let after = run.check(1).expect("no promise broken").outcome;
        match (before, after) {
            (Outcome::Denied { retry_after: before }, Outcome::Denied { retry_after: after }) => {
                assert_eq!(after.as_micros(), before.as_micros() + step, "{limit:?}");
            }
            _ => panic!("{limit:?}: {before:?}, then {after:?}"),
        }
    }
}

/// A leap second makes many clocks repeat a second. Whatever was used up stays used up.
#[test]
fn a_leap_second_that_comes_twice_gives_nothing_twice() {
    let second = 1_483_228_799 * SECOND;
    let (limit, window) = (5, SECOND);
    let limits = [
        Limit::Bucket(Bucket { capacity: 5, credits: 0, amount: 1, period: SECOND, credit_ttl: SECOND }),
        Limit::Log(Log { limit, window }),
        Limit::Counter(Counter { limit, window }),
        Limit::Fixed(Fixed { limit, window }),
    ];
    for limit in limits {
        let mut run = Run::new(&limit, second + 900_000);
        assert!(run.check(5).expect("no promise broken").outcome.is_allowed(), "{limit:?}");
        for again in [0, 500_000, 899_999, 900_000] {
            run.set_clock(second + again);
            let verdict = run.check(1).expect("no promise broken");
            assert!(!verdict.outcome.is_allowed(), "{limit:?} {again} µs into the second that came twice");
        }
        run.verify_bound().expect("no more than the bound");
    }
}
