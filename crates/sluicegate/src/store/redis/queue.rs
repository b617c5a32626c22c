//! Who waits for which decision, and what is sent when.
//!
//! Callers who want the very same decision are a group, and at most one call at a time speaks for it: whoever comes
//! meanwhile goes with the next one. So one key costs at most one call per round trip, however many ask.
//! As long as few calls are under way, a group is sent at once. Beyond that, groups wait for a call to come back and then
//! go together in one: nobody waits longer than a round trip, and nothing waits while there is nothing to wait for.
//!
//! Nothing here is sent, and nothing here waits. What a caller is and what a decision is does not matter here either.

use super::arguments::TIMES_MAX;
use crate::store::key::Digest;
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};

/// How many calls may be under way before groups begin to go together.
pub(super) const CALLS_MAX: usize = 8;
/// How many groups go together: more would make everybody wait for the server to go through all of them.
pub(super) const GROUPS_PER_CALL_MAX: usize = 64;
/// How many callers may wait for calls that are not yet sent.
pub(super) const WAITING_MAX: usize = 65_536;

/// Groups whose calls go the same way. `P` is what a decision is, `W` somebody who waits for it.
#[derive(Debug)]
pub(super) struct Queue<P, W> {
    /// How many calls are under way.
    calls: usize,
    /// All groups of which a call speaks, or somebody wants one to.
    groups: HashMap<Digest, Group<P, W>, RandomState>,
    /// The groups that go with the next call, in order.
    next: VecDeque<Digest>,
    /// How many wait for a call that is not yet sent.
    waiting: usize,
}

/// Callers who want the very same decision.
#[derive(Debug)]
struct Group<P, W> {
    plan: P,
    /// Who goes with its next call, in order.
    waiters: VecDeque<W>,
}

/// A group on its way.
#[derive(Debug)]
pub(super) struct Boarded<P, W> {
    pub(super) digest: Digest,
    pub(super) plan: P,
    /// Never empty, in the order in which they came.
    pub(super) waiters: Vec<W>,
}

/// What a call speaks of.
pub(super) type Batch<P, W> = Vec<Boarded<P, W>>;

/// What becomes of somebody who has come.
#[derive(Debug)]
pub(super) enum Joined<P, W> {
    /// A call that is to be sent has a place for it.
    Waits,
    /// This is to be sent now.
    Goes(Batch<P, W>),
    /// Too many wait.
    Full,
}

impl<P, W> Default for Queue<P, W> {
    fn default() -> Self {
        Self { calls: 0, groups: HashMap::default(), next: VecDeque::new(), waiting: 0 }
    }
}

impl<P: Clone, W> Queue<P, W> {
    /// How many calls are under way.
    pub(super) fn calls(&self) -> usize {
        self.calls
    }

    /// Somebody has come for the decision with this digest; `plan` makes it.
    pub(super) fn join(&mut self, digest: Digest, waiter: W, plan: impl FnOnce() -> P) -> Joined<P, W> {
        if let Some(group) = self.groups.get_mut(&digest) {
            if self.waiting >= WAITING_MAX {
                return Joined::Full;
            }
            group.waiters.push_back(waiter);
            self.waiting += 1;
            return Joined::Waits;
        }
        if self.calls < CALLS_MAX {
            let plan = plan();
            self.groups.insert(digest, Group { plan: plan.clone(), waiters: VecDeque::new() });
            self.calls += 1;
            return Joined::Goes(vec![Boarded { digest, plan, waiters: vec![waiter] }]);
        }
        if self.waiting >= WAITING_MAX {
            return Joined::Full;
        }
        self.groups.insert(digest, Group { plan: plan(), waiters: VecDeque::from([waiter]) });
        self.next.push_back(digest);
        self.waiting += 1;
        Joined::Waits
    }

    /// Takes those out who wait for the next call of this group, up to `count`, because there is something for them
    /// already.
    pub(super) fn next_in_line(&mut self, digest: Digest, count: usize) -> Vec<W> {
        let group = self.groups.get_mut(&digest);
        let taken = group.map(|group| group.waiters.drain(..count.min(group.waiters.len())));
        let taken: Vec<W> = taken.into_iter().flatten().collect();
        self.waiting -= taken.len();
        taken
    }

    /// The call that spoke of these groups has ended. Returns what is to be sent in its place, if anything is.
    /// Those of whom `is_there` says that they have gone are left behind.
    pub(super) fn end(
        &mut self,
        groups: impl IntoIterator<Item = Digest>,
        is_there: impl Fn(&W) -> bool,
    ) -> Option<Batch<P, W>> {
        for digest in groups {
            let Some(group) = self.groups.get_mut(&digest) else { continue };
            if group.waiters.is_empty() {
                self.groups.remove(&digest);
            } else {
                self.next.push_back(digest);
            }
        }
        let batch = self.board(is_there);
        if batch.is_empty() {
            self.calls -= 1;
            return None;
        }
        Some(batch)
    }

    fn board(&mut self, is_there: impl Fn(&W) -> bool) -> Batch<P, W> {
        let mut batch = Batch::new();
        while batch.len() < GROUPS_PER_CALL_MAX
            && let Some(digest) = self.next.pop_front()
        {
            let Some(group) = self.groups.get_mut(&digest) else { continue };
            let count = group.waiters.len().min(TIMES_MAX as usize);
            self.waiting -= count;
            let waiters: Vec<W> = group.waiters.drain(..count).filter(&is_there).collect();
            if !waiters.is_empty() {
                batch.push(Boarded { digest, plan: group.plan.clone(), waiters });
            } else if group.waiters.is_empty() {
                self.groups.remove(&digest);
            } else {
                self.next.push_back(digest);
            }
        }
        batch
    }
}

#[cfg(all(test, sluicegate_loom))]
mod models;
#[cfg(test)]
mod tests;
