//! The share of a bucket that several instances enforce independently.
//!
//! Each of K shares holds ⌈B/K⌉ tokens and refills at r/K. Together they admit at most B + r·d + K − 1 in any
//! interval of length d, because of the rounding of K ceilings. Tokens and credits form one pool that is rounded
//! once, so the same bound holds with credits, where B is the sum of both.
//!
//! Worked example: 10 tokens, 10 per second, 3 shares: 4 tokens each and 10 per 3 seconds, which is exact. Together
//! 12 = 10 + 3 − 1 at once, and 10 per second from then on.
//!
//! A share may be slower than the slowest valid limit (no period above ten years). Then it gets less, never more. It
//! gets fewer tokens, so that it fills in ten years. It gets a slower rate if even the period of one token is out of
//! range. It gets nothing at all if not one token would refill in ten years.

use super::span::gcd;
use super::{Rate, TokenBucket};
use crate::time::Micros;
use std::num::NonZeroU32;

impl TokenBucket {
    pub(super) fn share_of(&self, parts: NonZeroU32) -> Option<Self> {
        let refill = self.refill_of(parts)?;
        let held = |tokens: u64| tokens.div_ceil(parts.get().into()).min(filled_at_most(refill));
        let (capacity, whole) = (held(self.capacity), held(self.capacity + self.credits));
        // This also rejects a capacity of zero.
        Self::with_credits(capacity, refill, whole - capacity, self.credit_ttl).ok()
    }

    /// r/K as a fraction; rounded down only if its period would be out of range.
    fn refill_of(&self, parts: NonZeroU32) -> Option<Rate> {
        let parts = u64::from(parts.get());
        let divisor = gcd(self.parts_per_micro, parts);
        let exact = self.parts_per_token.checked_mul(parts / divisor);
        if let Some(period) = exact
            && let Ok(rate) = Rate::new(self.parts_per_micro / divisor, Micros::from_micros(period))
        {
            return Some(rate);
        }
        let longest = u128::from(Micros::PERIOD_MAX.as_micros()) * u128::from(self.parts_per_micro);
        let amount = longest / (u128::from(self.parts_per_token) * u128::from(parts));
        Rate::new(u64::try_from(amount).ok()?, Micros::PERIOD_MAX).ok()
    }
}

/// The number of tokens that refill in ten years.
fn filled_at_most(refill: Rate) -> u64 {
    let tokens = u128::from(Micros::PERIOD_MAX.as_micros()) * u128::from(refill.amount());
    u64::try_from(tokens / u128::from(refill.period().as_micros())).unwrap_or(u64::MAX)
}
