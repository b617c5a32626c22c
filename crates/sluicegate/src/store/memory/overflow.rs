//! The overflow: the state that all new keys of a limit share while the store is full.
//!
//! The invariant: whatever the table contains and however clients fill and empty it, the admissions of one identity
//! under one limit stay within that limit. A new client that is charged in the overflow has no state of its own. If
//! it simply started with a full quota once there is capacity again, it would get its limit twice. So every such
//! client is *marked*, under the lock of its own shard, until the charges that the overflow held at that moment have
//! expired. When a marked client gets capacity, its state starts as a copy of the overflow. The copy contains all
//! charges of this client, and perhaps those of others, so it never grants more than a state of its own would have.
//! From then on the charges of other clients no longer affect it.
//!
//! - An unmarked client starts with a full quota: none of its charges is still live.
//! - A mark is a word in the table under a digest of its own. No two clients share one, so a mark affects one client
//!   only. The number of marks is at most an eighth of the number of keys of each kind
//!   ([`MemoryStore::marks_per_shard`]). In a shard that has reached its share, all new clients of that kind count as
//!   marked for as long as the next mark would have lasted.
//! - Verified identities, addresses and unverified names have separate overflow states. A client that invents names
//!   shares only with other unverified names.
//! - Refunds never change the overflow, because they would give one client's charge back to all. A marked client that
//!   gets capacity receives the refund on its copy.
//! - The overflow earns no credits, because they would belong to no client.
//! - A store that was never full has no marks; the check is one null pointer.

use super::MemoryStore;
use super::capacity::Amounts;
use super::instants::{Instants, TimeScale};
use super::shard::log_entries;
use super::targets::{
    LimitTarget, LockedShards, NewKeys, RetryWith, StateLocation, shard_at, shard_of, shifted_to,
};
use crate::store::Charge;
use crate::store::key::Kind;
use sluicegate_core::{Quota, State, Timestamp};
use smallvec::SmallVec;
use std::borrow::Cow;

/// A client that is charged in the overflow: its limit, and the location of its own state.
pub(super) struct OverflowClient<'a> {
    pub(super) quota: Cow<'a, Quota>,
    pub(super) location: StateLocation,
}

/// True if the state has not expired at `at`.
pub(super) fn is_live(quota: &Quota, state: &State, at: Timestamp) -> bool {
    at <= quota.kept_until(state)
}

impl MemoryStore {
    /// The maximum number of marks of a kind per shard. The constant serves small stores.
    pub(super) fn marks_per_shard(&self, kind: Kind) -> usize {
        self.capacity.max(kind) / self.shards.len() / 8 + 16
    }

    /// The location of the overflow state for the limit of this target.
    pub(super) fn overflow_of(&self, target: &LimitTarget<'_>, now: Instants) -> StateLocation {
        let of_limit = target.limit_index;
        let digest = target.charge.key.overflow_digest().of_limit(of_limit, target.quota.algorithm_index());
        self.location_of(&target.quota, digest, now)
    }

    /// True if the client was charged in the overflow and that charge is still live.
    #[inline]
    pub(super) fn is_marked(&self, target: &LimitTarget<'_>, locked: &LockedShards<'_>) -> bool {
        let shard = shard_at(locked, target.location.shard);
        shard.has_marks()
            && shard.is_marked(target.location.digest.of_mark(), target.location.at, target.scale(), self.epoch)
    }

    /// Marks the client of an overflow target that was just charged, for as long as the overflow's charges are live.
    pub(super) fn mark(&self, target: &LimitTarget<'_>, locked: &mut LockedShards<'_>) {
        let Some(OverflowClient { quota, location }) = &target.client else { return };
        let shared = shard_at(locked, target.location.shard).state(target.location.digest, self.epoch);
        let Some(shared) = shared.map(Cow::into_owned) else { return };
        let until = quota.kept_until(&shifted_to(shared, target.location.at, location.at));
        let (digest, scale) = (location.digest.of_mark(), TimeScale::of(quota));
        let marks_max = self.marks_per_shard(digest.kind());
        shard_of(locked, location.shard).mark(digest, until, scale, marks_max, self.epoch);
    }

    /// Refunds the costs to the clients' own states. A marked client receives the refund on its copy of the overflow,
    /// if there is capacity for one.
    pub(super) fn refund_targets(
        &self,
        charges: &[Charge<'_>],
        now: Instants,
        new_keys: NewKeys,
    ) -> Result<(), RetryWith> {
        let mut targets = self.targets(charges, now);
        let shared: SmallVec<[StateLocation; 4]> = match new_keys {
            NewKeys::Own => SmallVec::new(),
            NewKeys::Inherit | NewKeys::Overflow(_) => {
                targets.iter().map(|target| self.overflow_of(target, now)).collect()
            }
        };
        let locations = targets.iter().map(|target| &target.location).chain(&shared);
        let mut locked = self.lock(locations.map(|location| location.shard));
        let mut marked = self.new_targets(&targets, &locked).filter(|target| self.is_marked(target, &locked));
        if new_keys == NewKeys::Own && marked.next().is_some() {
            return Err(RetryWith(NewKeys::Inherit));
        }
        drop(marked);
        for index in 0..targets.len() {
            if let Some(shared) = shared.get(index)
                && self.is_new(&targets[index], &locked)
                && self.is_marked(&targets[index], &locked)
            {
                targets[index].inherited = self.inheritance(&targets[index], *shared, &locked);
            }
            self.refund_target(&mut targets[index], &mut locked);
        }
        Ok(())
    }

    fn refund_target(&self, target: &mut LimitTarget<'_>, locked: &mut LockedShards<'_>) {
        let shard = shard_of(locked, target.location.shard);
        let (inherited, digest, at) = (target.inherited.take(), target.location.digest, target.location.at);
        let amounts_of = |state: &State| Amounts::of(digest.kind(), 1 + log_entries(state));
        let inherited = inherited.filter(|state| self.capacity.reserve(amounts_of(state)));
        let Some(state) = inherited.or_else(|| shard.take(digest, self.epoch)) else { return };
        let before = log_entries(&state);
        let state = target.quota.repaired(Some(state), at);
        match target.quota.refund(state, target.charge.cost, at) {
            Some(state) => self.put(shard, target, state, before),
            None => self.capacity.release(Amounts::of(digest.kind(), before).plus(shard.remove(digest))),
        }
    }
}
