//! What the other modules found, each as the smallest story that shows it.

use sluicegate_core::{
    Align, Cost, FixedWindow, Micros, Outcome, Quota, SlidingCounter, State, Timestamp, Verdict,
};

/// A full hour.
const START: u64 = 1_705_312_800 * SECOND;
const SECOND: u64 = 1_000_000;

fn at(second: u64) -> Timestamp {
    Timestamp::now(START + second * SECOND)
}

/// Asks and keeps the state.
fn ask(quota: &Quota, state: &mut Option<State>, cost: u32, now: Timestamp) -> Verdict {
    let (next, verdict) = quota.decide(state.take(), Cost::new(cost), now);
    *state = next;
    verdict
}

fn wait(verdict: Verdict) -> Micros {
    match verdict.outcome {
        Outcome::Denied { retry_after } => retry_after,
        outcome => panic!("{outcome:?} is no wait"),
    }
}

/// A window that ended inside one of the new length was followed by the short rest of that one, with a limit
/// of its own: three times the limit in one window, where the bound is two.
#[test]
fn a_longer_fixed_window_begins_with_no_short_one() {
    let fixed = |seconds| Quota::from(FixedWindow::new(10, Micros::from_secs(seconds), Align::Epoch).unwrap());
    let (short, long) = (fixed(10), fixed(60));
    let mut state = None;
    assert!(ask(&short, &mut state, 1, at(48)).outcome.is_allowed());
    assert!(ask(&long, &mut state, 9, at(49)).outcome.is_allowed());
    assert_eq!(wait(ask(&long, &mut state, 1, at(50))), Micros::from_secs(10));
    assert!(ask(&long, &mut state, 10, at(60)).outcome.is_allowed());
}

/// The same for the counter: it told a wait by one calendar and ended it by another, and what had faded by the
/// minute weighed in full again a moment later.
#[test]
fn a_longer_counter_keeps_the_wait_it_promised() {
    let counter = |seconds| Quota::from(SlidingCounter::new(10, Micros::from_secs(seconds)).unwrap());
    let (short, long) = (counter(10), counter(60));
    let mut state = None;
    assert!(ask(&short, &mut state, 10, at(5)).outcome.is_allowed());
    let denied = ask(&long, &mut state, 10, at(6));
    let promised = at(6).plus(wait(denied));
    assert_eq!(promised, at(120));
    assert_eq!(at(6).plus(denied.reset_after), promised);
    let early = Timestamp::from_micros(promised.as_micros() - 1);
    assert_eq!(wait(ask(&long, &mut state, 10, early)), Micros::from_micros(1));
    let mut last = 0;
    for second in 6..=125 {
        let remaining = long.standing(state.as_ref(), at(second)).remaining;
        assert!(remaining >= last, "{last} remained, then {remaining} at second {second}");
        last = remaining;
    }
    assert_eq!(last, 10);
}
