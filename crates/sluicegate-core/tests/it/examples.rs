//! Tables that can be checked by hand: the corrected examples of the source documents (`docs/source-defects.md`), and
//! cases in which other limiters are known to fail.
//!
//! Every row is a time in microseconds since the start, a cost, and the expected result: [`pass`] with the remaining
//! units, [`wait`] with the microseconds until there is room and the remaining units, or [`NEVER`]. The start is a
//! full hour, so windows of a minute begin at multiples of sixty seconds.

use sluicegate_core::{
    Align, Cost, FixedWindow, Micros, Outcome, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
    Verdict,
};

const START: u64 = 1_705_312_800 * SECOND;
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

/// The expected result: the wait if denied, and the remaining units.
#[derive(Debug, PartialEq)]
enum Expected {
    Pass { remaining: u64 },
    Wait { retry_after: u64, remaining: u64 },
    Never,
}

const NEVER: Expected = Expected::Never;

fn pass(remaining: u64) -> Expected {
    Expected::Pass { remaining }
}

fn wait(retry_after: u64, remaining: u64) -> Expected {
    Expected::Wait { retry_after, remaining }
}

/// Runs one identity through the rows and compares.
fn table<const ROWS: usize>(quota: impl Into<Quota>, rows: [(u64, u32, Expected); ROWS]) {
    let quota = quota.into();
    let mut state = None;
    for (row, (at, cost, expected)) in rows.into_iter().enumerate() {
        let (next, verdict) = quota.decide(state, Cost::new(cost), Timestamp::now(START + at));
        assert_eq!(result_of(verdict), expected, "row {row}: {cost} units {at} µs after the start");
        state = next;
    }
}

fn result_of(Verdict { outcome, remaining, .. }: Verdict) -> Expected {
    match outcome {
        Outcome::Allowed => Expected::Pass { remaining },
        Outcome::Denied { retry_after } => Expected::Wait { retry_after: retry_after.as_micros(), remaining },
        Outcome::NeverAdmissible => Expected::Never,
    }
}

fn bucket(capacity: u64, amount: u64, period: u64) -> TokenBucket {
    let refill = Rate::new(amount, Micros::from_micros(period)).expect("a valid rate");
    TokenBucket::new(capacity, refill).expect("a valid bucket")
}

fn hundred_per_minute_log() -> SlidingWindow {
    SlidingWindow::new(100, Micros::from_secs(60)).expect("a valid window")
}

fn hundred_per_minute_fixed() -> FixedWindow {
    FixedWindow::new(100, Micros::from_secs(60), Align::Epoch).expect("a valid window")
}

/// A source document's "Capacity: 10 tokens, refill rate: 2 tokens/second".
#[test]
fn bucket_of_ten_refills_two_per_second() {
    table(
        bucket(10, 2, SECOND),
        [
            (0, 1, pass(9)),
            (0, 1, pass(8)),
            (SECOND, 0, pass(10)),
            (SECOND, 10, pass(0)),
            (SECOND, 1, wait(SECOND / 2, 0)),
            (SECOND, 3, wait(3 * SECOND / 2, 0)),
            (SECOND + SECOND / 2 - 1, 1, wait(1, 0)),
            (SECOND + SECOND / 2, 1, pass(0)),
            (11 * SECOND, 11, NEVER),
        ],
    );
}

/// A source document's walkthrough: five tokens, a second later 6⅔, one taken, 5⅔ left. The fraction is kept, so a
/// fifth of a second later there are six. The document stores 5 and loses the fraction.
#[test]
fn fractions_of_tokens_are_kept() {
    table(
        bucket(100, 100, MINUTE),
        [
            (0, 95, pass(5)),
            (SECOND, 1, pass(5)),
            (SECOND + 200 * MILLI - 1, 0, pass(5)),
            (SECOND + 200 * MILLI, 0, pass(6)),
        ],
    );
}

/// A source document's "rate limited flow": no tokens, and half a second later 0.83 of one.
#[test]
fn fraction_of_a_token_does_not_admit_a_request() {
    table(
        bucket(100, 100, MINUTE),
        [
            (0, 100, pass(0)),
            (500 * MILLI, 1, wait(100 * MILLI, 0)),
            (600 * MILLI - 1, 1, wait(1, 0)),
            (600 * MILLI, 1, pass(0)),
        ],
    );
}

