//! A token bucket: a number of tokens at an instant, and a refill rate.
//!
//! Forward in time, the bucket gains `amount / period` tokens per microsecond up to the brim. Backward in time it loses
//! the same number and may become negative: an earlier instant cannot have more tokens than the current one. Reports make
//! a debt of up to ten full buckets. If one more full bucket and one more second's refill are missing, the number is reset to
//! zero tokens.

use super::{Exact, Memory, Rules, believed_ahead, ceil, whole};
use num_bigint::BigInt;
use num_traits::Zero;

/// A token bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Tokens of an identity without history.
    pub capacity: u64,
    /// Tokens above the capacity that can be earned.
    pub credits: u64,
    /// Tokens that come per period.
    pub amount: u64,
    /// The period in microseconds.
    pub period: u64,
    /// How long an idle identity is remembered if there are credits to earn.
    pub credit_ttl: u64,
}

/// Tokens at an instant, and the limit they were counted under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Level {
    tokens: Exact,
    at: u64,
    capacity: u64,
    refill: Exact,
    remembered_until: u64,
}

impl Bucket {
    /// The maximum number of tokens.
    #[must_use]
    pub fn brim(&self) -> u64 {
        self.capacity + self.credits
    }

    /// Tokens per microsecond.
    #[must_use]
    pub fn refill(&self) -> Exact {
        Exact::new(BigInt::from(self.amount), BigInt::from(self.period))
    }

    /// Tokens at `now`; negative if the clock stepped back by more than the time in which they were earned.
    fn tokens(&self, level: &Level, now: u64) -> Exact {
        let tokens = self.tokens_then(level);
        let passed = Exact::from_integer(BigInt::from(now) - BigInt::from(level.at));
        (tokens + self.refill() * passed).min(self.most(now))
    }

    /// The maximum number of tokens at `now`. Time starts at the epoch, so no tokens are earned before it.
    fn most(&self, now: u64) -> Exact {
        whole(self.brim()).min(whole(self.capacity) + self.refill() * whole(now))
    }

    /// The tokens at the instant of the level, under this limit. A change of limit preserves the instant at which the
    /// bucket reaches its capacity. That instant is rounded up to a whole microsecond if the refill rate has a
    /// different numerator. Credits are counted from the capacity, so a change of credits adds none.
    fn tokens_then(&self, level: &Level) -> Exact {
        if level.capacity == self.capacity && level.refill == self.refill() {
            return level.tokens.clone();
        }
        let mut refilled_in = (whole(level.capacity) - &level.tokens) / &level.refill;
        if level.refill.numer() != self.refill().numer() {
            refilled_in = refilled_in.ceil();
        }
        whole(self.capacity) - self.refill() * refilled_in
    }

    fn level(&self, tokens: Exact, now: u64, remembered_until: u64) -> Level {
        Level { tokens, at: now, capacity: self.capacity, refill: self.refill(), remembered_until }
    }

    fn full_at(&self, tokens: &Exact, now: u64) -> u64 {
        now + ceil(&((whole(self.brim()) - tokens) / self.refill()))
    }

    /// A new level is remembered until it is full, and with credits at least for the time to live.
    fn written(&self, tokens: Exact, now: u64) -> Level {
        let full_at = self.full_at(&tokens, now);
        let remembered_until = if self.credits == 0 { full_at } else { full_at.max(now + self.credit_ttl) };
        self.level(tokens, now, remembered_until)
    }

    /// The level, unless it has been forgotten. Without credits, forgetting a level makes no difference.
    fn remembered<'l>(&self, level: Option<&'l Level>, now: u64) -> Option<&'l Level> {
        level.filter(|level| self.credits == 0 || now <= level.remembered_until)
    }
}

impl Rules for Bucket {
    type Memory = Level;

    fn wrap(level: Level) -> Memory {
        Memory::Bucket(level)
    }

    fn own(memory: &Memory) -> Option<&Level> {
        match memory {
            Memory::Bucket(level) => Some(level),
            _ => None,
        }
    }

    fn free(&self, level: Option<&Level>, now: u64) -> Exact {
        match self.remembered(level, now) {
            None => whole(self.capacity),
            Some(level) => self.tokens(level, now),
        }
    }

    fn free_at(&self, level: Option<&Level>, cost: u64, now: u64) -> Option<u64> {
        if cost > self.brim() {
            return None;
        }
        let missing = whole(cost) - self.free(level, now);
        let free_at = now + ceil(&(missing / self.refill()));
        // An identity without history earns nothing before its first charge. An identity that is forgotten in the
        // meantime loses its credits.
        let is_known_then = self.remembered(level, now).is_some_and(|level| free_at <= level.remembered_until);
        (cost <= self.capacity || is_known_then).then_some(free_at)
    }

    fn whole_at(&self, level: Option<&Level>, now: u64) -> u64 {
        match self.remembered(level, now) {
            None => now,
            Some(level) => self.full_at(&self.tokens(level, now), now),
        }
    }

    fn settled(&self, level: Level, now: u64) -> Level {
        let full_in = (whole(self.brim()) / self.refill()).ceil().to_integer();
        let full_in = Exact::from_integer(full_in);
        let ahead = whole(10) * &full_in + full_in.max(whole(believed_ahead(0)));
        let deepest = -(self.refill() * ahead);
        if self.tokens(&level, now) < deepest {
            return self.written(Exact::zero(), now);
        }
        level
    }

    fn taken(&self, level: Option<Level>, cost: u64, now: u64) -> Level {
        self.written(self.free(level.as_ref(), now) - whole(cost), now)
    }

    fn reported(&self, level: Option<Level>, cost: u64, now: u64) -> Option<Level> {
        let free = self.free(level.as_ref(), now);
        let most = (&free + whole(10 * self.brim())).max(whole(0));
        Some(self.written(free - whole(cost).min(most), now))
    }

    fn given_back(&self, level: Level, cost: u64, now: u64) -> (Level, Exact) {
        if self.remembered(Some(&level), now).is_none() {
            return (level, Exact::zero());
        }
        let before = self.tokens(&level, now);
        if before == self.most(now) {
            return (level, Exact::zero());
        }
        let tokens = (&before + whole(cost)).min(self.most(now));
        let remembered_until = match self.credits {
            0 => self.full_at(&tokens, now),
            _ => level.remembered_until,
        };
        let level = self.level(tokens, now, remembered_until);
        let given_back = &level.tokens - before;
        (level, given_back)
    }
}
