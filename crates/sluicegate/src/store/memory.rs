//! The embedded store: state in this process, exact, bounded in memory, and without pauses.
//!
//! The table is split into many shards, each behind its own lock. A request locks the shards of all its keys in
//! ascending order, so it is atomic and cannot deadlock with another request. Locks are held for well under a
//! microsecond, except while the table of a shard grows, and never across an `await`.
//!
//! [`MemoryOptions::max_keys`] bounds the memory; keys of addresses and unverified names get only a part of it
//! (`capacity.rs`). Expired states are dropped without loss. If all states are live and the store is full, new keys
//! share one state per limit and kind of key (the overflow, `overflow.rs`). A live state is never evicted, because
//! that would reset the usage of the client that filled the table. A client that moves from the overflow to a state
//! of its own does not get its limit twice. Every entry in the log of a sliding window counts as a key. A log without
//! capacity for another entry merges its newest entries, which never admits more.
//!
//! Sweeping deletes expired states in steps so small that no decision notices them. Correctness does not depend on it: an
//! expired state gives the same verdict as no state. It only frees memory.
//!
//! Durations are measured on the steady clock, which never steps. Calendar windows use the time of day, from the
//! correction of the clock that the store [follows](MemoryStore::follow).

mod capacity;
mod fast_path;
mod general_path;
mod instants;
#[cfg(all(test, sluicegate_loom))]
mod models;
mod overflow;
mod packed;
mod shard;
mod table;
mod targets;

use super::key::Digest;
use super::{Charge, InProcessStore, LIMITS_PER_KEY_MAX, Reply, Store, StoreError, UnchargedUsage, Verdicts};
use crate::clock::{Clock, Correction, SystemClock};
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};
use capacity::{Amounts, Capacity};
use shard::Shard;
use sluicegate_core::{Cost, Quota, Timestamp};
use smallvec::{SmallVec, smallvec};
use std::sync::OnceLock;
use std::time::Duration;
use targets::{NewKeys, RetryWith};

/// The size of a [`MemoryStore`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MemoryOptions {
    /// The maximum number of keys: one per limit of a client, and one more per entry in the log of a sliding window.
    /// Beyond it, new keys share an overflow state per limit. Keys with addresses use at most half of it and those of
    /// unverified names a quarter, so at least a quarter is reserved for verified identities. The default is ten
    /// million: about 390 MB of token buckets and fixed windows, and three times as much if the states do not fit a
    /// word.
    pub max_keys: usize,
    /// The number of shards. With the default, growing one shard moves about ten thousand entries even at ten million
    /// keys, and all locks fit the cache of one core.
    pub shards: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { max_keys: 10_000_000, shards: 1_024 }
    }
}

/// The number of blocks of a shard, of a dozen cells each, that one step processes under the lock.
///
/// An insertion into a half-full shard sweeps one block. So a full round is complete before a twelfth of the cells is
/// taken, or a quarter if 16 keys are inserted at a time. Even a store that is never swept grows hardly beyond its
/// live states.
const BLOCKS_PER_STEP: usize = 5;

/// A store in this process. See the [module documentation](self).
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[PaddedShard]>,
    /// The keys and log entries in use, and their bounds.
    capacity: Capacity,
    /// The origin of the times in packed states.
    epoch: Timestamp,
    /// The offset from the steady clock to the time of day.
    correction: OnceLock<Correction>,
    /// The next shard to sweep.
    sweep_cursor: AtomicUsize,
    /// The units of forced charges beyond the bound on debt.
    cut_off: AtomicU64,
}

impl Default for MemoryStore {
    /// A store of the default size, created now.
    fn default() -> Self {
        Self::new(MemoryOptions::default(), SystemClock::new().now())
    }
}

/// A lock on a cache line of its own, to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PaddedShard(Mutex<Shard>);

