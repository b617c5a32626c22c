//! Where the source documents go wrong, and what happens here instead.
//!
//! Five documents describe the system in pieces; taken literally, their code does not limit. The list has 68
//! rows. A row is tested here if the pure core can show it, elsewhere if it takes a store or a server. Each
//! test says what the document's text would do and asserts what is right. The numbers in the comments are the
//! rows; this table says where each is tested. "store" and "keys" are `crates/sluicegate/tests/it/`
//! (`source_defects.rs` there), "redis" is the store there that is shared (`tests/it/redis_*` and
//! `src/store/redis/`), "server" is `crates/sluicegate-server` and the parts of `crates/sluicegate` that it is made
//! of. Whoever looks for a row finds it by its number: each test that holds one is headed "Row N".
//!
//! | rows | what they are about | tested in |
//! |---|---|---|
//! | 1, 2 | a time to live shorter than the time to fill | here; the key's own expiry: redis |
//! | 3–14 | refill, rounding, units, cost | here; the text of a negative cost: server |
//! | 15 | rates that are no numbers | here: no such rate can be built; the parser: server |
//! | 16–22 | bursts, examples, credits, forgetting | here |
//! | 23 | state that is kept for ever | here: every state has an end; the sweep: store |
//! | 24 | a window of nothing | here |
//! | 25 | many requests in one tick | here |
//! | 26 | three calls instead of one | store; redis |
//! | 27–31 | the sliding window's waits, edges and size | here; the bytes of an entry: store |
//! | 32 | a counter without expiry | redis |
//! | 33–38 | the fixed window's counting, edges and alignment | here; two real servers: redis |
//! | 39 | clocks of the callers | redis |
//! | 40 | a clock that is believed when it steps back | here |
//! | 41–43 | read, then write; two keys for one bucket | store; redis |
//! | 44 | eviction resets limits | store, redis |
//! | 45 | timeouts that take the server down | server |
//! | 46, 47 | availability that is claimed and not given | redis |
//! | 48 | a damaged key as a bypass | here: a damaged state limits; error classes: redis |
//! | 49 | a third way to fail | server |
//! | 50 | several limits for one request | here: all or nothing; across keys: store, redis |
//! | 51 | four round trips | redis |
//! | 52–54 | keys that collide | keys |
//! | 55 | a rule that changes its algorithm | here, store; the key's type: redis |
//! | 56, 57 | braces in keys | keys |
//! | 58–65 | identity, exemptions, headers, failure policy | server |
//! | 66 | local limits that add up | store |
//! | 67 | units of the reset time | here: lengths are typed; headers: server |
//! | 68 | a metric per identity | server |

use sluicegate_core::algorithm::sliding_window::LIMIT_MAX;
use sluicegate_core::algorithm::token_bucket::{CREDIT_TTL_DEFAULT, TokenBucketState};
use sluicegate_core::decision::{self, Group};
use sluicegate_core::quota::UNITS_MAX;
use sluicegate_core::{
    Align, Cost, FixedWindow, Micros, Outcome, Quota, QuotaError, Rate, SlidingWindow, State, Timestamp,
    TokenBucket, Verdict,
};

/// A full hour, so that windows of a minute begin at multiples of sixty seconds from here.
const START: u64 = 1_705_312_800 * SECOND;
const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// One identity under one limit. Times are microseconds after the start.
struct Client {
    quota: Quota,
    state: Option<State>,
}

impl Client {
    fn new(quota: impl Into<Quota>) -> Self {
        Self { quota: quota.into(), state: None }
    }

    fn ask(&mut self, at: u64, cost: u32) -> Verdict {
        let now = Timestamp::now(START + at);
        let (state, verdict) = self.quota.decide(self.state.take(), Cost::new(cost), now);
        self.state = state;
        verdict
    }

    fn passes(&mut self, at: u64, cost: u32) -> bool {
        self.ask(at, cost).outcome.is_allowed()
    }

    /// How many of so many single requests at one instant pass.
    fn burst(&mut self, at: u64, requests: u32) -> u32 {
        (0..requests).map(|_| u32::from(self.passes(at, 1))).sum()
    }

    fn remaining(&mut self, at: u64) -> u64 {
        self.ask(at, 0).remaining
    }

