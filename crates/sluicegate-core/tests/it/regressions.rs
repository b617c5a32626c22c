//! Bugs that the other modules found, each as its smallest example.

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

/// Charges and keeps the state.
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

/// A window that ended inside one of the new length was followed by the short rest of that one, with a limit of its
/// own: three times the limit in one window, where the bound is two.
#[test]
fn change_to_a_longer_fixed_window_creates_no_short_window() {
    let fixed = |seconds| Quota::from(FixedWindow::new(10, Micros::from_secs(seconds), Align::Epoch).unwrap());
    let (short, long) = (fixed(10), fixed(60));
    let mut state = None;
    assert!(ask(&short, &mut state, 1, at(48)).outcome.is_allowed());
    assert!(ask(&long, &mut state, 9, at(49)).outcome.is_allowed());
    assert_eq!(wait(ask(&long, &mut state, 1, at(50))), Micros::from_secs(10));
    assert!(ask(&long, &mut state, 10, at(60)).outcome.is_allowed());
}

/// The same for the counter: it promised a wait by one calendar and ended it by another. Units that had faded by the
/// minute weighed in full again a moment later.
#[test]
fn change_to_a_longer_counter_keeps_the_promised_wait() {
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

/// Entries pulled back into one instant were added up beyond the range of an entry. The sum then counted units that
/// no entry would ever release.
#[test]
fn damaged_log_frees_its_units() {
    let quota = Quota::from(SlidingWindow::new(5, Micros::from_secs(60)).unwrap());
    let future = Entry { at: Timestamp::MAX, units: u32::MAX };
    let log = SlidingWindowState::from_entries([Entry { at: at(0), units: 1 }, future, future]);
    let mut state = Some(State::SlidingWindow(log));
    let retry_after = wait(ask(&quota, &mut state, 5, at(0)));
    assert_eq!(retry_after, Micros::from_secs(60));
    assert!(ask(&quota, &mut state, 5, at(0).plus(retry_after)).outcome.is_allowed());
}

/// Entries of one instant form one entry, and an empty entry is dropped, however the state was written.
#[test]
fn log_has_one_entry_per_instant() {
    let entry = |second, units| Entry { at: at(second), units };
    let log = SlidingWindowState::from_entries([entry(2, 3), entry(1, 0), entry(2, 4), entry(0, 1)]);
    assert_eq!(log.entries().collect::<Vec<_>>(), [entry(0, 1), entry(2, 7)]);
}

/// With credits, a state contains its own expiry. A damaged state that had expired while the bucket was still empty
/// promised one wait and enforced another.
#[test]
fn damaged_bucket_is_kept_until_it_is_full() {
    let refill = Rate::new(1, Micros::from_secs(1)).unwrap();
    let quota = Quota::from(TokenBucket::with_credits(5, refill, 5, Micros::from_secs(60)).unwrap());
    let mut state = Some(State::TokenBucket(TokenBucketState {
        tat_micros: at(5).as_micros(),
        tat_parts: 0,
        parts_per_micro: 1,
        kept_until_micros: 0,
    }));
    assert_eq!(wait(ask(&quota, &mut state, 3, at(0))), Micros::from_secs(3));
    assert_eq!(wait(ask(&quota, &mut state, 3, at(2))), Micros::from_secs(1));
    assert_eq!(quota.kept_until(state.as_ref().unwrap()), at(5));
    assert!(ask(&quota, &mut state, 3, at(3)).outcome.is_allowed());
}

/// The duration of 2³² − 1 tokens at one per 2³² µs just fits 64 bits, and one more instant does not. The sum was
/// computed before the cost was compared with the limit.
#[test]
fn cost_far_above_the_limit_does_not_overflow() {
    let quota = Quota::from(TokenBucket::new(1, Rate::new(1, Micros::from_micros(1 << 32)).unwrap()).unwrap());
    let mut state = None;
    assert!(ask(&quota, &mut state, 1, at(0)).outcome.is_allowed());
    assert_eq!(ask(&quota, &mut state, u32::MAX, at(0)).outcome, Outcome::NeverAdmissible);
}

/// A state of a bucket without credits, or with fewer, holds none of the credits that a new configuration adds.
#[test]
fn change_of_credits_on_a_live_limit_adds_none() {
    let refill = Rate::new(10, Micros::from_secs(1)).unwrap();
    let with =
        |credits| Quota::from(TokenBucket::with_credits(10, refill, credits, Micros::from_secs(3_600)).unwrap());
    for before in [0, 5] {
        let mut state = None;
        assert!(ask(&with(before), &mut state, 1, at(0)).outcome.is_allowed());
        let now = at(0).plus(Micros::from_millis(100));
        let standing = with(1_000).standing(state.as_ref(), now);
        assert_eq!(standing.remaining, 10, "{before} credits before");
        assert!(!ask(&with(1_000), &mut state.clone(), 500, now).outcome.is_allowed());
        // From here on the client earns credits by idling.
        assert!(ask(&with(1_000), &mut state, 1, now).outcome.is_allowed());
        assert_eq!(with(1_000).standing(state.as_ref(), now.plus(Micros::from_secs(50))).remaining, 509);
    }
}

/// The wait of one limit may outlast the credits that another one needs. Then no wait is right.
#[test]
fn wait_that_outlasts_needed_credits_is_never() {
    let refill = Rate::new(10, Micros::from_secs(1)).unwrap();
    let bucket = Quota::from(TokenBucket::with_credits(1, refill, 9, Micros::from_secs(2)).unwrap());
    let mut state = None;
    assert!(ask(&bucket, &mut state, 1, at(0)).outcome.is_allowed());
    let now = at(0).plus(Micros::from_millis(1_500));
    let beside = |cost, millis| {
        let (cost, wait) = (Cost::new(cost), Micros::from_millis(millis));
        let outcome = bucket.outcome(state.as_ref(), cost, now);
        bucket.outcome_after_waiting(outcome, state.as_ref(), cost, now, wait)
    };
    assert_eq!(beside(10, 500), Outcome::Allowed, "the last instant before the credits expire");
    assert_eq!(beside(10, 501), Outcome::NeverAdmissible);
    assert_eq!(beside(1, 3_499), Outcome::Allowed, "the capacity needs no credits");
}
