//! CL.THROTTLE against redis-cell's documented replies, against an independent model in fractions, and at its bounds.

use num_rational::Ratio;
use proptest::prelude::*;
use sluicegate::MemoryStore;
use sluicegate::clock::SystemClock;
use sluicegate::rules::{DEADLINE_DEFAULT, RuleSet, Unmatched};
use sluicegate::store::memory::MemoryOptions;

use super::super::parse::Parser;
use super::*;

const START_MICROS: u64 = 1_705_312_800_000_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::now(START_MICROS + millis * 1_000)
}

struct Server {
    limiter: Limiter<MemoryStore>,
    buckets: Buckets,
    last_quota: LastQuota,
}

impl Server {
    fn new() -> Self {
        let store = MemoryStore::new(MemoryOptions { shards: 4, ..MemoryOptions::default() }, at(0));
        let rules = RuleSet::new(Vec::new(), Vec::new(), Unmatched::Allow).expect("no rules");
        let limiter = Limiter::new(rules, store, SystemClock::new());
        Self { limiter, buckets: Buckets::new(DEADLINE_DEFAULT), last_quota: LastQuota::default() }
    }

    /// The reply to a line such as `CL.THROTTLE key 15 30 60`, as `[0, 16, 15, -1, 2]` or an error.
    async fn send(&mut self, line: impl AsRef<[u8]>, now: Timestamp) -> Result<[i64; 5], String> {
        let line = [line.as_ref(), b"\r\n"].concat();
        let (words, _) = Parser::default().next(&line).expect("a line").expect("all of it");
        let throttle = Throttle::read(&words).map_err(|invalid| invalid.to_string())?;
        let quota = self.last_quota.of(throttle.shape()).map_err(|invalid| invalid.to_string())?;
        let decided = self.buckets.throttle(&self.limiter, &throttle, quota, now).await;
        let mut replies = Replies::default();
        decided.expect("the store answers").answer.write(&mut replies);
        let text = String::from_utf8(replies.as_bytes().to_vec()).expect("text");
        let numbers: Vec<i64> =
            text.split("\r\n:").skip(1).map(|number| number.trim().parse().expect("a number")).collect();
        Ok(numbers.try_into().expect("five numbers"))
    }

    async fn delete(&self, key: &[u8], now: Timestamp) -> bool {
        self.buckets.delete(self.limiter.store(), key, now).await.expect("the store answers")
    }
}

/// A row of a table: the instant in milliseconds, the parameters after the key, and the reply.
async fn check(cases: &[(u64, &str, [i64; 5])]) {
    let mut server = Server::new();
    for (index, (millis, numbers, expected)) in cases.iter().enumerate() {
        let answer = server.send(format!("CL.THROTTLE user123 {numbers}"), at(*millis)).await;
        assert_eq!(answer.as_ref(), Ok(expected), "case {index}: {numbers} at {millis} ms");
    }
}

/// The example of redis-cell's own page.
#[tokio::test]
async fn the_documented_example() {
    check(&[(0, "15 30 60 1", [0, 16, 15, -1, 2]), (0, "15 30 60", [0, 16, 14, -1, 4])]).await;
}

/// The test sequence of redis-cell itself: a burst of five, one per second. Its times have
/// fractions of a second, which the command rounds up.
#[tokio::test]
async fn the_arithmetic_that_redis_cell_tests() {
    check(&[
        (0, "4 1 1 6", [1, 5, 5, -1, 0]),
        (0, "4 1 1", [0, 5, 4, -1, 1]),
        (0, "4 1 1", [0, 5, 3, -1, 2]),
        (0, "4 1 1", [0, 5, 2, -1, 3]),
        (0, "4 1 1", [0, 5, 1, -1, 4]),
        (0, "4 1 1", [0, 5, 0, -1, 5]),
        (0, "4 1 1", [1, 5, 0, 1, 5]),
        (3_000, "4 1 1", [0, 5, 2, -1, 3]),
        (3_100, "4 1 1", [0, 5, 1, -1, 4]),
        (4_000, "4 1 1", [0, 5, 1, -1, 4]),
        (8_000, "4 1 1", [0, 5, 4, -1, 1]),
        (9_500, "4 1 1", [0, 5, 4, -1, 1]),
        (9_500, "4 1 1 0", [0, 5, 4, -1, 1]),
        (9_500, "4 1 1 2", [0, 5, 2, -1, 3]),
        (9_500, "4 1 1 5", [1, 5, 2, 3, 3]),
    ])
    .await;
}

