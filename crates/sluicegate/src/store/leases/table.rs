//! The permit pools of all decisions.
//!
//! The table is bounded: a decision without a place is decided exactly. So is a decision whose keys belong to the
//! pool of another decision (another cost, or another set of rules), because otherwise each could hold as much of
//! the same limit. Locks are held for a few lookups and never across an `await`; the lock of the keys is taken last.

use super::permits::PermitReturns;
use super::{Demand, Generation, Grant, PermitPool, PermitRequest, PermitReturn, PermitTally, Uptime};
use crate::sync::Mutex;
// loom repeats a model, and every run must take the same locks.
#[cfg(sluicegate_loom)]
use foldhash::fast::FixedState as RandomState;
#[cfg(not(sluicegate_loom))]
use foldhash::fast::RandomState;
use hashbrown::{Equivalent, HashMap, HashSet};
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hash};

/// The most decisions at a time. Only hot ones matter, and they are few.
pub const DECISIONS_MAX: usize = 4_096;
const SHARDS: usize = 64;

/// A 128-bit digest of a key.
pub type KeyDigest = (u64, u64);

/// The permit pools of all decisions, each identified by an `I`. `S` is the data to use a grant and to give it back.
#[derive(Debug)]
pub struct LeaseTable<I, S> {
    hasher: RandomState,
    shards: Box<[Mutex<LeaseShard<I, S>>]>,
    per_shard_max: usize,
    /// The keys of permits that a pool holds or has requested.
    claimed: Mutex<HashSet<KeyDigest, RandomState>>,
}

#[derive(Debug)]
struct LeaseShard<I, S> {
    entries: HashMap<I, LeaseEntry<S>, RandomState>,
    /// The balance of pools that were dropped.
    gone: PermitTally,
    is_closed: bool,
}

#[derive(Debug)]
struct LeaseEntry<S> {
    pool: PermitPool<S>,
    demand: Demand,
    claims: SmallVec<[KeyDigest; 2]>,
}

/// The result of a call.
#[derive(Debug)]
pub struct CallResult<S> {
    /// The permits beyond its waiters.
    pub grant: Option<Grant<S>>,
    /// How many further requests would have passed.
    pub remaining: u64,
    /// Whether it denied a request or a permit.
    pub is_denied: bool,
}

impl<I, S> Default for LeaseShard<I, S> {
    fn default() -> Self {
        Self { entries: HashMap::default(), gone: PermitTally::default(), is_closed: false }
    }
}

impl<S> Default for LeaseEntry<S> {
    fn default() -> Self {
        Self { pool: PermitPool::default(), demand: Demand::default(), claims: SmallVec::new() }
    }
}

impl<I: Hash + Eq + Clone, S> Default for LeaseTable<I, S> {
    fn default() -> Self {
        Self::new(DECISIONS_MAX)
    }
}

impl<I: Hash + Eq + Clone, S> LeaseTable<I, S> {
    /// An empty table for about `decisions_max` decisions.
    #[must_use]
    pub fn new(decisions_max: usize) -> Self {
        let shards = SHARDS.min(decisions_max.max(1));
        Self {
            hasher: RandomState::default(),
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            per_shard_max: decisions_max.div_ceil(shards),
            claimed: Mutex::default(),
        }
    }

    /// Counts a request and spends a permit on it, if there is one. Returns the result of `use_it` for its grant.
    pub fn spend<Q: Hash + Equivalent<I> + ?Sized, T>(
        &self,
        id: &Q,
        now: Uptime,
        generation: Generation,
        use_it: impl FnOnce(&mut Grant<S>) -> T,
    ) -> Option<T> {
        let mut shard = self.shard(id).lock();
        let entry = shard.entries.get_mut(id)?;
        entry.demand.count(now);
        entry.pool.spend(now, generation, use_it)
    }

    /// Requests permits for a call that is about to be sent. Returns how many the call may request beyond its
    /// waiters, and the expired permits. After a request, [`Self::record`] or [`Self::call_failed`] must follow.
    pub fn request(
        &self,
        id: &I,
        request: &PermitRequest,
        keys: &[KeyDigest],
        now: Uptime,
        generation: Generation,
    ) -> (u32, PermitReturns<S>) {
        let mut shard = self.shard(id).lock();
        if shard.is_closed || !shard.has_place(id, self.per_shard_max, now) {
            return (0, PermitReturns::new());
        }
        let entry = shard.entries.entry_ref(id).or_insert_with(|| {
            let mut entry = LeaseEntry::default();
            entry.demand.count(now);
            entry
        });
        let returns = entry.pool.expire(now, generation);
        let size = entry.demand.size(request, now);
        if size == 0 || !self.claim(entry, keys) {
            return (0, returns);
        }
        (entry.pool.request(size), returns)
    }

