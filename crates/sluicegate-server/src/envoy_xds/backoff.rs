//! The waits between attempts to reach the control plane.

use std::time::Duration;

use crate::envoy_ratelimit::xds::{Backoff, WHOLE};

/// The next waits.
#[derive(Debug)]
pub(super) struct Waits {
    settings: Backoff,
    /// The wait after the next failure in a row.
    next: Duration,
}

impl Waits {
    pub(super) fn new(settings: Backoff) -> Self {
        Self { settings, next: settings.initial }
    }

    /// The wait before the next attempt. `worked`: whether the control plane has responded in the last one.
    pub(super) fn next(&mut self, worked: bool) -> Duration {
        let wait = if worked {
            self.next = self.settings.initial;
            self.settings.after_success
        } else {
            let wait = self.next;
            self.next = wait.saturating_mul(2).min(self.settings.max);
            wait
        };
        self.randomised(wait, fastrand::u64)
    }

    /// The wait, longer or shorter by up to the random share, so that servers that lost the control plane together do
    /// not come back together.
    fn randomised(&self, wait: Duration, random: impl FnOnce(std::ops::RangeInclusive<u64>) -> u64) -> Duration {
        let share = self.settings.random_thousandths.min(WHOLE);
        let thousandths = random(WHOLE - share..=WHOLE + share);
        // At most an hour times 2000, which is far below the maximum of both types.
        let nanos = wait.as_nanos() * u128::from(thousandths) / u128::from(WHOLE);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn waits(random_thousandths: u64) -> Waits {
        Waits::new(Backoff {
            after_success: 3 * SECOND,
            initial: 10 * SECOND,
            max: 60 * SECOND,
            random_thousandths,
        })
    }

    #[test]
    fn waits_double_up_to_the_maximum_and_begin_again_after_a_success() {
        let mut waits = waits(0);
        let failed: Vec<u64> = (0..5).map(|_| waits.next(false).as_secs()).collect();
        assert_eq!(failed, [10, 20, 40, 60, 60]);
        assert_eq!((waits.next(true), waits.next(false)), (3 * SECOND, 10 * SECOND));
    }

    #[test]
    fn each_wait_is_random_within_its_share() {
        let waits = waits(500);
        assert_eq!(waits.randomised(10 * SECOND, |range| *range.start()), 5 * SECOND);
        assert_eq!(waits.randomised(10 * SECOND, |range| *range.end()), 15 * SECOND);
        let whole = Waits { settings: Backoff { random_thousandths: 5_000, ..waits.settings }, ..waits };
        assert_eq!(whole.randomised(10 * SECOND, |range| *range.start()), Duration::ZERO);
    }
}