#[tokio::test]
async fn the_edges() {
    // No burst: one request at a time.
    check(&[
        (0, "0 1 10", [0, 1, 0, -1, 10]),
        (0, "0 1 10", [1, 1, 0, 10, 10]),
        (0, "0 1 10 0", [0, 1, 0, -1, 10]),
        (0, "0 1 10 2", [1, 1, 0, -1, 10]),
        (9_999, "0 1 10", [1, 1, 0, 1, 1]),
        (10_000, "0 1 10", [0, 1, 0, -1, 10]),
    ])
    .await;
    // A fraction of a second rounds up to one, a whole second stays one.
    check(&[
        (0, "1 1 1 2", [0, 2, 0, -1, 2]),
        (0, "1 1 1", [1, 2, 0, 1, 2]),
        (1, "1 1 1", [1, 2, 0, 1, 2]),
        (1_000, "1 1 1 0", [0, 2, 1, -1, 1]),
        (1_001, "1 1 1 0", [0, 2, 1, -1, 1]),
        (2_000, "1 1 1 0", [0, 2, 2, -1, 0]),
    ])
    .await;
    // Thirds of a second add up to seconds, not to a little less.
    check(&[
        (0, "2 3 1 3", [0, 3, 0, -1, 1]),
        (999, "2 3 1 3", [1, 3, 2, 1, 1]),
        (1_000, "2 3 1 3", [0, 3, 0, -1, 1]),
    ])
    .await;
    // The maximum of each parameter.
    let ten_years = 315_360_000;
    check(&[
        (0, "0 1 315360000", [0, 1, 0, -1, ten_years]),
        (0, "0 1 315360000 9223372036854775807", [1, 1, 0, -1, ten_years]),
        (1_000, "0 1 315360000", [1, 1, 0, ten_years - 1, ten_years - 1]),
    ])
    .await;
    let units = 999_999_999_999_999;
    check(&[
        (0, "999999999999998 999999999999999 1 4294967295", [0, units, units - 4_294_967_295, -1, 1]),
        (0, "999999999999998 999999999999999 1 1000000000000000", [1, units, units - 4_294_967_295, -1, 1]),
    ])
    .await;
}

/// The state is the instant at which the bucket is full, so other parameters share this instant.
#[tokio::test]
async fn the_numbers_of_a_live_key_may_change() {
    // Slower: the charged time passes as before.
    check(&[
        (0, "9 1 1 4", [0, 10, 6, -1, 4]),
        (0, "9 1 2 0", [0, 10, 8, -1, 4]),
        (0, "9 1 2", [0, 10, 7, -1, 6]),
    ])
    .await;
    // Faster and smaller: the bucket is further from full than possible, and even a quantity of zero is denied.
    check(&[
        (0, "9 1 1 9", [0, 10, 1, -1, 9]),
        (0, "4 1 1 0", [1, 5, 0, 4, 9]),
        (0, "4 1 1", [1, 5, 0, 5, 9]),
        (4_000, "4 1 1 0", [0, 5, 0, -1, 5]),
        (5_000, "4 1 1", [0, 5, 0, -1, 5]),
    ])
    .await;
    // Far beyond: the time charged under the slower parameters has to pass, as in redis-cell.
    check(&[
        (0, "0 1 3600", [0, 1, 0, -1, 3_600]),
        (0, "0 1 1", [1, 1, 0, 3_600, 3_600]),
        (3_599_999, "0 1 1", [1, 1, 0, 1, 1]),
        (3_600_000, "0 1 1", [0, 1, 0, -1, 1]),
    ])
    .await;
}

/// A bucket that counts tokens in fractions, independent of the code under test.
struct Model {
    limit: i128,
    per_micro: Ratio<i128>,
    level: Ratio<i128>,
    seen_micros: i128,
}

