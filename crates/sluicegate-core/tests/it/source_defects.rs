//! The defects of the source documents (`docs/source-defects.md`), and the correct behaviour.
//!
//! The list has 68 rows. A row is tested here if the pure core can show it, and elsewhere if it needs a store or a server.
//! The comment of each test describes the effect of the document's text and begins with "Row N"; the test asserts the
//! correct behaviour. In the table, "store" and "keys" are `crates/sluicegate/tests/it/` (`source_defects.rs` there),
//! "redis" is the shared store (`tests/it/redis_*` and `src/store/redis/`), and "server" is `crates/sluicegate-server` with
//! the parts of `crates/sluicegate` that it uses.
//!
//! | rows | subject | tested in |
//! |---|---|---|
//! | 1, 2 | a TTL shorter than the fill time | here; the key's own expiry: redis |
//! | 3–14 | refill, rounding, units, cost | here; the text of a negative cost: server |
//! | 15 | rates that are not numbers | here: such a rate cannot be built; the parser: server |
//! | 16–22 | bursts, examples, credits, forgetting | here |
//! | 23 | states without expiry | here: every state expires; the sweep: store |
//! | 24 | a window of zero | here |
//! | 25 | many requests in one tick | here |
//! | 26 | three calls instead of one | store; redis |
//! | 27–31 | the sliding window's waits, edges and size | here; the bytes of an entry: store |
//! | 32 | a counter without expiry | redis |
//! | 33–38 | the fixed window's counting, edges and alignment | here; two real servers: redis |
//! | 39 | clocks of the clients | redis |
//! | 40 | trust in a clock that steps back | here |
//! | 41–43 | read, then write; two keys for one bucket | store; redis |
//! | 44 | eviction resets limits | store, redis |
//! | 45 | timeouts that stop the server | server |
//! | 46, 47 | availability that is promised and not provided | redis |
//! | 48 | a damaged key as a bypass | here: a damaged state limits; error classes: redis |
//! | 49 | a third failure policy | server |
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
use sluicegate_core::decision::{self, ChargeMode};
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

    /// The number of admitted requests among this many single requests at one instant.
    fn burst(&mut self, at: u64, requests: u32) -> u32 {
        (0..requests).map(|_| u32::from(self.passes(at, 1))).sum()
    }

    fn remaining(&mut self, at: u64) -> u64 {
        self.ask(at, 0).remaining
    }

    /// The wait until `cost` is admitted; zero if it is admitted or never will be.
    fn wait(&mut self, at: u64, cost: u32) -> Option<u64> {
        match self.ask(at, cost).outcome {
            Outcome::Denied { retry_after } => Some(retry_after.as_micros()),
            Outcome::Allowed | Outcome::NeverAdmissible => None,
        }
    }

    /// The retention of the state after `at`.
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
    let error = result.expect_err("this must be rejected");
    let (field, value, remedy) = (error.field(), error.value(), error.remedy());
    assert_eq!(error.to_string(), format!("{field} is {value}: {remedy}"));
    field
}

#[test]
fn error_contains_the_field_the_value_and_the_remedy() {
    let error = FixedWindow::new(7, Micros::from_micros(3), Align::Epoch).expect_err("too short");
    assert_eq!((error.field(), error.value()), ("window", 3));
    assert!(error.remedy().starts_with("use "), "{error}");
}

// Row 1. B = 5, 10 per second: a TTL of ⌊5/10⌋ = 0 s deletes the key at once, and all of 1000 requests within a
// millisecond are admitted.
#[test]
fn small_fast_bucket_is_kept_until_it_is_full() {
    let mut client = bucket(5, 10, SECOND);
    let passed: u32 = (0..1_000).map(|request| client.burst(request, 1)).sum();
    assert_eq!(passed, 5);
    assert_eq!(client.kept_after(0), 500 * MILLI);
}

