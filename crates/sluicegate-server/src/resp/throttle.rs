//! `CL.THROTTLE key max_burst count period [quantity]`: redis-cell's command over the server's own store.
//!
//! It is a token bucket of `max_burst` + 1 that refills `count` per `period` seconds. redis-cell stores the same
//! theoretical arrival time, truncated to whole nanoseconds per token; here it is exact. Times are whole seconds, rounded
//! up, so that a client that waits never retries too early.
//!
//! Keys are in a separate key space, whose name no configured rule can have, and may be any bytes.

use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::time::Duration;

use sluicegate::clock::Clock;
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::quota::UNITS_MAX;
use sluicegate::core::{Cost, Micros, Outcome, Quota, Rate, Timestamp, TokenBucket, Verdict};
use sluicegate::identity::IDENTIFIER_BYTES_MAX;
use sluicegate::observe::Observer;
use sluicegate::store::{Charge, ErrorClass, Key, KeySpace, Store, StoreError, Subject};
use sluicegate::{Identity, Limiter, MemoryStore};

use super::parse::Words;
use super::reply::Replies;

/// The key space, which is also its name in metrics. Names of configured rules contain no colon.
pub(crate) const SPACE: &str = "resp:cl.throttle";

/// The name of the command, in lower case.
pub(super) const NAME: &[u8] = b"cl.throttle";

/// The tenant of keys that are not plain text. Plain ones have no tenant.
const BYTES_TENANT: &str = "bytes";

/// The longest period: ten years, as for every quota.
const PERIOD_SECS_MAX: u64 = Micros::PERIOD_MAX.as_micros() / 1_000_000;

/// The buckets of all keys.
#[derive(Debug)]
pub(super) struct Buckets {
    space: KeySpace,
    /// The deadline of the store.
    deadline: Duration,
}

/// The parameters of a bucket, which clients send with every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThrottleShape {
    max_burst: u64,
    count: u64,
    period_secs: u64,
}

/// The quota of the last command. Most connections use one shape, or a few in turn.
#[derive(Debug, Default)]
pub(super) struct LastQuota(Option<(ThrottleShape, Quota)>);

/// A validated command.
#[derive(Debug)]
pub(super) struct Throttle<'w> {
    key: KeyName<'w>,
    shape: ThrottleShape,
    quantity: u64,
}

/// A key as an identity. Plain text stands for itself, other bytes for their hexadecimal digits in a separate
/// tenant, so different keys have different identities.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyName<'w> {
    text: Cow<'w, str>,
    is_plain: bool,
}

/// An invalid command.
#[derive(Debug, thiserror::Error)]
pub(super) enum ThrottleSyntaxError {
    /// Too few words, or too many.
    #[error("wrong number of arguments for 'cl.throttle' command")]
    Words,
    /// A key that is too long for a store.
    #[error("the key has {bytes} bytes; use at most {IDENTIFIER_BYTES_MAX}")]
    KeyLength {
        /// Its length.
        bytes: usize,
    },
    /// Not a number, or out of range.
    #[error(
        "value is not an integer or out of range: {field} is '{value}'; use a whole number from {low} to {high}"
    )]
    Number {
        /// The name of the parameter.
        field: &'static str,
        /// As sent, shortened.
        value: String,
        /// The minimum.
        low: u64,
        /// The maximum.
        high: u64,
    },
    /// Parameters that contradict each other.
    #[error("filling a bucket may take at most ten years; use a larger count, or a smaller max_burst or period")]
    TooSlow,
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) answer: Answer,
    /// Why this instance's share decided, if it did.
    pub(super) overload: Option<StoreError>,
}

/// The five numbers of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    is_limited: bool,
    limit: u64,
    remaining: u64,
    /// `None` if the command was allowed, or if waiting does not help.
    retry_after: Option<Micros>,
    reset_after: Micros,
}

impl<'w> Throttle<'w> {
    /// Reads the words after the command's name.
    pub(super) fn read(words: &'w Words<'_>) -> Result<Self, ThrottleSyntaxError> {
        let (key, numbers) = match &words[1..] {
            [key, numbers @ ..] if (3..=4).contains(&numbers.len()) => (key, numbers),
            _ => return Err(ThrottleSyntaxError::Words),
        };
        let shape = ThrottleShape {
            max_burst: number("max_burst", &numbers[0], 0, UNITS_MAX - 1)?,
            count: number("count", &numbers[1], 1, UNITS_MAX)?,
            period_secs: number("period", &numbers[2], 1, PERIOD_SECS_MAX)?,
        };
        let quantity = match numbers.get(3) {
            Some(quantity) => number("quantity", quantity, 0, i64::MAX.unsigned_abs())?,
            None => 1,
        };
        let is_chargeable = quantity > shape.limit() || u32::try_from(quantity).is_ok();
        if !is_chargeable {
            return Err(out_of_range("quantity", numbers[3].as_ref(), 0, u32::MAX.into()));
        }
        Ok(Self { key: KeyName::read(key)?, shape, quantity })
    }

