//! An external monitor of the main promise: no interval admits more than the limit.
//!
//! There are as many intervals as pairs of charges, but one number is enough for the bound B + r·d: the level of a
//! leaky bucket that every charge fills and that leaks at r. [`Leak`] keeps that level. [`heaviest_interval`] tries all
//! pairs instead, and the tests below show on all short sequences that both results agree. The bounds of the windows
//! have no such number, so [`heaviest_window`] tries all pairs.

use super::Exact;
use num_bigint::BigInt;
use num_traits::{Signed, Zero};

/// The maximum number of units in any interval beyond the rate times its length, in constant space.
#[derive(Clone, Debug)]
pub struct Leak {
    rate: Exact,
    level: Exact,
    last: u64,
    highest: Exact,
}

impl Leak {
    /// Monitors a rate in units per microsecond.
    #[must_use]
    pub fn new(rate: Exact) -> Self {
        Self { rate, level: Exact::zero(), last: 0, highest: Exact::zero() }
    }

    /// Records that `units` passed at `at`; refunds are negative. If the clock stepped back since the last record, the
    /// elapsed time is negative too.
    pub fn record(&mut self, at: u64, units: &Exact) {
        let passed = Exact::from_integer(BigInt::from(at) - BigInt::from(self.last));
        let leaked = &self.level - &self.rate * passed;
        self.level = leaked.max(Exact::zero()) + units;
        self.last = at;
        if units.is_positive() && self.level > self.highest {
            self.highest = self.level.clone();
        }
    }

    /// The maximum, over all intervals that end with a record, of the units that passed minus rate times length.
    #[must_use]
    pub fn highest(&self) -> &Exact {
        &self.highest
    }
}

/// The result of [`Leak::highest`], found by trying every interval that begins and ends at a record.
#[must_use]
pub fn heaviest_interval(records: &[(u64, Exact)], rate: &Exact) -> Exact {
    let mut heaviest = Exact::zero();
    for (first, (start, _)) in records.iter().enumerate() {
        let mut sum = Exact::zero();
        for (end, units) in &records[first..] {
            sum += units;
            let length = Exact::from_integer(BigInt::from(*end) - BigInt::from(*start));
            let beyond = &sum - rate * length;
            if units.is_positive() && beyond > heaviest {
                heaviest = beyond;
            }
        }
    }
    heaviest
}

/// The maximum number of units in any half-open interval of length `window`, found by trying every interval that begins
/// at a record.
#[must_use]
pub fn heaviest_window(records: &[(u64, i128)], window: u64) -> i128 {
    let mut heaviest = 0;
    for (first, (start, _)) in records.iter().enumerate() {
        let mut sum = 0;
        for (_, units) in records[first..].iter().take_while(|(at, _)| at - start < window) {
            sum += units;
            heaviest = heaviest.max(sum);
        }
    }
    heaviest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(number: i64) -> Exact {
        Exact::from_integer(BigInt::from(number))
    }

    /// Every sequence of up to four records with these gaps and units, including backward steps and refunds.
    fn for_all_sequences(check: &mut impl FnMut(&[(u64, i64)])) {
        fn extend(sequence: &mut Vec<(u64, i64)>, check: &mut impl FnMut(&[(u64, i64)])) {
            check(sequence);
            if sequence.len() == 4 {
                return;
            }
            let last = sequence.last().map_or(10, |(at, _)| *at);
            for next in [last, last + 1, last + 4, last - 2] {
                for units in [-2, 1, 3] {
                    sequence.push((next, units));
                    extend(sequence, check);
                    sequence.pop();
                }
            }
        }
        extend(&mut Vec::new(), check);
    }

    #[test]
    fn one_number_summarises_all_intervals() {
        let rates = [(1, 3), (1, 1), (5, 2)].map(|(n, p)| Exact::new(BigInt::from(n), BigInt::from(p)));
        let mut sequences = 0;
        for_all_sequences(&mut |sequence| {
            for rate in &rates {
                let records: Vec<_> = sequence.iter().map(|(at, units)| (*at, exact(*units))).collect();
                let mut leak = Leak::new(rate.clone());
                for (at, units) in &records {
                    leak.record(*at, units);
                }
                assert_eq!(*leak.highest(), heaviest_interval(&records, rate), "{records:?} at {rate}");
                sequences += 1;
            }
        });
        assert_eq!(sequences, 3 * (1 + 12 + 144 + 1_728 + 20_736));
    }

    #[test]
    fn a_window_is_half_open() {
        assert_eq!(heaviest_window(&[(0, 1), (9, 1), (10, 1)], 10), 2);
        assert_eq!(heaviest_window(&[(0, 1), (9, 1), (10, 1)], 11), 3);
        assert_eq!(heaviest_window(&[(0, 5), (1, -3), (2, 4)], 10), 6);
        assert_eq!(heaviest_window(&[], 10), 0);
    }
}
