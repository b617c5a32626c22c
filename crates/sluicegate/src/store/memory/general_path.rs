//! The general path of the store: any number of limits, new keys, states of any size.
//!
//! A request becomes a list of [`LimitTarget`]s, one per limit. The store locks their shards in ascending order, checks
//! every limit, and only then writes.

use super::MemoryStore;
use super::capacity::Amounts;
use super::instants::Instants;
use super::shard::{Shard, log_entries};
use super::targets::{LimitTarget, LimitTargets, LockedShards, NewKeys, RetryWith, shard_at, shard_of};
use crate::store::{Charge, Verdicts};
use crate::sync::Ordering;
use sluicegate_core::decision::{ChargeMode, is_allowed, is_charged, joint_wait};
use sluicegate_core::{Cost, Outcome, Quota, State, Timestamp};
use smallvec::SmallVec;
use std::borrow::Cow;

/// The part of its cost that a limit is charged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Nothing: the request is denied, or costs nothing.
    Nothing,
    /// The whole cost, which fits.
    Cost,
    /// The usage, whether or not it fits.
    Usage,
}

pub(super) type Outcomes = SmallVec<[Outcome; 4]>;

impl MemoryStore {
    /// Charges all enforced targets, or none but their usage.
    pub(super) fn charge_targets(
        &self,
        charges: &[Charge<'_>],
        now: Instants,
        new_keys: NewKeys,
    ) -> Result<Verdicts, RetryWith> {
        let (mut targets, mut locked) = self.locked_targets(charges, now, new_keys, true)?;
        let outcomes = self.outcomes(&targets, &locked);
        let votes = || targets.iter().zip(&outcomes).map(|(target, outcome)| (target.mode, *outcome));
        let is_allowed = is_allowed(votes());
        let taken: SmallVec<[Taken; 4]> = targets
            .iter()
            .map(|target| match target.mode {
                _ if target.charge.cost.is_zero() => Taken::Nothing,
                ChargeMode::Enforced if is_allowed => Taken::Cost,
                ChargeMode::Shadow(_) if is_allowed && is_charged(votes(), target.mode) => Taken::Cost,
                _ if target.charge.usage.is_zero() => Taken::Nothing,
                _ => Taken::Usage,
            })
            .collect();
        self.reserve_capacity(&targets, &taken, &locked, new_keys)?;
        for (target, taken) in targets.iter_mut().zip(&taken) {
            if *taken == Taken::Nothing {
                self.store_repaired(shard_of(&mut locked, target.location.shard), target);
            } else {
                self.charge_target(&mut locked, target, *taken);
            }
        }
        Ok(self.verdicts(&targets, &outcomes, &locked))
    }

    /// Returns the verdicts of [`MemoryStore::charge_targets`] without a write. Nothing is swept, so two equal calls
    /// get equal replies.
    pub(super) fn peek_targets(
        &self,
        charges: &[Charge<'_>],
        now: Instants,
        new_keys: NewKeys,
    ) -> Result<Verdicts, RetryWith> {
        let (targets, locked) = self.locked_targets(charges, now, new_keys, false)?;
        let outcomes = self.outcomes(&targets, &locked);
        Ok(self.verdicts(&targets, &outcomes, &locked))
    }

    /// Reserves capacity for the keys that the charged targets will add and for the log entries that clients inherit
    /// from the overflow. Fails if there is not enough.
    fn reserve_capacity(
        &self,
        targets: &LimitTargets<'_>,
        taken: &[Taken],
        locked: &LockedShards<'_>,
        new_keys: NewKeys,
    ) -> Result<(), RetryWith> {
        let (mut own, mut shared) = (Amounts::default(), Amounts::default());
        let charged = || targets.iter().zip(taken).filter(|(_, taken)| **taken != Taken::Nothing);
        for (index, (target, _)) in charged().enumerate() {
            if !self.is_new(target, locked) {
                continue;
            }
            let kind = target.location.digest.kind();
            match &target.client {
                None => own.add(kind, 1 + target.inherited.as_ref().map_or(0, log_entries)),
                Some(_) => {
                    // Several new keys of one request may create the same shared state. It counts as one key.
                    let is_first = |other: &LimitTarget<'_>| other.location.digest != target.location.digest;
                    shared.add(kind, usize::from(charged().take(index).all(|(other, _)| is_first(other))));
                }
            }
        }
        if !self.capacity.reserve(own) {
            return Err(RetryWith(new_keys.sharing(self.capacity.lacking(own))));
        }
        // There are few shared states, at most one per limit and kind of key, so they always get capacity.
        self.capacity.add(shared);
        Ok(())
    }

    fn charge_target(&self, locked: &mut LockedShards<'_>, target: &mut LimitTarget<'_>, taken: Taken) {
        let inherited = target.inherited.take();
        let shard = shard_of(locked, target.location.shard);
        let state = inherited.or_else(|| shard.take(target.location.digest, self.epoch));
        let before = state.as_ref().map_or(0, log_entries);
        let (at, one) = (target.location.at, Amounts::of(target.location.digest.kind(), 1));
        let state = target.quota.repaired(state, at);
        let cost = match taken {
            Taken::Usage => self.without_cut_off(&target.quota, state.as_ref(), target.charge.usage, at),
            Taken::Cost | Taken::Nothing => target.charge.cost,
        };
        let charged = match (&*target.quota, state) {
            // A log may grow by one entry, which needs capacity, too.
            (Quota::SlidingWindow(window), Some(State::SlidingWindow(log))) if !self.capacity.has(one) => {
                Some(State::SlidingWindow(window.charge_merged(log, cost, at)))
            }
            (quota, state) if taken == Taken::Usage => quota.force(state, cost, at),
            (quota, state) => quota.charge(state, cost, at),
        };
        match charged {
            Some(state) => self.put(shard, target, state, before),
            // There was no state and there still is none, so the reserved capacity is released.
            None => self.capacity.release(one),
        }
        if target.client.is_some() {
            self.mark(target, locked);
        }
    }

    /// The part of this usage within the bound on debt. Counts the rest. A bucket may be in debt by a part of a token,
    /// so there the core applies the bound.
    fn without_cut_off(&self, quota: &Quota, state: Option<&State>, usage: Cost, at: Timestamp) -> Cost {
        let cut_off = quota.cut_off(state, usage, at);
        if cut_off == 0 {
            return usage;
        }
        self.cut_off.fetch_add(cut_off, Ordering::Relaxed);
        match quota {
            // The units that are left are at most those of the usage.
            Quota::SlidingWindow(_) => Cost::new((usage.units() - cut_off) as u32),
            _ => usage,
        }
    }

    /// Stores a repaired state, even though nothing is charged.
    fn store_repaired(&self, shard: &mut Shard, target: &LimitTarget<'_>) {
        let state = shard.state(target.location.digest, self.epoch);
        let repaired = state.as_ref().and_then(|state| target.quota.repair(state, target.location.at));
        let before = state.as_deref().map_or(0, log_entries);
        if let Some(repaired) = repaired {
            self.put(shard, target, repaired, before);
        }
    }

    pub(super) fn put(
        &self,
        shard: &mut Shard,
        target: &LimitTarget<'_>,
        state: State,
        log_entries_before: usize,
    ) {
        let log_entries_after = log_entries(&state);
        let kept_until = target.quota.kept_until(&state);
        shard.put(target.location.digest, state, kept_until, self.epoch);
        let of_kind = |entries| Amounts::of(target.location.digest.kind(), entries);
        if log_entries_after > log_entries_before {
            self.capacity.add(of_kind(log_entries_after - log_entries_before));
        } else {
            self.capacity.release(of_kind(log_entries_before - log_entries_after));
        }
    }

    fn outcomes(&self, targets: &LimitTargets<'_>, locked: &LockedShards<'_>) -> Outcomes {
        let at_state = |target: &LimitTarget<'_>, decide: &dyn Fn(Option<&State>) -> Outcome| {
            let state = self.state_of(target, locked);
            let repaired = state.as_ref().and_then(|state| target.quota.repair(state, target.location.at));
            decide(repaired.as_ref().or(state.as_deref()))
        };
        let outcome = |target: &LimitTarget<'_>| {
            at_state(target, &|state| target.quota.outcome(state, target.cost_to_fit, target.location.at))
        };
        let mut outcomes: Outcomes = targets.iter().map(outcome).collect();
        let votes = targets.iter().zip(&outcomes).map(|(target, outcome)| (target.mode, *outcome));
        if targets.len() > 1
            && let Some(wait) = joint_wait(votes)
        {
            for (target, outcome) in targets.iter().zip(&mut outcomes) {
                let (quota, cost, now, at) = (&target.quota, target.cost_to_fit, *outcome, target.location.at);
                *outcome = at_state(target, &|state| quota.outcome_after_waiting(now, state, cost, at, wait));
            }
        }
        outcomes
    }

    fn verdicts(&self, targets: &LimitTargets<'_>, outcomes: &Outcomes, locked: &LockedShards<'_>) -> Verdicts {
        let verdict = |(target, outcome): (&LimitTarget<'_>, &Outcome)| {
            let state = self.state_of(target, locked);
            let repaired = state.as_ref().and_then(|state| target.quota.repair(state, target.location.at));
            target.quota.verdict(*outcome, repaired.as_ref().or(state.as_deref()), target.location.at)
        };
        targets.iter().zip(outcomes).map(verdict).collect()
    }

    /// The state of a target, or the state that it inherits.
    fn state_of<'l>(&self, target: &'l LimitTarget<'_>, locked: &'l LockedShards<'_>) -> Option<Cow<'l, State>> {
        let state = shard_at(locked, target.location.shard).state(target.location.digest, self.epoch);
        state.or_else(|| target.inherited.as_ref().map(Cow::Borrowed))
    }
}