impl Model {
    fn new(max_burst: i128, count: i128, period_secs: i128) -> Self {
        let limit = max_burst + 1;
        let per_micro = Ratio::new(count, period_secs * 1_000_000);
        Self { limit, per_micro, level: limit.into(), seen_micros: 0 }
    }

    fn throttle(&mut self, quantity: i128, micros: i128) -> [i64; 5] {
        let gained = self.per_micro * (micros - self.seen_micros);
        self.level = (self.level + gained).min(self.limit.into());
        self.seen_micros = micros;
        let is_limited = self.level < quantity.into();
        let retry = match is_limited {
            true if quantity <= self.limit => self.secs(Ratio::from(quantity) - self.level),
            _ => -1,
        };
        if !is_limited {
            self.level -= quantity;
        }
        let remaining = self.level.floor().to_integer();
        let reset = self.secs(Ratio::from(self.limit) - self.level);
        [i128::from(is_limited), self.limit, remaining, retry, reset]
            .map(|number| number.try_into().expect("64 bits"))
    }

    /// The duration of this many tokens in seconds, rounded up.
    fn secs(&self, tokens: Ratio<i128>) -> i128 {
        (tokens / self.per_micro / 1_000_000).ceil().to_integer()
    }
}

/// Small, large and medium integers from a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// More than a thousand commands on more than a hundred buckets, each reply derived in fractions.
#[tokio::test]
async fn every_answer_is_the_one_of_exact_arithmetic() {
    let mut numbers = Numbers(7);
    let (mut cases, mut limited, mut server) = (0, 0, Server::new());
    for bucket in 0..120 {
        let max_burst = [0, 1, 2, 15, 99][numbers.next(5) as usize];
        let count = [1, 2, 3, 7, 30, 60, 1_000, 999_983][numbers.next(8) as usize];
        let period = [1, 2, 3, 7, 60, 3_600, 86_400][numbers.next(7) as usize];
        let mut model = Model::new(max_burst.into(), count.into(), period.into());
        let mut micros = 0;
        for _ in 0..12 {
            // Up to one and a half times the bucket's size, and steps of about a token or of none.
            let quantity = numbers.next(max_burst * 3 / 2 + 3);
            micros += numbers.next(3) * numbers.next(period * 2_000_000 / count + 3);
            let line = format!("CL.THROTTLE key:{bucket} {max_burst} {count} {period} {quantity}");
            let now = Timestamp::now(START_MICROS + micros);
            let expected = model.throttle(quantity.into(), micros.into());
            assert_eq!(server.send(&line, now).await, Ok(expected), "{line} after {micros} µs");
            cases += 1;
            limited += expected[0];
        }
    }
    assert!(cases >= 1_000 && (200..cases - 200).contains(&limited), "{limited} of {cases}");
}

#[tokio::test]
async fn numbers_that_make_no_sense_are_refused_by_name() {
    let number = |field: &str, value: &str, low: u64, high: u64| {
        format!(
            "value is not an integer or out of range: {field} is '{value}'; use a whole number from {low} to {high}"
        )
    };
    let (burst, count, period) = (UNITS_MAX - 1, UNITS_MAX, PERIOD_SECS_MAX);
    let mut server = Server::new();
    for (numbers, expected) in [
        (&b"-1 30 60"[..], number("max_burst", "-1", 0, burst)),
        (b"x 30 60", number("max_burst", "x", 0, burst)),
        (b"1.5 30 60", number("max_burst", "1.5", 0, burst)),
        (b"'' 30 60", number("max_burst", "", 0, burst)),
        (b"999999999999999 30 60", number("max_burst", "999999999999999", 0, burst)),
        (b"99999999999999999999 30 60", number("max_burst", "99999999999999999999", 0, burst)),
        (b"15 0 60", number("count", "0", 1, count)),
        (b"15 -30 60", number("count", "-30", 1, count)),
        (b"15 9223372036854775807 60", number("count", "9223372036854775807", 1, count)),
        (b"15 30 0", number("period", "0", 1, period)),
        (b"15 30 -60", number("period", "-60", 1, period)),
        (b"15 30 315360001", number("period", "315360001", 1, period)),
        (b"15 30 60 -1", number("quantity", "-1", 0, i64::MAX as u64)),
        (b"15 30 60 9223372036854775808", number("quantity", "9223372036854775808", 0, i64::MAX as u64)),
        (b"5000000000 5000000001 1 4294967296", number("quantity", "4294967296", 0, u32::MAX.into())),
        (b"15 30 \xff", number("period", "\\xff", 1, period)),
        (b"1 1 315360000", ThrottleSyntaxError::TooSlow.to_string()),
        (b"999999999999998 1 1", ThrottleSyntaxError::TooSlow.to_string()),
        (b"15 30", ThrottleSyntaxError::Words.to_string()),
        (b"15 30 60 1 1", ThrottleSyntaxError::Words.to_string()),
    ] {
        let line = [b"CL.THROTTLE key ", numbers].concat();
        assert_eq!(server.send(&line, at(0)).await, Err(expected), "{}", line.escape_ascii());
    }
    assert_eq!(server.limiter.store().used(), 0);
}

