//! What the other modules found, each as the smallest story that shows it.

use sluicegate_core::algorithm::sliding_window::{Entry, SlidingWindowState};
use sluicegate_core::algorithm::token_bucket::TokenBucketState;
use sluicegate_core::{
    Align, Cost, FixedWindow, Micros, Outcome, Quota, Rate, SlidingCounter, SlidingWindow, State, Timestamp,
    TokenBucket, Verdict,
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

/// Entries pulled back into one instant were added up beyond what an entry can hold; the sum went on counting
/// what no entry would ever release.
#[test]
fn a_damaged_log_frees_again() {
    let quota = Quota::from(SlidingWindow::new(5, Micros::from_secs(60)).unwrap());
    let future = Entry { at: Timestamp::MAX, units: u32::MAX };
    let log = SlidingWindowState::from_entries([Entry { at: at(0), units: 1 }, future, future]);
    let mut state = Some(State::SlidingWindow(log));
    let retry_after = wait(ask(&quota, &mut state, 5, at(0)));
    assert_eq!(retry_after, Micros::from_secs(60));
    assert!(ask(&quota, &mut state, 5, at(0).plus(retry_after)).outcome.is_allowed());
}

/// Entries of one instant are one entry, and an entry of nothing is none, whoever wrote them.
#[test]
fn a_log_has_one_entry_per_instant() {
    let entry = |second, units| Entry { at: at(second), units };
    let log = SlidingWindowState::from_entries([entry(2, 3), entry(1, 0), entry(2, 4), entry(0, 1)]);
    assert_eq!(log.entries().collect::<Vec<_>>(), [entry(0, 1), entry(2, 7)]);
}

/// With credits, a state says itself until when it is kept. A damaged one that said "no longer" while the
/// bucket was still empty was told one wait and given another.
#[test]
fn a_damaged_bucket_is_not_forgotten_before_it_is_full() {
    let refill = Rate::new(1, Micros::from_secs(1)).unwrap();
    let quota = Quota::from(TokenBucket::with_credits(5, refill, 5, Micros::from_secs(60)).unwrap());
    let mut state = Some(State::TokenBucket(TokenBucketState {
        tat_micros: at(10).as_micros(),
        tat_parts: 0,
        parts_per_micro: 1,
        kept_until_micros: 0,
    }));
    assert_eq!(wait(ask(&quota, &mut state, 3, at(0))), Micros::from_secs(3));
    assert_eq!(wait(ask(&quota, &mut state, 3, at(2))), Micros::from_secs(1));
    assert_eq!(quota.kept_until(state.as_ref().unwrap()), at(10));
    assert!(ask(&quota, &mut state, 3, at(3)).outcome.is_allowed());
}

/// What 2³² − 1 tokens last at one in 2³² µs just fits 64 bits, and an instant more no longer does: the sum was
/// formed before the cost was found to be above the limit.
#[test]
fn a_cost_far_above_the_limit_overflows_nothing() {
    let quota = Quota::from(TokenBucket::new(1, Rate::new(1, Micros::from_micros(1 << 32)).unwrap()).unwrap());
    let mut state = None;
    assert!(ask(&quota, &mut state, 1, at(0)).outcome.is_allowed());
    assert_eq!(ask(&quota, &mut state, u32::MAX, at(0)).outcome, Outcome::NeverAdmissible);
}
