//! Histograms with fixed buckets.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the duration buckets, in microseconds: from the embedded store's latency to the longest deadline.
pub(crate) const DURATION_MICROS: [u64; 19] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 20_000, 50_000, 100_000, 1_000_000,
    10_000_000,
];

/// Upper bounds of the ratio buckets, in millionths.
pub(crate) const RATIO_MILLIONTHS: [u64; 8] = [0, 10_000, 50_000, 100_000, 250_000, 500_000, 750_000, 1_000_000];

/// A histogram of durations. Its last bucket counts longer durations.
pub(super) type Durations = Histogram<{ DURATION_MICROS.len() + 1 }>;

/// A histogram of ratios. Its last bucket stays empty, because no ratio exceeds one.
pub(super) type Ratios = Histogram<{ RATIO_MILLIONTHS.len() + 1 }>;

/// Counters per bucket, and the sum of all values.
#[derive(Debug)]
pub(super) struct Histogram<const BUCKETS: usize> {
    pub(super) counts: [AtomicU64; BUCKETS],
    pub(super) sum: AtomicU64,
}

/// A copy of a histogram's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HistogramSnapshot<const BUCKETS: usize> {
    pub(crate) counts: [u64; BUCKETS],
    pub(super) sum: u64,
}

/// The bucket of a duration: the first with a bound of at least that duration. Most durations belong to the first few, so the
/// search is linear.
#[inline]
pub(super) fn duration_bucket(micros: u64) -> usize {
    DURATION_MICROS.iter().position(|bound| micros <= *bound).unwrap_or(DURATION_MICROS.len())
}

/// The bucket of a ratio: the number of bounds below it. Ratios are spread over all buckets, so the function compares all bounds
/// without a branch.
#[inline]
pub(super) fn ratio_bucket(millionths: u64) -> usize {
    RATIO_MILLIONTHS.iter().map(|bound| usize::from(millionths > *bound)).sum()
}

/// The remaining share of a limit in millionths, rounded up: it is zero only if no quota remains.
#[inline]
pub(super) fn ratio(remaining: u64, limit: u64) -> u64 {
    match remaining.checked_mul(1_000_000) {
        Some(millionths) => millionths.div_ceil(limit.max(1)),
        // The product overflows, so this divides first. The error is at most a millionth.
        None => remaining.div_ceil((limit / 1_000_000).max(1)).min(1_000_000),
    }
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const BUCKETS: usize> Default for HistogramSnapshot<BUCKETS> {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], sum: 0 }
    }
}

impl<const BUCKETS: usize> HistogramSnapshot<BUCKETS> {
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
    fn a_value_belongs_to_the_first_bucket_with_a_bound_of_at_least_the_value() {
        for (micros, bucket) in [(0, 0), (1, 0), (2, 1), (3, 2), (15_000, 13), (15_001, 14), (10_000_001, 19)] {
            assert_eq!(duration_bucket(micros), bucket, "{micros} µs");
        }
        for (millionths, bucket) in [(0, 0), (1, 1), (10_000, 1), (10_001, 2), (750_001, 7), (1_000_000, 7)] {
            assert_eq!(ratio_bucket(millionths), bucket, "{millionths}");
        }
        for bounds in [&DURATION_MICROS[..], &RATIO_MILLIONTHS[..]] {
            assert!(bounds.is_sorted_by(|one, other| one < other));
        }
    }

    #[test]
    fn a_ratio_is_exact_at_the_bounds_and_zero_only_without_remaining_quota() {
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
