//! Space-saving: the heaviest of a stream, in a fixed number of counters.
//!
//! A key that has a counter is added to it. A key that has none takes over the smallest counter with all that is in it,
//! and remembers how much that was as its error. So
//! - a counter is never less than what its key has, and never more than that and its error;
//! - all counters together are all that was added, so the smallest, and with it every error, is at most that divided by
//!   the number of counters; what one or a few heavy keys have does not count here, since their counters are not the
//!   smallest;
//! - a key that has more than that has a counter, whatever else comes: keys that come once push out only each other.
//!
//! From Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams", 2005.
//! What is added are the weights of [`super::decay`].

use super::decay::{Age, Decay, halved};
use sluicegate_core::Timestamp;

/// How many counters a shard has. A bit for each fits a word.
pub(super) const COUNTERS: usize = 64;

/// One sketch. Counters are kept apart from what is only shown, so that looking for one stays within few cache lines.
#[derive(Debug)]
pub(super) struct Shard<L> {
    hashes: [u64; COUNTERS],
    sums: [u64; COUNTERS],
    errors: [u64; COUNTERS],
    /// One bit for each counter whose key was hot when it was last asked about.
    hot: u64,
    labels: Box<[L]>,
    beginning: Timestamp,
}

/// What is known of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    /// It has at least this much.
    pub(super) at_least: u64,
    /// And at most this much more.
    pub(super) error: u64,
}

impl<L: Default> Shard<L> {
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

    /// Adds `times` requests of a key; `label` is called if it takes over a counter.
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

    /// What is known of a key, and the counter that knows it.
    pub(super) fn sum_of(&self, hash: u64) -> (Sum, Option<usize>) {
        match self.find(hash) {
            Some(counter) => (self.sum(counter), Some(counter)),
            // Had it more than the smallest, it would have a counter.
            None => (Sum { at_least: 0, error: self.sums[self.smallest()] }, None),
        }
    }

    /// All keys that have a counter.
    pub(super) fn keys(&self) -> impl Iterator<Item = (u64, Sum, &L)> {
        let taken = (0..COUNTERS).filter(|counter| self.hashes[*counter] != 0);
        taken.map(|counter| (self.hashes[counter], self.sum(counter), &self.labels[counter]))
    }

    /// The age of what is added now. Divides all sums if it has become too large.
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

    fn sum(&self, counter: usize) -> Sum {
        let (sum, error) = (self.sums[counter], self.errors[counter]);
        Sum { at_least: sum.saturating_sub(error), error: error.min(sum) }
    }

    /// Sums are rounded up, so that none is less than what its key has. What that adds, less than one, is added to the
    /// errors, so that nobody is said to have it.
    fn divide(&mut self, halvings: u32) {
        for (sum, error) in self.sums.iter_mut().zip(&mut self.errors) {
            *sum = halved(*sum, halvings);
            *error = (halved(*error, halvings) + 1).min(*sum);
        }
    }
}

#[cfg(test)]
mod tests;
