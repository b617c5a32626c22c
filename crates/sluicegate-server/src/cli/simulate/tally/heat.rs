//! Counts by weekday and hour, in UTC.

use super::Count;

/// Hours of a week.
const HOURS: usize = 7 * 24;
const HOUR_MICROS: u64 = 3_600_000_000;
/// The first of January 1970 was a Thursday, the fourth day of a week that begins on Monday.
const EPOCH_DAY: u64 = 3;

/// Counts by weekday and hour.
#[derive(Clone, Debug)]
pub(crate) struct Heat([Count; HOURS]);

impl Default for Heat {
    fn default() -> Self {
        Self([Count::default(); HOURS])
    }
}

impl Heat {
    #[inline]
    pub(crate) fn add(&mut self, at_micros: u64, is_allowed: bool) {
        let hour = at_micros / HOUR_MICROS + EPOCH_DAY * 24;
        self.0[(hour % HOURS as u64) as usize].add(is_allowed);
    }

    /// The counts of one hour; days begin with Monday.
    pub(crate) fn at(&self, day: usize, hour: usize) -> Count {
        self.0[(day * 24 + hour) % HOURS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_hour_is_on_its_day() {
        let mut heat = Heat::default();
        // Tuesday, 14 November 2023, 22:13:20 UTC.
        heat.add(1_700_000_000_000_000, false);
        assert_eq!(heat.at(1, 22), Count { allowed: 0, denied: 1 });
        assert_eq!(
            (0..7)
                .flat_map(|day| (0..24).map(move |hour| (day, hour)))
                .map(|(d, h)| heat.at(d, h).total())
                .sum::<u64>(),
            1
        );
    }
}
