//! Tables that anyone can check by hand: the source documents' own examples, corrected, and the cases in
//! which other limiters are known to go wrong.
//!
//! Every row is a time in microseconds since the start, a cost, and what the core says: [`pass`] with what
//! remains, [`wait`] with the microseconds until there is room and what remains, or [`NEVER`]. The start is a
//! full hour, so windows of a minute begin at multiples of sixty seconds.

use sluicegate_core::{
    Align, Cost, FixedWindow, Micros, Outcome, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
    Verdict,
};

const START: u64 = 1_705_312_800 * SECOND;
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;

/// What the core is to say: the wait if it denies, and what remains.
#[derive(Debug, PartialEq)]
enum Says {
    Pass { remaining: u64 },
    Wait { retry_after: u64, remaining: u64 },
    Never,
}

const NEVER: Says = Says::Never;

fn pass(remaining: u64) -> Says {
    Says::Pass { remaining }
}

fn wait(retry_after: u64, remaining: u64) -> Says {
    Says::Wait { retry_after, remaining }
}

/// Runs one identity through the rows and compares.
fn table<const ROWS: usize>(quota: impl Into<Quota>, rows: [(u64, u32, Says); ROWS]) {
    let quota = quota.into();
    let mut state = None;
    for (row, (at, cost, expected)) in rows.into_iter().enumerate() {
        let (next, verdict) = quota.decide(state, Cost::new(cost), Timestamp::now(START + at));
        assert_eq!(says(verdict), expected, "row {row}: {cost} units {at} µs after the start");
        state = next;
    }
}

fn says(Verdict { outcome, remaining, .. }: Verdict) -> Says {
    match outcome {
        Outcome::Allowed => Says::Pass { remaining },
        Outcome::Denied { retry_after } => Says::Wait { retry_after: retry_after.as_micros(), remaining },
        Outcome::NeverAdmissible => Says::Never,
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

/// Document 001, "Capacity: 10 tokens, refill rate: 2 tokens/second".
#[test]
fn ten_tokens_and_two_per_second() {
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

/// Document 001, the walkthrough: five tokens, a second later 6⅔, one taken, 5⅔ left. The fraction stays, so
/// a fifth of a second later it is six; the document writes 5 back and loses it.
#[test]
fn the_walkthrough_keeps_its_two_thirds() {
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

/// Document 001, the "rate limited flow": no tokens, and half a second later 0.83 of one.
#[test]
fn five_sixths_of_a_token_are_not_one() {
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

/// Document 002, capacity and credits: who is new has the capacity, who idles earns the credits.
#[test]
fn credits_are_earned_by_idling() {
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

/// Document 003: a cost of several tokens, all or nothing.
#[test]
fn a_cost_of_several_tokens_is_taken_whole_or_not_at_all() {
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

/// Document 004, "100 tokens, 60-second window". Its table says 98.67 at 1 s and 49 at 30 s: a bucket that
/// has 99 tokens is full again 0.6 s later.
#[test]
fn a_hundred_tokens_refill_long_before_the_minute_is_over() {
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

/// Document 004, sliding window, "100 requests, 60-second window": fifty requests by 30 s. At 61 s the first
/// two have left, those of 0 s and of 1 s, so 51 remain after the next; the document says 49.
#[test]
fn a_request_leaves_the_sliding_window_a_window_later() {
    let quota = Quota::from(hundred_per_minute_log());
    let mut state = None;
    let mut ask = |at, cost| {
        let (next, verdict) = quota.decide(state.take(), Cost::new(cost), Timestamp::now(START + at));
        state = next;
        says(verdict)
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

/// Document 001, "55 requests in last minute": one more is allowed and 44 remain.
#[test]
fn fifty_five_of_a_hundred_leave_room() {
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

/// Document 001, "sliding window (solution)": a hundred at 0:59, and at 1:00 not a hundred more.
#[test]
fn the_sliding_window_has_no_boundary_to_burst_at() {
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

/// Document 004, fixed window. Its table has a request at 60 s in both windows; a window ends before it.
#[test]
fn the_sixtieth_second_belongs_to_the_next_window() {
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

/// The sliding counter's own example: eighty in the minute before weigh sixty after a quarter of this one.
#[test]
fn the_previous_window_fades_with_the_current_one() {
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

/// The sliding counter's known error: twice the limit less one within a window. The bound says so too.
#[test]
fn the_sliding_counter_lets_nearly_twice_the_limit_pass() {
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

/// A bucket of ten, a hundred per minute. One limiter forgets that a full bucket stays full: after one
/// request and 5.3 idle seconds it lets seventeen pass at once.
#[test]
fn an_idle_bucket_holds_ten_and_not_seventeen() {
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

/// 3·10⁸ per second is a token every 3⅓ ns. A limiter that counts whole nanoseconds makes it 3, and lets 333
/// pass in a microsecond, eleven in a hundred too many.
#[test]
fn three_hundred_million_per_second_are_three_hundred_per_microsecond() {
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

/// Three per second is a token every 333 333⅓ µs. Rounded down, three come a microsecond early, every second;
/// rounded to a millisecond, a request in a thousand too many.
#[test]
fn three_per_second_are_three_and_not_a_third_of_a_microsecond_more() {
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

/// Three million per second is a token every third of a microsecond: an interval in whole microseconds would
/// be nothing at all, or three times too long.
#[test]
fn three_million_per_second_are_three_per_microsecond() {
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
