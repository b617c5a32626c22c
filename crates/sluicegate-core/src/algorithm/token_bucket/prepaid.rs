//! The limit for charges in advance: tokens taken now may be used up to a while later.
//!
//! If permits are used within ℓ after their charge, the admissions in an interval of length d belong to charges
//! within d + ℓ, which are at most B + r·(d + ℓ). So a bucket of B − ⌈r·ℓ⌉ tokens with the same refill, charged by
//! all instances, admits at most B + r·d in any interval: the bound of the whole bucket without the delay.
//!
//! Worked example: 100 tokens, 50 per second, ℓ = 100 ms. r·ℓ = 5 tokens, so the bucket for charges in advance holds
//! 95.

use super::TokenBucket;
use super::span::Span;
use crate::time::Micros;

impl TokenBucket {
    /// The number of tokens that refill within `length`, rounded up; [`u64::MAX`] if that is out of range, which is
    /// more than any bucket holds.
    #[must_use]
    pub fn refilled_within(&self, length: Micros) -> u64 {
        let parts = u128::from(length.as_micros()) * u128::from(self.parts_per_micro);
        u64::try_from(parts.div_ceil(self.parts_per_token.into())).unwrap_or(u64::MAX)
    }

    /// The longest time within which at most `tokens` refill, with the rounding of [`TokenBucket::refilled_within`].
    #[must_use]
    pub fn refilling(&self, tokens: u64) -> Micros {
        let span = Span::of_tokens(tokens, self.parts_per_token, self.parts_per_micro);
        Micros::from_micros(span.map_or(u64::MAX, |span| span.micros))
    }

    pub(super) fn prepaid_for(&self, delay: Micros) -> Option<Self> {
        if self.credits > 0 {
            // Credits are retained by the time of the charge, so a delay would do more than shift them.
            return None;
        }
        let capacity = self.capacity.checked_sub(self.refilled_within(delay)).filter(|left| *left > 0)?;
        let fill = Span::of_tokens(capacity, self.parts_per_token, self.parts_per_micro)?;
        let furthest = super::furthest(fill, fill);
        Some(Self { capacity, fill, furthest, ..self.clone() })
    }
}