    /// The wait until `cost` passes; nothing if it passes or never will.
    fn wait(&mut self, at: u64, cost: u32) -> Option<u64> {
        match self.ask(at, cost).outcome {
            Outcome::Denied { retry_after } => Some(retry_after.as_micros()),
            Outcome::Allowed | Outcome::NeverAdmissible => None,
        }
    }

    /// For how long after `at` the state is kept.
    fn kept_after(&self, at: u64) -> u64 {
        let kept_until = self.state.as_ref().map(|state| self.quota.kept_until(state));
        kept_until.map_or(0, |until| until.since(Timestamp::now(START + at)).as_micros())
    }
}

fn rate(amount: u64, period: u64) -> Rate {
    Rate::new(amount, Micros::from_micros(period)).expect("a valid rate")
}

fn bucket(capacity: u64, amount: u64, period: u64) -> Client {
    Client::new(TokenBucket::new(capacity, rate(amount, period)).expect("a valid bucket"))
}

fn with_credits(capacity: u64, credits: u64, amount: u64, period: u64) -> Client {
    let quota = TokenBucket::with_credits(capacity, rate(amount, period), credits, CREDIT_TTL_DEFAULT);
    Client::new(quota.expect("a valid bucket"))
}

fn log(limit: u64, window: u64) -> Client {
    Client::new(SlidingWindow::new(limit, Micros::from_micros(window)).expect("a valid window"))
}

fn fixed(limit: u64, window: u64) -> Client {
    let quota = FixedWindow::new(limit, Micros::from_micros(window), Align::Epoch);
    Client::new(quota.expect("a valid window"))
}

fn refused<T: std::fmt::Debug>(result: Result<T, QuotaError>) -> &'static str {
    result.expect_err("this must be refused").field()
}

// Row 1. B = 5, 10 per second: a time to live of ⌊5/10⌋ = 0 s deletes the key at once, and all of 1000
// requests within a millisecond pass.
#[test]
fn a_small_fast_bucket_is_remembered_until_it_is_full() {
    let mut client = bucket(5, 10, SECOND);
    let passed: u32 = (0..1_000).map(|request| client.burst(request, 1)).sum();
    assert_eq!(passed, 5);
    assert_eq!(client.kept_after(0), 500 * MILLI);
}

// Row 2. B = 19, 10 per second: a time to live of 1 s for a bucket that needs 1.9 s makes it 19 per second.
#[test]
fn a_bucket_drained_a_second_ago_has_a_seconds_worth() {
    let mut client = bucket(19, 10, SECOND);
    assert_eq!(client.burst(0, 100), 19);
    assert_eq!(client.kept_after(0), 1_900 * MILLI);
    assert_eq!(client.burst(SECOND, 100), 10);
}

// Row 3. A rate of nothing: the division by it fails after the write, the error opens the limit, and the key
// never expires.
#[test]
fn a_rate_of_nothing_is_refused() {
    assert_eq!(refused(Rate::new(0, Micros::from_secs(1))), "refill amount");
    assert!(Rate::new(1, Micros::PERIOD_MAX).is_ok(), "the slowest rate is one in ten years");
}

// Row 4. B = 100, 101 requests within a millisecond: `tokens > 0` lets the last one pass on 0.0017 tokens.
#[test]
fn a_fraction_of_a_token_buys_nothing() {
    let mut client = bucket(100, 100, MINUTE);
    let passed: u32 = (0..101).map(|request| client.burst(request * 9, 1)).sum();
    assert_eq!(passed, 100);
}

// Row 5. One per second, asked every 999 ms: rounding down what was earned and forgetting the rest admits
// 0.501 per second; every 900 ms 0.556.
#[test]
fn polling_a_little_too_fast_costs_nothing() {
    for (period, polls) in [(999 * MILLI, 10_000), (900 * MILLI, 10_000)] {
        let mut client = bucket(2, 1, SECOND);
        let passed: u64 = (0..polls).map(|poll| u64::from(client.passes(poll * period, 1))).sum();
        // Two at once and then one per second; at the end one may be left in the bucket.
        let earned = 2 + (polls - 1) * period / SECOND;
        assert!((earned - 1..=earned).contains(&passed), "{passed} of {earned}, asked every {period} µs");
    }
}

