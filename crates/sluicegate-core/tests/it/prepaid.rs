//! Limits for charges in advance: how much smaller they are, and that no client gains by the delay.

use proptest::prelude::*;
use sluicegate_core::quota::UNITS_MAX;
use sluicegate_core::{
    Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
};

fn bucket(capacity: u64, amount: u64, period: Micros) -> TokenBucket {
    TokenBucket::new(capacity, Rate::new(amount, period).unwrap()).unwrap()
}

fn prepaid(capacity: u64, amount: u64, period: Micros, delay: Micros) -> Option<Quota> {
    Quota::from(bucket(capacity, amount, period)).prepaid(delay)
}

#[test]
fn capacity_is_reduced_by_the_refill_during_the_delay() {
    let (second, delay) = (Micros::from_secs(1), Micros::from_millis(100));
    for (capacity, amount, left) in [(100, 50, 95), (100, 51, 94), (100, 1, 99), (4, 10, 3), (2, 10, 1)] {
        let expected = Quota::from(bucket(left, amount, second));
        assert_eq!(prepaid(capacity, amount, second, delay), Some(expected), "{capacity} {amount}");
    }
    assert_eq!(prepaid(1, 10, second, delay), None, "no capacity would remain");
    assert_eq!(prepaid(5, 100, second, delay), None, "less than no capacity would remain");
    let whole = Quota::from(bucket(7, 3, second));
    assert_eq!(whole.prepaid(Micros::ZERO), Some(whole));
}

#[test]
fn only_buckets_without_credits_allow_charges_in_advance() {
    let (hour, delay) = (Micros::from_secs(3_600), Micros::from_millis(1));
    let rate = Rate::new(1, hour).unwrap();
    let others: [Quota; 4] = [
        TokenBucket::with_credits(10, rate, 1, hour).unwrap().into(),
        SlidingWindow::new(10, hour).unwrap().into(),
        SlidingCounter::new(10, hour).unwrap().into(),
        FixedWindow::new(10, hour, Align::Epoch).unwrap().into(),
    ];
    for quota in others {
        assert_eq!(quota.prepaid(delay), None, "{quota:?}");
    }
}

#[test]
fn refill_beyond_the_range_saturates() {
    let (amount, delay) = (435_128_082_799_354, Micros::from_micros(42_394));
    let fast = bucket(UNITS_MAX, amount, Micros::from_micros(1));
    assert!(u128::from(amount) * u128::from(delay.as_micros()) > u128::from(u64::MAX));
    assert_eq!(fast.refilled_within(delay), u64::MAX);
    assert_eq!(Quota::from(fast).prepaid(delay), None, "no capacity would remain");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The reduced capacity and the refill during the delay together are at most the bucket, as fractions; one more
    /// token would exceed it. The result must also be a valid bucket.
    #[test]
    fn reduced_capacity_is_the_largest_that_covers_the_delay(
        capacity in prop_oneof![1..=50_u64, 1..=UNITS_MAX],
        amount in prop_oneof![1..=50_u64, 1..=UNITS_MAX],
        period in prop_oneof![1..=5_000_000_u64, 1..=Micros::PERIOD_MAX.as_micros()],
        delay in prop_oneof![1..=20_000_u64, 1..=10_000_000_u64],
    ) {
        let rate = Rate::new(amount, Micros::from_micros(period)).unwrap();
        let Ok(whole) = TokenBucket::new(capacity, rate) else { return Ok(()) };
        let (amount, period, micros) = (u128::from(amount), u128::from(period), u128::from(delay));
        let delay = Micros::from_micros(delay);
        // Multiplied by the period, so that all numbers are whole.
        let excess = |left: u64| (u128::from(left) * period + amount * micros).cmp(&(u128::from(capacity) * period));
        match Quota::from(whole.clone()).prepaid(delay) {
            Some(Quota::TokenBucket(left)) => {
                prop_assert!(excess(left.capacity()).is_le());
                prop_assert!(excess(left.capacity() + 1).is_gt());
                prop_assert_eq!(&left, &TokenBucket::new(left.capacity(), rate).unwrap());
            }
            Some(other) => prop_assert!(false, "{:?}", other),
            None => prop_assert!(excess(1).is_gt()),
        }
        let back = whole.refilled_within(delay);
        prop_assert!(back == u64::MAX || whole.refilling(back) >= delay);
        prop_assert!(back == 0 || whole.refilling(back - 1) < delay);
    }

    /// Whatever is charged when, and whenever within the delay it is used: no interval exceeds the bound of the whole
    /// bucket.
    #[test]
    fn delayed_use_never_exceeds_the_bound_of_the_whole_bucket(
        capacity in 2..=9_u64,
        amount in 1..=5_u64,
        period in 1..=7_u64,
        delay in 1..=4_u64,
        attempts in prop::collection::vec((0..=3_u64, 1..=3_u32, 0..=4_u64), 1..40),
    ) {
        let Some(quota) = prepaid(capacity, amount, Micros::from_micros(period), Micros::from_micros(delay)) else {
            return Ok(());
        };
        let (mut state, mut now) = (None, 1_000);
        let mut passed: Vec<(u64, u64)> = Vec::new();
        for (pause, cost, held) in attempts {
            now += pause;
            let (after, verdict) = quota.decide(state, Cost::new(cost), Timestamp::now(now));
            state = after;
            if verdict.outcome.is_allowed() {
                passed.push((now + held.min(delay), cost.into()));
            }
        }
        for (start, _) in &passed {
            for (end, _) in &passed {
                let within = passed.iter().filter(|(at, _)| (start..=end).contains(&at));
                let units: u64 = within.map(|(_, units)| units).sum();
                prop_assert!(units * period <= capacity * period + amount * end.saturating_sub(*start));
            }
        }
    }
}