// Row 2. B = 19, 10 per second: a TTL of 1 s for a bucket that needs 1.9 s makes it 19 per second.
#[test]
fn bucket_drained_a_second_ago_has_one_second_of_refill() {
    let mut client = bucket(19, 10, SECOND);
    assert_eq!(client.burst(0, 100), 19);
    assert_eq!(client.kept_after(0), 1_900 * MILLI);
    assert_eq!(client.burst(SECOND, 100), 10);
}

// Row 3. A rate of zero: the division fails after the write, the error fails open, and the key never expires.
#[test]
fn rate_of_zero_is_rejected() {
    assert_eq!(refused(Rate::new(0, Micros::from_secs(1))), "refill amount");
    assert!(Rate::new(1, Micros::PERIOD_MAX).is_ok(), "the slowest rate is one in ten years");
}

// Row 4. B = 100, 101 requests within a millisecond: `tokens > 0` admits the last one on 0.0017 tokens.
#[test]
fn fraction_of_a_token_admits_nothing() {
    let mut client = bucket(100, 100, MINUTE);
    let passed: u32 = (0..101).map(|request| client.burst(request * 9, 1)).sum();
    assert_eq!(passed, 100);
}

// Row 5. One per second, requested every 999 ms: rounding earned tokens down and dropping the rest admits 0.501 per
// second; every 900 ms 0.556.
#[test]
fn polling_slightly_too_fast_loses_no_tokens() {
    for (period, polls) in [(999 * MILLI, 10_000), (900 * MILLI, 10_000)] {
        let mut client = bucket(2, 1, SECOND);
        let passed: u64 = (0..polls).map(|poll| u64::from(client.passes(poll * period, 1))).sum();
        // Two at once and then one per second; at the end one may be left in the bucket.
        let earned = 2 + (polls - 1) * period / SECOND;
        assert!((earned - 1..=earned).contains(&passed), "{passed} of {earned}, one request every {period} µs");
    }
}

// Row 6. One per second, B = 10, requested every 100 ms, with the state also written on a denial: after the first
// ten, nothing is ever admitted again.
#[test]
fn constant_retries_do_not_lock_a_client_out() {
    let mut client = bucket(10, 1, SECOND);
    let passed: u64 = (0..=100_000).map(|poll| u64::from(client.passes(poll * 100 * MILLI, 1))).sum();
    assert_eq!(passed, 10 + 10_000);
}

// Row 7. B = 1, 0.1 per second, requested every second: ten times 0.1 is 0.9999999999999999, and the tenth request
// waits until the eleventh second.
#[test]
fn ten_tenths_of_a_token_make_one() {
    let mut client = bucket(1, 1, 10 * SECOND);
    assert!(client.passes(0, 1));
    for second in 1..10 {
        assert_eq!(client.wait(second * SECOND, 1), Some((10 - second) * SECOND));
    }
    assert!(client.passes(10 * SECOND, 1));
}