// Row 6. One per second, B = 10, asked every 100 ms with the state written on rejection too: after the first
// ten nothing ever passes again.
#[test]
fn a_client_that_keeps_retrying_is_not_locked_out() {
    let mut client = bucket(10, 1, SECOND);
    let passed: u64 = (0..=100_000).map(|poll| u64::from(client.passes(poll * 100 * MILLI, 1))).sum();
    assert_eq!(passed, 10 + 10_000);
}

// Row 7. B = 1, 0.1 per second, asked every second: ten times 0.1 is 0.9999999999999999, and the tenth
// request waits until the eleventh second.
#[test]
fn ten_tenths_are_one() {
    let mut client = bucket(1, 1, 10 * SECOND);
    assert!(client.passes(0, 1));
    for second in 1..10 {
        assert_eq!(client.wait(second * SECOND, 1), Some((10 - second) * SECOND));
    }
    assert!(client.passes(10 * SECOND, 1));
}

// Row 8. B = 10, 2 per second, the time given in milliseconds: full again after 5 ms instead of 5 s.
#[test]
fn a_second_is_a_million_microseconds_everywhere() {
    let mut client = bucket(10, 2, SECOND);
    assert_eq!(client.burst(0, 20), 10);
    assert_eq!(client.burst(5 * MILLI, 20), 0);
    assert_eq!(client.remaining(5 * SECOND - 1), 9);
    assert_eq!(client.remaining(5 * SECOND), 10);
    assert_eq!(
        (Micros::from_secs(1), Micros::from_millis(1)),
        (Micros::from_micros(SECOND), Micros::from_micros(MILLI))
    );
}

// Row 9. "100 per minute = 1.67 per second" in an integer is 60 or 120 per minute, and 1000 per day is none.
#[test]
fn a_rate_is_a_fraction_and_not_a_whole_number_per_second() {
    for (amount, period) in [(100, MINUTE), (1_000, DAY)] {
        let mut client = bucket(amount, amount, period);
        let all = u32::try_from(amount).expect("a small amount");
        assert!(client.passes(0, all));
        assert_eq!(client.remaining(period - 1), amount - 1);
        assert_eq!(client.remaining(period), amount);
    }
}

// Row 10. The walkthrough stores 5 for 5.67 tokens: 40 in a hundred of what was just earned is gone.
#[test]
fn two_thirds_of_a_token_are_kept() {
    let mut client = bucket(100, 100, MINUTE);
    assert!(client.passes(0, 95));
    assert_eq!(client.ask(SECOND, 1).remaining, 5);
    // A third of a token takes 200 ms; without the two thirds it would take 600 ms.
    assert_eq!((client.remaining(1_200 * MILLI - 1), client.remaining(1_200 * MILLI)), (5, 6));
}

// Row 11. 0.83 tokens: denied in the text, denied by one document's code for another reason, allowed by the
// next. Three rules in five files.
#[test]
fn a_cost_passes_if_there_are_that_many_tokens() {
    let mut client = bucket(100, 100, MINUTE);
    assert!(client.passes(0, 100));
    assert!(!client.passes(500 * MILLI, 1), "five sixths of a token");
    assert!(!client.passes(600 * MILLI, 2), "one token for a cost of two");
    assert!(client.passes(600 * MILLI, 1), "exactly one token");
}

// Row 12. "Reset 1705312900 (30 seconds from now)", half a second after 1705312800, is neither 30 s away nor
// right.
#[test]
fn the_reset_is_when_the_bucket_is_full() {
    let mut client = bucket(100, 100, MINUTE);
    assert!(client.passes(0, 100));
    let verdict = client.ask(500 * MILLI, 1);
    assert_eq!(verdict.reset_after, Micros::from_millis(59_500));
    assert_eq!(verdict.outcome, Outcome::Denied { retry_after: Micros::from_millis(100) });
    assert_eq!(Micros::from_millis(100).ceil_secs(), 1);
}

