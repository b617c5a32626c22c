//! The examples of the documentation.

use super::*;

const SECONDS: u64 = 1_000_000;

/// Charges `cost` at each of these instants, all of which must fit.
fn used(limit: &Limit, charges: &[(u64, u64)]) -> Option<Usage> {
    let mut usage = None;
    for (at, cost) in charges {
        assert!(limit.fits(usage.as_ref(), *cost, *at), "{at}");
        usage = Some(limit.charged(usage.as_ref(), *cost, *at));
    }
    usage
}

#[test]
fn a_bucket_of_a_hundred_lets_two_hundred_pass_in_its_first_minute() {
    let bucket = Bucket { capacity: 100, credits: 0, amount: 100, period: 60 * SECONDS, credit_ttl: SECONDS };
    let limit = Limit::Bucket(bucket);
    let usage = used(&limit, &[(0, 100), (30 * SECONDS, 50), (60 * SECONDS, 50)]);
    assert_eq!(limit.remaining(usage.as_ref(), 60 * SECONDS), 0);
    assert_eq!(limit.fits_at(usage.as_ref(), 1, 60 * SECONDS), Some(60 * SECONDS + 600_000));
    assert_eq!(limit.restored_at(usage.as_ref(), 60 * SECONDS), 120 * SECONDS);
}

#[test]
fn a_third_of_a_microsecond_is_neither_lost_nor_gained() {
    let limit = Limit::Bucket(Bucket { capacity: 3, credits: 0, amount: 3, period: SECONDS, credit_ttl: SECONDS });
    let usage = used(&limit, &[(0, 3)]);
    let next = |cost| limit.fits_at(usage.as_ref(), cost, 0);
    assert_eq!([next(1), next(2), next(3)], [Some(333_334), Some(666_667), Some(SECONDS)]);
}

#[test]
fn credits_are_earned_by_a_known_client_and_forgotten_with_it() {
    let bucket = Bucket { capacity: 1, credits: 9, amount: 10, period: SECONDS, credit_ttl: 2 * SECONDS };
    let limit = Limit::Bucket(bucket);
    assert_eq!(limit.fits_at(None, 10, 0), None, "a client without history has no credits and earns none");
    let usage = used(&limit, &[(0, 1)]);
    assert_eq!(limit.fits_at(usage.as_ref(), 10, 0), Some(SECONDS));
    assert_eq!(limit.remaining(usage.as_ref(), 2 * SECONDS), 10);
    assert_eq!(limit.remaining(usage.as_ref(), 2 * SECONDS + 1), 1, "forgotten");
}

#[test]
fn a_unit_leaves_the_sliding_window_after_a_window() {
    let limit = Limit::SlidingWindow(SlidingWindow { limit: 2, window: 60 * SECONDS });
    let usage = used(&limit, &[(0, 1), (10 * SECONDS, 1)]);
    assert_eq!(limit.fits_at(usage.as_ref(), 1, 59 * SECONDS), Some(60 * SECONDS));
    assert_eq!(limit.fits_at(usage.as_ref(), 3, 59 * SECONDS), None);
    assert_eq!(limit.restored_at(usage.as_ref(), 59 * SECONDS), 70 * SECONDS);
}

#[test]
fn the_previous_window_of_a_sliding_counter_fades() {
    let limit = Limit::SlidingCounter(SlidingCounter { limit: 100, window: 60 * SECONDS });
    let usage = used(&limit, &[(0, 80)]);
    assert_eq!(limit.remaining(usage.as_ref(), 75 * SECONDS), 40);
    assert_eq!(limit.fits_at(usage.as_ref(), 41, 75 * SECONDS), Some(75_750_000));
}

#[test]
fn windows_begin_with_the_calendar() {
    let second = |seconds: u64| seconds * SECONDS;
    // Thursday, 29 February 2024, noon.
    let now = second(1_709_208_000);
    let end = |windows: Windows| windows.end_after(now) / SECONDS;
    assert_eq!(end(Windows::Even(7_200 * SECONDS)), 1_709_215_200);
    assert_eq!(end(Windows::Hours), 1_709_211_600);
    assert_eq!(end(Windows::Days), 1_709_251_200);
    assert_eq!(end(Windows::Weeks(0)), 1_709_510_400, "Monday, 4 March");
    assert_eq!(end(Windows::Weeks(4)), 1_709_251_200, "Friday, 1 March");
    assert_eq!(end(Windows::Months(1)), 1_709_251_200, "1 March");
    assert_eq!(end(Windows::Months(31)), 1_711_843_200, "31 March, because the last one was 29 February");
}
