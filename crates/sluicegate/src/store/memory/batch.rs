//! The long way through the store: any number of limits, new keys, states of any size.
//!
//! A request becomes a list of [`Slot`]s, one per limit. Their shards are locked in ascending order, every
//! limit is looked at, and only then is anything written.

use super::shard::{Shard, log_entries};
use super::{MemoryStore, sweep};
use crate::store::key::Digest;
use crate::store::{Charge, LIMITS_PER_KEY_MAX, Verdicts};
use crate::sync::{MutexGuard, Ordering};
use sluicegate_core::decision::{Group, is_allowed, is_charged};
use sluicegate_core::{Cost, Outcome, Quota, State, Timestamp};
use smallvec::SmallVec;

/// One limit of one charge, and where its state is.
pub(super) struct Slot<'a> {
    pub(super) quota: &'a Quota,
    pub(super) digest: Digest,
    pub(super) shard: usize,
    group: Group,
    /// The time by which the quota sees now.
    pub(super) at: Timestamp,
    pub(super) charge: &'a Charge<'a>,
}

/// How a cost is taken: [`Quota::charge`] or [`Quota::force`].
type Take = fn(&Quota, Option<State>, Cost, Timestamp) -> Option<State>;

pub(super) type Slots<'a> = SmallVec<[Slot<'a>; 4]>;
pub(super) type Outcomes = SmallVec<[Outcome; 4]>;
pub(super) type Locked<'s> = SmallVec<[(usize, MutexGuard<'s, Shard>); 4]>;

/// Which digest a key without state stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Newcomers {
    /// Its own.
    Own,
    /// The one all newcomers of its rule share.
    Overflow,
}

/// No room for a new key: ask again with [`Newcomers::Overflow`].
pub(super) struct Full;

impl MemoryStore {
    /// The long way: any number of limits, new keys, states of any size.
    pub(super) fn charge_slots(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        newcomers: Newcomers,
    ) -> Result<Verdicts, Full> {
        let slots = self.slots(charges, now, newcomers);
        let mut locked = self.lock(shards_of(&slots));
        let outcomes = self.outcomes(&slots, &locked);
        let votes = || slots.iter().zip(&outcomes).map(|(slot, outcome)| (slot.group, *outcome));
        let is_allowed = is_allowed(votes());
        let charged: SmallVec<[bool; 4]> = slots
            .iter()
            .map(|slot| match slot.group {
                _ if slot.charge.cost.is_zero() || !is_allowed => false,
                Group::Enforced => true,
                Group::Shadow(_) => is_charged(votes(), slot.group),
            })
            .collect();
        self.make_room(&slots, &charged, &mut locked, now, newcomers)?;
        for (slot, charged) in slots.iter().zip(&charged) {
            let shard = shard_of(&mut locked, slot.shard);
            if *charged {
                self.charge_slot(shard, slot, Quota::charge);
            } else {
                self.keep_repair(shard, slot);
            }
        }
        Ok(self.verdicts(&slots, &outcomes, &locked))
    }

    /// As [`MemoryStore::charge_slots`], but every limit is charged, whatever it has left.
    pub(super) fn force_slots(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        newcomers: Newcomers,
    ) -> Result<(), Full> {
        let slots = self.slots(charges, now, newcomers);
        let mut locked = self.lock(shards_of(&slots));
        let charged: SmallVec<[bool; 4]> = slots.iter().map(|slot| !slot.charge.cost.is_zero()).collect();
        self.make_room(&slots, &charged, &mut locked, now, newcomers)?;
        for (slot, _) in slots.iter().zip(&charged).filter(|(_, charged)| **charged) {
            self.charge_slot(shard_of(&mut locked, slot.shard), slot, Quota::force);
        }
        Ok(())
    }

    /// Counts the keys that the charged slots will add, or says that there is no room for them.
    fn make_room(
        &self,
        slots: &Slots<'_>,
        charged: &[bool],
        locked: &mut Locked<'_>,
        now: Timestamp,
        newcomers: Newcomers,
    ) -> Result<(), Full> {
        self.sweep_for_newcomers(slots, charged, locked, now);
        // Counted after the sweep, which may have dropped a slot's own state.
        let wanted = self.new_slots(slots, charged, locked).count();
        if newcomers == Newcomers::Overflow {
            // The shared states of the rules are few, and there must be room for them.
            self.used.fetch_add(wanted, Ordering::Relaxed);
            return Ok(());
        }
        if self.reserve(wanted) {
            return Ok(());
        }
        for (_, shard) in locked.iter_mut() {
            self.release(shard.sweep(now, sweep::BLOCKS_PER_STEP, self.born));
        }
        let wanted = self.new_slots(slots, charged, locked).count();
        if self.reserve(wanted) { Ok(()) } else { Err(Full) }
    }

    /// The charged slots that have no key yet.
    fn new_slots<'s, 'a>(
        &self,
        slots: &'s Slots<'a>,
        charged: &[bool],
        locked: &Locked<'_>,
    ) -> impl Iterator<Item = &'s Slot<'a>> {
        let is_new = |(slot, charged): &(&Slot<'_>, &bool)| {
            **charged && shard_at(locked, slot.shard).state(slot.digest, self.born).is_none()
        };
        slots.iter().zip(charged).filter(is_new).map(|(slot, _)| slot)
    }

    /// Sweeps a block for every new key in the shards that are half full, at most as many as in a step: room that can be had
    /// for nothing is better than a larger table.
    fn sweep_for_newcomers(&self, slots: &Slots<'_>, charged: &[bool], locked: &mut Locked<'_>, now: Timestamp) {
        let shards: SmallVec<[usize; 4]> = self.new_slots(slots, charged, locked).map(|slot| slot.shard).collect();
        for (index, shard) in locked.iter_mut().filter(|(_, shard)| shard.is_half_full()) {
            let new_keys = shards.iter().filter(|each| **each == *index).count();
            self.release(shard.sweep(now, new_keys.min(sweep::BLOCKS_PER_STEP), self.born));
        }
    }