// Row 8. B = 10, 2 per second, with the time in milliseconds: full again after 5 ms instead of 5 s.
#[test]
fn refill_time_is_in_microseconds() {
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

// Row 9. "100 per minute = 1.67 per second" as an integer is 60 or 120 per minute, and 1000 per day is zero.
#[test]
fn rate_is_an_exact_fraction() {
    for (amount, period) in [(100, MINUTE), (1_000, DAY)] {
        let mut client = bucket(amount, amount, period);
        let all = u32::try_from(amount).expect("a small amount");
        assert!(client.passes(0, all));
        assert_eq!(client.remaining(period - 1), amount - 1);
        assert_eq!(client.remaining(period), amount);
    }
}

// Row 10. The walkthrough stores 5 for 5.67 tokens: 40 % of the tokens just earned are lost.
#[test]
fn fraction_of_a_token_survives_a_charge() {
    let mut client = bucket(100, 100, MINUTE);
    assert!(client.passes(0, 95));
    assert_eq!(client.ask(SECOND, 1).remaining, 5);
    // A third of a token takes 200 ms; without the two thirds it would take 600 ms.
    assert_eq!((client.remaining(1_200 * MILLI - 1), client.remaining(1_200 * MILLI)), (5, 6));
}

// Row 11. 0.83 tokens: denied in the text, denied by one document's code for another reason, allowed by the next.
// There are three rules in five files.
#[test]
fn cost_is_admitted_by_at_least_as_many_tokens() {
    let mut client = bucket(100, 100, MINUTE);
    assert!(client.passes(0, 100));
    assert!(!client.passes(500 * MILLI, 1), "five sixths of a token");
    assert!(!client.passes(600 * MILLI, 2), "one token for a cost of two");
    assert!(client.passes(600 * MILLI, 1), "exactly one token");
}

// Row 12. "Reset 1705312900 (30 seconds from now)", half a second after 1705312800, is neither 30 s away nor correct.
#[test]
fn reset_is_the_instant_at_which_the_bucket_is_full() {
    let mut client = bucket(100, 100, MINUTE);
    assert!(client.passes(0, 100));
    let verdict = client.ask(500 * MILLI, 1);
    assert_eq!(verdict.reset_after, Micros::from_millis(59_500));
    assert_eq!(verdict.outcome, Outcome::Denied { retry_after: Micros::from_millis(100) });
    assert_eq!(Micros::from_millis(100).ceil_secs(), 1);
}

// Row 13. A cost of −5 leaves ten tokens in a bucket of five. Here a cost has no sign, and a refund, the only way to
// add tokens, stops at the capacity.
#[test]
fn refund_never_exceeds_the_capacity() {
    let mut client = bucket(5, 1, SECOND);
    assert!(client.passes(0, 3));
    for cost in [5, u32::MAX] {
        client.state = client.quota.refund(client.state.take(), Cost::new(cost), Timestamp::now(START));
        assert_eq!(client.remaining(0), 5);
    }
    assert_eq!(client.burst(0, 20), 5);
}

// Row 14. A cost of 6 under B = 5 is always denied, and the client is asked to retry.
#[test]
fn cost_above_the_capacity_is_never_admissible() {
    let mut client = bucket(5, 1, SECOND);
    assert_eq!(client.ask(0, 6).outcome, Outcome::NeverAdmissible);
    assert_eq!(client.ask(HOUR, 6).outcome, Outcome::NeverAdmissible);
    assert!(client.passes(HOUR, 5));
}

// Row 15. A rate of "inf" or "nan" admits everything. Here a rate is two whole numbers, both bounded.
#[test]
fn unbounded_rate_is_rejected() {
    assert_eq!(refused(Rate::new(u64::MAX, Micros::from_secs(1))), "refill amount");
    assert_eq!(refused(Rate::new(1, Micros::from_micros(u64::MAX))), "refill period");
    assert_eq!(refused(TokenBucket::new(u64::MAX, rate(1, 1))), "capacity");
    assert!(Rate::new(UNITS_MAX, Micros::from_micros(1)).is_ok());
}

// Row 16. "100 per minute" as a bucket of 100 admits 200 in the first minute. That is the behaviour of a bucket: the
// bound is B + r·d. If never more than 100 may pass in a minute, use the sliding window.
#[test]
fn bucket_adds_the_burst_to_the_rate_and_a_log_does_not() {
    let minute_of =
        |mut client: Client| -> u32 { (0..=60_000).map(|milli| u32::from(client.passes(milli * MILLI, 1))).sum() };
    assert_eq!(minute_of(bucket(100, 100, MINUTE)), 200);
    // The first hundred leave at 60 s, the instant at which the closed minute ends.
    assert_eq!(minute_of(log(100, MINUTE)), 101);
    let mut client = log(100, MINUTE);
    let passed: u32 = (0..60_000).map(|milli| u32::from(client.passes(milli * MILLI, 1))).sum();
    assert_eq!(passed, 100);
}

// Row 17. The example has 98.67 tokens at 1 s and 50 at 30 s; the document's own code has 99 both times.
#[test]
fn full_bucket_gains_no_tokens() {
    let mut client = bucket(100, 100, MINUTE);
    for at in [0, SECOND, 30 * SECOND, 60 * SECOND] {
        assert_eq!(client.ask(at, 1).remaining, 99, "{at} µs after the start");
    }
}

// Row 18. With refill up to capacity + credits from the start, `capacity` has no meaning.
#[test]
fn new_clients_have_no_credits() {
    let mut client = with_credits(10, 90, 1, SECOND);
    assert_eq!(client.burst(0, 200), 10);
    assert_eq!(client.remaining(60 * SECOND), 60, "the capacity is no ceiling for a client with a history");
    assert_eq!(client.remaining(HOUR), 100);
}

// Row 19. B = 10, credits 90, 1 per second, and a TTL of B/r: drained, idle for 10 s, expired, and back with 100.
#[test]
fn drained_client_with_credits_is_kept() {
    let mut client = with_credits(10, 90, 1, SECOND);
    assert!(client.passes(0, 1));
    assert!(client.passes(HOUR, 100));
    assert!(client.kept_after(HOUR) >= 100 * SECOND, "the time to earn all credits again");
    assert_eq!(client.remaining(HOUR + 10 * SECOND), 10);
}

// Row 20. If the key of an idle client expires and a new one starts at B, the client loses its credits.
#[test]
fn earned_credits_expire_after_a_day_of_idleness() {
    let mut client = with_credits(10, 90, 1, SECOND);
    assert!(client.passes(0, 1));
    assert_eq!(client.kept_after(0), DAY);
    assert_eq!(client.remaining(DAY), 100);
    assert_eq!(client.remaining(DAY + 1), 10);
}

// Row 21. Capacity and credits stored per user: a change of plan never reaches existing users.
#[test]
fn new_limit_applies_to_existing_clients() {
    let mut client = bucket(10, 1, SECOND);
    assert!(client.passes(0, 10));
    client.quota = bucket(100, 100, SECOND).quota;
    assert_eq!(client.ask(10 * SECOND, 0).limit, 100);
    assert!(client.passes(10 * SECOND, 100));
    client.quota = bucket(10, 1, SECOND).quota;
    assert_eq!(client.ask(10 * SECOND, 0).limit, 10);
    assert_eq!(client.remaining(HOUR), 10);
}

// Row 22. A TTL of 3600 s, B = 7200, 1 per second: drained, and an hour later full instead of half full.
#[test]
fn one_hour_fills_half_of_a_two_hour_bucket() {
    let mut client = bucket(7_200, 1, SECOND);
    assert!(client.passes(0, 7_200));
    assert_eq!(client.kept_after(0), 2 * HOUR);
    assert_eq!(client.remaining(HOUR), 3_600);
}

// Row 23. No TTL at all: one key forever for every client ever seen.
#[test]
fn every_state_expires() {
    let cases = [(bucket(10, 1, SECOND), SECOND), (log(10, MINUTE), MINUTE), (fixed(10, MINUTE), MINUTE)];
    for (mut client, kept) in cases {
        assert!(client.passes(0, 1));
        assert_eq!(client.kept_after(0), kept, "{:?}", client.quota);
        let later = Timestamp::now(START + kept + 1);
        let remembered = client.quota.standing(client.state.as_ref(), later);
        assert_eq!(remembered, client.quota.standing(None, later), "{:?}", client.quota);
    }
}

// Row 24. A window of 0 s: an infinite rate, or a division by zero that fails open.
#[test]
fn window_of_zero_is_rejected() {
    assert_eq!(refused(FixedWindow::new(1, Micros::ZERO, Align::Epoch)), "window");
    assert_eq!(refused(SlidingWindow::new(1, Micros::ZERO)), "window");
    assert_eq!(refused(Rate::new(1, Micros::ZERO)), "refill period");
}

// Row 25. Members named after the millisecond: 10 000 requests in one millisecond are one member, and a limit of 100
// admits a million in a hundred of them.
#[test]
fn requests_at_the_same_instant_are_all_counted() {
    let mut client = log(100, MINUTE);
    let passed: u32 = (0..100).map(|milli| client.burst(milli * MILLI, 10_000)).sum();
    assert_eq!(passed, 100);
}

// Row 27. 100 at 0 s, denied at 59 s: a wait of 60 s although there is room after one.
#[test]
fn wait_ends_when_the_oldest_request_leaves_the_window() {
    let mut client = log(100, MINUTE);
    assert_eq!(client.burst(0, 100), 100);
    assert_eq!(client.wait(59 * SECOND, 1), Some(SECOND));
    assert_eq!(client.ask(59 * SECOND, 1).reset_after, Micros::from_secs(1));
}

// Row 28. At 61 s the example still counts the request of 1 s, and the code removes it: 49 or 51 remaining.
#[test]
fn request_leaves_the_window_exactly_after_its_length() {
    let mut client = log(100, MINUTE);
    assert!(client.passes(0, 1) && client.passes(SECOND, 1) && client.passes(30 * SECOND, 48));
    assert_eq!(client.remaining(61 * SECOND - 1), 51, "the request of 1 s counts to the last microsecond");
    assert_eq!(client.ask(61 * SECOND, 1).remaining, 51, "48 are left besides the current one");
}

// Row 29. "Burst capacity: no" for the sliding window; but the whole limit may arrive in one microsecond.
#[test]
fn sliding_window_limits_the_count_and_not_the_burst() {
    let mut client = log(100, MINUTE);
    assert!(client.passes(0, 100));
    assert_eq!(client.wait(0, 1), Some(MINUTE));
}

// Row 30. 30 days in milliseconds do not fit 32 bits: the window starts in the future and nothing is limited.
#[test]
fn window_of_thirty_days_limits() {
    for mut client in [log(100, 30 * DAY), fixed(100, 30 * DAY)] {
        assert_eq!(client.burst(0, 1_000), 100, "{:?}", client.quota);
        assert_eq!(client.burst(2 * DAY, 1_000), 0, "{:?}", client.quota);
    }
    assert_eq!(log(1, 30 * DAY).quota.window().as_micros(), 30 * DAY);
}

// Row 31. A log of unlimited length: 130 bytes per request, and a cleanup that blocks the shard.
#[test]
fn log_is_bounded() {
    assert_eq!(refused(SlidingWindow::new(LIMIT_MAX + 1, Micros::from_secs(60))), "limit");
    let mut client = log(100, MINUTE);
    for request in 0..10_000 {
        client.ask(request * MILLI, 1);
    }
    let Some(State::SlidingWindow(state)) = &client.state else { panic!("a log") };
    assert!(state.entry_count() <= 100, "{} entries", state.entry_count());
}

// Row 33. A counter that counts denied requests: 95 of 100 used, 10 requested and denied, and now 5 are lost.
#[test]
fn denied_request_charges_nothing() {
    for mut client in [fixed(100, MINUTE), log(100, MINUTE), bucket(100, 1, HOUR)] {
        assert!(client.passes(0, 95));
        assert!(!client.passes(0, 10));
        assert_eq!(client.burst(0, 10), 5, "{:?}", client.quota);
    }
}

// Row 34. 999 ms before the reset, `(int)(999 / 1000)` is "Retry-After: 0", and all clients retry at once.
#[test]
fn wait_below_a_second_rounds_up_to_one_second() {
    let mut client = fixed(100, MINUTE);
    assert_eq!(client.burst(0, 100), 100);
    assert_eq!(client.wait(MINUTE - 999 * MILLI, 1), Some(999 * MILLI));
    assert_eq!(Micros::from_millis(999).ceil_secs(), 1);
    assert_eq!(Micros::from_micros(1).ceil_secs(), 1);
}

// Row 35. A request at exactly 60 s is denied in window 1 and allowed in window 2 of the same table.
#[test]
fn windows_are_half_open() {
    let mut client = fixed(100, MINUTE);
    assert_eq!(client.burst(0, 100), 100);
    assert_eq!(client.wait(MINUTE - 1, 1), Some(1));
    assert_eq!(client.ask(MINUTE, 1).remaining, 99);
}

// Row 36. 100 at 59.999 s and 100 at 60.000 s: twice the limit in a millisecond. That is the bound of the fixed
// window, and never more; the sliding window and the bucket admit 100.
#[test]
fn fixed_window_admits_twice_the_limit_across_a_boundary() {
    let boundary = |mut client: Client| client.burst(MINUTE - MILLI, 1_000) + client.burst(MINUTE, 1_000);
    assert_eq!(boundary(fixed(100, MINUTE)), 200);
    assert_eq!(boundary(log(100, MINUTE)), 100);
    assert_eq!(boundary(bucket(100, 100, MINUTE)), 100);
}

// Row 37. Two servers with different clocks and a key per window: L at the end of one, L in the next, L in the one
// after, all within the length of one window. One state for all windows follows the clock that is ahead.
#[test]
fn clocks_that_differ_share_one_window() {
    let (slow, fast) = (0, 2 * SECOND);
    let mut client = fixed(100, MINUTE);
    let mut passed = client.burst(58 * SECOND + slow, 1_000);
    // The fast clock is already in the next window; the next request by the slow clock sees that window.
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

// Row 38. All windows begin at the same instant, so all clients return at once.
#[test]
fn windows_can_be_shifted_per_key() {
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

// Row 40. Elapsed time is never negative, but a clock that steps back is accepted: two servers 5 s apart, and all of
// 200 requests are admitted where 30 should be.
#[test]
fn clocks_that_differ_earn_no_tokens_twice() {
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

// Row 48. A damaged key raises an error, and the error fails open: a bypass for the owner of the key.
#[test]
fn damaged_state_limits_and_does_not_lock_forever() {
    for damage in [0, 1, u64::MAX / 2, u64::MAX] {
        let mut client = bucket(10, 10, SECOND);
        client.state = Some(State::TokenBucket(TokenBucketState {
            tat_micros: damage,
            tat_parts: damage,
            parts_per_micro: damage,
            kept_until_micros: damage,
        }));
        assert!(client.burst(0, 1_000) <= 10, "{damage}");
        assert_eq!(client.remaining(SECOND), 10, "{damage}: full again after the fill time");
    }
}

// Row 50. "One key per user, no multi-key operations": but user, tenant and endpoint limits apply together, and a
// request that one of them denies must not use up the others.
#[test]
fn several_limits_are_charged_all_or_nothing() {
    let mut limits = [bucket(10, 1, SECOND), fixed(3, MINUTE), log(5, MINUTE)];
    let now = Timestamp::now(START);
    let mut passed = 0;
    for _ in 0..10 {
        let votes: Vec<(ChargeMode, Outcome)> = limits
            .iter()
            .map(|limit| (ChargeMode::Enforced, limit.quota.outcome(limit.state.as_ref(), Cost::ONE, now)))
            .collect();
        if decision::is_charged(votes, ChargeMode::Enforced) {
            passed += 1;
            for limit in &mut limits {
                limit.state = limit.quota.charge(limit.state.take(), Cost::ONE, now);
            }
        }
    }
    assert_eq!(passed, 3);
    assert_eq!(limits.map(|mut limit| limit.remaining(0)), [7, 0, 2]);
}

// Row 55. A rule switched from sliding window to token bucket: the wrong type of key, an error, fail open until it
// expires.
#[test]
fn change_of_algorithm_starts_fresh_and_limits() {
    let mut client = log(5, MINUTE);
    assert_eq!(client.burst(0, 10), 5);
    for other in [bucket(3, 1, SECOND), fixed(4, MINUTE), log(5, MINUTE)] {
        client.quota = other.quota;
        let limit = u32::try_from(client.quota.limit()).expect("a small limit");
        assert_eq!(client.burst(0, 10), limit, "{:?}", client.quota);
    }
}

// Row 67. A reset in epoch seconds, epoch milliseconds or seconds from now, as the documents have it: clients wait 54
// 000 years, or not at all. Here a duration and an instant are two types, both in microseconds.
#[test]
fn reset_is_a_duration_from_now() {
    let mut client = fixed(100, MINUTE);
    let verdict = client.ask(15 * SECOND, 1);
    assert_eq!(verdict.reset_after, Micros::from_secs(45));
    assert_eq!((verdict.reset_after.ceil_secs(), verdict.reset_after.ceil_millis()), (45, 45_000));
}
