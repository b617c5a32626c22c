//! The table of observations: a set-associative cache of [`SETS`] sets with [`WAYS`] observations each. The digest
//! of a key selects its set.
//!
//! Each set has a lock, which is held for a few comparisons and the computation of one denial. A set allocates as it
//! fills, so without denials only the empty sets exist, 576 KiB. A full set evicts the observation that ends first.
//! So a client that floods the table with denials sends other clients to the server, and does no other harm.

use super::order::{ChargeStamp, Execution, ExecutionOrder};
use crate::store::key::Digest;
use crate::sync::{AtomicUsize, Mutex, MutexGuard, Ordering};
use sluicegate_core::{Cost, State, Timestamp};
use smallvec::SmallVec;

/// The number of sets.
pub(crate) const SETS: usize = 8192;
/// The number of observations in a set.
pub(crate) const WAYS: usize = 8;

/// Observations by key.
#[derive(Debug)]
pub(crate) struct ObservationTable {
    sets: Box<[Mutex<ObservationSet>]>,
    entries: AtomicUsize,
}

#[derive(Debug, Default)]
struct ObservationSet {
    stamp: ChargeStamp,
    observations: Vec<Observation>,
}

/// The last known state of one key's limits.
#[derive(Debug)]
pub(crate) struct Observation {
    pub(crate) key: Digest,
    /// A digest of the quotas of these states. With other quotas the observation does not apply.
    pub(crate) quotas: u64,
    pub(crate) execution: Execution,
    /// The local time from which on it is of no use.
    pub(crate) ends: super::LocalNanos,
    pub(crate) generation: u64,
    /// The time of the invalidation clock before the call was sent.
    pub(crate) since: u64,
    /// The invalidation partition of the key.
    pub(crate) partition: u16,
    /// Whether a request is already refreshing this observation.
    pub(crate) is_renewed: bool,
    pub(crate) limits: SmallVec<[ObservedLimit; 1]>,
}

/// The state of one limit.
#[derive(Clone, Debug)]
pub(crate) struct ObservedLimit {
    pub(crate) state: Option<State>,
    /// The time of the state, on the limit's own time scale.
    pub(crate) at: Timestamp,
    /// The cost that the limit denied. A log without room returns only the part that this cost needs.
    pub(crate) denied: Option<Cost>,
}

impl ObservationTable {
    /// An empty table with this many sets.
    pub(crate) fn new(sets: usize) -> Self {
        Self { sets: (0..sets).map(|_| Mutex::default()).collect(), entries: AtomicUsize::new(0) }
    }

    /// How many observations it holds.
    pub(crate) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// The result of `read` for the observation of this key, if there is one that has not ended by `now`.
    pub(crate) fn find<T>(
        &self,
        key: Digest,
        now: super::LocalNanos,
        read: impl FnOnce(&mut Observation) -> Option<T>,
    ) -> Option<T> {
        let mut set = self.set(key);
        let index = set.position(key)?;
        if set.observations[index].ends <= now {
            set.observations.swap_remove(index);
            self.entries.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        read(&mut set.observations[index])
    }

    /// Whether there is an observation of this key.
    pub(crate) fn holds(&self, key: Digest) -> bool {
        self.len() > 0 && self.set(key).position(key).is_some()
    }

    /// A charge to this key was executed. `after` is the resulting state and replaces an older observation. Without
    /// it, or if a later charge is possible, the older observation is removed.
    pub(crate) fn charged(&self, key: Digest, call: &Execution, epoch: u64, after: Option<Observation>) {
        let mut set = self.set(key);
        set.stamp.enter(epoch);
        let is_latest = set.stamp.is_before(call);
        set.stamp.charged(call);
        let Some(index) = set.position(key) else { return };
        match (call.compared_to(&set.observations[index].execution), after) {
            (ExecutionOrder::Before, _) => {}
            (ExecutionOrder::StatesAfter, Some(after)) if is_latest => set.observations[index] = after,
            (ExecutionOrder::StatesAfter | ExecutionOrder::Unknown, _) => {
                set.observations.swap_remove(index);
                self.entries.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Inserts an observation, unless a later charge or observation of its key is known. Observations that have
    /// ended or are not `believed` are removed first. `charged` if the observed call charged the key itself.
    pub(crate) fn keep(
        &self,
        observation: Observation,
        epoch: u64,
        charged: bool,
        believed: impl Fn(&Observation) -> bool,
    ) {
        let (key, execution) = (observation.key, observation.execution);
        let mut set = self.set(key);
        set.stamp.enter(epoch);
        let is_latest = set.stamp.is_before(&execution);
        if charged {
            set.stamp.charged(&execution);
        }
        let before = set.observations.len();
        let outlives = |old: &Observation| {
            let is_replaced = old.key == key
                && match execution.compared_to(&old.execution) {
                    ExecutionOrder::Before => false,
                    ExecutionOrder::StatesAfter => charged || is_latest,
                    ExecutionOrder::Unknown => charged,
                };
            !is_replaced && old.ends > execution.received_at && believed(old)
        };
        set.observations.retain(outlives);
        if is_latest && set.position(key).is_none() {
            set.make_room();
            set.observations.push(observation);
        }
        // The difference may be negative; the counter wraps around.
        self.entries.fetch_add(set.observations.len().wrapping_sub(before), Ordering::Relaxed);
    }

    /// A charge to this key may have been executed, but its reply will not come.
    pub(crate) fn give_up(&self, key: Digest, now: super::LocalNanos) {
        let mut set = self.set(key);
        set.stamp.give_up(now);
        if let Some(index) = set.position(key) {
            set.observations.swap_remove(index);
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn set(&self, key: Digest) -> MutexGuard<'_, ObservationSet> {
        self.sets[key.0 as usize % self.sets.len()].lock()
    }
}

impl ObservationSet {
    fn position(&self, key: Digest) -> Option<usize> {
        self.observations.iter().position(|observation| observation.key == key)
    }

    /// Evicts the observation that ends first, if the set is full.
    fn make_room(&mut self) {
        let observations = &mut self.observations;
        if observations.len() == WAYS
            && let Some(first) = (0..WAYS).min_by_key(|index| observations[*index].ends)
        {
            observations.swap_remove(first);
        }
    }
}