impl MemoryStore {
    /// An empty store, created at `now`.
    pub fn new(options: MemoryOptions, now: Timestamp) -> Self {
        Self {
            shards: (0..options.shards.max(1)).map(|_| PaddedShard::default()).collect(),
            capacity: Capacity::new(options.max_keys),
            epoch: now,
            correction: OnceLock::new(),
            sweep_cursor: AtomicUsize::new(0),
            cut_off: AtomicU64::new(0),
        }
    }

    /// Takes the time of day from `correction`, which must belong to the clock that supplies the store's instants.
    /// Calendar windows begin and end by it. A [`Limiter`](crate::Limiter) passes the correction of its own clock.
    /// Only the first call counts, because a store has one clock.
    pub fn follow(&self, correction: &Correction) {
        self.correction.get_or_init(|| correction.clone());
    }

    /// The number of keys and log entries in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.capacity.used()
    }

    /// The number of bytes allocated for the table.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        let shards = self.shards.iter().map(|shard| shard.0.lock().allocated_bytes()).sum::<usize>();
        shards + self.shards.len() * size_of::<PaddedShard>()
    }

    /// As [`Store::charge`], synchronously.
    #[inline]
    pub fn charge_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        if let [Charge { quotas: [_], usage: Cost::ZERO, .. }] = charges {
            return match self.charge_one_fast(charges, now) {
                Some(verdict) => smallvec![verdict],
                None => self.charge_general(charges, now),
            };
        }
        self.charge_several_fast(charges, now).unwrap_or_else(|| self.charge_general(charges, now))
    }

    /// Not inlined, to keep the fast path short.
    #[inline(never)]
    fn charge_general(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        self.sweep_if_full(charges, now);
        let now = self.instants(now);
        retry_until_placed(|new_keys| self.charge_targets(charges, now, new_keys))
    }

    /// Charges every limit, whether or not it has room, because the request was decided elsewhere or the usage has
    /// already happened. See [`Algorithm::force`](sluicegate_core::Algorithm::force).
    pub(crate) fn force_now(&self, charges: &[Charge<'_>], now: Timestamp) {
        // A charge that fits is an ordinary charge.
        if self.charge_one_fast(charges, now).is_some_and(|verdict| verdict.outcome.is_allowed()) {
            return;
        }
        let in_full: SmallVec<[Charge<'_>; 2]> =
            charges.iter().map(|charge| Charge { usage: charge.cost, ..*charge }).collect();
        self.charge_general(&in_full, now);
    }

    /// As [`Store::report`], synchronously. A client without a state of its own is charged in the overflow.
    pub fn report_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        self.force_now(charges, now);
        self.peek_now(charges, now)
    }

    /// The units of forced charges that were cut off so far, because of the bound on debt.
    #[must_use]
    pub fn cut_off_units(&self) -> u64 {
        self.cut_off.load(Ordering::Relaxed)
    }

    /// As [`Store::peek`], synchronously.
    pub fn peek_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let now = self.instants(now);
        retry_until_placed(|new_keys| self.peek_targets(charges, now, new_keys))
    }

    /// As [`Store::refund`], synchronously. A charge in the overflow is refunded only if there is capacity for a
    /// state of the client's own.
    pub fn refund_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let instants = self.instants(now);
        retry_until_placed(|new_keys| self.refund_targets(charges, instants, new_keys));
        self.peek_now(charges, now)
    }

    /// As [`Store::reset`], synchronously. Afterwards the client counts as new. If there is capacity, it starts with
    /// a full quota; otherwise it shares the overflow, and the reply shows the overflow.
    pub fn reset_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        for charge in charges {
            let digest = charge.key.digest();
            let mut shard = self.shards[self.shard_index(digest)].0.lock();
            // The identity may have had other limits before, so all its states are deleted.
            for place in 0..LIMITS_PER_KEY_MAX * Quota::ALGORITHMS.len() {
                let digest = digest.of_limit(place % LIMITS_PER_KEY_MAX, place / LIMITS_PER_KEY_MAX);
                self.capacity.release(shard.remove(digest));
                if shard.has_marks() {
                    shard.remove(digest.of_mark());
                }
            }
        }
        self.sweep_if_full(charges, now);
        self.peek_now(charges, now)
    }

    /// Runs up to `steps` steps, each on a few dozen keys of one shard, and continues at the position of the last
    /// call.
    pub fn sweep(&self, now: Timestamp, steps: usize) -> SweepReport {
        let (mut swept, now) = (SweepReport::default(), self.instants(now));
        for _ in 0..steps {
            let index = self.sweep_cursor.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let freed = self.shards[index].0.lock().sweep(now, BLOCKS_PER_STEP, self.epoch);
            self.capacity.release(freed);
            swept.steps += 1;
            swept.freed += freed.total();
        }
        swept
    }

    /// The number of steps that visit every key once.
    #[must_use]
    pub fn steps_per_round(&self) -> usize {
        let steps = |blocks: usize| blocks.div_ceil(BLOCKS_PER_STEP).max(1);
        // Steps visit the shards in turn, so the fullest shard determines the number.
        let most = self.shards.iter().map(|shard| steps(shard.0.lock().block_count())).max();
        most.unwrap_or(1) * self.shards.len()
    }

    /// A program may embed the store without a sweeper. So a full store sweeps one step per charge, before it takes
    /// any lock.
    fn sweep_if_full(&self, charges: &[Charge<'_>], now: Timestamp) {
        let has_room = |charge: &Charge<'_>| self.capacity.has(Amounts::of(charge.key.kind(), 1));
        if !charges.iter().all(has_room) {
            self.sweep(now, 1);
        }
    }

    /// The time of day at the instant `now` of the clock that the store [follows](MemoryStore::follow).
    #[inline]
    fn time_of_day(&self, now: Timestamp) -> Timestamp {
        self.correction.get().map_or(now, |correction| correction.apply(now))
    }

    /// Uses the half of the digest that the table inside a shard does not use.
    #[inline]
    fn shard_index(&self, digest: Digest) -> usize {
        // Both factors are below 2³².
        (((digest.1 >> 32) * self.shards.len() as u64) >> 32) as usize
    }
}