/// A source document on capacity and credits: a new client has the capacity, and an idle one earns credits.
#[test]
fn idle_clients_earn_credits() {
    let refill = Rate::new(1, Micros::from_secs(1)).expect("a valid rate");
    let quota = TokenBucket::with_credits(10, refill, 90, Micros::from_secs(3_600)).expect("a valid bucket");
    table(
        quota,
        [
            (0, 11, NEVER),
            (0, 10, pass(0)),
            (0, 11, wait(11 * SECOND, 0)),
            (10 * SECOND, 0, pass(10)),
            (60 * SECOND, 0, pass(60)),
            (100 * SECOND, 0, pass(100)),
            (200 * SECOND, 0, pass(100)),
            (200 * SECOND, 101, NEVER),
            (200 * SECOND, 100, pass(0)),
            (200 * SECOND, 1, wait(SECOND, 0)),
        ],
    );
}

/// A source document: a cost of several tokens, all or nothing.
#[test]
fn cost_of_several_tokens_is_all_or_nothing() {
    table(
        bucket(5, 10, SECOND),
        [
            (0, 3, pass(2)),
            (0, 3, wait(100 * MILLI, 2)),
            (0, 2, pass(0)),
            (100 * MILLI, 1, pass(0)),
            (100 * MILLI, 5, wait(500 * MILLI, 0)),
            (599 * MILLI, 5, wait(MILLI, 4)),
            (600 * MILLI, 5, pass(0)),
            (600 * MILLI, 6, NEVER),
        ],
    );
}

/// A source document's "100 tokens, 60-second window". Its table has 98.67 at 1 s and 49 at 30 s, but a bucket with
/// 99 tokens is full again 0.6 s later.
#[test]
fn bucket_is_full_again_before_the_minute_ends() {
    table(
        bucket(100, 100, MINUTE),
        [
            (0, 1, pass(99)),
            (600 * MILLI - 1, 0, pass(99)),
            (600 * MILLI, 0, pass(100)),
            (SECOND, 1, pass(99)),
            (30 * SECOND, 1, pass(99)),
            (60 * SECOND, 1, pass(99)),
        ],
    );
}

/// A source document's sliding window, "100 requests, 60-second window": fifty requests by 30 s. At 61 s the first
/// two have left the window, those of 0 s and of 1 s. So 51 remain after the next one, where the document has 49.
#[test]
fn request_leaves_the_sliding_window_after_its_length() {
    let quota = Quota::from(hundred_per_minute_log());
    let mut state = None;
    let mut ask = |at, cost| {
        let (next, verdict) = quota.decide(state.take(), Cost::new(cost), Timestamp::now(START + at));
        state = next;
        result_of(verdict)
    };
    assert_eq!(ask(0, 1), pass(99));
    assert_eq!(ask(SECOND, 1), pass(98));
    for request in 3..=50 {
        assert_eq!(ask(30 * SECOND, 1), pass(100 - request));
    }
    assert_eq!(ask(60 * SECOND - 1, 0), pass(50));
    assert_eq!(ask(60 * SECOND, 0), pass(51));
    assert_eq!(ask(61 * SECOND - 1, 0), pass(51));
    assert_eq!(ask(61 * SECOND, 1), pass(51));
}

/// A source document's "55 requests in last minute": one more is allowed and 44 remain.
#[test]
fn sliding_window_with_55_of_100_admits_one_more() {
    table(
        hundred_per_minute_log(),
        [
            (0, 45, pass(55)),
            (30 * SECOND, 55, pass(0)),
            (60 * SECOND, 1, pass(44)),
            (60 * SECOND, 45, wait(30 * SECOND, 44)),
        ],
    );
}

/// A source document's "sliding window (solution)": a hundred at 0:59, and no further hundred at 1:00.
#[test]
fn sliding_window_has_no_boundary_burst() {
    table(
        hundred_per_minute_log(),
        [
            (59 * SECOND, 100, pass(0)),
            (60 * SECOND, 1, wait(59 * SECOND, 0)),
            (119 * SECOND - 1, 1, wait(1, 0)),
            (119 * SECOND, 100, pass(0)),
        ],
    );
}

