//! `CL.THROTTLE key max_burst count period [quantity]`: redis-cell's command over the server's own store.
//!
//! It is a token bucket of `max_burst` + 1 that gains `count` per `period` seconds. redis-cell keeps the same
//! theoretical arrival time, cut to whole nanoseconds per token; ours is exact. Times are whole seconds, rounded
//! up, so that nobody who obeys them comes too early.
//!
//! Keys live in a space of their own, whose name no configured rule can have, and may be any bytes.

use std::borrow::Cow;
use std::fmt;
use std::slice;
use std::time::Duration;

use sluicegate::core::decision::Group;
use sluicegate::core::quota::UNITS_MAX;
use sluicegate::core::{Cost, Micros, Outcome, Quota, Rate, Timestamp, TokenBucket, Verdict};
use sluicegate::identity::IDENTIFIER_BYTES_MAX;
use sluicegate::store::{Charge, ErrorClass, Key, KeySpace, Store, StoreError, Subject};
use sluicegate::{Identity, MemoryStore};

use super::parse::Words;
use super::reply::Replies;

/// The space of the keys, and the name under which they are told of. A rule's name in a configuration has no colon.
pub(crate) const SPACE: &str = "resp:cl.throttle";

/// What the command is called, in lower case.
pub(super) const NAME: &[u8] = b"cl.throttle";

/// The tenant of keys that are not plain text. Plain ones have no tenant at all.
const BYTES_TENANT: &str = "bytes";

/// The longest period: ten years, as for every quota.
const PERIOD_SECS_MAX: u64 = Micros::PERIOD_MAX.as_micros() / 1_000_000;

/// The buckets of all keys.
#[derive(Debug)]
pub(super) struct Buckets {
    space: KeySpace,
    /// How long the store may take.
    deadline: Duration,
}

/// The numbers of a bucket as a client sends them with every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    max_burst: u64,
    count: u64,
    period_secs: u64,
}

/// The quota of the last command. Most connections use one shape, or a few in turn.
#[derive(Debug, Default)]
pub(super) struct LastQuota(Option<(Shape, Quota)>);

/// One command, checked.
#[derive(Debug)]
pub(super) struct Throttle<'w> {
    key: KeyName<'w>,
    shape: Shape,
    quantity: u64,
}

/// A key as an identity. Plain text stands for itself and everything else for its hexadecimal digits in a tenant of
/// its own, so no two keys are the same identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyName<'w> {
    text: Cow<'w, str>,
    is_plain: bool,
}

/// Why a command cannot be one.
#[derive(Debug, thiserror::Error)]
pub(super) enum Invalid {
    /// Too few words, or too many.
    #[error("wrong number of arguments for 'cl.throttle' command")]
    Words,
    /// A key that no store would keep.
    #[error("the key has {bytes} bytes; use at most {IDENTIFIER_BYTES_MAX}")]
    KeyLength {
        /// How many it has.
        bytes: usize,
    },
    /// Not a number, or not one that makes sense there.
    #[error(
        "value is not an integer or out of range: {field} is '{value}'; use a whole number from {low} to {high}"
    )]
    Number {
        /// Which.
        field: &'static str,
        /// As sent, shortened.
        value: String,
        /// The least that makes sense.
        low: u64,
        /// The most.
        high: u64,
    },
    /// Numbers that do not go together.
    #[error("filling a bucket may take at most ten years; use a larger count, or a smaller max_burst or period")]
    TooSlow,
}

/// The five numbers of the answer.
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
    pub(super) fn read(words: &'w Words<'_>) -> Result<Self, Invalid> {
        let (key, numbers) = match &words[1..] {
            [key, numbers @ ..] if (3..=4).contains(&numbers.len()) => (key, numbers),
            _ => return Err(Invalid::Words),
        };
        let shape = Shape {
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

    /// The bucket's numbers.
    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Which bucket it is.
    pub(super) fn key(&self) -> &KeyName<'w> {
        &self.key
    }

    /// What is taken. More than the bucket ever holds charges nothing, whether or not a cost can be so large.
    fn cost(&self, quota: &Quota) -> Cost {
        let charged = Some(self.quantity).filter(|&quantity| quantity <= quota.limit());
        charged.and_then(|quantity| u32::try_from(quantity).ok()).map_or(Cost::ZERO, Cost::new)
    }

    /// Whether it only looks.
    pub(super) fn is_peek(&self) -> bool {
        self.quantity == 0
    }

    /// The same command, for longer than its words live.
    pub(super) fn into_owned(self) -> Throttle<'static> {
        let Self { key, shape, quantity } = self;
        Throttle { key: key.into_owned(), shape, quantity }
    }
}

impl Shape {
    fn limit(self) -> u64 {
        self.max_burst + 1
    }

