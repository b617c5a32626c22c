//! A limit of lines per second.
//!
//! The caller passes the time. A clock that goes back a few seconds does not start a new second. One that goes back further
//! does, so the log does not stay silent until the old time comes again.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::Timestamp;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// The bits of the state for the count; the others hold the second. 2^44 seconds are half a million years.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// How far times may be out of order. A request may wait for the store for up to ten seconds, the longest deadline, between
/// reading the clock and logging. Two more seconds allow for delayed threads.
const DISORDER_MAX_SECS: u64 = 12;

/// Admits a number of lines within each second.
#[derive(Debug)]
pub(super) struct LineRate {
    per_second: u64,
    /// The second, and the number of lines admitted in it.
    state: AtomicU64,
}

impl LineRate {
    /// A rate of `per_second` lines, at most the largest number of [`COUNT_BITS`] bits.
    pub(super) fn new(per_second: u64) -> Self {
        Self { per_second: per_second.min(COUNT_MASK), state: AtomicU64::new(0) }
    }

    /// Counts and admits a line at `now` if the limit allows it.
    pub(super) fn admits(&self, now: Timestamp) -> bool {
        let second = now.as_micros() / MICROS_PER_SECOND;
        let taken = |state: u64| {
            let (at, admitted) = (state >> COUNT_BITS, state & COUNT_MASK);
            match second > at || at - second > DISORDER_MAX_SECS {
                true => Some(second << COUNT_BITS | 1),
                false => (admitted < self.per_second).then_some(state + 1),
            }
        };
        self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(rate: &LineRate, millis: u64, lines: u64) -> u64 {
        let now = Timestamp::now(1_705_312_800_000_000 + millis * 1_000);
        (0..lines).filter(|_| rate.admits(now)).count() as u64
    }

    #[test]
    fn the_rate_limits_the_lines_of_every_second() {
        let rate = LineRate::new(3);
        assert_eq!(admitted(&rate, 0, 2), 2);
        assert_eq!(admitted(&rate, 999, 5), 1);
        assert_eq!(admitted(&rate, 1_000, 5), 3);
        assert_eq!(admitted(&rate, 60_000, 1), 1);
    }

    #[test]
    fn a_clock_that_goes_back_neither_resets_nor_blocks_the_rate() {
        let rate = LineRate::new(1);
        assert_eq!(admitted(&rate, 5_000, 1), 1);
        // A delayed thread that read the clock earlier.
        assert_eq!(admitted(&rate, 4_999, 1), 0);
        let rate = LineRate::new(1);
        assert_eq!(admitted(&rate, 60_000, 1), 1);
        assert_eq!(admitted(&rate, 1_000, 1), 1);
    }

    #[test]
    fn decisions_that_waited_for_the_store_do_not_reset_the_rate() {
        let rate = LineRate::new(3);
        // Decisions with times of up to ten seconds ago, the longest deadline, mix with current ones.
        let admitted: u64 = (0..100)
            .map(|_| admitted(&rate, 60_000, 1) + admitted(&rate, 50_000, 1) + admitted(&rate, 58_000, 1))
            .sum();
        assert_eq!(admitted, 3);
    }

    #[test]
    fn threads_share_the_rate() {
        const THREADS: u64 = 8;
        let rate = LineRate::new(THREADS + 2);
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| passed.fetch_add(admitted(&rate, 0, 5), Ordering::Relaxed));
            }
        });
        assert_eq!(passed.into_inner(), THREADS + 2);
    }
}