    fn charge_slot(&self, shard: &mut Shard, slot: &Slot<'_>, take: Take) {
        let state = shard.take(slot.digest, self.born);
        let before = state.as_ref().map_or(0, log_entries);
        let state = slot.quota.repaired(state, slot.at);
        let cost = slot.charge.cost;
        let charged = match (slot.quota, state) {
            // A log may grow by an entry, which needs room too.
            (Quota::SlidingWindow(window), Some(State::SlidingWindow(log))) if !self.has_room() => {
                Some(State::SlidingWindow(window.charge_merged(log, cost, slot.at)))
            }
            (quota, state) => take(quota, state, cost, slot.at),
        };
        match charged {
            Some(state) => self.put(shard, slot, state, before),
            // There was no state and there is none: the room that was counted for it is free.
            None => self.release(1),
        }
    }

    /// A state that was out of range is kept as repaired even though nothing is charged.
    fn keep_repair(&self, shard: &mut Shard, slot: &Slot<'_>) {
        let state = shard.state(slot.digest, self.born);
        let repaired = state.as_ref().and_then(|state| slot.quota.repair(state, slot.at));
        let before = state.as_deref().map_or(0, log_entries);
        if let Some(repaired) = repaired {
            self.put(shard, slot, repaired, before);
        }
    }

    pub(super) fn put(&self, shard: &mut Shard, slot: &Slot<'_>, state: State, log_entries_before: usize) {
        let log_entries_after = log_entries(&state);
        let kept_until = slot.quota.kept_until(&state);
        shard.put(slot.digest, state, kept_until, self.born);
        if log_entries_after > log_entries_before {
            self.used.fetch_add(log_entries_after - log_entries_before, Ordering::Relaxed);
        } else {
            self.release(log_entries_before - log_entries_after);
        }
    }

    pub(super) fn outcomes(&self, slots: &Slots<'_>, locked: &Locked<'_>) -> Outcomes {
        let outcome = |slot: &Slot<'_>| {
            let state = shard_at(locked, slot.shard).state(slot.digest, self.born);
            let repaired = state.as_ref().and_then(|state| slot.quota.repair(state, slot.at));
            slot.quota.outcome(repaired.as_ref().or(state.as_deref()), slot.charge.cost, slot.at)
        };
        slots.iter().map(outcome).collect()
    }

    pub(super) fn verdicts(&self, slots: &Slots<'_>, outcomes: &Outcomes, locked: &Locked<'_>) -> Verdicts {
        let verdict = |(slot, outcome): (&Slot<'_>, &Outcome)| {
            let state = shard_at(locked, slot.shard).state(slot.digest, self.born);
            let repaired = state.as_ref().and_then(|state| slot.quota.repair(state, slot.at));
            slot.quota.verdict(*outcome, repaired.as_ref().or(state.as_deref()), slot.at)
        };
        slots.iter().zip(outcomes).map(verdict).collect()
    }

    pub(super) fn slots<'a>(&self, charges: &'a [Charge<'a>], now: Timestamp, newcomers: Newcomers) -> Slots<'a> {
        let mut slots = Slots::new();
        for charge in charges {
            let own = charge.key.digest();
            for (index, quota) in charge.quotas.iter().enumerate() {
                let mut digest = own.of_limit(index, quota.algorithm_index());
                if newcomers == Newcomers::Overflow && self.is_new(digest) {
                    digest = charge.key.overflow_digest().of_limit(index, quota.algorithm_index());
                }
                let shard = self.shard_index(digest);
                let at = quota.aligned(now, digest.1);
                slots.push(Slot { quota, digest, shard, group: charge.group, at, charge });
            }
        }
        slots
    }

    /// True if there is no state under `digest`.
    fn is_new(&self, digest: Digest) -> bool {
        let shard = self.shards[self.shard_index(digest)].0.lock();
        shard.state(digest, self.born).is_none()
    }

    /// Locks these shards, in ascending order.
    pub(super) fn lock(&self, indices: impl Iterator<Item = usize>) -> Locked<'_> {
        let mut indices: SmallVec<[usize; 4]> = indices.collect();
        indices.sort_unstable();
        indices.dedup();
        indices.into_iter().map(|index| (index, self.shards[index].0.lock())).collect()
    }
}

impl Digest {
    /// The digest of one limit of a key: another entry in the same shard. The algorithm is part of it, so that
    /// an identity that goes back and forth between limits of two algorithms finds both states again, instead of
    /// starting fresh each time.
    #[inline]
    pub(super) fn of_limit(self, index: usize, algorithm_index: usize) -> Self {
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let place = algorithm_index * LIMITS_PER_KEY_MAX + index;
        Self(self.0.wrapping_add((place as u64).wrapping_mul(SPREAD)), self.1)
    }
}

/// The shards of all slots.
pub(super) fn shards_of(slots: &Slots<'_>) -> impl Iterator<Item = usize> {
    slots.iter().map(|slot| slot.shard)
}

pub(super) fn shard_at<'l>(locked: &'l Locked<'_>, index: usize) -> &'l Shard {
    let place = locked.partition_point(|(each, _)| *each < index);
    &locked[place].1
}

pub(super) fn shard_of<'l>(locked: &'l mut Locked<'_>, index: usize) -> &'l mut Shard {
    let place = locked.partition_point(|(each, _)| *each < index);
    &mut locked[place].1
}
