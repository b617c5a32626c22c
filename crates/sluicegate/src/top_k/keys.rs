//! The heaviest keys of this instance, by their hashes.

use super::decay::Decay;
use super::sketch::{COUNTERS, Sketch, WeightBounds};
use parking_lot::Mutex;
use sluicegate_core::{Micros, Timestamp};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of shards, each with its own lock.
const SHARDS: usize = 16;

/// The maximum number of tracked keys.
pub const TOP_KEYS_MAX: usize = SHARDS * COUNTERS;

/// The decay of counts, and the threshold for hot keys.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct TopKeysOptions {
    /// The half-life of the counts. One second follows a burst; ten seconds distinguish a steady stream from a burst.
    pub half_life: Micros,
    /// A key is hot from this many requests per second on, until its rate is below half of that.
    pub hot_per_second: u64,
}

impl Default for TopKeysOptions {
    fn default() -> Self {
        Self { half_life: Micros::from_secs(1), hot_per_second: 200 }
    }
}

/// The [`TOP_KEYS_MAX`] heaviest keys with their rates, in constant memory and without an allocation per request.
///
/// Clients must not be able to choose the hashes. Each shard is a [space-saving] sketch of about a sixteenth of all
/// keys. If a key has more than a thousandth of the requests that remain without the heaviest keys, its count is
/// known, whatever the other keys do.
///
/// `L` is the label of a key, stored when the key gets a counter.
///
/// [space-saving]: https://doi.org/10.1007/978-3-540-30570-5_27
#[derive(Debug)]
pub struct TopKeys<L = ()> {
    shards: Box<[PaddedSketch<L>]>,
    decay: Decay,
    hot_millis: u64,
    skipped: AtomicU64,
}

/// A lock on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct PaddedSketch<L>(Mutex<Sketch<L>>);

/// A rate in thousandths per second, with its error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestRate {
    /// The lower bound.
    pub millis_per_second: u64,
    /// The upper bound minus the lower bound.
    pub error_millis: u64,
}

/// A key with a high rate.
#[derive(Clone, Debug)]
pub struct TopKey<L> {
    /// The hash of the key.
    pub hash: u64,
    /// The label of the key.
    pub label: L,
    /// The rate of the key.
    pub rate: RequestRate,
}

impl<L: Default> TopKeys<L> {
    /// No requests counted yet.
    pub fn new(options: TopKeysOptions, now: Timestamp) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| PaddedSketch(Mutex::new(Sketch::new(now)))).collect(),
            decay: Decay::new(options.half_life),
            hot_millis: options.hot_per_second.saturating_mul(1_000),
            skipped: AtomicU64::new(0),
        }
    }

    /// Counts `times` requests of a key. Calls `label` if the key gets a counter.
    ///
    /// Never blocks: if another thread holds the lock, the request is [skipped](TopKeys::skipped).
    pub fn record(&self, hash: u64, times: u64, now: Timestamp, label: impl FnOnce(&mut L)) {
        let hash = non_zero(hash);
        match self.shard(hash).try_lock() {
            Some(mut shard) => shard.add(hash, times, &self.decay, now, label),
            None => drop(self.skipped.fetch_add(times, Ordering::Relaxed)),
        }
    }

    /// The rate of a key.
    pub fn rate(&self, hash: u64, now: Timestamp) -> RequestRate {
        let hash = non_zero(hash);
        let mut shard = self.shard(hash).lock();
        let age = shard.age(&self.decay, now);
        let (sum, _) = shard.sum_of(hash);
        drop(shard);
        self.rate_of(sum, age)
    }

    /// The lower bound of the rate of a key.
    pub fn rate_per_second(&self, hash: u64, now: Timestamp) -> u64 {
        self.rate(hash, now).millis_per_second / 1_000
    }

    /// True if a key is hot: see [`TopKeysOptions::hot_per_second`]. The hysteresis advances only with calls, so call
    /// it from time to time while a key is hot.
    pub fn is_hot(&self, hash: u64, now: Timestamp) -> bool {
        let hash = non_zero(hash);
        let mut shard = self.shard(hash).lock();
        let age = shard.age(&self.decay, now);
        let (sum, Some(counter)) = shard.sum_of(hash) else { return false };
        let threshold = if shard.is_hot(counter) { self.hot_millis / 2 } else { self.hot_millis };
        let is_hot = self.rate_of(sum, age).millis_per_second >= threshold;
        shard.set_hot(counter, is_hot);
        is_hot
    }

    /// The number of requests that were not counted because of lock contention.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    fn shard(&self, hash: u64) -> &Mutex<Sketch<L>> {
        // The upper bits select the shard; hashes are uniform in all bits.
        &self.shards[(hash >> (u64::BITS - SHARDS.ilog2())) as usize].0
    }

    fn rate_of(&self, sum: WeightBounds, age: super::decay::Age) -> RequestRate {
        let millis = |sum| self.decay.millis_per_second(sum, age);
        RequestRate { millis_per_second: millis(sum.at_least), error_millis: millis(sum.error) }
    }
}

impl<L: Default + Clone> TopKeys<L> {
    /// At most `limit` keys, in descending order of their rates.
    pub fn top(&self, limit: usize, now: Timestamp) -> Vec<TopKey<L>> {
        let mut keys = Vec::with_capacity(TOP_KEYS_MAX);
        for shard in &self.shards {
            let mut shard = shard.0.lock();
            let age = shard.age(&self.decay, now);
            keys.extend(shard.keys().map(|(hash, sum, label)| TopKey {
                hash,
                label: label.clone(),
                rate: self.rate_of(sum, age),
            }));
        }
        // Keys with counts that have decayed to zero are not listed.
        keys.retain(|key| key.rate.millis_per_second > 0);
        keys.sort_by_key(|key| Reverse(key.rate.millis_per_second));
        keys.truncate(limit);
        keys
    }
}

/// Zero marks a free counter, so no key has it.
fn non_zero(hash: u64) -> u64 {
    hash.max(1)
}
