//! The embedded store: state in this process, exact, bounded, and never paused.
//!
//! The table is cut into many shards, each behind its own lock. A request locks the shards of all its keys,
//! always in ascending order, so it is all or nothing and two requests cannot wait for each other. Locks are
//! held for well under a microsecond, except while the table of a shard grows, and never across an `await`.
//!
//! Memory is bounded by [`MemoryOptions::max_keys`]. A state that matters no longer is dropped without loss.
//! When every state matters, newcomers share one state per rule (the overflow); a live one is never evicted,
//! because that would forgive whoever filled the table. Every entry in the log of a sliding window counts as
//! a key; a log that finds no room merges its newest entries, which never admits more.

mod batch;
mod in_place;
mod lines;
#[cfg(all(test, sluicegate_loom))]
mod models;
mod packed;
mod shard;
mod sweep;

use super::key::Digest;
use super::{Charge, LIMITS_PER_KEY_MAX, Reply, Store, StoreError, Verdicts};
use crate::clock::{Clock, SystemClock};
use crate::sync::{AtomicUsize, Mutex, Ordering};
use batch::{Full, Newcomers, shard_of, shards_of};
use shard::{Shard, log_entries};
use sluicegate_core::{Quota, Timestamp};
use smallvec::smallvec;
use std::time::Duration;

/// How a [`MemoryStore`] is sized.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MemoryOptions {
    /// The most keys it holds, one per limit of an identity, and one more per entry in the log of a sliding
    /// window; beyond that newcomers share an overflow state per rule. Ten million by default: about 390 MB of
    /// token buckets and fixed windows, three times that of states that need more than a word.
    pub max_keys: usize,
    /// How many shards it is cut into. The default keeps the work of growing one shard to some ten thousand
    /// entries even at ten million keys, and all locks within a core's own cache.
    pub shards: usize,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self { max_keys: 10_000_000, shards: 1_024 }
    }
}

/// State in this process. See the [module documentation](self).
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[Padded]>,
    /// Keys and log entries in use.
    used: AtomicUsize,
    max_keys: usize,
    /// Words count time from here.
    born: Timestamp,
    /// The shard that is swept next.
    sweep_cursor: AtomicUsize,
}

impl Default for MemoryStore {
    /// A store of the default size, made now.
    fn default() -> Self {
        Self::new(MemoryOptions::default(), SystemClock::new().now())
    }
}

/// Each lock on a cache line of its own, so that two cores do not fight over neighbours.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded(Mutex<Shard>);

impl MemoryStore {
    /// An empty store made at `now`.
    pub fn new(options: MemoryOptions, now: Timestamp) -> Self {
        Self {
            shards: (0..options.shards.max(1)).map(|_| Padded::default()).collect(),
            used: AtomicUsize::new(0),
            max_keys: options.max_keys,
            born: now,
            sweep_cursor: AtomicUsize::new(0),
        }
    }

