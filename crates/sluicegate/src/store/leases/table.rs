//! The pots of all decisions.
//!
//! Bounded: a decision that finds no place is decided exactly, and so is one whose keys belong to the pot of another
//! decision (another cost, or another set of rules): else each of them could hold as much of the same limit. Locks are held
//! for a few lookups and never across an `await`; that of the keys is taken last.

use super::pot::Returns;
use super::{Asking, Generation, Grant, Moment, Pace, Pot, Return, Tally};
use crate::sync::Mutex;
// loom runs a model again and again, and every run must take the same locks.
#[cfg(sluicegate_loom)]
use foldhash::fast::FixedState as RandomState;
#[cfg(not(sluicegate_loom))]
use foldhash::fast::RandomState;
use hashbrown::{Equivalent, HashMap, HashSet};
use smallvec::SmallVec;
use std::hash::{BuildHasher, Hash};

/// The most decisions that are watched at a time. Only hot ones matter, of which there are few.
pub const DECISIONS_MAX: usize = 4_096;
const SHARDS: usize = 64;

/// 128 bits that stand for a key.
pub type KeyDigest = (u64, u64);

/// The permits of all decisions, each known by an `I`; `S` is what it takes to use a grant and to give it back.
#[derive(Debug)]
pub struct Leases<I, S> {
    hasher: RandomState,
    shards: Box<[Mutex<Shard<I, S>>]>,
    per_shard_max: usize,
    /// The keys whose permits some pot holds or has asked for.
    claimed: Mutex<HashSet<KeyDigest, RandomState>>,
}

#[derive(Debug)]
struct Shard<I, S> {
    entries: HashMap<I, Entry<S>, RandomState>,
    /// What became of the permits of pots that are no longer here.
    gone: Tally,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry<S> {
    pot: Pot<S>,
    pace: Pace,
    claims: SmallVec<[KeyDigest; 2]>,
}

/// What the store said to a call.
#[derive(Debug)]
pub struct Answered<S> {
    /// What it admitted beyond the requests that waited for it.
    pub grant: Option<Grant<S>>,
    /// How many more would have passed.
    pub remaining: u64,
    /// True if it denied a request, or one of those that were asked for ahead.
    pub is_denied: bool,
}

impl<I, S> Default for Shard<I, S> {
    fn default() -> Self {
        Self { entries: HashMap::default(), gone: Tally::default(), is_closed: false }
    }
}

impl<S> Default for Entry<S> {
    fn default() -> Self {
        Self { pot: Pot::default(), pace: Pace::default(), claims: SmallVec::new() }
    }
}

impl<I: Hash + Eq + Clone, S> Default for Leases<I, S> {
    fn default() -> Self {
        Self::new(DECISIONS_MAX)
    }
}

impl<I: Hash + Eq + Clone, S> Leases<I, S> {
    /// No permits yet, and never more than about `decisions_max` decisions.
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

    /// A request has come: spends a permit on it if there is one, and says what `use_it` made of its grant.
    pub fn spend<Q: Hash + Equivalent<I> + ?Sized, T>(
        &self,
        id: &Q,
        now: Moment,
        generation: Generation,
        use_it: impl FnOnce(&mut Grant<S>) -> T,
    ) -> Option<T> {
        let mut shard = self.shard(id).lock();
        let entry = shard.entries.get_mut(id)?;
        entry.pace.count(now);
        entry.pot.spend(now, generation, use_it)
    }

    /// A call is about to be sent: how many permits it may ask for beyond the requests that wait for it, and what has
    /// ended here meanwhile. Who asks for some must say afterwards what came of it.
    pub fn ask(
        &self,
        id: &I,
        asking: &Asking,
        keys: &[KeyDigest],
        now: Moment,
        generation: Generation,
    ) -> (u32, Returns<S>) {
        let mut shard = self.shard(id).lock();
        if shard.is_closed || !shard.has_place(id, self.per_shard_max, now) {
            return (0, Returns::new());
        }
        let entry = shard.entries.entry_ref(id).or_insert_with(|| {
            let mut entry = Entry::default();
            entry.pace.count(now);
            entry
        });
        let returns = entry.pot.expire(now, generation);
        let size = entry.pace.size(asking, now);
        if size == 0 || !self.claim(entry, keys) {
            return (0, returns);
        }
        (entry.pot.ask(size), returns)
    }

    /// The call was answered. Also of use where it has asked for nothing: it says how much there is.
    pub fn answered(&self, id: &I, answered: Answered<S>, now: Moment) {
        let Answered { grant, remaining, is_denied } = answered;
        let mut shard = self.shard(id).lock();
        let is_closed = shard.is_closed;
        match shard.entries.get_mut(id) {
            Some(entry) if !is_closed => {
                entry.pace.learn(remaining, is_denied, now);
                match grant {
                    Some(grant) => entry.pot.grant(grant),
                    None => entry.pot.unanswered(),
                }
            }
            // Too late: nobody will come for them, and nobody is there to give them back.
            _ => {
                let permits = grant.map_or(0, |grant| u64::from(grant.permits));
                shard.gone = shard.gone.and(Tally { granted: permits, lost: permits, ..Tally::default() });
            }
        }
    }

