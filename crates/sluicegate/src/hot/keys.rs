//! The hottest keys of this instance, by their hashes.

use super::decay::Decay;
use super::shard::{COUNTERS, Shard, Sum};
use parking_lot::Mutex;
use sluicegate_core::{Micros, Timestamp};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many parts the counters are in, each with a lock of its own.
const SHARDS: usize = 16;

/// How many keys are watched at a time.
pub const HOT_KEYS_MAX: usize = SHARDS * COUNTERS;

/// What counts as hot.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct HotOptions {
    /// How long until what happened counts half. A second follows a burst, ten tell a steady stream from it.
    pub half_life: Micros,
    /// From how many requests per second on a key is hot. It stays so until it has less than half of that.
    pub hot_per_second: u64,
}

impl Default for HotOptions {
    fn default() -> Self {
        Self { half_life: Micros::from_secs(1), hot_per_second: 200 }
    }
}

/// The [`HOT_KEYS_MAX`] heaviest keys and how often each is asked for, in fixed memory and without an allocation per
/// request.
///
/// The hashes must be such that nobody outside can choose them. Each part is a [space-saving] sketch of about a
/// sixteenth of all keys: of a key that has more than a thousandth of the requests that the heaviest do not have, it is
/// known how many it has, whatever else comes.
///
/// `L` is what a key is called, kept when it is taken in.
///
/// [space-saving]: https://doi.org/10.1007/978-3-540-30570-5_27
#[derive(Debug)]
pub struct HotKeys<L = ()> {
    shards: Box<[Padded<L>]>,
    decay: Decay,
    hot_millis: u64,
    skipped: AtomicU64,
}

/// Each lock on a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Padded<L>(Mutex<Shard<L>>);

/// How often something happens, in thousandths per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frequency {
    /// At least so often.
    pub millis_per_second: u64,
    /// And at most so much more often.
    pub error_millis: u64,
}

/// A key that is asked for often.
#[derive(Clone, Debug)]
pub struct HotKey<L> {
    /// Its hash.
    pub hash: u64,
    /// What it is called.
    pub label: L,
    /// How often it is asked for.
    pub frequency: Frequency,
}

impl<L: Default> HotKeys<L> {
    /// Nothing is hot yet.
    pub fn new(options: HotOptions, now: Timestamp) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Padded(Mutex::new(Shard::new(now)))).collect(),
            decay: Decay::new(options.half_life),
            hot_millis: options.hot_per_second.saturating_mul(1_000),
            skipped: AtomicU64::new(0),
        }
    }

    /// Takes note of `times` requests for a key. `label` is called if it was not watched until now.
    ///
    /// Waits for nobody: if another thread is just at it, the request is [skipped](HotKeys::skipped).
    pub fn record(&self, hash: u64, times: u64, now: Timestamp, label: impl FnOnce(&mut L)) {
        let hash = counted(hash);
        match self.shard(hash).try_lock() {
            Some(mut shard) => shard.add(hash, times, &self.decay, now, label),
            None => drop(self.skipped.fetch_add(times, Ordering::Relaxed)),
        }
    }

    /// How often a key is asked for.
    pub fn frequency(&self, hash: u64, now: Timestamp) -> Frequency {
        let hash = counted(hash);
        let mut shard = self.shard(hash).lock();
        let age = shard.age(&self.decay, now);
        let (sum, _) = shard.sum_of(hash);
        drop(shard);
        self.frequency_of(sum, age)
    }

    /// How often a key is asked for, at least.
    pub fn rate_per_second(&self, hash: u64, now: Timestamp) -> u64 {
        self.frequency(hash, now).millis_per_second / 1_000
    }

    /// Whether a key is hot: see [`HotOptions::hot_per_second`]. Ask from time to time while it is, since it is by
    /// asking that it cools down.
    pub fn is_hot(&self, hash: u64, now: Timestamp) -> bool {
        let hash = counted(hash);
        let mut shard = self.shard(hash).lock();
        let age = shard.age(&self.decay, now);
        let (sum, Some(counter)) = shard.sum_of(hash) else { return false };
        let threshold = if shard.is_hot(counter) { self.hot_millis / 2 } else { self.hot_millis };
        let is_hot = self.frequency_of(sum, age).millis_per_second >= threshold;
        shard.set_hot(counter, is_hot);
        is_hot
    }

    /// How many requests were not recorded because two threads met.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    fn shard(&self, hash: u64) -> &Mutex<Shard<L>> {
        // The upper bits; hashes are spread over all of them.
        &self.shards[(hash >> (u64::BITS - SHARDS.ilog2())) as usize].0
    }

    fn frequency_of(&self, sum: Sum, age: super::decay::Age) -> Frequency {
        let millis = |sum| self.decay.millis_per_second(sum, age);
        Frequency { millis_per_second: millis(sum.at_least), error_millis: millis(sum.error) }
    }
}

impl<L: Default + Clone> HotKeys<L> {
    /// At most `limit` keys, the most often asked for first.
    pub fn top(&self, limit: usize, now: Timestamp) -> Vec<HotKey<L>> {
        let mut keys = Vec::with_capacity(HOT_KEYS_MAX);
        for shard in &self.shards {
            let mut shard = shard.0.lock();
            let age = shard.age(&self.decay, now);
            keys.extend(shard.keys().map(|(hash, sum, label)| HotKey {
                hash,
                label: label.clone(),
                frequency: self.frequency_of(sum, age),
            }));
        }
        // What has faded away is not there.
        keys.retain(|key| key.frequency.millis_per_second > 0);
        keys.sort_by_key(|key| Reverse(key.frequency.millis_per_second));
        keys.truncate(limit);
        keys
    }
}

/// Zero stands for a counter that nobody has.
fn counted(hash: u64) -> u64 {
    hash.max(1)
}