/// A source document's fixed window. Its table has a request at 60 s in both windows, but a window ends before that
/// instant.
#[test]
fn second_60_belongs_to_the_next_window() {
    table(
        hundred_per_minute_fixed(),
        [
            (0, 1, pass(99)),
            (30 * SECOND, 50, pass(49)),
            (59 * SECOND, 49, pass(0)),
            (59 * SECOND, 1, wait(SECOND, 0)),
            (60 * SECOND - 1, 1, wait(1, 0)),
            (60 * SECOND, 1, pass(99)),
        ],
    );
}

/// An example of the sliding counter: eighty units in the previous minute weigh sixty after a quarter of this one.
#[test]
fn weight_of_the_previous_window_fades() {
    table(
        SlidingCounter::new(100, Micros::from_secs(60)).expect("a valid counter"),
        [
            (0, 80, pass(20)),
            (60 * SECOND, 0, pass(20)),
            (75 * SECOND, 41, wait(750 * MILLI, 40)),
            (75 * SECOND, 40, pass(0)),
            (75 * SECOND, 1, wait(750 * MILLI, 0)),
            (75_750 * MILLI - 1, 1, wait(1, 0)),
            (75_750 * MILLI, 1, pass(0)),
        ],
    );
}

/// The known error of the sliding counter: twice the limit less one within a window, which equals its documented
/// bound.
#[test]
fn sliding_counter_admits_up_to_twice_the_limit_less_one() {
    table(
        SlidingCounter::new(100, Micros::from_secs(60)).expect("a valid counter"),
        [
            (60 * SECOND - 1, 100, pass(0)),
            (120 * SECOND - 2, 99, pass(0)),
            (120 * SECOND - 2, 1, wait(2, 0)),
            (120 * SECOND, 1, pass(0)),
        ],
    );
}

/// A bucket of ten, a hundred per minute. One known limiter ignores that a full bucket stays full: after one request
/// and 5.3 idle seconds it admits seventeen at once.
#[test]
fn idle_bucket_never_exceeds_its_capacity() {
    table(
        bucket(10, 100, MINUTE),
        [
            (0, 1, pass(9)),
            (5_300 * MILLI, 11, NEVER),
            (5_300 * MILLI, 10, pass(0)),
            (5_300 * MILLI, 1, wait(600 * MILLI, 0)),
        ],
    );
}

/// 3·10⁸ per second is a token every 3⅓ ns. A limiter with whole nanoseconds uses 3, and admits 333 in a microsecond,
/// which is 11 % too many.
#[test]
fn rate_of_300_million_per_second_is_exact() {
    table(
        bucket(300_000_000, 300_000_000, SECOND),
        [
            (0, 300_000_000, pass(0)),
            (1, 301, wait(1, 300)),
            (1, 300, pass(0)),
            (1_000, 299_701, wait(1, 299_700)),
            (1_000, 299_700, pass(0)),
            (SECOND, 0, pass(299_700_000)),
        ],
    );
}

/// Three per second is a token every 333 333⅓ µs. Rounded down, three arrive a microsecond early in every second;
/// rounded to a millisecond, one request in a thousand is excess.
#[test]
fn rate_of_three_per_second_is_exact() {
    table(
        bucket(3, 3, SECOND),
        [
            (0, 3, pass(0)),
            (0, 1, wait(333_334, 0)),
            (333_333, 1, wait(1, 0)),
            (333_334, 1, pass(0)),
            (666_666, 1, wait(1, 0)),
            (666_667, 1, pass(0)),
            (999_999, 1, wait(1, 0)),
            (SECOND, 1, pass(0)),
        ],
    );
}

/// Three million per second is a token every third of a microsecond. An interval in whole microseconds would be zero,
/// or three times too long.
#[test]
fn rate_of_three_million_per_second_is_exact() {
    table(
        bucket(5, 3_000_000, SECOND),
        [
            (0, 5, pass(0)),
            (1, 4, wait(1, 3)),
            (1, 3, pass(0)),
            (2, 1, pass(2)),
            (4, 5, pass(0)),
            (4, 5, wait(2, 0)),
        ],
    );
}