    /// The call was not answered, or will not be.
    pub fn unanswered(&self, id: &I) {
        if let Some(entry) = self.shard(id).lock().entries.get_mut(id) {
            entry.pot.unanswered();
        }
    }

    /// All that was charged to these keys is forgotten: what was paid for before counts for nothing any more, be it here
    /// or still on its way, and is not given back.
    pub fn lose(&self, keys: &[KeyDigest]) {
        let is_held = |key: &KeyDigest| self.claimed.lock().contains(key);
        if !keys.iter().any(is_held) {
            return;
        }
        for shard in &self.shards {
            let mut shard = shard.lock();
            let entries = shard.entries.values_mut();
            let of_keys = |entry: &&mut Entry<S>| entry.claims.iter().any(|claim| keys.contains(claim));
            entries.filter(of_keys).for_each(|entry| entry.pot.lose());
        }
    }

    /// Takes out what has ended, to be given back, and forgets decisions that nobody asks for any more. To be called now
    /// and then; `generation_of` says which memory of the store a decision is charged in now.
    pub fn sweep(&self, now: Moment, generation_of: impl Fn(&I) -> Generation) -> Vec<Return<S>> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let Shard { entries, gone, .. } = &mut *shard;
            entries.retain(|id, entry| {
                returns.extend(entry.pot.expire(now, generation_of(id)));
                if !entry.pot.is_idle() {
                    return true;
                }
                self.release(entry);
                let is_kept = !entry.pace.is_over(now);
                if !is_kept {
                    *gone = gone.and(entry.pot.tally());
                }
                is_kept
            });
        }
        returns
    }

    /// Takes out everything, to be given back. From now on nothing is held and nothing asked for.
    pub fn close(&self, generation_of: impl Fn(&I) -> Generation) -> Vec<Return<S>> {
        let mut returns = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.is_closed = true;
            for (id, mut entry) in std::mem::take(&mut shard.entries) {
                returns.extend(entry.pot.drain(generation_of(&id)));
                self.release(&mut entry);
                shard.gone = shard.gone.and(entry.pot.tally());
            }
        }
        returns
    }

    /// What became of all permits so far, and how many are held.
    #[must_use]
    pub fn tally(&self) -> (Tally, u64) {
        self.shards.iter().fold((Tally::default(), 0), |(tally, held), shard| {
            let shard = shard.lock();
            let of_pots = shard.entries.values().fold(shard.gone, |sum, entry| sum.and(entry.pot.tally()));
            let here: u64 = shard.entries.values().map(|entry| u64::from(entry.pot.held())).sum();
            (tally.and(of_pots), held + here)
        })
    }

    /// Shows every grant that is held.
    pub fn for_each(&self, mut show: impl FnMut(&Grant<S>)) {
        for shard in &self.shards {
            shard.lock().entries.values().flat_map(|entry| entry.pot.grants()).for_each(&mut show);
        }
    }

    /// How many decisions are watched.
    #[must_use]
    pub fn decisions(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    fn shard<Q: Hash + ?Sized>(&self, id: &Q) -> &Mutex<Shard<I, S>> {
        &self.shards[self.shard_index(id)]
    }

    pub(super) fn shard_index<Q: Hash + ?Sized>(&self, id: &Q) -> usize {
        // A remainder is less than the number of shards, which is small.
        (self.hasher.hash_one(id) % self.shards.len() as u64) as usize
    }

    /// Takes the keys for this pot, unless another has one of them.
    fn claim(&self, entry: &mut Entry<S>, keys: &[KeyDigest]) -> bool {
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

    fn release(&self, entry: &mut Entry<S>) {
        if !entry.claims.is_empty() {
            let mut claimed = self.claimed.lock();
            for key in entry.claims.drain(..) {
                claimed.remove(&key);
            }
        }
    }
}

impl<I: Hash + Eq, S> Shard<I, S> {
    /// True if the decision is here or has a place. Who has held nothing since the last sweep and is hardly asked for
    /// makes room.
    fn has_place(&mut self, id: &I, max: usize, now: Moment) -> bool {
        if self.entries.len() < max || self.entries.contains_key(id) {
            return true;
        }
        let gone = &mut self.gone;
        self.entries.retain(|_, entry| {
            let is_kept = !entry.claims.is_empty() || !entry.pot.is_idle() || !entry.pace.is_over(now);
            if !is_kept {
                *gone = gone.and(entry.pot.tally());
            }
            is_kept
        });
        self.entries.len() < max
    }
}

#[cfg(test)]
mod tests;