// Row 13. A cost of −5 leaves ten tokens in a bucket of five. Here a cost has no sign, and giving back, the
// one way to add tokens, ends at the brim.
#[test]
fn nobody_can_mint_tokens() {
    let mut client = bucket(5, 1, SECOND);
    assert!(client.passes(0, 3));
    for cost in [5, u32::MAX] {
        client.state = client.quota.refund(client.state.take(), Cost::new(cost), Timestamp::now(START));
        assert_eq!(client.remaining(0), 5);
    }
    assert_eq!(client.burst(0, 20), 5);
}

// Row 14. A cost of 6 under B = 5 is denied for ever, and the client told to retry.
#[test]
fn a_cost_above_the_capacity_is_told_so() {
    let mut client = bucket(5, 1, SECOND);
    assert_eq!(client.ask(0, 6).outcome, Outcome::NeverAdmissible);
    assert_eq!(client.ask(HOUR, 6).outcome, Outcome::NeverAdmissible);
    assert!(client.passes(HOUR, 5));
}

// Row 15. A rate of "inf" or "nan" lets everything pass. A rate is two whole numbers here, both bounded.
#[test]
fn a_rate_beyond_all_bounds_is_refused() {
    assert_eq!(refused(Rate::new(u64::MAX, Micros::from_secs(1))), "refill amount");
    assert_eq!(refused(Rate::new(1, Micros::from_micros(u64::MAX))), "refill period");
    assert_eq!(refused(TokenBucket::new(u64::MAX, rate(1, 1))), "capacity");
    assert!(Rate::new(UNITS_MAX, Micros::from_micros(1)).is_ok());
}

// Row 16. "100 per minute" as a bucket of 100 admits 200 in the first minute. That is what a bucket does: the
// bound is B + r·d. Where never more than 100 may pass in a minute, the sliding window says so.
#[test]
fn a_bucket_adds_the_burst_to_the_rate_and_a_log_does_not() {
    let minute_of =
        |mut client: Client| -> u32 { (0..=60_000).map(|milli| u32::from(client.passes(milli * MILLI, 1))).sum() };
    assert_eq!(minute_of(bucket(100, 100, MINUTE)), 200);
    // The first hundred leave at 60 s, the moment at which the closed minute ends.
    assert_eq!(minute_of(log(100, MINUTE)), 101);
    let mut client = log(100, MINUTE);
    let passed: u32 = (0..60_000).map(|milli| u32::from(client.passes(milli * MILLI, 1))).sum();
    assert_eq!(passed, 100);
}

// Row 17. The example has 98.67 tokens at 1 s and 50 at 30 s; the document's own code has 99 both times.
#[test]
fn a_bucket_that_is_full_cannot_be_fuller() {
    let mut client = bucket(100, 100, MINUTE);
    for at in [0, SECOND, 30 * SECOND, 60 * SECOND] {
        assert_eq!(client.ask(at, 1).remaining, 99, "{at} µs after the start");
    }
}

// Row 18. With refill up to capacity + credits from the start, `capacity` has no meaning at all.
#[test]
fn credits_are_not_given_to_who_is_new() {
    let mut client = with_credits(10, 90, 1, SECOND);
    assert_eq!(client.burst(0, 200), 10);
    assert_eq!(client.remaining(60 * SECOND), 60, "the capacity is no ceiling for who has a history");
    assert_eq!(client.remaining(HOUR), 100);
}

// Row 19. B = 10, credits 90, 1 per second, and a time to live of B/r: drained, idle for 10 s, forgotten, and
// back with 100.
#[test]
fn a_drained_client_with_credits_is_remembered() {
    let mut client = with_credits(10, 90, 1, SECOND);
    assert!(client.passes(0, 1));
    assert!(client.passes(HOUR, 100));
    assert!(client.kept_after(HOUR) >= 100 * SECOND, "the time to earn everything back");
    assert_eq!(client.remaining(HOUR + 10 * SECOND), 10);
}

// Row 20. If the key of an idle client expires and a new one starts at B, the client loses what it earned.
#[test]
fn earned_credits_are_kept_for_a_day_of_idleness_and_then_forgotten() {
    let mut client = with_credits(10, 90, 1, SECOND);
    assert!(client.passes(0, 1));
    assert_eq!(client.kept_after(0), DAY);
    assert_eq!(client.remaining(DAY), 100);
    assert_eq!(client.remaining(DAY + 1), 10);
}

