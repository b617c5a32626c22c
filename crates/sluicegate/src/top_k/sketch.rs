//! The space-saving algorithm: the heaviest keys of a stream, in a fixed number of counters.
//!
//! A request of a key with a counter is added to that counter. A key without a counter takes over the smallest
//! counter with its value, and records that value as its error. It follows that
//! - a counter is never below the true count of its key, and exceeds it by at most its error;
//! - the sum of all counters is the total count. So the smallest counter, and with it every error, is at most the
//!   total divided by the number of counters. A few heavy keys do not count in that total, because their counters are
//!   not the smallest;
//! - a key with a count above that bound has a counter, whatever the other keys do. Keys that occur once displace
//!   only each other.
//!
//! From Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams",
//! 2005. The counters sum the weights of [`super::decay`].

use super::decay::{Age, Decay, halved};
use sluicegate_core::Timestamp;

/// The number of counters per sketch, so that one word holds a bit for each.
pub(super) const COUNTERS: usize = 64;

/// One sketch. Counters and labels are in separate arrays, so a search touches few cache lines.
#[derive(Debug)]
pub(super) struct Sketch<L> {
    hashes: [u64; COUNTERS],
    sums: [u64; COUNTERS],
    errors: [u64; COUNTERS],
    /// One bit per counter: whether its key was hot at the last check.
    hot: u64,
    labels: Box<[L]>,
    beginning: Timestamp,
}

/// The bounds of the weight of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WeightBounds {
    /// The lower bound.
    pub(super) at_least: u64,
    /// The upper bound minus the lower bound.
    pub(super) error: u64,
}

impl<L: Default> Sketch<L> {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            hashes: [0; COUNTERS],
            sums: [0; COUNTERS],
            errors: [0; COUNTERS],
            hot: 0,
            labels: (0..COUNTERS).map(|_| L::default()).collect(),
            beginning: now,
        }
    }

    /// Adds `times` requests of a key. Calls `label` if the key takes over a counter.
    pub(super) fn add(
        &mut self,
        hash: u64,
        times: u64,
        decay: &Decay,
        now: Timestamp,
        label: impl FnOnce(&mut L),
    ) {
        let weight = self.age(decay, now).weight().saturating_mul(times);
        let counter = self.find(hash).unwrap_or_else(|| self.take_over(hash, label));
        self.sums[counter] = self.sums[counter].saturating_add(weight);
    }

    /// The bounds for a key, and its counter if it has one.
    pub(super) fn sum_of(&self, hash: u64) -> (WeightBounds, Option<usize>) {
        match self.find(hash) {
            Some(counter) => (self.sum(counter), Some(counter)),
            // With more weight than the smallest counter, the key would have a counter.
            None => (WeightBounds { at_least: 0, error: self.sums[self.smallest()] }, None),
        }
    }

    /// All keys that have a counter.
    pub(super) fn keys(&self) -> impl Iterator<Item = (u64, WeightBounds, &L)> {
        let taken = (0..COUNTERS).filter(|counter| self.hashes[*counter] != 0);
        taken.map(|counter| (self.hashes[counter], self.sum(counter), &self.labels[counter]))
    }

    /// The age for new weights. Divides all sums if a division is due.
    pub(super) fn age(&mut self, decay: &Decay, now: Timestamp) -> Age {
        if let Some((beginning, halvings)) = decay.renewed(self.beginning, now) {
            self.beginning = beginning;
            self.divide(halvings);
        }
        decay.age(self.beginning, now)
    }

    pub(super) fn is_hot(&self, counter: usize) -> bool {
        self.hot & (1 << counter) != 0
    }

    pub(super) fn set_hot(&mut self, counter: usize, is_hot: bool) {
        self.hot = self.hot & !(1 << counter) | u64::from(is_hot) << counter;
    }

    #[inline]
    fn find(&self, hash: u64) -> Option<usize> {
        self.hashes.iter().position(|each| *each == hash)
    }

    fn smallest(&self) -> usize {
        let smallest = self.sums.iter().enumerate().min_by_key(|(_, sum)| **sum);
        smallest.map_or(0, |(counter, _)| counter)
    }

    fn take_over(&mut self, hash: u64, label: impl FnOnce(&mut L)) -> usize {
        let counter = self.smallest();
        self.hashes[counter] = hash;
        self.errors[counter] = self.sums[counter];
        self.set_hot(counter, false);
        label(&mut self.labels[counter]);
        counter
    }

    fn sum(&self, counter: usize) -> WeightBounds {
        let (sum, error) = (self.sums[counter], self.errors[counter]);
        WeightBounds { at_least: sum.saturating_sub(error), error: error.min(sum) }
    }

    /// Rounds sums up, so that no counter is below the weight of its key. The excess, less than one, goes to the
    /// errors, so that it raises no lower bound.
    fn divide(&mut self, halvings: u32) {
        for (sum, error) in self.sums.iter_mut().zip(&mut self.errors) {
            *sum = halved(*sum, halvings);
            *error = (halved(*error, halvings) + 1).min(*sum);
        }
    }
}

#[cfg(test)]
mod tests;
