//! Clocks that differ, step back or repeat a second: nobody gains by it, and nobody waits for ever.
//!
//! Two promises pull at each other. If a state from ahead of `now` is believed, a clock that stepped back far
//! makes everybody wait; if it is pulled back to `now`, the next request that is in time is given the same
//! moments again. So a state a little ahead is believed, and one far ahead is pulled back once, for good.

use sluicegate_core::{
    Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
};

const START: u64 = 1_705_312_800 * SECOND;
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// The same pace four times: ten units at once or per window of 10 ms.
fn quotas() -> [Quota; 4] {
    let window = Micros::from_millis(10);
    [
        TokenBucket::new(10, Rate::new(10, window).unwrap()).unwrap().into(),
        SlidingWindow::new(10, window).unwrap().into(),
        SlidingCounter::new(10, window).unwrap().into(),
        FixedWindow::new(10, window, Align::Epoch).unwrap().into(),
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
    for quota in quotas() {
        let ordered = passed(&quota, (0..100_000).map(in_time));
        for late in [1, 50, 5 * MILLI, 500 * MILLI] {
            let lag = |request: u64| if request.is_multiple_of(2) { 0 } else { late };
            let mixed = passed(&quota, (0..100_000).map(|request| in_time(request) - lag(request)));
            assert!(mixed <= ordered, "{quota:?}, {late} µs late: {mixed} passed, {ordered} in order");
            // Those in time are served as ever: being late harms the late.
            assert!(mixed + 20 >= ordered, "{quota:?}, {late} µs late: {mixed} passed, {ordered} in order");
        }
    }
}
