//! The targets of a request: the location of the state of each limit, and the locks that the access needs.
//!
//! An identity has a state of its own under each limit, unless it is new and the store is full. Then it uses the
//! state that all new keys share; see [`overflow`](super::overflow).

use super::capacity::{Amounts, Kinds};
use super::instants::{Instants, TimeScale};
use super::overflow::{OverflowClient, is_live};
use super::shard::{Shard, log_entries};
use super::{BLOCKS_PER_STEP, MemoryStore};
use crate::store::key::{Digest, Kind};
use crate::store::{Charge, LIMITS_PER_KEY_MAX};
use crate::sync::MutexGuard;
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Cost, Quota, State, Timestamp};
use smallvec::SmallVec;
use std::borrow::Cow;

/// One limit of one charge, and the location of its state.
pub(super) struct LimitTarget<'a> {
    pub(super) quota: Cow<'a, Quota>,
    pub(super) location: StateLocation,
    pub(super) mode: ChargeMode,
    pub(super) charge: &'a Charge<'a>,
    /// The index of the limit within the charge.
    pub(super) limit_index: usize,
    /// The cost that must fit. If several new keys of one request share a state, this is the sum of the costs up to
    /// this target.
    pub(super) cost_to_fit: Cost,
    /// The initial state of a client that leaves the overflow.
    pub(super) inherited: Option<State>,
    /// The client to mark after a charge of the overflow; `None` if the state is the client's own.
    pub(super) client: Option<OverflowClient<'a>>,
}

/// The location of a state, and the instant on the time scale of its limit.
#[derive(Clone, Copy)]
pub(super) struct StateLocation {
    pub(super) digest: Digest,
    pub(super) shard: usize,
    pub(super) at: Timestamp,
}

pub(super) type LimitTargets<'a> = SmallVec<[LimitTarget<'a>; 4]>;
pub(super) type LockedShards<'s> = SmallVec<[(usize, MutexGuard<'s, Shard>); 4]>;

/// The treatment of limits under which an identity has no state yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NewKeys {
    /// Create a state of their own. Requires capacity, and that the client was not charged in the overflow.
    Own,
    /// Create a state of their own. A client that was charged in the overflow starts with a copy of the overflow.
    Inherit,
    /// Keys of these kinds share the overflow, because the kinds have no capacity. Other kinds get states of their
    /// own, so filling the share of one kind takes nothing from another.
    Overflow(Kinds),
}

impl NewKeys {
    /// True if new keys of this kind share a state.
    fn share(self, kind: Kind) -> bool {
        matches!(self, Self::Overflow(kinds) if kinds.has(kind))
    }

    /// The same treatment, in which these kinds share, too. If the set is empty, all kinds share.
    pub(super) fn sharing(self, lacking: Kinds) -> Self {
        let lacking = if lacking.is_empty() { Kinds::ALL } else { lacking };
        Self::Overflow(if let Self::Overflow(kinds) = self { kinds.and(lacking) } else { lacking })
    }
}

/// The call must be retried with another treatment of new keys. Each names a later one, so retries end.
pub(super) struct RetryWith(pub(super) NewKeys);