    /// Records the reply to a call. This is useful without requested permits as well, because it shows how much is
    /// left.
    pub fn record(&self, id: &I, result: CallResult<S>, now: Uptime) {
        let CallResult { grant, remaining, is_denied } = result;
        let mut shard = self.shard(id).lock();
        let is_closed = shard.is_closed;
        match shard.entries.get_mut(id) {
            Some(entry) if !is_closed => {
                entry.demand.learn(remaining, is_denied, now);
                match grant {
                    Some(grant) => entry.pool.grant(grant),
                    None => entry.pool.call_failed(),
                }
            }
            // Too late: no request will spend these permits, and there is no task left to give them back.
            _ => {
                let permits = grant.map_or(0, |grant| u64::from(grant.permits));
                shard.gone =
                    shard.gone.and(PermitTally { granted: permits, lost: permits, ..PermitTally::default() });
            }
        }
    }

    /// A call has failed or was dropped.
    pub fn call_failed(&self, id: &I) {
        if let Some(entry) = self.shard(id).lock().entries.get_mut(id) {
            entry.pool.call_failed();
        }
    }

    /// The charges of these keys were reset: drops their permits and those that are in flight, without giving them
    /// back.
    pub fn forfeit(&self, keys: &[KeyDigest]) {
        let is_held = |key: &KeyDigest| self.claimed.lock().contains(key);
        if !keys.iter().any(is_held) {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            let entries = shard.entries.values_mut();
            let of_keys = |entry: &&mut LeaseEntry<S>| entry.claims.iter().any(|claim| keys.contains(claim));
            entries.filter(of_keys).for_each(|entry| entry.pool.forfeit());
        }
    }

    /// Takes out expired permits, to be given back, and drops idle decisions. To be called regularly;
    /// `generation_of` returns the current generation of a decision's data.
    pub fn sweep(&self, now: Uptime, generation_of: impl Fn(&I) -> Generation) -> Vec<PermitReturn<S>> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let LeaseShard { entries, gone, .. } = &mut *shard;
            entries.retain(|id, entry| {
                returns.extend(entry.pool.expire(now, generation_of(id)));
                if !entry.pool.is_idle() {
                    return true;
                }
                self.release(entry);
                let is_kept = !entry.demand.is_over(now);
                if !is_kept {
                    *gone = gone.and(entry.pool.tally());
                }
                is_kept
            });
        }
        returns
    }

    /// Takes out everything, to be given back. From now on nothing is held or requested.
    pub fn close(&self, generation_of: impl Fn(&I) -> Generation) -> Vec<PermitReturn<S>> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.is_closed = true;
            for (id, mut entry) in std::mem::take(&mut shard.entries) {
                returns.extend(entry.pool.drain(generation_of(&id)));
                self.release(&mut entry);
                shard.gone = shard.gone.and(entry.pool.tally());
            }
        }
        returns
    }

    /// The balance of all permits so far, and how many are held.
    #[must_use]
    pub fn tally(&self) -> (PermitTally, u64) {
        self.shards.iter().fold((PermitTally::default(), 0), |(tally, held), shard| {
            let shard = shard.lock();
            let of_pots = shard.entries.values().fold(shard.gone, |sum, entry| sum.and(entry.pool.tally()));
            let here: u64 = shard.entries.values().map(|entry| u64::from(entry.pool.held())).sum();
            (tally.and(of_pots), held + here)
        })
    }

    /// Visits every grant.
    pub fn for_each(&self, mut show: impl FnMut(&Grant<S>)) {
        for shard in &self.shards {
            shard.lock().entries.values().flat_map(|entry| entry.pool.grants()).for_each(&mut show);
        }
    }

    /// How many decisions the table holds.
    #[must_use]
    pub fn decisions(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    fn shard<Q: Hash + ?Sized>(&self, id: &Q) -> &Mutex<LeaseShard<I, S>> {
        &self.shards[self.shard_index(id)]
    }

    pub(super) fn shard_index<Q: Hash + ?Sized>(&self, id: &Q) -> usize {
        // A remainder is less than the number of shards, which is small.
        (self.hasher.hash_one(id) % self.shards.len() as u64) as usize
    }

    /// Claims the keys for this pool, unless another pool has one of them.
    fn claim(&self, entry: &mut LeaseEntry<S>, keys: &[KeyDigest]) -> bool {
        if !entry.claims.is_empty() {
            return true;
        }
        let mut claimed = self.claimed.lock();
        if keys.iter().any(|key| claimed.contains(key)) {
            return false;
        }
        claimed.extend(keys);
        entry.claims.extend_from_slice(keys);
        true
    }

    fn release(&self, entry: &mut LeaseEntry<S>) {
        if !entry.claims.is_empty() {
            let mut claimed = self.claimed.lock();
            for key in entry.claims.drain(..) {
                claimed.remove(&key);
            }
        }
    }
}

impl<I: Hash + Eq, S> LeaseShard<I, S> {
    /// Whether the decision is here or has a place. Idle decisions with little demand make room.
    fn has_place(&mut self, id: &I, max: usize, now: Uptime) -> bool {
        if self.entries.len() < max || self.entries.contains_key(id) {
            return true;
        }
        let gone = &mut self.gone;
        self.entries.retain(|_, entry| {
            let is_kept = !entry.claims.is_empty() || !entry.pool.is_idle() || !entry.demand.is_over(now);
            if !is_kept {
                *gone = gone.and(entry.pool.tally());
            }
            is_kept
        });
        self.entries.len() < max
    }
}

#[cfg(test)]
mod tests;
