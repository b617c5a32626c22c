//! The token bucket: a number of tokens at an instant, and a refill rate.
//!
//! A token is divided into `period` parts, and `amount` parts arrive each microsecond, so every level is an integer.
//! After a backward step of the clock, a level may be read at an earlier instant than the one at which it was written.
//! It is then lower by the refill of the time between, possibly below zero. A backward step therefore never adds
//! tokens.

use super::{Algorithm, DEBT, SECOND, usage};

/// A token bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// The tokens of a client without history.
    pub capacity: u64,
    /// Tokens above the capacity that can be earned.
    pub credits: u64,
    /// Tokens that come per period.
    pub amount: u64,
    /// The period.
    pub period: u64,
    /// How long earned credits are remembered.
    pub credit_ttl: u64,
}

/// A level, and the parameters with which it was written.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct Level {
    /// The number of parts missing to the capacity; negative with credits.
    missing: i128,
    at: u64,
    /// The number of parts that arrived each microsecond.
    parts_per_micro: i128,
    /// The instant until which the client is remembered, unless the capacity is restored later.
    known_until: u64,
}

impl Bucket {
    /// Parts per microsecond and parts per token, in lowest terms. A level keeps its exact value across a change of the
    /// rate if the first of them stays the same.
    fn parts(&self) -> (i128, i128) {
        let divisor = greatest_common_divisor(self.amount, self.period);
        (i128::from(self.amount / divisor), i128::from(self.period / divisor))
    }

    fn parts_of(&self, tokens: u64) -> i128 {
        i128::from(tokens) * self.parts().1
    }

    /// The missing parts at the instant of the level, under these parameters. State is kept as time: the capacity is
    /// restored at the same instant as before the change, rounded up to a whole microsecond if the parts per
    /// microsecond differ.
    fn missing_then(&self, level: &Level) -> i128 {
        let per_micro = self.parts().0;
        if level.parts_per_micro == per_micro {
            return level.missing;
        }
        ceiling(level.missing, level.parts_per_micro) * per_micro
    }

    /// The parts that are missing at `now`.
    fn missing(&self, level: &Level, now: u64) -> i128 {
        let passed = i128::from(now) - i128::from(level.at);
        (self.missing_then(level) - passed * self.parts().0).max(-self.parts_of(self.credits))
    }

    /// The instant, rounded up, at which at most `missing` parts are missing.
    fn reaches(&self, level: &Level, missing: i128) -> u64 {
        let wait = ceiling(self.missing_then(level) - missing, self.parts().0);
        u64::try_from(i128::from(level.at) + wait).unwrap_or(0)
    }

    /// Without credits, a client at full capacity equals one without history. With credits, it is remembered for as
    /// long as they are, and at least until its capacity is restored.
    fn known<'l>(&self, level: Option<&'l Level>, now: u64) -> Option<&'l Level> {
        level.filter(|level| self.credits == 0 || now <= self.matters_until(level))
    }

    fn free(&self, level: Option<&Level>, now: u64) -> i128 {
        let missing = self.known(level, now).map_or(0, |level| self.missing(level, now));
        self.parts_of(self.capacity) - missing
    }

    fn written(&self, missing: i128, now: u64) -> Level {
        let mut level = Level { missing, at: now, parts_per_micro: self.parts().0, known_until: 0 };
        let restored = self.reaches(&level, -self.parts_of(self.credits));
        level.known_until = if self.credits == 0 { restored } else { restored.max(now + self.credit_ttl) };
        level
    }
}

impl Algorithm for Bucket {
    usage!(Bucket(Level));

    fn limit(&self) -> u64 {
        self.capacity + self.credits
    }

    fn remaining(&self, level: Option<&Level>, now: u64) -> u64 {
        u64::try_from(self.free(level, now) / self.parts().1).unwrap_or(0)
    }

    fn debt(&self, level: Option<&Level>, now: u64) -> u64 {
        u64::try_from(ceiling(-self.free(level, now), self.parts().1)).unwrap_or(0)
    }

    fn fits(&self, level: Option<&Level>, cost: u64, now: u64) -> bool {
        cost <= self.limit() && self.parts_of(cost) <= self.free(level, now)
    }

    fn fits_at(&self, level: Option<&Level>, cost: u64, now: u64) -> Option<u64> {
        if cost > self.limit() {
            return None;
        }
        let wait = ceiling(self.parts_of(cost) - self.free(level, now), self.parts().0);
        let at = now + u64::try_from(wait).unwrap_or(0);
        // A cost above the capacity needs credits, and a client that is forgotten by then has none.
        let is_known_then = self.known(level, now).is_some_and(|level| at <= self.matters_until(level));
        (cost <= self.capacity || is_known_then).then_some(at)
    }

    fn restored_at(&self, level: Option<&Level>, now: u64) -> u64 {
        self.known(level, now).map_or(now, |level| self.reaches(level, -self.parts_of(self.credits)))
    }

    fn charged(&self, level: Option<&Level>, cost: u64, now: u64) -> Level {
        self.written(self.parts_of(self.capacity) - self.free(level, now) + self.parts_of(cost), now)
    }

    fn reported(&self, level: Option<&Level>, cost: u64, now: u64) -> Level {
        let free = self.free(level, now);
        let most = (free + self.parts_of(DEBT * self.limit())).max(0);
        self.written(self.parts_of(self.capacity) - free + self.parts_of(cost).min(most), now)
    }

    fn refunded(&self, level: &Level, cost: u64, now: u64) -> Level {
        let full = -self.parts_of(self.credits);
        if self.known(Some(level), now).is_none() || self.missing(level, now) <= full {
            return level.clone();
        }
        let left = self.missing(level, now) - self.parts_of(cost);
        let refunded = self.written(left.max(full), now);
        let known_until = if self.credits == 0 { refunded.known_until } else { level.known_until };
        Level { known_until, ..refunded }
    }

    /// A level is too far ahead if it is further below an empty bucket than the largest debt and the refill during its
    /// full fill time, or during a second if that is longer.
    fn repaired(&self, level: &Level, now: u64) -> Option<Level> {
        let (per_micro, _) = self.parts();
        let full = ceiling(self.parts_of(self.limit()), per_micro);
        let tolerance = i128::from(DEBT) * full + full.max(i128::from(SECOND));
        let empty = self.parts_of(self.capacity);
        let is_too_far = self.missing(level, now) > empty + tolerance * per_micro;
        is_too_far.then(|| self.written(empty, now))
    }

    fn matters_until(&self, level: &Level) -> u64 {
        level.known_until.max(self.reaches(level, 0))
    }
}

fn greatest_common_divisor(left: u64, right: u64) -> u64 {
    if right == 0 { left } else { greatest_common_divisor(right, left % right) }
}

/// The quotient, rounded up.
fn ceiling(dividend: i128, divisor: i128) -> i128 {
    -(-dividend).div_euclid(divisor)
}
