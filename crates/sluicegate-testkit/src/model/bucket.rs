//! A bucket of tokens: so many at that instant, and a rate at which they come.
//!
//! Going forward adds `amount / period` tokens per microsecond up to the brim. Going back takes the same
//! number away again, and one may end up owing some: at an earlier instant one cannot have more than one has
//! now. Who would owe more than a bucketful, and more than a second's worth, owes nothing and has nothing.

use super::{Exact, Memory, Rules, believed_ahead, ceil, whole};
use num_bigint::BigInt;
use num_traits::Zero;

/// A token bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// Tokens an identity never seen has.
    pub capacity: u64,
    /// Tokens above the capacity that can be earned.
    pub credits: u64,
    /// Tokens that come per period.
    pub amount: u64,
    /// The period in microseconds.
    pub period: u64,
    /// How long an idle identity is remembered when there are credits to earn.
    pub credit_ttl: u64,
}

/// Tokens at an instant, and the limit they were counted under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Level {
    tokens: Exact,
    at: u64,
    brim: u64,
    refill: Exact,
    remembered_until: u64,
}

impl Bucket {
    /// All the tokens there can be.
    #[must_use]
    pub fn brim(&self) -> u64 {
        self.capacity + self.credits
    }

    /// Tokens per microsecond.
    #[must_use]
    pub fn refill(&self) -> Exact {
        Exact::new(BigInt::from(self.amount), BigInt::from(self.period))
    }

    /// Tokens at `now`; less than nothing where the clock went back by more than it took to earn them.
    fn tokens(&self, level: &Level, now: u64) -> Exact {
        let tokens = self.tokens_then(level);
        let passed = Exact::from_integer(BigInt::from(now) - BigInt::from(level.at));
        (tokens + self.refill() * passed).min(whole(self.brim()))
    }

    /// The tokens at the instant of the level, under this limit. What a change of limit keeps is the instant
    /// at which the bucket will be full; it is rounded up to a whole microsecond if a token of the new rate
    /// lasts a fraction of another kind.
    fn tokens_then(&self, level: &Level) -> Exact {
        if level.brim == self.brim() && level.refill == self.refill() {
            return level.tokens.clone();
        }
        let mut full_in = (whole(level.brim) - &level.tokens) / &level.refill;
        if level.refill.numer() != self.refill().numer() {
            full_in = full_in.ceil();
        }
        whole(self.brim()) - self.refill() * full_in
    }

    fn level(&self, tokens: Exact, now: u64, remembered_until: u64) -> Level {
        Level { tokens, at: now, brim: self.brim(), refill: self.refill(), remembered_until }
    }

    fn full_at(&self, tokens: &Exact, now: u64) -> u64 {
        now + ceil(&((whole(self.brim()) - tokens) / self.refill()))
    }

    /// A level just written is remembered until it is full, and with credits for the time to live at least.
    fn written(&self, tokens: Exact, now: u64) -> Level {
        let full_at = self.full_at(&tokens, now);
        let remembered_until = if self.credits == 0 { full_at } else { full_at.max(now + self.credit_ttl) };
        self.level(tokens, now, remembered_until)
    }

    /// The level, unless it is no longer remembered. Without credits nobody can tell.
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
        // An identity without history does not begin to earn before something was charged.
        let most = if self.remembered(level, now).is_some() { self.brim() } else { self.capacity };
        if cost > most {
            return None;
        }
        let missing = whole(cost) - self.free(level, now);
        Some(now + ceil(&(missing / self.refill())))
    }

    fn whole_at(&self, level: Option<&Level>, now: u64) -> u64 {
        self.full_at(&self.free(level, now), now)
    }

    fn settled(&self, level: Level, now: u64) -> Level {
        let full_in = (whole(self.brim()) / self.refill()).ceil().to_integer();
        let ahead = Exact::from_integer(full_in).max(whole(believed_ahead(0)));
        let deepest = -(self.refill() * ahead);
        if self.tokens(&level, now) < deepest {
            return self.written(Exact::zero(), now);
        }
        level
    }

    fn taken(&self, level: Option<Level>, cost: u64, now: u64) -> Level {
        self.written(self.free(level.as_ref(), now) - whole(cost), now)
    }

    fn given_back(&self, level: Level, cost: u64, now: u64) -> (Level, Exact) {
        if self.remembered(Some(&level), now).is_none() {
            return (level, Exact::zero());
        }
        let before = self.tokens(&level, now);
        if before == whole(self.brim()) {
            return (level, Exact::zero());
        }
        let tokens = match cost > self.brim() {
            true => whole(self.brim()),
            false => (&before + whole(cost)).min(whole(self.brim())),
        };
        let remembered_until = match self.credits {
            0 => self.full_at(&tokens, now),
            _ => level.remembered_until,
        };
        let level = self.level(tokens, now, remembered_until);
        let given_back = &level.tokens - before;
        (level, given_back)
    }
}
