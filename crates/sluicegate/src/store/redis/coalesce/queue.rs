//! The queue of one route: the waiters of each decision, and the decisions of the next calls.
//!
//! Requests for the same decision wait together, and at most one call in flight contains it. Requests that arrive
//! meanwhile join the next call. So one key costs at most one call per round trip, however many requests there are.
//! While few calls are in flight, a new decision is sent at once. Beyond that, decisions wait until a call ends and
//! then share one call, so no decision waits without need. The more decisions wait, the larger the batch, up to a
//! bound. Beyond the bound, identities take turns ([`fair_order`]).
//!
//! This module is pure bookkeeping: it sends nothing and never blocks. It is generic over plans and waiters.

mod fair_order;

use crate::store::key::Digest;
use crate::store::redis::protocol::arguments::TIMES_MAX;
use fair_order::FairOrder;
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};

/// The most calls in flight before decisions are batched.
pub(crate) const CALLS_MAX: usize = 8;
/// The batch size while all calls together can take the waiting decisions.
pub(crate) const DECISIONS_PER_CALL: usize = 64;
/// The largest batch. More would delay all waiters, because the server executes one script at a time.
pub(crate) const DECISIONS_PER_CALL_MAX: usize = 256;
/// The most waiters of calls that are not yet sent.
pub(crate) const WAITING_MAX: usize = 65_536;
/// The most of these waiters of one identity.
pub(crate) const WAITING_OF_FLOW_MAX: usize = WAITING_MAX / 8;

/// The decisions of one route. `P` is the plan of a decision, `W` a waiter.
#[derive(Debug)]
pub(crate) struct Queue<P, W> {
    /// The calls in flight.
    calls: usize,
    /// All decisions that are in a call in flight or have waiters.
    decisions: HashMap<Digest, PendingDecision<P, W>, RandomState>,
    /// The decisions that wait for a call, in fair order.
    next: FairOrder,
    /// The waiters of calls that are not yet sent.
    waiting: usize,
}

/// A decision, and the requests that wait for it.
#[derive(Debug)]
struct PendingDecision<P, W> {
    plan: P,
    /// The identity of the decision's first request.
    flow: Digest,
    /// The waiters of its next call, in order of arrival.
    waiters: VecDeque<W>,
}

/// A decision in a call.
#[derive(Debug)]
pub(crate) struct BatchEntry<P, W> {
    pub(crate) digest: Digest,
    pub(crate) plan: P,
    /// Never empty, in order of arrival.
    pub(crate) waiters: Vec<W>,
}

/// The decisions of one call.
pub(crate) type Batch<P, W> = Vec<BatchEntry<P, W>>;

/// The outcome of joining the queue.
#[derive(Debug)]
pub(crate) enum JoinOutcome<P, W> {
    /// The request waits for a call that is yet to be sent.
    Wait,
    /// This batch is to be sent now.
    Send(Batch<P, W>),
    /// Too many requests wait.
    Full,
}

impl<P, W> Default for Queue<P, W> {
    fn default() -> Self {
        Self { calls: 0, decisions: HashMap::default(), next: FairOrder::default(), waiting: 0 }
    }
}

impl<P: Clone, W> Queue<P, W> {
    /// The calls in flight.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn calls(&self) -> usize {
        self.calls
    }

    /// Adds a waiter for the decision with this digest. `flow` computes its identity and `plan` its plan, if the
    /// decision is new.
    pub(crate) fn join(
        &mut self,
        digest: Digest,
        flow: impl FnOnce() -> Digest,
        waiter: W,
        plan: impl FnOnce() -> P,
    ) -> JoinOutcome<P, W> {
        let is_full = self.waiting >= WAITING_MAX;
        if let Some(decision) = self.decisions.get_mut(&digest) {
            if is_full || self.next.waiting(decision.flow) >= WAITING_OF_FLOW_MAX {
                return JoinOutcome::Full;
            }
            self.next.add_waiter(decision.flow);
            decision.waiters.push_back(waiter);
            self.waiting += 1;
            return JoinOutcome::Wait;
        }
        let flow = flow();
        if self.calls < CALLS_MAX {
            let plan = plan();
            self.decisions.insert(digest, PendingDecision { plan: plan.clone(), flow, waiters: VecDeque::new() });
            self.calls += 1;
            return JoinOutcome::Send(vec![BatchEntry { digest, plan, waiters: vec![waiter] }]);
        }
        if is_full || self.next.waiting(flow) >= WAITING_OF_FLOW_MAX {
            return JoinOutcome::Full;
        }
        self.decisions.insert(digest, PendingDecision { plan: plan(), flow, waiters: VecDeque::from([waiter]) });
        self.next.add_waiter(flow);
        self.next.push(flow, digest);
        self.waiting += 1;
        JoinOutcome::Wait
    }

    /// Takes out up to `count` waiters of this decision's next call, because an earlier call has a result for them.
    pub(crate) fn take_next(&mut self, digest: Digest, count: usize) -> Vec<W> {
        let Some(decision) = self.decisions.get_mut(&digest) else { return Vec::new() };
        let taken: Vec<W> = decision.waiters.drain(..count.min(decision.waiters.len())).collect();
        self.next.remove_waiters(decision.flow, taken.len());
        self.waiting -= taken.len();
        taken
    }

    /// The call with these decisions has ended. Returns the batch to send in its place, if there is one. Waiters for
    /// which `is_there` returns false are dropped.
    pub(crate) fn end(
        &mut self,
        decisions: impl IntoIterator<Item = Digest>,
        is_there: impl Fn(&W) -> bool,
    ) -> Option<Batch<P, W>> {
        for digest in decisions {
            let Some(decision) = self.decisions.get_mut(&digest) else { continue };
            if decision.waiters.is_empty() {
                self.decisions.remove(&digest);
            } else {
                self.next.push(decision.flow, digest);
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
        let most = (self.next.len() / CALLS_MAX).clamp(DECISIONS_PER_CALL, DECISIONS_PER_CALL_MAX);
        while batch.len() < most
            && let Some(digest) = self.next.pop()
        {
            let Some(decision) = self.decisions.get_mut(&digest) else { continue };
            let count = decision.waiters.len().min(TIMES_MAX as usize);
            self.waiting -= count;
            self.next.remove_waiters(decision.flow, count);
            let waiters: Vec<W> = decision.waiters.drain(..count).filter(&is_there).collect();
            if !waiters.is_empty() {
                batch.push(BatchEntry { digest, plan: decision.plan.clone(), waiters });
            } else if decision.waiters.is_empty() {
                self.decisions.remove(&digest);
            } else {
                self.next.push(decision.flow, digest);
            }
        }
        batch
    }
}

#[cfg(all(test, sluicegate_loom))]
mod models;
#[cfg(test)]
mod tests;
