//! Clocks that differ, step back or repeat a second: no client gains, and no client waits forever.
//!
//! Two goals conflict. If a state ahead of `now` is accepted, a clock that stepped back far makes every client wait.
//! If it is pulled back to `now`, the next timely request receives the same time again. So a state slightly ahead is
//! accepted, and a state far ahead is pulled back once and permanently.

use crate::harness::{Run, quota};
use sluicegate_core::{Cost, Outcome, Quota, Timestamp};
use sluicegate_testkit::model::{Bucket, Counter, Fixed, Limit, Log};

const START: u64 = 1_705_312_800 * SECOND;
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const YEAR: u64 = 365 * 86_400 * SECOND;

/// The same rate under all four algorithms: ten units at once or per window of 10 ms.
fn limits() -> [Limit; 4] {
    let (limit, window) = (10, 10 * MILLI);
    [
        Limit::Bucket(Bucket { capacity: limit, credits: 0, amount: limit, period: window, credit_ttl: SECOND }),
        Limit::Log(Log { limit, window }),
        Limit::Counter(Counter { limit, window }),
        Limit::Fixed(Fixed { limit, window }),
    ]
}

/// The number of units admitted by requests at these instants, in this order.
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

/// Threads read the clock and then wait for the lock, so the first reading may be decided last. This test makes a
/// hundred thousand requests within a second, every other one late. If each late request pulled the bucket back, the
/// bucket would grant the same time over and over and admit all timely requests.
#[test]
fn out_of_order_requests_gain_nothing() {
    let in_time = |request: u64| START + SECOND + request * 10;
    for limit in limits() {
        let quota = quota(&limit).expect("a valid limit");
        let ordered = passed(&quota, (0..100_000).map(in_time));
        for late in [1, 50, 5 * MILLI, 500 * MILLI] {
            let lag = |request: u64| if request.is_multiple_of(2) { 0 } else { late };
            let mixed = passed(&quota, (0..100_000).map(|request| in_time(request) - lag(request)));
            assert!(mixed <= ordered, "{limit:?}, {late} µs late: {mixed} passed, {ordered} in order");
            // Timely requests are unaffected; only late requests wait longer.
            assert!(mixed + 20 >= ordered, "{limit:?}, {late} µs late: {mixed} passed, {ordered} in order");
        }
    }
}

/// The clock steps back by a year. No client waits a year: a bucket waits at most its fill time, a log at most its
/// window, and a counter of windows until the end of the next one. The promised wait ends as the clock advances,
/// although every request finds the clock behind the state.
#[test]
fn clock_step_back_of_a_year_bounds_the_wait() {
    for (limit, windows) in limits().into_iter().zip([1, 1, 3, 2]) {
        let mut run = Run::new(&limit, START + YEAR);
        assert!(run.check(10).expect("a broken promise").outcome.is_allowed(), "{limit:?}");
        run.set_clock(START);
        let Outcome::Denied { retry_after } = run.check(10).expect("a broken promise").outcome else {
            panic!("{limit:?} gave ten twice");
        };
        assert!(retry_after.as_micros() <= windows * 10 * MILLI, "{limit:?}: {retry_after:?}");
        for wait in (0..retry_after.as_micros()).step_by(100) {
            run.set_clock(START + wait);
            assert!(!run.check(10).expect("a broken promise").outcome.is_allowed(), "{limit:?} after {wait} µs");
        }
        run.set_clock(START + retry_after.as_micros());
        assert!(run.check(10).expect("a broken promise").outcome.is_allowed(), "{limit:?}");
        run.verify_bound().expect("no more than the bound");
    }
}

/// A step back by less than a second cannot be distinguished from clock skew: the wait grows by the step, and nothing
/// is admitted twice.
#[test]
fn small_clock_step_back_extends_the_wait_by_the_step() {
    for limit in limits() {
        let step = 900 * MILLI;
        let mut run = Run::new(&limit, START + step);
        assert!(run.check(10).expect("a broken promise").outcome.is_allowed(), "{limit:?}");
        let before = run.check(1).expect("a broken promise").outcome;
        run.set_clock(START);
        let after = run.check(1).expect("a broken promise").outcome;
        match (before, after) {
            (Outcome::Denied { retry_after: before }, Outcome::Denied { retry_after: after }) => {
                assert_eq!(after.as_micros(), before.as_micros() + step, "{limit:?}");
            }
            _ => panic!("{limit:?}: {before:?}, then {after:?}"),
        }
    }
}

/// Many clocks repeat a second at a leap second. The quota used in it stays used.
#[test]
fn repeated_leap_second_admits_nothing_twice() {
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
        assert!(run.check(5).expect("a broken promise").outcome.is_allowed(), "{limit:?}");
        for again in [0, 500_000, 899_999, 900_000] {
            run.set_clock(second + again);
            let verdict = run.check(1).expect("a broken promise");
            assert!(!verdict.outcome.is_allowed(), "{limit:?} {again} µs into the second that came twice");
        }
        run.verify_bound().expect("no more than the bound");
    }
}