impl MemoryStore {
    /// The targets of a request and the locks that they need. If `may_sweep`, sweeps to gain capacity for new keys.
    pub(super) fn locked_targets<'a>(
        &self,
        charges: &'a [Charge<'a>],
        now: Instants,
        new_keys: NewKeys,
        may_sweep: bool,
    ) -> Result<(LimitTargets<'a>, LockedShards<'_>), RetryWith> {
        let mut targets = self.targets(charges, now);
        if new_keys == NewKeys::Own {
            let mut locked = self.lock(targets.iter().map(|target| target.location.shard));
            return match self.alternative_to_own(&targets, &mut locked, may_sweep.then_some(now)) {
                None => Ok((targets, locked)),
                Some(new_keys) => Err(RetryWith(new_keys)),
            };
        }
        let shared: SmallVec<[StateLocation; 4]> =
            targets.iter().map(|target| self.overflow_of(target, now)).collect();
        let locations = targets.iter().map(|target| &target.location).chain(&shared);
        let locked = self.lock(locations.map(|location| location.shard));
        self.assign_states(&mut targets, &shared, &locked, new_keys)?;
        Ok((targets, locked))
    }

    /// The treatment to use if new keys must not get states of their own; `None` if they may. Sweeps if `sweep_at` is
    /// set.
    #[inline]
    fn alternative_to_own(
        &self,
        targets: &LimitTargets<'_>,
        locked: &mut LockedShards<'_>,
        sweep_at: Option<Instants>,
    ) -> Option<NewKeys> {
        self.new_targets(targets, locked).next()?;
        if let Some(now) = sweep_at {
            self.sweep_for_new_keys(targets, locked, now);
        }
        if self.new_targets(targets, locked).any(|target| self.is_marked(target, locked)) {
            return Some(NewKeys::Inherit);
        }
        let lacking = |locked: &LockedShards<'_>| {
            let one_more =
                |sum: Amounts, target: &LimitTarget<'_>| sum.plus(Amounts::of(target.location.digest.kind(), 1));
            self.capacity.lacking(self.new_targets(targets, locked).fold(Amounts::default(), one_more))
        };
        if lacking(locked).is_empty() {
            return None;
        }
        if let Some(now) = sweep_at {
            self.sweep_locked(locked, now);
        }
        let lacking = lacking(locked);
        (!lacking.is_empty()).then_some(NewKeys::Overflow(lacking))
    }

    /// Assigns a state to every new target: its own, an inherited one, or the shared one.
    fn assign_states(
        &self,
        targets: &mut LimitTargets<'_>,
        shared: &[StateLocation],
        locked: &LockedShards<'_>,
        new_keys: NewKeys,
    ) -> Result<(), RetryWith> {
        let mut wanted = Amounts::default();
        for index in 0..targets.len() {
            let (target, shared) = (&targets[index], shared[index]);
            if !self.is_new(target, locked) {
                continue;
            }
            let kind = target.location.digest.kind();
            let inherited = if new_keys.share(kind) {
                None
            } else if self.is_marked(target, locked) {
                self.inheritance(target, shared, locked)
            } else {
                wanted.add(kind, 1);
                continue;
            };
            match inherited {
                Some(state) => {
                    wanted.add(kind, 1 + log_entries(&state));
                    targets[index].inherited = Some(state);
                }
                None => share(targets, index, shared),
            }
        }
        let lacking = self.capacity.lacking(wanted);
        if lacking.is_empty() { Ok(()) } else { Err(RetryWith(new_keys.sharing(lacking))) }
    }

    /// A copy of the shared state as the client's own; `None` if the shared state has expired.
    pub(super) fn inheritance(
        &self,
        target: &LimitTarget<'_>,
        shared: StateLocation,
        locked: &LockedShards<'_>,
    ) -> Option<State> {
        let state = shard_at(locked, shared.shard).state(shared.digest, self.epoch)?;
        let state = target.quota.repaired(Some(state.into_owned()), shared.at)?;
        is_live(&target.quota, &state, shared.at).then(|| shifted_to(state, shared.at, target.location.at))
    }

    pub(super) fn targets<'a>(&self, charges: &'a [Charge<'a>], now: Instants) -> LimitTargets<'a> {
        let mut targets = LimitTargets::new();
        for charge in charges {
            let own = charge.key.digest();
            for (index, quota) in charge.quotas.iter().enumerate() {
                let location = self.location_of(quota, own.of_limit(index, quota.algorithm_index()), now);
                let (quota, mode, cost_to_fit) = (Cow::Borrowed(quota), charge.mode, charge.cost);
                let (inherited, client) = (None, None);
                targets.push(LimitTarget {
                    quota,
                    location,
                    mode,
                    charge,
                    limit_index: index,
                    cost_to_fit,
                    inherited,
                    client,
                });
            }
        }
        targets
    }

    pub(super) fn location_of(&self, quota: &Quota, digest: Digest, now: Instants) -> StateLocation {
        StateLocation { digest, shard: self.shard_index(digest), at: now.time_for(quota, digest) }
    }

    /// The targets without a state for their identity.
    pub(super) fn new_targets<'s, 'a>(
        &self,
        targets: &'s LimitTargets<'a>,
        locked: &LockedShards<'_>,
    ) -> impl Iterator<Item = &'s LimitTarget<'a>> {
        targets.iter().filter(|target| self.is_new(target, locked))
    }

    pub(super) fn is_new(&self, target: &LimitTarget<'_>, locked: &LockedShards<'_>) -> bool {
        shard_at(locked, target.location.shard).state(target.location.digest, self.epoch).is_none()
    }

    /// Sweeps one block per new key in each shard that is half full, at most as many as in a step. Free capacity is
    /// better than a larger table.
    fn sweep_for_new_keys(&self, targets: &LimitTargets<'_>, locked: &mut LockedShards<'_>, now: Instants) {
        let shards: SmallVec<[usize; 4]> =
            self.new_targets(targets, locked).map(|target| target.location.shard).collect();
        for (index, shard) in locked.iter_mut().filter(|(_, shard)| shard.is_half_full()) {
            let new_keys = shards.iter().filter(|each| **each == *index).count();
            self.capacity.release(shard.sweep(now, new_keys.min(BLOCKS_PER_STEP), self.epoch));
        }
    }

    fn sweep_locked(&self, locked: &mut LockedShards<'_>, now: Instants) {
        for (_, shard) in locked.iter_mut() {
            self.capacity.release(shard.sweep(now, BLOCKS_PER_STEP, self.epoch));
        }
    }

    /// Locks these shards in ascending order.
    pub(super) fn lock(&self, indices: impl Iterator<Item = usize>) -> LockedShards<'_> {
        let mut indices: SmallVec<[usize; 4]> = indices.collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().map(|index| (index, self.shards[index].0.lock())).collect()
    }
}