    /// The bucket's parameters.
    pub(super) fn shape(&self) -> ThrottleShape {
        self.shape
    }

    /// The bucket's key.
    pub(super) fn key(&self) -> &KeyName<'w> {
        &self.key
    }

    /// The cost. More than the bucket's size charges nothing, also where it exceeds the range of a cost.
    fn cost(&self, quota: &Quota) -> Cost {
        let charged = Some(self.quantity).filter(|&quantity| quantity <= quota.limit());
        charged.and_then(|quantity| u32::try_from(quantity).ok()).map_or(Cost::ZERO, Cost::new)
    }

    /// Whether it is a peek.
    pub(super) fn is_peek(&self) -> bool {
        self.quantity == 0
    }

    /// An owned copy of the command.
    pub(super) fn into_owned(self) -> Throttle<'static> {
        let Self { key, shape, quantity } = self;
        Throttle { key: key.into_owned(), shape, quantity }
    }
}

impl ThrottleShape {
    fn limit(self) -> u64 {
        self.max_burst + 1
    }

    fn quota(self) -> Option<Quota> {
        let rate = Rate::new(self.count, Micros::from_secs(self.period_secs)).ok()?;
        Some(TokenBucket::new(self.limit(), rate).ok()?.on_shared_state().into())
    }
}

impl LastQuota {
    /// The quota of this shape.
    pub(super) fn of(&mut self, shape: ThrottleShape) -> Result<&Quota, ThrottleSyntaxError> {
        if self.0.as_ref().is_none_or(|(last, _)| *last != shape) {
            self.0 = Some((shape, shape.quota().ok_or(ThrottleSyntaxError::TooSlow)?));
        }
        self.0.as_ref().map(|(_, quota)| quota).ok_or(ThrottleSyntaxError::TooSlow)
    }
}

impl<'w> KeyName<'w> {
    /// The name.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The name for a key of these bytes.
    pub(super) fn read(key: &'w [u8]) -> Result<Self, ThrottleSyntaxError> {
        if key.len() > IDENTIFIER_BYTES_MAX {
            return Err(ThrottleSyntaxError::KeyLength { bytes: key.len() });
        }
        match std::str::from_utf8(key) {
            Ok(text) if !text.is_empty() && !has_control_characters(text) => {
                Ok(Self { text: Cow::Borrowed(text), is_plain: true })
            }
            _ => {
                let digits = key.iter().map(|byte| format!("{byte:02x}"));
                // The letter keeps the name of the empty key from being empty.
                Ok(Self { text: Cow::Owned(format!("x{}", digits.collect::<String>())), is_plain: false })
            }
        }
    }

    /// An owned copy of the key.
    pub(super) fn into_owned(self) -> KeyName<'static> {
        KeyName { text: Cow::Owned(self.text.into_owned()), is_plain: self.is_plain }
    }

    fn subject(&self) -> Subject<'_> {
        let tenant = (!self.is_plain).then_some(BYTES_TENANT);
        Subject { tenant, identity: Some(Identity::Named(&self.text)), address: None }
    }
}

impl Buckets {
    /// Buckets in a store with this deadline.
    pub(super) fn new(deadline: Duration) -> Self {
        Self { space: KeySpace::new(SPACE), deadline }
    }

    /// Decides a command, and charges the bucket if it is allowed. If the store does not respond in time, this
    /// instance's share of the bucket decides.
    pub(super) async fn throttle<S: Store, C: Clock, O: Observer>(
        &self,
        limiter: &Limiter<S, C, O>,
        throttle: &Throttle<'_>,
        quota: &Quota,
        now: Timestamp,
    ) -> Result<Decided, StoreError> {
        let (store, charges) = (limiter.store(), [self.charge(&throttle.key, quota, throttle.cost(quota))]);
        let reply = if charges[0].cost.is_zero() {
            store.peek(&charges, now, self.deadline).await
        } else {
            store.charge(&charges, now, self.deadline).await
        };
        let (verdicts, overload) = match reply {
            Ok(reply) => (reply.verdicts, None),
            Err(mut error) => match limiter.decide_in_overload(&charges, &mut error) {
                Some(verdicts) => (verdicts, Some(error)),
                None => return Err(error),
            },
        };
        let verdict =
            verdicts.first().ok_or_else(|| StoreError::new(ErrorClass::Protocol, "the store gave no verdict"))?;
        Ok(Decided { answer: Answer::new(verdict, quota, throttle.quantity), overload })
    }