    fn quota(self) -> Option<Quota> {
        let rate = Rate::new(self.count, Micros::from_secs(self.period_secs)).ok()?;
        TokenBucket::new(self.limit(), rate).ok().map(Quota::from)
    }
}

impl LastQuota {
    /// The quota of this shape.
    pub(super) fn of(&mut self, shape: Shape) -> Result<&Quota, Invalid> {
        if self.0.as_ref().is_none_or(|(last, _)| *last != shape) {
            self.0 = Some((shape, shape.quota().ok_or(Invalid::TooSlow)?));
        }
        self.0.as_ref().map(|(_, quota)| quota).ok_or(Invalid::TooSlow)
    }
}

impl<'w> KeyName<'w> {
    /// The name.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The name of a key of these bytes.
    pub(super) fn read(key: &'w [u8]) -> Result<Self, Invalid> {
        if key.len() > IDENTIFIER_BYTES_MAX {
            return Err(Invalid::KeyLength { bytes: key.len() });
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

    /// The same key, for longer than the command lives.
    pub(super) fn into_owned(self) -> KeyName<'static> {
        KeyName { text: Cow::Owned(self.text.into_owned()), is_plain: self.is_plain }
    }

    fn subject(&self) -> Subject<'_> {
        let tenant = (!self.is_plain).then_some(BYTES_TENANT);
        Subject { tenant, identity: Some(Identity::Named(&self.text)), address: None }
    }
}

impl Buckets {
    /// Buckets in a store that may take so long.
    pub(super) fn new(deadline: Duration) -> Self {
        Self { space: KeySpace::new(SPACE), deadline }
    }

    /// Decides a command, and charges the bucket if it is allowed.
    pub(super) async fn throttle<S: Store>(
        &self,
        store: &S,
        throttle: &Throttle<'_>,
        quota: &Quota,
        now: Timestamp,
    ) -> Result<Answer, StoreError> {
        let charges = [self.charge(&throttle.key, quota, throttle.cost(quota))];
        let reply = if charges[0].cost.is_zero() {
            store.peek(&charges, now, self.deadline).await?
        } else {
            store.charge(&charges, now, self.deadline).await?
        };
        let verdict = reply
            .verdicts
            .first()
            .ok_or_else(|| StoreError::new(ErrorClass::Protocol, "the store gave no verdict"))?;
        Ok(Answer::new(verdict, quota, throttle.quantity))
    }

    /// [`Buckets::throttle`] in a store that answers at once. Nothing if it is not one to be charged.
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

    /// Forgets a bucket; true if there was one that was not full.
    pub(super) async fn delete<S: Store>(
        &self,
        store: &S,
        key: &[u8],
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        // A key that CL.THROTTLE refuses cannot be there.
        let Ok(key) = KeyName::read(key) else { return Ok(false) };
        // Any bucket will do: whether one is full does not depend on how fast it fills.
        let any = Shape { max_burst: 0, count: 1, period_secs: 1 };
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
        Charge { key, quotas: slice::from_ref(quota), cost, group: Group::Enforced, lease: None }
    }
}

impl Answer {
    fn new(verdict: &Verdict, quota: &Quota, quantity: u64) -> Self {
        let Verdict { outcome, limit, remaining, reset_after } = *verdict;
        // A bucket that was drained under other numbers may be further from full than this one ever gets: then
        // redis-cell denies even a quantity of nothing.
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

    /// Whether it says no.
    pub(super) fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Writes the answer.
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
    // Looks at many bytes at a time, because it does not stop at the first that is none.
    let is_visible_ascii = text.bytes().fold(true, |all, byte| all & (b' '..=b'~').contains(&byte));
    !is_visible_ascii && text.contains(char::is_control)
}

fn number(field: &'static str, word: &[u8], low: u64, high: u64) -> Result<u64, Invalid> {
    let number = digits(word).or_else(|| std::str::from_utf8(word).ok()?.parse().ok());
    number.filter(|number| (low..=high).contains(number)).ok_or_else(|| out_of_range(field, word, low, high))
}

/// The number that nearly every word is: nothing but digits, and few enough not to overflow.
fn digits(word: &[u8]) -> Option<u64> {
    const DIGITS_MAX: usize = 16;
    if word.is_empty() || word.len() > DIGITS_MAX {
        return None;
    }
    // What is no digit is looked for once, at the end: the sum stays far below the largest number all the same.
    let (number, are_digits) = word.iter().fold((0, true), |(number, are_digits), byte| {
        let digit = byte.wrapping_sub(b'0');
        (number * 10 + u64::from(digit), are_digits & (digit <= 9))
    });
    are_digits.then_some(number)
}

fn out_of_range(field: &'static str, word: &[u8], low: u64, high: u64) -> Invalid {
    Invalid::Number { field, value: Shown(word).to_string(), low, high }
}

/// A client's own word in an error: shortened, and nothing but visible ASCII.
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
