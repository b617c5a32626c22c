//! Integer time: [`Micros`] is a duration, [`Timestamp`] an instant.
//!
//! The unit is the microsecond because a Redis script computes in doubles: microseconds since 1970 stay below 2⁵³ and
//! are exact there, and nanoseconds are not. There is no `now()` here; time is always an argument.

/// A duration in whole microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(u64);

impl Micros {
    /// The duration of zero.
    pub const ZERO: Self = Self(0);
    /// The maximum period, window or fill time of a quota: ten years. It keeps every sum of a [`Timestamp`] and a
    /// duration exact in a double.
    pub const PERIOD_MAX: Self = Self::from_secs(10 * 365 * 86_400);

    /// A duration of `micros` microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// A duration of `millis` milliseconds; saturates at the end of the range.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000))
    }

    /// A duration of `secs` seconds; saturates at the end of the range.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// The duration in whole microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The duration in milliseconds, rounded up so that no client retries too early.
    #[must_use]
    pub const fn ceil_millis(self) -> u64 {
        self.0.div_ceil(1_000)
    }

    /// The duration in seconds, rounded up so that no client retries too early.
    #[must_use]
    pub const fn ceil_secs(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// True for a duration of zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

/// An instant: microseconds since the Unix epoch, on the clock of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last instant that a clock can show, in the year 2112: 2⁵² µs. After it, clocks stand still.
    pub const NOW_MAX: Self = Self((1 << 52) - 1);
    /// The last instant of all. Instants computed from now, such as the end of a window, may be later than
    /// [`Timestamp::NOW_MAX`] and are still exact in a double.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// A clock reading: the instant `micros` after the epoch, at most [`Timestamp::NOW_MAX`].
    #[must_use]
    pub const fn now(micros: u64) -> Self {
        if micros > Self::NOW_MAX.0 { Self::NOW_MAX } else { Self(micros) }
    }

    /// The instant `micros` after the epoch, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This instant and `length` more, at most [`Timestamp::MAX`].
    #[must_use]
    pub const fn plus(self, length: Micros) -> Self {
        Self::from_micros(self.0.saturating_add(length.0))
    }

    /// The time since `earlier`; zero if `earlier` is in the future.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_up_to_coarser_units() {
        assert_eq!(Micros::from_micros(1).ceil_millis(), 1);
        assert_eq!(Micros::from_micros(1_000).ceil_millis(), 1);
        assert_eq!(Micros::from_micros(1_000_001).ceil_secs(), 2);
        assert_eq!(Micros::ZERO.ceil_secs(), 0);
    }

    #[test]
    fn time_beyond_the_range_saturates_instead_of_wrapping() {
        assert_eq!(Timestamp::from_micros(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::now(u64::MAX), Timestamp::NOW_MAX);
        assert_eq!(Timestamp::MAX.plus(Micros::PERIOD_MAX), Timestamp::MAX);
        assert_eq!(Timestamp::from_micros(5).since(Timestamp::from_micros(9)), Micros::ZERO);
        assert_eq!(Micros::from_secs(u64::MAX).as_micros(), u64::MAX);
    }

    #[test]
    fn every_sum_of_the_core_is_exact_in_a_double() {
        // The latest accepted end is two windows ahead, a counter is kept for one more, and a phase adds one.
        let largest = Timestamp::NOW_MAX.as_micros() + 4 * Micros::PERIOD_MAX.as_micros();
        assert!(largest <= Timestamp::MAX.as_micros());
    }
}