#[tokio::test]
async fn a_key_is_any_bytes_and_no_two_are_one() {
    let mut server = Server::new();
    // The second of each pair is the encoding of the first, or resembles it.
    let keys: [&[u8]; 14] = [
        b"''",
        b"x",
        b"\xff",
        b"xff",
        b"ff",
        b"\"\\x00\"",
        b"x00",
        b"\"\\r\\n\"",
        b"x0d0a",
        "é".as_bytes(),
        b"xc3a9",
        b"\"\xc3\"",
        b"xc3",
        b"\"a b\"",
    ];
    for key in keys {
        let line = [b"CL.THROTTLE ", key, b" 0 1 60"].concat();
        assert_eq!(server.send(&line, at(0)).await, Ok([0, 1, 0, -1, 60]), "{}", key.escape_ascii());
    }
    assert_eq!(server.limiter.store().used(), keys.len());

    let longest = format!("CL.THROTTLE {} 0 1 60", "k".repeat(1_024));
    assert_eq!(server.send(&longest, at(0)).await, Ok([0, 1, 0, -1, 60]));
    let longer = format!("CL.THROTTLE {} 0 1 60", "k".repeat(1_025));
    assert_eq!(server.send(&longer, at(0)).await, Err("the key has 1025 bytes; use at most 1024".to_owned()));
}

#[tokio::test]
async fn deleting_returns_whether_the_key_existed_and_resets_it() {
    let mut server = Server::new();
    let full = Ok([0, 2, 1, -1, 30]);
    for key in ["plain", "\"\\xff\""] {
        let line = format!("CL.THROTTLE {key} 1 2 60");
        let bytes: &[u8] = if key == "plain" { b"plain" } else { b"\xff" };
        assert!(!server.delete(bytes, at(0)).await);
        assert_eq!(server.send(&line, at(0)).await, full);
        assert!(server.delete(bytes, at(29_999)).await);
        assert!(!server.delete(bytes, at(29_999)).await);
        assert_eq!(server.send(&line, at(29_999)).await, full);
        // A full bucket counts as absent.
        assert!(!server.delete(bytes, at(59_999)).await);
    }
    assert!(!server.delete(&[b'k'; 2_000], at(0)).await);
}

/// No rule name that a configuration allows leads to a bucket.
#[test]
fn no_rule_of_a_configuration_has_the_name_of_the_space() {
    let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    assert!(!SPACE.bytes().all(is_name_byte));
}

proptest! {
    #[test]
    fn two_keys_are_the_same_identity_only_if_they_are_the_same(
        left in prop::collection::vec(prop::sample::select(b"x0fF\x00\xc3\xa9\x7f".to_vec()), 0..6),
        right in prop::collection::vec(prop::sample::select(b"x0fF\x00\xc3\xa9\x7f".to_vec()), 0..6),
    ) {
        let name = |key: &[u8]| KeyName::read(key).map(|name| (name.text.into_owned(), name.is_plain)).ok();
        prop_assert_eq!(name(&left) == name(&right), left == right);
    }
}
