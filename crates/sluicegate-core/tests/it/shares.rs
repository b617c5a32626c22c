//! Shares of limits: exact where possible, otherwise on the strict side.

use proptest::prelude::*;
use sluicegate_core::quota::UNITS_MAX;
use sluicegate_core::{
    Align, Cost, FixedWindow, Micros, Outcome, Quota, Rate, SlidingCounter, SlidingWindow, State, Timestamp,
    TokenBucket,
};
use std::num::NonZeroU32;

const NOW: Timestamp = Timestamp::now(1_705_312_800_123_456);

fn parts(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

fn bucket(capacity: u64, amount: u64, period: Micros) -> Quota {
    TokenBucket::new(capacity, Rate::new(amount, period).unwrap()).unwrap().into()
}

/// The duration of one token, as the wait of a client that has just emptied the bucket.
fn wait_of_one(quota: &Quota) -> Micros {
    let all = Cost::new(u32::try_from(quota.limit()).unwrap());
    let state = quota.charge(None, all, NOW);
    match quota.outcome(state.as_ref(), Cost::ONE, NOW) {
        Outcome::Denied { retry_after } => retry_after,
        other => panic!("{other:?}"),
    }
}

#[test]
fn debt_is_kept_and_a_larger_one_never_shrinks() {
    for (quota, waits) in
        [(bucket(10, 1, Micros::from_secs(1)), 101_000_000), (bucket(10, 10, Micros::from_millis(1)), 10_100)]
    {
        let twice = quota.force(None, Cost::new(20), NOW);
        assert_eq!(quota.repaired(twice.clone(), NOW), twice);
        let wait = |state: &Option<State>| match quota.outcome(state.as_ref(), Cost::ONE, NOW) {
            Outcome::Denied { retry_after } => retry_after,
            other => panic!("{other:?}"),
        };
        let most = quota.force(twice.clone(), Cost::new(u32::MAX), NOW);
        assert_eq!(quota.repaired(most.clone(), NOW), most);
        assert!(wait(&most) >= wait(&twice));
        assert_eq!(wait(&most).as_micros(), waits, "ten limits and the next unit");
        // A request that reads the clock a little earlier keeps the debt, too.
        assert_eq!(quota.repaired(most.clone(), Timestamp::now(NOW.as_micros() - 1_000_000)), most);
    }
}

/// A log has an entry for each charge, so its debt also has a bound of its own.
#[test]
fn debt_of_a_log_is_bounded_in_units() {
    for (limit, most) in [(10, 100), (1_000, 10_000), (1_001, 10_000), (10_000, 10_000)] {
        let quota: Quota = SlidingWindow::new(limit, Micros::from_secs(60)).unwrap().into();
        let some = quota.force(None, Cost::new(7), NOW);
        let state = quota.force(some.clone(), Cost::new(u32::MAX), NOW);
        assert_eq!(quota.standing(state.as_ref(), NOW).debt, most, "{limit}");
        assert_eq!(quota.cut_off(some.as_ref(), Cost::new(u32::MAX), NOW), u64::from(u32::MAX) + 7 - limit - most);
        assert_eq!(quota.cut_off(state.as_ref(), Cost::ONE, NOW), 1);
    }
}

#[test]
fn forced_charge_that_fits_equals_a_charge() {
    let window = Micros::from_secs(60);
    let quotas: [Quota; 4] = [
        bucket(10, 1, window),
        SlidingWindow::new(10, window).unwrap().into(),
        SlidingCounter::new(10, window).unwrap().into(),
        FixedWindow::new(10, window, Align::Epoch).unwrap().into(),
    ];
    for quota in quotas {
        let seven = quota.charge(None, Cost::new(7), NOW);
        assert_eq!(quota.force(None, Cost::new(7), NOW), seven);
        assert_eq!(quota.force(seven.clone(), Cost::ZERO, NOW), seven);
        let owed = quota.force(seven, Cost::new(7), NOW);
        assert_eq!(quota.standing(owed.as_ref(), NOW).remaining, 0);
        let back = quota.refund(owed, Cost::new(7), NOW);
        assert_eq!(quota.standing(back.as_ref(), NOW).remaining, 3, "{quota:?}");
    }
    let nothing = Quota::from(FixedWindow::new(0, window, Align::Epoch).unwrap());
    assert_eq!(nothing.force(None, Cost::ONE, NOW), None);
}

#[test]
fn share_of_one_equals_the_limit() {
    let hour = Micros::from_secs(3_600);
    let rate = Rate::new(100, Micros::from_secs(60)).unwrap();
    for quota in [
        bucket(100, 100, Micros::from_secs(60)),
        TokenBucket::with_credits(10, rate, 7, hour).unwrap().into(),
        SlidingWindow::new(10, hour).unwrap().into(),
        SlidingCounter::new(10, hour).unwrap().into(),
        FixedWindow::new(10, hour, Align::Key).unwrap().into(),
    ] {
        assert_eq!(quota.share(parts(1)), quota);
    }
}

#[test]
fn share_of_a_bucket_rounds_the_capacity_up_and_keeps_the_exact_rate() {
    let second = Micros::from_secs(1);
    assert_eq!(bucket(10, 10, second).share(parts(3)), bucket(4, 10, Micros::from_secs(3)));
    assert_eq!(bucket(2, 1, second).share(parts(5)), bucket(1, 1, Micros::from_secs(5)));
    // Three per second in seven shares: a token lasts 2 333 333⅓ µs, and waits are rounded up.
    assert_eq!(wait_of_one(&bucket(3, 3, second).share(parts(7))), Micros::from_micros(2_333_334));
}

#[test]
fn capacity_and_credits_are_rounded_as_one_pool() {
    let rate = Rate::new(1, Micros::from_secs(1)).unwrap();
    let shared = |capacity, credits, count| {
        let quota = Quota::from(TokenBucket::with_credits(capacity, rate, credits, Micros::from_secs(9)).unwrap());
        match quota.share(parts(count)) {
            Quota::TokenBucket(share) => (share.capacity(), share.credits()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(shared(10, 10, 4), (3, 2), "5 of 20 in all");
    assert_eq!(shared(1, 1, 2), (1, 0), "1 of 2 in all");
    assert_eq!(shared(3, 5, 1), (3, 5));
}

#[test]
fn share_of_a_window_rounds_the_limit_up_and_zero_stays_zero() {
    let hour = Micros::from_secs(3_600);
    for (limit, count, share) in [(10, 3, 4), (9, 3, 3), (1, 7, 1), (0, 7, 0), (10_000, u32::MAX, 1)] {
        let log = Quota::from(SlidingWindow::new(limit, hour).unwrap());
        assert_eq!(log.share(parts(count)), SlidingWindow::new(share, hour).unwrap().into());
        let counter = Quota::from(SlidingCounter::new(limit, hour).unwrap());
        assert_eq!(counter.share(parts(count)), SlidingCounter::new(share, hour).unwrap().into());
        let window = Quota::from(FixedWindow::new(limit, hour, Align::Key).unwrap());
        assert_eq!(window.share(parts(count)), FixedWindow::new(share, hour, Align::Key).unwrap().into());
    }
}

#[test]
fn share_out_of_range_is_smaller_or_zero() {
    let years = |count: u64| Micros::from_secs(count * 365 * 86_400);
    // Ten tokens in ten years, in three shares: four tokens would take twelve years, so a share holds three.
    assert_eq!(bucket(10, 1, years(1)).share(parts(3)).limit(), 3);
    // One token in six years, in two shares: twelve years per token is out of range.
    let nothing = bucket(1, 1, years(6)).share(parts(2));
    assert_eq!(nothing.outcome(None, Cost::ONE, NOW), Outcome::NeverAdmissible);
    assert_eq!(nothing.limit(), 0);
    // 1 000 003 tokens in ten years, in seven shares: the number is prime, and seventy years is out of range, so it
    // is rounded down.
    let slowest = bucket(7, 1_000_003, years(10)).share(parts(7));
    assert!(slowest == bucket(1, 142_857, years(10)), "{slowest:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// All shares together hold at most K − 1 more than the limit, and none refills faster than its share.
    #[test]
    fn sum_of_shares_exceeds_the_limit_by_at_most_the_rounding(
        capacity in prop_oneof![1..=50_u64, 1..=UNITS_MAX],
        credits in prop_oneof![Just(0), 0..=50_u64],
        amount in prop_oneof![1..=50_u64, 1..=UNITS_MAX],
        period in prop_oneof![1..=5_000_000_u64, 1..=Micros::PERIOD_MAX.as_micros()],
        count in prop_oneof![1..=9_u32, any::<u32>()],
    ) {
        let count = count.max(1);
        let Ok(rate) = Rate::new(amount, Micros::from_micros(period)) else { return Ok(()) };
        let Ok(quota) = TokenBucket::with_credits(capacity, rate, credits, Micros::from_secs(60)) else {
            return Ok(());
        };
        let share = Quota::from(quota).share(parts(count));
        let held = u128::from(share.limit()) * u128::from(count);
        prop_assert!(held < u128::from(capacity + credits) + u128::from(count), "{share:?}");
        if share.limit() > 0 {
            // Filling one share takes at least as long as that many tokens of K shares at the whole rate: held/r ≤ τ,
            // with τ rounded up.
            let needed = held * u128::from(period);
            prop_assert!(needed <= u128::from(share.window().as_micros()) * u128::from(amount), "{share:?}");
        }
    }
}
