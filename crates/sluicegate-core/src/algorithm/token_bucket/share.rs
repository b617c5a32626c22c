//! One part of a bucket that several keep in parts, each for itself.
//!
//! With K parts each holds ⌈B/K⌉ tokens and refills at r/K, so all together admit at most B + r·d + K − 1 in any
//! interval of length d: the rounding of K ceilings. Tokens and credits are one pool and are rounded as one, so that
//! the same holds with credits, where B is both together.
//!
//! Worked example: 10 tokens, 10 per second, 3 parts: 4 tokens each and 10 per 3 seconds, which is exact. Together
//! 12 = 10 + 3 − 1 at once, and 10 per second from then on.
//!
//! A part may be slower than any limit may be (no period above ten years). Then it gets less, never more: fewer
//! tokens, so that it fills in ten years; a slower rate, where even the period of one token is out of range; and
//! nothing at all where not one token would come back in ten years.

use super::span::gcd;
use super::{Rate, TokenBucket};
use crate::time::Micros;
use std::num::NonZeroU32;

impl TokenBucket {
    pub(super) fn share_of(&self, parts: NonZeroU32) -> Option<Self> {
        let refill = self.refill_of(parts)?;
        let held = |tokens: u64| tokens.div_ceil(parts.get().into()).min(filled_at_most(refill));
        let (capacity, whole) = (held(self.capacity), held(self.capacity + self.credits));
        // No capacity at all is refused here, too.
        Self::with_credits(capacity, refill, whole - capacity, self.credit_ttl).ok()
    }

    /// r/K as a fraction; rounded down only where its period would be out of range.
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

/// The tokens of a bucket that takes ten years to fill.
fn filled_at_most(refill: Rate) -> u64 {
    let tokens = u128::from(Micros::PERIOD_MAX.as_micros()) * u128::from(refill.amount());
    u64::try_from(tokens / u128::from(refill.period().as_micros())).unwrap_or(u64::MAX)
}