    /// Keys and log entries in use.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes allocated for the table.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        let shards = self.shards.iter().map(|shard| shard.0.lock().allocated_bytes()).sum::<usize>();
        shards + self.shards.len() * size_of::<Padded>()
    }

    /// See [`Store::charge`]; this store answers at once.
    #[inline]
    pub fn charge_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        if let [Charge { quotas: [_], .. }] = charges {
            return match self.charge_in_place(charges, now) {
                Some(verdict) => smallvec![verdict],
                None => self.charge_the_long_way(charges, now),
            };
        }
        self.charge_several_in_place(charges, now).unwrap_or_else(|| self.charge_the_long_way(charges, now))
    }

    /// Out of line, so that the short way stays short.
    #[inline(never)]
    fn charge_the_long_way(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        if !self.has_room() {
            // Somebody may embed the store without a sweeper: one step each, before any lock is held.
            self.sweep(now, 1);
        }
        self.charge_slots(charges, now, self.newcomers()).unwrap_or_else(|Full| {
            // The overflow always has room, so the second answer is one; were it not, nothing would be charged.
            self.charge_slots(charges, now, Newcomers::Overflow).unwrap_or_else(|Full| self.peek_now(charges, now))
        })
    }

    /// Charges every limit with what was decided elsewhere, whether or not it has room: see
    /// [`Algorithm::force`](sluicegate_core::Algorithm::force).
    pub(crate) fn force_now(&self, charges: &[Charge<'_>], now: Timestamp) {
        // What fits is charged as ever.
        if self.charge_in_place(charges, now).is_some_and(|verdict| verdict.outcome.is_allowed()) {
            return;
        }
        if !self.has_room() {
            self.sweep(now, 1);
        }
        if let Err(Full) = self.force_slots(charges, now, self.newcomers()) {
            // The overflow always has room.
            self.force_slots(charges, now, Newcomers::Overflow).unwrap_or(());
        }
    }

    /// See [`Store::peek`].
    pub fn peek_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let slots = self.slots(charges, now, self.newcomers());
        let locked = self.lock(shards_of(&slots));
        let outcomes = self.outcomes(&slots, &locked);
        self.verdicts(&slots, &outcomes, &locked)
    }

    /// See [`Store::refund`].
    pub fn refund_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let slots = self.slots(charges, now, self.newcomers());
        let mut locked = self.lock(shards_of(&slots));
        for slot in &slots {
            let shard = shard_of(&mut locked, slot.shard);
            let Some(state) = shard.take(slot.digest, self.born) else { continue };
            let before = log_entries(&state);
            let state = slot.quota.repaired(Some(state), slot.at);
            match slot.quota.refund(state, slot.charge.cost, slot.at) {
                Some(state) => self.put(shard, slot, state, before),
                None => self.release(before + shard.remove(slot.digest)),
            }
        }
        let outcomes = self.outcomes(&slots, &locked);
        self.verdicts(&slots, &outcomes, &locked)
    }

    /// See [`Store::reset`].
    pub fn reset_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let slots = self.slots(charges, now, Newcomers::Own);
        let mut locked = self.lock(shards_of(&slots));
        for charge in charges {
            let digest = charge.key.digest();
            let shard = shard_of(&mut locked, self.shard_index(digest));
            // The identity may have been under other limits before: all its states go.
            for place in 0..LIMITS_PER_KEY_MAX * Quota::ALGORITHMS.len() {
                let digest = digest.of_limit(place % LIMITS_PER_KEY_MAX, place / LIMITS_PER_KEY_MAX);
                self.release(shard.remove(digest));
            }
        }
        let outcomes = self.outcomes(&slots, &locked);
        self.verdicts(&slots, &outcomes, &locked)
    }

    /// By the half of the digest that the table of a shard does not look at.
    #[inline]
    fn shard_index(&self, digest: Digest) -> usize {
        // Both factors are below 2³².
        (((digest.1 >> 32) * self.shards.len() as u64) >> 32) as usize
    }

    fn newcomers(&self) -> Newcomers {
        if self.has_room() { Newcomers::Own } else { Newcomers::Overflow }
    }

    fn has_room(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.max_keys
    }

    fn reserve(&self, wanted: usize) -> bool {
        if wanted == 0 {
            return true;
        }
        let within = |used: usize| used.checked_add(wanted).filter(|total| *total <= self.max_keys);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    fn release(&self, freed: usize) {
        if freed > 0 {
            self.used.fetch_sub(freed, Ordering::Relaxed);
        }
    }
}

impl Store for MemoryStore {
    async fn charge(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now, verdicts: self.charge_now(charges, now) })
    }

    async fn peek(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now, verdicts: self.peek_now(charges, now) })
    }

    async fn refund(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now, verdicts: self.refund_now(charges, now) })
    }

    async fn reset(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now, verdicts: self.reset_now(charges, now) })
    }

    fn tracked_keys(&self) -> Option<u64> {
        Some(self.used() as u64)
    }

    #[inline]
    fn at_once(&self) -> Option<&MemoryStore> {
        Some(self)
    }
}