// Row 21. Capacity and credits stored per user: a change of plan never reaches who is known already.
#[test]
fn a_new_limit_applies_to_who_is_known_already() {
    let mut client = bucket(10, 1, SECOND);
    assert!(client.passes(0, 10));
    client.quota = bucket(100, 100, SECOND).quota;
    assert_eq!(client.ask(10 * SECOND, 0).limit, 100);
    assert!(client.passes(10 * SECOND, 100));
    client.quota = bucket(10, 1, SECOND).quota;
    assert_eq!(client.ask(10 * SECOND, 0).limit, 10);
    assert_eq!(client.remaining(HOUR), 10);
}

// Row 22. A time to live of 3600 s, B = 7200, 1 per second: drained, an hour later full instead of half full.
#[test]
fn an_hour_fills_half_of_a_bucket_of_two_hours() {
    let mut client = bucket(7_200, 1, SECOND);
    assert!(client.passes(0, 7_200));
    assert_eq!(client.kept_after(0), 2 * HOUR);
    assert_eq!(client.remaining(HOUR), 3_600);
}

// Row 23. No time to live at all: a key for everyone ever seen, for ever.
#[test]
fn every_state_has_an_end() {
    let cases = [(bucket(10, 1, SECOND), SECOND), (log(10, MINUTE), MINUTE), (fixed(10, MINUTE), MINUTE)];
    for (mut client, kept) in cases {
        assert!(client.passes(0, 1));
        assert_eq!(client.kept_after(0), kept, "{:?}", client.quota);
        let later = Timestamp::now(START + kept + 1);
        let remembered = client.quota.standing(client.state.as_ref(), later);
        assert_eq!(remembered, client.quota.standing(None, later), "{:?}", client.quota);
    }
}

// Row 24. A window of 0 s: an infinite rate, or a division by zero that opens the limit.
#[test]
fn a_window_of_nothing_is_refused() {
    assert_eq!(refused(FixedWindow::new(1, Micros::ZERO, Align::Epoch)), "window");
    assert_eq!(refused(SlidingWindow::new(1, Micros::ZERO)), "window");
    assert_eq!(refused(Rate::new(1, Micros::ZERO)), "refill period");
}

// Row 25. Members named after the millisecond: 10 000 requests in one are one member, and a limit of 100
// admits a million in a hundred of them.
#[test]
fn requests_of_one_instant_are_all_counted() {
    let mut client = log(100, MINUTE);
    let passed: u32 = (0..100).map(|milli| client.burst(milli * MILLI, 10_000)).sum();
    assert_eq!(passed, 100);
}

// Row 27. 100 at 0 s, denied at 59 s: told to wait 60 s when a slot is free in one.
#[test]
fn the_wait_ends_when_the_oldest_request_leaves() {
    let mut client = log(100, MINUTE);
    assert_eq!(client.burst(0, 100), 100);
    assert_eq!(client.wait(59 * SECOND, 1), Some(SECOND));
    assert_eq!(client.ask(59 * SECOND, 1).reset_after, Micros::from_secs(1));
}

// Row 28. At 61 s the example still counts the request of 1 s, the code removes it: 49 or 51 remaining.
#[test]
fn a_request_leaves_the_window_exactly_one_window_later() {
    let mut client = log(100, MINUTE);
    assert!(client.passes(0, 1) && client.passes(SECOND, 1) && client.passes(30 * SECOND, 48));
    assert_eq!(client.remaining(61 * SECOND - 1), 51, "the request of 1 s counts to the last microsecond");
    assert_eq!(client.ask(61 * SECOND, 1).remaining, 51, "48 are left, and the one just asked for");
}

// Row 29. "Burst capacity: no" for the sliding window; but all of the limit may come in one microsecond.
#[test]
fn a_sliding_window_limits_the_count_and_not_the_burst() {
    let mut client = log(100, MINUTE);
    assert!(client.passes(0, 100));
    assert_eq!(client.wait(0, 1), Some(MINUTE));
}

