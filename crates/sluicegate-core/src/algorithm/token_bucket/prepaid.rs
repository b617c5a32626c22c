//! A bucket that is charged ahead: what is taken from it may pass up to a while later.
//!
//! Who takes tokens now and lets them pass within ℓ shifts what passes in an interval of length d to charges within
//! d + ℓ, of which there are at most B + r·(d + ℓ). So a bucket of B − ⌈r·ℓ⌉ tokens, refilled as ever, charged by
//! everybody, lets at most B + r·d pass in any interval: exactly what the whole bucket promises without the delay.
//!
//! Worked example: 100 tokens, 50 per second, ℓ = 100 ms. r·ℓ = 5 tokens, so the bucket that is charged ahead holds 95.

use super::TokenBucket;
use super::span::Span;
use crate::time::Micros;

impl TokenBucket {
    /// How many tokens come back within `length`, rounded up; [`u64::MAX`] if they are more, which is more than any bucket
    /// holds.
    #[must_use]
    pub fn refilled_within(&self, length: Micros) -> u64 {
        let parts = u128::from(length.as_micros()) * u128::from(self.parts_per_micro);
        u64::try_from(parts.div_ceil(self.parts_per_token.into())).unwrap_or(u64::MAX)
    }

    /// The longest time within which no more than `tokens` come back, rounded up as [`TokenBucket::refilled_within`]
    /// does.
    #[must_use]
    pub fn refilling(&self, tokens: u64) -> Micros {
        let span = Span::of_tokens(tokens, self.parts_per_token, self.parts_per_micro);
        Micros::from_micros(span.map_or(u64::MAX, |span| span.micros))
    }

    pub(super) fn prepaid_for(&self, delay: Micros) -> Option<Self> {
        if self.credits > 0 {
            // Credits are remembered and forgotten by the time of the charge: a delay would not only shift them.
            return None;
        }
        let capacity = self.capacity.checked_sub(self.refilled_within(delay)).filter(|left| *left > 0)?;
        let full = Span::of_tokens(capacity, self.parts_per_token, self.parts_per_micro)?;
        let ahead = super::believed_ahead(Micros::from_micros(full.ceil_micros()));
        let furthest = Span { micros: full.micros + ahead.as_micros(), ..full };
        Some(Self { capacity, full, furthest, ..self.clone() })
    }
}