/// Points a target to the state that new keys share. Earlier targets of the same request take their cost first.
fn share<'a>(targets: &mut LimitTargets<'a>, index: usize, shared: StateLocation) {
    let (before, rest) = targets.split_at_mut(index);
    let [target, ..] = rest else { return };
    let is_beside = |other: &&LimitTarget<'_>| {
        other.client.is_some()
            && other.location.digest == shared.digest
            && (other.mode == target.mode || other.mode == ChargeMode::Enforced)
    };
    let taken: u32 =
        before.iter().filter(is_beside).fold(0, |sum, other| sum.saturating_add(other.charge.cost.get()));
    if !target.charge.cost.is_zero() {
        target.cost_to_fit = Cost::new(taken.saturating_add(target.charge.cost.get()));
    }
    let quota = match &*target.quota {
        // Credits belong to the client that earned them. A shared state with credits would reward inventing
        // identities.
        Quota::TokenBucket(bucket) if bucket.credits() > 0 => Cow::Owned(bucket.clone().on_shared_state().into()),
        _ => target.quota.clone(),
    };
    let own = std::mem::replace(&mut target.quota, quota);
    target.client = Some(OverflowClient { quota: own, location: target.location });
    target.location = shared;
}

/// Converts a state for another limit with the same numbers but a different window alignment. The end of a window
/// moves with the aligned instant.
pub(super) fn shifted_to(state: State, at: Timestamp, other_at: Timestamp) -> State {
    match state {
        State::FixedWindow(mut window) => {
            window.end = other_at.plus(window.end.since(at));
            State::FixedWindow(window)
        }
        state => state,
    }
}

impl Digest {
    /// The digest of one limit of a key: another entry in the same shard. It includes the algorithm. So an identity
    /// that alternates between limits of two algorithms finds both states again and does not start over.
    #[inline]
    pub(super) fn of_limit(self, index: usize, algorithm_index: usize) -> Self {
        self.at_offset(algorithm_index * LIMITS_PER_KEY_MAX + index)
    }

    /// The digest of the mark for the client with its own state under this digest.
    pub(super) fn of_mark(self) -> Self {
        self.at_offset(LIMITS_PER_KEY_MAX * Quota::ALGORITHMS.len())
    }

    #[inline]
    fn at_offset(self, offset: usize) -> Self {
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        Self(self.0.wrapping_add((offset as u64).wrapping_mul(SPREAD)), self.1)
    }
}

impl LimitTarget<'_> {
    /// The time scale of its states.
    pub(super) fn scale(&self) -> TimeScale {
        TimeScale::of(&self.quota)
    }
}

pub(super) fn shard_at<'l>(locked: &'l LockedShards<'_>, index: usize) -> &'l Shard {
    let location = locked.partition_point(|(each, _)| *each < index);
    &locked[location].1
}

pub(super) fn shard_of<'l>(locked: &'l mut LockedShards<'_>, index: usize) -> &'l mut Shard {
    let location = locked.partition_point(|(each, _)| *each < index);
    &mut locked[location].1
}