/// Calls `act` with one treatment of new keys after the other until one succeeds. Each [`RetryWith`] names a later
/// treatment, and the last always succeeds.
fn retry_until_placed<T>(act: impl Fn(NewKeys) -> Result<T, RetryWith>) -> T {
    let mut new_keys = NewKeys::Own;
    loop {
        match act(new_keys) {
            Ok(done) => return done,
            Err(RetryWith(next)) => new_keys = next,
        }
    }
}

/// The result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// The number of steps; each held one lock for at most a few dozen entries.
    pub steps: usize,
    /// The number of keys and log entries deleted.
    pub freed: usize,
}

impl Store for MemoryStore {
    async fn charge(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now: self.time_of_day(now), verdicts: self.charge_now(charges, now) })
    }

    async fn peek(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now: self.time_of_day(now), verdicts: self.peek_now(charges, now) })
    }

    async fn refund(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now: self.time_of_day(now), verdicts: self.refund_now(charges, now) })
    }

    async fn report(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now: self.time_of_day(now), verdicts: self.report_now(charges, now) })
    }

    async fn reset(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now: self.time_of_day(now), verdicts: self.reset_now(charges, now) })
    }

    fn uncharged_usage(&self) -> UnchargedUsage {
        UnchargedUsage { debt: self.cut_off_units(), ..UnchargedUsage::default() }
    }

    fn tracked_keys(&self) -> Option<u64> {
        Some(self.used() as u64)
    }

    #[inline]
    fn in_process(&self) -> Option<&dyn InProcessStore> {
        Some(self)
    }
}

impl InProcessStore for MemoryStore {
    #[inline]
    fn charge_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        self.charge_now(charges, now)
    }

    fn follow(&self, correction: &Correction) {
        self.follow(correction);
    }

    fn sweep_all(&self, now: Timestamp) {
        self.sweep(now, self.steps_per_round());
    }
}
