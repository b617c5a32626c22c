//! So many within a second, and no more.
//!
//! Whoever asks brings the time. A clock that goes back a little changes nothing; one that goes back far starts a new
//! second, so that nothing is held back until the old time comes again.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::Timestamp;

const MICROS_PER_SECOND: u64 = 1_000_000;

/// The bits of the state that count; the others are the second. 2^44 seconds are half a million years.
const COUNT_BITS: u32 = 20;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Whoever reads the clock may wait for the store before it uses what it read, for ten seconds at most, which is the longest
/// deadline; the others are for threads that are held up.
const DISORDER_MAX_SECS: u64 = 12;

/// Admits so many within each second.
#[derive(Debug)]
pub(super) struct Bound {
    per_second: u64,
    /// The second, and how many were admitted in it.
    state: AtomicU64,
}

impl Bound {
    /// A bound that admits so many; at most what [`COUNT_BITS`] can count.
    pub(super) fn new(per_second: u64) -> Self {
        Self { per_second: per_second.min(COUNT_MASK), state: AtomicU64::new(0) }
    }

    /// Whether there is room for one more at `now`; if so, it is taken.
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

    fn admitted(bound: &Bound, millis: u64, asked: u64) -> u64 {
        let now = Timestamp::now(1_705_312_800_000_000 + millis * 1_000);
        (0..asked).filter(|_| bound.admits(now)).count() as u64
    }

    #[test]
    fn so_many_pass_in_every_second() {
        let bound = Bound::new(3);
        assert_eq!(admitted(&bound, 0, 2), 2);
        assert_eq!(admitted(&bound, 999, 5), 1);
        assert_eq!(admitted(&bound, 1_000, 5), 3);
        assert_eq!(admitted(&bound, 60_000, 1), 1);
    }

    #[test]
    fn a_clock_that_goes_back_neither_opens_nor_closes_it_for_long() {
        let bound = Bound::new(1);
        assert_eq!(admitted(&bound, 5_000, 1), 1);
        // As if another thread had read the clock before, and was held up.
        assert_eq!(admitted(&bound, 4_999, 1), 0);
        let bound = Bound::new(1);
        assert_eq!(admitted(&bound, 60_000, 1), 1);
        assert_eq!(admitted(&bound, 1_000, 1), 1);
    }

    #[test]
    fn decisions_that_waited_for_the_store_do_not_open_it() {
        let bound = Bound::new(3);
        // What the store answers late was asked as long ago as a deadline can be, and comes between what is answered at once.
        let admitted: u64 = (0..100)
            .map(|_| admitted(&bound, 60_000, 1) + admitted(&bound, 50_000, 1) + admitted(&bound, 58_000, 1))
            .sum();
        assert_eq!(admitted, 3);
    }

    #[test]
    fn threads_share_it() {
        const THREADS: u64 = 8;
        let bound = Bound::new(THREADS + 2);
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| passed.fetch_add(admitted(&bound, 0, 5), Ordering::Relaxed));
            }
        });
        assert_eq!(passed.into_inner(), THREADS + 2);
    }
}
