//! Limits of every kind, from tiny to extreme, as far as validation accepts them.

use super::{DAY, PERIOD_MAX, SECOND, START};
use crate::harness::quota;
use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_core::quota::UNITS_MAX;
use sluicegate_testkit::model::{Bucket, Counter, Fixed, Limit, Log, Uneven};

/// Keeps the limits that validation accepts.
fn valid<L: Strategy<Value = Limit>>(limits: L) -> impl Strategy<Value = Limit> {
    limits.prop_filter("a valid limit", |limit| quota(limit).is_ok())
}

/// Token buckets without credits.
pub(crate) fn buckets() -> impl Strategy<Value = Limit> + Clone {
    bucket_limits(Just(0).boxed(), Just(0).boxed())
}

/// Token buckets with credits.
pub(crate) fn buckets_with_credits() -> impl Strategy<Value = Limit> + Clone {
    bucket_limits((1..=6u64).boxed(), prop_oneof![1..=500u64, any_units()].boxed())
}

fn bucket_limits(few: BoxedStrategy<u64>, many: BoxedStrategy<u64>) -> impl Strategy<Value = Limit> + Clone {
    let tiny = (1..=8u64, few, 1..=7u64, 1..=20u64, 1_000..=3_000u64);
    let periods = prop_oneof![Just(SECOND), Just(60 * SECOND), Just(DAY), 1..=DAY];
    let ordinary = (1..=500u64, many.clone(), 1..=500u64, periods, 1_000..=2 * DAY);
    let extreme = (any_units(), many, any_units(), any_length(), 1_000..=PERIOD_MAX);
    let numbers = prop_oneof![3 => tiny, 3 => ordinary, 1 => extreme];
    let limits = numbers.prop_map(|(capacity, credits, amount, period, credit_ttl)| {
        // Ten years are soon exceeded, so a slow bucket holds less.
        let holds_max = (u128::from(amount) * u128::from(PERIOD_MAX) / u128::from(period)) as u64;
        let capacity = capacity.min(holds_max.min(UNITS_MAX)).max(1);
        let credits = credits.min(holds_max.min(UNITS_MAX) - capacity.min(holds_max));
        Limit::Bucket(Bucket { capacity, credits, amount, period, credit_ttl })
    });
    valid(limits).boxed()
}

/// Sliding windows.
pub(crate) fn logs() -> impl Strategy<Value = Limit> + Clone {
    let limits = prop_oneof![1 => Just(0u64), 6 => 1..=20u64, 2 => 1..=10_000u64, 1 => Just(10_000u64)];
    let limits = (limits, any_window()).prop_map(|(limit, window)| Limit::Log(Log { limit, window }));
    valid(limits).boxed()
}

/// Sliding counters.
pub(crate) fn counters() -> impl Strategy<Value = Limit> + Clone {
    let limits = prop_oneof![1 => Just(0u64), 6 => 1..=20u64, 3 => 1..=5_000u64, 2 => any_units()];
    let limits = (limits, any_window()).prop_map(|(limit, window)| {
        let limit = limit.min(((1 << 53) - 1) / (window / 1_000));
        Limit::Counter(Counter { limit, window })
    });
    valid(limits).boxed()
}

/// Fixed windows.
pub(crate) fn fixed() -> impl Strategy<Value = Limit> + Clone {
    let limits = prop_oneof![1 => Just(0u64), 6 => 1..=20u64, 2 => 1..=5_000u64, 1 => any_units()];
    let limits = (limits, any_window()).prop_map(|(limit, window)| Limit::Fixed(Fixed { limit, window }));
    valid(limits).boxed()
}

/// Fixed windows of a calendar: shorter ones around the start of most runs, and longer ones anywhere.
pub(crate) fn uneven() -> impl Strategy<Value = Limit> + Clone {
    let limits = prop_oneof![1 => Just(0u64), 6 => 1..=20u64, 2 => 1..=5_000u64, 1 => any_units()];
    let hours = |hours: u64| hours * 3_600 * SECOND;
    let usual = prop_oneof![Just(hours(23)), Just(hours(24)), Just(hours(25)), Just(hours(31 * 24))];
    let length = prop_oneof![
        4 => (1_000..=4_000u64).prop_map(|millis| millis * 1_000),
        4 => usual,
        1 => (1_000..=PERIOD_MAX / 1_000).prop_map(|millis| millis * 1_000)
    ];
    let before =
        prop_oneof![(0..=10u64).prop_map(|seconds| seconds * SECOND), (0..=100u64).prop_map(|days| days * DAY)];
    let first = prop_oneof![3 => before.prop_map(|before| START - before), 1 => Just(0u64), 1 => Just(SECOND)];
    let limits = (limits, first, vec(length, 1..=30));
    valid(limits.prop_map(|(limit, first, lengths)| Limit::Uneven(Uneven { limit, first, lengths }))).boxed()
}

/// Any limit of any algorithm.
pub(crate) fn all_limits() -> impl Strategy<Value = Limit> + Clone {
    prop_oneof![buckets(), buckets_with_credits(), logs(), counters(), fixed(), uneven()].boxed()
}

fn any_units() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        Just(1u64),
        Just(u64::from(u32::MAX)),
        Just(UNITS_MAX),
        Just(UNITS_MAX - 1),
        1..=UNITS_MAX,
        (0..50u32).prop_map(|bits| (1u64 << bits).min(UNITS_MAX)),
    ]
}

fn any_length() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![
        Just(1u64),
        Just(PERIOD_MAX),
        1..=PERIOD_MAX,
        (0..49u32).prop_map(|bits| (1u64 << bits).min(PERIOD_MAX))
    ]
}

fn any_window() -> impl Strategy<Value = u64> + Clone {
    let millis = prop_oneof![
        5 => 1..=4u64,
        2 => 1..=5_000u64,
        2 => Just(60_000u64),
        1 => Just(30 * 86_400_000u64),
        1 => 1..=PERIOD_MAX / 1_000,
        1 => Just(PERIOD_MAX / 1_000),
    ];
    millis.prop_map(|millis| millis * 1_000)
}
