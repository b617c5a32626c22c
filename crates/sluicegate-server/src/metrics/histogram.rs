//! Histograms with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the buckets of durations, in microseconds: from the embedded store's to the longest deadline's.
pub(crate) const DURATION_MICROS: [u64; 19] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 50_000, 100_000, 1_000_000,
    10_000_000,
];

/// Upper bounds of the buckets of ratios, in millionths.
pub(crate) const RATIO_MILLIONTHS: [u64; 8] = [0, 10_000, 50_000, 100_000, 250_000, 500_000, 750_000, 1_000_000];

/// A histogram of durations, with one more bucket for what is beyond all bounds.
pub(super) type Durations = Histogram<{ DURATION_MICROS.len() + 1 }>;

/// A histogram of ratios. Nothing is beyond the whole.
pub(super) type Ratios = Histogram<{ RATIO_MILLIONTHS.len() + 1 }>;

/// How many values fell into each bucket, and their sum.
#[derive(Debug)]
pub(super) struct Histogram<const BUCKETS: usize> {
    pub(super) counts: [AtomicU64; BUCKETS],
    pub(super) sum: AtomicU64,
}

/// What a histogram held at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted<const BUCKETS: usize> {
    pub(crate) counts: [u64; BUCKETS],
    pub(super) sum: u64,
}

/// The bucket of a length of time: the first whose bound it is not above. Nearly all belong to the first few.
#[inline]
pub(super) fn duration_bucket(micros: u64) -> usize {
    DURATION_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(DURATION_MICROS.len())
}

/// The bucket of a ratio: as many bounds as it is above. Ratios are everywhere, so all bounds are looked at, without a branch.
#[inline]
pub(super) fn ratio_bucket(millionths: u64) -> usize {
    RATIO_MILLIONTHS.iter().map(|bound| usize::from(millionths > *bound)).sum()
}

/// What is left of a limit in millionths, rounded up: only nothing is nothing.
#[inline]
pub(super) fn ratio(remaining: u64, limit: u64) -> u64 {
    match remaining.checked_mul(1_000_000) {
        Some(millionths) => millionths.div_ceil(limit.max(1)),
        // A limit this large is not told from one that is larger by a millionth.
        None => remaining.div_ceil((limit / 1_000_000).max(1)).min(1_000_000),
    }
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const BUCKETS: usize> Default for Counted<BUCKETS> {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum: 0 }
    }
}

impl<const BUCKETS: usize> Counted<BUCKETS> {
    pub(super) fn add(&mut self, histogram: &Histogram<BUCKETS>) {
        for (sum, count) in self.counts.iter_mut().zip(&histogram.counts) {
            *sum += count.load(Ordering::Relaxed);
        }
        self.sum += histogram.sum.load(Ordering::Relaxed);
    }

    pub(super) fn subtract(&mut self, before: &Self) {
        for (count, before) in self.counts.iter_mut().zip(before.counts) {
            *count = count.wrapping_sub(before);
        }
        self.sum = self.sum.wrapping_sub(before.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_belongs_to_the_first_bound_that_it_is_not_above() {
        for (micros, place) in [(0, 0), (1, 0), (2, 1), (3, 2), (15_000, 13), (15_001, 14), (10_000_001, 19)] {
            assert_eq!(duration_bucket(micros), place, "{micros} µs");
        }
        for (millionths, place) in [(0, 0), (1, 1), (10_000, 1), (10_001, 2), (750_001, 7), (1_000_000, 7)] {
            assert_eq!(ratio_bucket(millionths), place, "{millionths}");
        }
        for bounds in [&DURATION_MICROS[..], &RATIO_MILLIONTHS[..]] {
            assert!(bounds.is_sorted_by(|one, other| one < other));
        }
    }

    #[test]
    fn a_ratio_is_exact_at_the_bounds_and_nothing_only_if_nothing_is_left() {
        for (remaining, limit, millionths) in [
            (0, 100, 0),
            (1, 100, 10_000),
            (25, 100, 250_000),
            (100, 100, 1_000_000),
            (1, 999_999_999_999_999, 1),
            (999_999_999_999_999, 999_999_999_999_999, 1_000_000),
            (500_000_000_000_000, 999_999_999_999_999, 500_001),
            (0, 0, 0),
        ] {
            assert_eq!(ratio(remaining, limit), millionths, "{remaining} of {limit}");
        }
    }
}