    /// [`Buckets::throttle`] in a synchronous store. `None` for a peek.
    pub(super) fn throttle_now(
        &self,
        store: &MemoryStore,
        throttle: &Throttle<'_>,
        quota: &Quota,
        now: Timestamp,
    ) -> Option<Answer> {
        let charges = [self.charge(&throttle.key, quota, throttle.cost(quota))];
        if charges[0].cost.is_zero() {
            return None;
        }
        let verdicts = store.charge_now(&charges, now);
        verdicts.first().map(|verdict| Answer::new(verdict, quota, throttle.quantity))
    }

    /// Resets a bucket; true if it existed and was not full.
    pub(super) async fn delete<S: Store>(
        &self,
        store: &S,
        key: &[u8],
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        // An invalid key cannot exist.
        let Ok(key) = KeyName::read(key) else { return Ok(false) };
        // Any parameters will do: whether a bucket is full does not depend on its rate.
        let any = ThrottleShape { max_burst: 0, count: 1, period_secs: 1 };
        let Some(quota) = any.quota() else { return Ok(false) };
        let charges = [self.charge(&key, &quota, Cost::ZERO)];
        let before = store.peek(&charges, now, self.deadline).await?;
        let is_there = before.verdicts.iter().any(|verdict| !verdict.reset_after.is_zero());
        if is_there {
            store.reset(&charges, now, self.deadline).await?;
        }
        Ok(is_there)
    }

    fn charge<'c>(&'c self, key: &'c KeyName<'_>, quota: &'c Quota, cost: Cost) -> Charge<'c> {
        let key = Key { space: &self.space, subject: key.subject() };
        Charge {
            key,
            quotas: slice::from_ref(quota),
            cost,
            mode: ChargeMode::Enforced,
            lease: None,
            usage: Cost::ZERO,
        }
    }
}

impl Answer {
    fn new(verdict: &Verdict, quota: &Quota, quantity: u64) -> Self {
        let Verdict { outcome, limit, remaining, reset_after, .. } = *verdict;
        // A bucket that was drained under other parameters may be further from full than is possible under these: then
        // redis-cell denies even a quantity of zero.
        let overdrawn = reset_after.as_micros().saturating_sub(quota.window().as_micros());
        let (is_limited, retry_after) = match outcome {
            _ if quantity > limit => (true, None),
            Outcome::Allowed if overdrawn > 0 => (true, Some(Micros::from_micros(overdrawn))),
            Outcome::Allowed => (false, None),
            Outcome::Denied { retry_after } => (true, Some(retry_after)),
            Outcome::NeverAdmissible => (true, None),
        };
        Self { is_limited, limit, remaining, retry_after, reset_after }
    }

    /// Whether it was denied.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Writes the reply.
    pub(super) fn write(&self, replies: &mut Replies) {
        replies.array(5);
        replies.integer(i64::from(self.is_limited));
        replies.unsigned(self.limit);
        replies.unsigned(self.remaining);
        match self.retry_after {
            Some(wait) => replies.unsigned(wait.ceil_secs()),
            None => replies.integer(-1),
        }
        replies.unsigned(self.reset_after.ceil_secs());
    }
}

fn has_control_characters(text: &str) -> bool {
    // Vectorises, because it does not stop at the first invalid byte.
    let is_visible_ascii = text.bytes().fold(true, |all, byte| all & (b' '..=b'~').contains(&byte));
    !is_visible_ascii && text.contains(char::is_control)
}

fn number(field: &'static str, word: &[u8], low: u64, high: u64) -> Result<u64, ThrottleSyntaxError> {
    let number = digits(word).or_else(|| std::str::from_utf8(word).ok()?.parse().ok());
    number.filter(|number| (low..=high).contains(number)).ok_or_else(|| out_of_range(field, word, low, high))
}

/// The common number: only digits, and few enough not to overflow.
fn digits(word: &[u8]) -> Option<u64> {
    const DIGITS_MAX: usize = 16;
    if word.is_empty() || word.len() > DIGITS_MAX {
        return None;
    }
    // ThrottleSyntaxError digits are checked once, at the end: the sum stays far below the maximum anyway.
    let (number, are_digits) = word.iter().fold((0, true), |(number, are_digits), byte| {
        let digit = byte.wrapping_sub(b'0');
        (number * 10 + u64::from(digit), are_digits & (digit <= 9))
    });
    are_digits.then_some(number)
}

fn out_of_range(field: &'static str, word: &[u8], low: u64, high: u64) -> ThrottleSyntaxError {
    ThrottleSyntaxError::Number { field, value: Shown(word).to_string(), low, high }
}

/// A client's word in an error: shortened, with only visible ASCII.
pub(super) struct Shown<'w>(pub(super) &'w [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BYTES_MAX: usize = 64;
        let shown = &self.0[..self.0.len().min(BYTES_MAX)];
        let end = if self.0.len() > BYTES_MAX { "…" } else { "" };
        write!(f, "{}{end}", shown.escape_ascii())
    }
}

#[cfg(test)]
mod tests;
