//! Durations and instants in microseconds and parts of microseconds for the token bucket, without rounding.

use crate::time::{Micros, Timestamp};

/// q + r/n µs, as a duration or as an instant after the epoch. Compares lexicographically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Span {
    pub(super) micros: u64,
    pub(super) parts: u64,
}

impl Span {
    pub(super) const fn at(now: Timestamp) -> Self {
        Self { micros: now.as_micros(), parts: 0 }
    }

    /// The exact duration of `tokens`; `None` if it is beyond 2⁶⁴ µs.
    #[inline]
    pub(super) fn of_tokens(tokens: u64, parts_per_token: u64, parts_per_micro: u64) -> Option<Self> {
        // A 64-bit division is several times cheaper than a 128-bit one, and nearly always enough.
        if let Some(parts) = tokens.checked_mul(parts_per_token) {
            return Some(Self { micros: parts / parts_per_micro, parts: parts % parts_per_micro });
        }
        let (parts, per_micro) = (u128::from(tokens) * u128::from(parts_per_token), u128::from(parts_per_micro));
        let micros = u64::try_from(parts / per_micro).ok()?;
        // The remainder is less than `parts_per_micro`, which is a u64.
        Some(Self { micros, parts: (parts % per_micro) as u64 })
    }

    /// The number of whole tokens in this duration, rounded down.
    #[inline]
    pub(super) fn whole_tokens(self, parts_per_token: u64, parts_per_micro: u64) -> u64 {
        let exact = self.micros.checked_mul(parts_per_micro).and_then(|parts| parts.checked_add(self.parts));
        if let Some(parts) = exact {
            return parts / parts_per_token;
        }
        let parts = u128::from(self.micros) * u128::from(parts_per_micro) + u128::from(self.parts);
        u64::try_from(parts / u128::from(parts_per_token)).unwrap_or(u64::MAX)
    }

    /// The number of tokens in this duration, rounded up.
    pub(super) fn tokens_begun(self, parts_per_token: u64, parts_per_micro: u64) -> u64 {
        let parts = u128::from(self.micros) * u128::from(parts_per_micro) + u128::from(self.parts);
        u64::try_from(parts.div_ceil(parts_per_token.into())).unwrap_or(u64::MAX)
    }

    pub(super) const fn ceil_micros(self) -> u64 {
        if self.parts > 0 { self.micros.saturating_add(1) } else { self.micros }
    }

    /// This instant or duration, `length` later.
    pub(super) const fn later_by(self, length: Micros) -> Self {
        Self { micros: self.micros.saturating_add(length.as_micros()), parts: self.parts }
    }

    pub(super) const fn within_bounds(&self) -> bool {
        self.ceil_micros() <= Micros::PERIOD_MAX.as_micros()
    }
}

pub(super) const fn gcd(mut left: u64, mut right: u64) -> u64 {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    left
}
