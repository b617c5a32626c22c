//! Lengths and instants in microseconds and parts of one, as a token bucket needs them: nothing is rounded.

use crate::time::{Micros, Timestamp};

/// q + r/n µs: as a length, or as an instant after the epoch. Compares lexicographically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Span {
    pub(super) micros: u64,
    pub(super) parts: u64,
}

impl Span {
    pub(super) const fn at(now: Timestamp) -> Self {
        Self { micros: now.as_micros(), parts: 0 }
    }

    /// What `tokens` last, exactly; `None` if that is beyond 2⁶⁴ µs.
    #[inline]
    pub(super) fn of_tokens(tokens: u64, parts_per_token: u64, parts_per_micro: u64) -> Option<Self> {
        // One division of 64 bits is several times cheaper than one of 128, and nearly always enough.
        if let Some(parts) = tokens.checked_mul(parts_per_token) {
            return Some(Self { micros: parts / parts_per_micro, parts: parts % parts_per_micro });
        }
        let (parts, per_micro) = (u128::from(tokens) * u128::from(parts_per_token), u128::from(parts_per_micro));
        let micros = u64::try_from(parts / per_micro).ok()?;
        // The remainder is less than `parts_per_micro`, which is a u64.
        Some(Self { micros, parts: (parts % per_micro) as u64 })
    }

    /// How many whole tokens this length is worth, rounded down.
    #[inline]
    pub(super) fn whole_tokens(self, parts_per_token: u64, parts_per_micro: u64) -> u64 {
        let exact = self.micros.checked_mul(parts_per_micro).and_then(|parts| parts.checked_add(self.parts));
        if let Some(parts) = exact {
            return parts / parts_per_token;
        }
        let parts = u128::from(self.micros) * u128::from(parts_per_micro) + u128::from(self.parts);
        u64::try_from(parts / u128::from(parts_per_token)).unwrap_or(u64::MAX)
    }

    pub(super) const fn ceil_micros(self) -> u64 {
        if self.parts > 0 { self.micros.saturating_add(1) } else { self.micros }
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