// Row 30. 30 days in milliseconds do not fit 32 bits: the window starts in the future and nothing is limited.
#[test]
fn a_window_of_thirty_days_limits() {
    for mut client in [log(100, 30 * DAY), fixed(100, 30 * DAY)] {
        assert_eq!(client.burst(0, 1_000), 100, "{:?}", client.quota);
        assert_eq!(client.burst(2 * DAY, 1_000), 0, "{:?}", client.quota);
    }
    assert_eq!(log(1, 30 * DAY).quota.window().as_micros(), 30 * DAY);
}

// Row 31. A log of unlimited length: 130 bytes a request, and a clean-up that blocks the shard.
#[test]
fn a_log_is_bounded() {
    assert_eq!(refused(SlidingWindow::new(LIMIT_MAX + 1, Micros::from_secs(60))), "limit");
    let mut client = log(100, MINUTE);
    for request in 0..10_000 {
        client.ask(request * MILLI, 1);
    }
    let Some(State::SlidingWindow(state)) = &client.state else { panic!("a log") };
    assert!(state.entry_count() <= 100, "{} entries", state.entry_count());
}

// Row 33. A counter that counts the denied: 95 of 100 used, 10 asked for and denied, and now 5 are lost.
#[test]
fn a_denied_request_uses_nothing_up() {
    for mut client in [fixed(100, MINUTE), log(100, MINUTE), bucket(100, 1, HOUR)] {
        assert!(client.passes(0, 95));
        assert!(!client.passes(0, 10));
        assert_eq!(client.burst(0, 10), 5, "{:?}", client.quota);
    }
}

// Row 34. 999 ms before the reset `(int)(999 / 1000)` is "Retry-After: 0", and everybody storms back.
#[test]
fn a_wait_of_less_than_a_second_is_a_second_in_whole_seconds() {
    let mut client = fixed(100, MINUTE);
    assert_eq!(client.burst(0, 100), 100);
    assert_eq!(client.wait(MINUTE - 999 * MILLI, 1), Some(999 * MILLI));
    assert_eq!(Micros::from_millis(999).ceil_secs(), 1);
    assert_eq!(Micros::from_micros(1).ceil_secs(), 1);
}

// Row 35. A request at exactly 60 s is denied in window 1 and allowed in window 2 of the same table.
#[test]
fn a_window_ends_before_the_next_begins() {
    let mut client = fixed(100, MINUTE);
    assert_eq!(client.burst(0, 100), 100);
    assert_eq!(client.wait(MINUTE - 1, 1), Some(1));
    assert_eq!(client.ask(MINUTE, 1).remaining, 99);
}

// Row 36. 100 at 59.999 s and 100 at 60.000 s: twice the limit in a millisecond. That is the fixed window's
// bound, and never more; the sliding window and the bucket admit 100.
#[test]
fn a_fixed_window_admits_twice_the_limit_across_a_boundary_and_the_others_do_not() {
    let boundary = |mut client: Client| client.burst(MINUTE - MILLI, 1_000) + client.burst(MINUTE, 1_000);
    assert_eq!(boundary(fixed(100, MINUTE)), 200);
    assert_eq!(boundary(log(100, MINUTE)), 100);
    assert_eq!(boundary(bucket(100, 100, MINUTE)), 100);
}

// Row 37. Two servers whose clocks differ, a key per window: L at the end of one, L in the next, L in the one
// after, all within one window's time. One state for all windows believes the clock that is ahead.
#[test]
fn two_clocks_share_one_window() {
    let (slow, fast) = (0, 2 * SECOND);
    let mut client = fixed(100, MINUTE);
    let mut passed = client.burst(58 * SECOND + slow, 1_000);
    // The fast clock is in the next window already; the slow one is asked again and sees that window.
    passed += client.burst(58 * SECOND + fast, 1_000);
    passed += client.burst(59 * SECOND + slow, 1_000);
    assert_eq!(passed, 200);
    let mut later = 0;
    for second in 60..118 {
        later += client.burst(second * SECOND + slow, 10) + client.burst(second * SECOND + fast - 1, 10);
    }
    assert_eq!(later, 0, "a third limit within the window's time");
    assert_eq!(client.burst(118 * SECOND + fast, 1_000), 100);
}

// Row 38. All windows begin at the same instant, so everybody comes back at once.
#[test]
fn windows_can_be_spread_over_the_keys() {
    let spread = Quota::from(FixedWindow::new(1, Micros::from_secs(60), Align::Key).expect("a valid window"));
    let now = Timestamp::now(START);
    let resets: std::collections::BTreeSet<u64> = (0..1_000_u64)
        .map(|key| {
            let seen = spread.aligned(now, key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let (_, verdict) = spread.decide(None, Cost::ONE, seen);
            verdict.reset_after.as_micros()
        })
        .collect();
    assert!(resets.len() > 900, "{} different resets for a thousand keys", resets.len());
    assert!(resets.iter().all(|reset| (1..=MINUTE).contains(reset)));
    let together = fixed(1, MINUTE).quota;
    assert_eq!(together.aligned(now, 12_345), now);
}

// Row 40. Elapsed time that is never negative, but the clock believed when it steps back: two servers 5 s
// apart, and all of 200 requests pass where 30 should.
#[test]
fn clocks_that_differ_earn_nothing_twice() {
    for skew in [5 * SECOND, SECOND / 2] {
        let mut client = bucket(10, 2, SECOND);
        let mut passed = 0;
        for poll in 0..100 {
            passed += client.burst(poll * 100 * MILLI + skew, 1);
            passed += client.burst(poll * 100 * MILLI, 1);
        }
        // Ten at once and two per second, from the first request to the last by the clock that is ahead.
        assert_eq!(passed, 10 + 19, "{skew} µs apart");
    }
}

// Row 48. A damaged key raises an error, the error opens the limit: a bypass for who owns the key.
#[test]
fn a_damaged_state_limits_and_does_not_lock_for_ever() {
    for damage in [0, 1, u64::MAX / 2, u64::MAX] {
        let mut client = bucket(10, 10, SECOND);
        client.state = Some(State::TokenBucket(TokenBucketState {
            tat_micros: damage,
            tat_parts: damage,
            parts_per_micro: damage,
            kept_until_micros: damage,
        }));
        assert!(client.burst(0, 1_000) <= 10, "{damage}");
        assert_eq!(client.remaining(SECOND), 10, "{damage}: whole again after the time to fill");
    }
}

// Row 50. "One key per user, no multi-key operations": but user, tenant and endpoint limit together, and a
// request that one of them denies must not use up the others.
#[test]
fn several_limits_are_charged_together_or_not_at_all() {
    let mut limits = [bucket(10, 1, SECOND), fixed(3, MINUTE), log(5, MINUTE)];
    let now = Timestamp::now(START);
    let mut passed = 0;
    for _ in 0..10 {
        let votes: Vec<(Group, Outcome)> = limits
            .iter()
            .map(|limit| (Group::Enforced, limit.quota.outcome(limit.state.as_ref(), Cost::ONE, now)))
            .collect();
        if decision::is_charged(votes, Group::Enforced) {
            passed += 1;
            for limit in &mut limits {
                limit.state = limit.quota.charge(limit.state.take(), Cost::ONE, now);
            }
        }
    }
    assert_eq!(passed, 3);
    assert_eq!(limits.map(|mut limit| limit.remaining(0)), [7, 0, 2]);
}

// Row 55. A rule switched from sliding window to token bucket: the wrong type of key, an error, open until it
// expires.
#[test]
fn a_rule_that_changes_its_algorithm_starts_fresh_and_limits() {
    let mut client = log(5, MINUTE);
    assert_eq!(client.burst(0, 10), 5);
    for other in [bucket(3, 1, SECOND), fixed(4, MINUTE), log(5, MINUTE)] {
        client.quota = other.quota;
        let limit = u32::try_from(client.quota.limit()).expect("a small limit");
        assert_eq!(client.burst(0, 10), limit, "{:?}", client.quota);
    }
}

// Row 67. A reset in epoch seconds, epoch milliseconds or seconds from now, as the document has it: clients
// wait 54 000 years, or not at all. A length and an instant are two types here, both in microseconds.
#[test]
fn a_reset_is_a_length_from_now() {
    let mut client = fixed(100, MINUTE);
    let verdict = client.ask(15 * SECOND, 1);
    assert_eq!(verdict.reset_after, Micros::from_secs(45));
    assert_eq!((verdict.reset_after.ceil_secs(), verdict.reset_after.ceil_millis()), (45, 45_000));
}
