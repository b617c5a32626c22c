//! The order of waiting decisions: round-robin over identities.
//!
//! All decisions of one identity are a flow. Flows take turns, with one decision per turn. So a client with a
//! thousand different decisions gets no more turns than a client with one. The number of waiters of a flow is known,
//! so that the queue can bound it.

use crate::store::key::Digest;
use foldhash::fast::RandomState;
use std::collections::{HashMap, VecDeque};

/// The waiting decisions, by flow.
#[derive(Debug, Default)]
pub(crate) struct FairOrder {
    /// The flows that have decisions, in the order of their turns.
    order: VecDeque<Digest>,
    flows: HashMap<Digest, Flow, RandomState>,
    /// The number of waiting decisions.
    decisions: usize,
}

/// The waiting decisions and waiters of one identity.
#[derive(Debug, Default)]
struct Flow {
    decisions: VecDeque<Digest>,
    /// The waiters of calls that are not yet sent, for these decisions and for those with a call still in
    /// flight.
    waiting: usize,
}

impl FairOrder {
    /// The number of waiting decisions.
    pub(crate) fn len(&self) -> usize {
        self.decisions
    }

    /// The number of waiters of this flow.
    pub(crate) fn waiting(&self, flow: Digest) -> usize {
        self.flows.get(&flow).map_or(0, |flow| flow.waiting)
    }

    /// Counts one more waiter of this flow.
    pub(crate) fn add_waiter(&mut self, flow: Digest) {
        self.flows.entry(flow).or_default().waiting += 1;
    }

    /// Counts this many waiters less.
    pub(crate) fn remove_waiters(&mut self, flow: Digest, count: usize) {
        let Some(of_flow) = self.flows.get_mut(&flow) else { return };
        of_flow.waiting = of_flow.waiting.saturating_sub(count);
        if of_flow.waiting == 0 && of_flow.decisions.is_empty() {
            self.flows.remove(&flow);
        }
    }

    /// Appends a decision of this flow.
    pub(crate) fn push(&mut self, flow: Digest, decision: Digest) {
        let of_flow = self.flows.entry(flow).or_default();
        if of_flow.decisions.is_empty() {
            self.order.push_back(flow);
        }
        of_flow.decisions.push_back(decision);
        self.decisions += 1;
    }

    /// Takes the next decision.
    pub(crate) fn pop(&mut self) -> Option<Digest> {
        let flow = self.order.pop_front()?;
        let of_flow = self.flows.get_mut(&flow)?;
        let decision = of_flow.decisions.pop_front()?;
        self.decisions -= 1;
        if !of_flow.decisions.is_empty() {
            self.order.push_back(flow);
        } else if of_flow.waiting == 0 {
            self.flows.remove(&flow);
        }
        Some(decision)
    }

    /// Whether no decision waits.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty() && self.decisions == 0
    }

    /// Whether there are neither decisions nor waiters.
    #[cfg(test)]
    pub(crate) fn is_forgotten(&self) -> bool {
        self.is_empty() && self.flows.is_empty()
    }

    /// Whether this decision waits.
    #[cfg(test)]
    pub(crate) fn contains(&self, decision: &Digest) -> bool {
        self.flows.values().any(|flow| flow.decisions.contains(decision))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn digest(number: u64) -> Digest {
        Digest(number, number)
    }

    #[test]
    fn flows_take_turns_and_each_is_served_in_order() {
        let mut fair_order = FairOrder::default();
        for (flow, decision) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (3, 31)] {
            fair_order.add_waiter(digest(flow));
            fair_order.push(digest(flow), digest(decision));
        }
        assert_eq!((fair_order.len(), fair_order.waiting(digest(1)), fair_order.waiting(digest(4))), (6, 3, 0));
        let served: Vec<u64> = std::iter::from_fn(|| fair_order.pop()).map(|decision| decision.0).collect();
        assert_eq!(served, [10, 20, 30, 11, 31, 12]);
        for (flow, count) in [(1, 3), (2, 1), (3, 2), (4, 1)] {
            fair_order.remove_waiters(digest(flow), count);
        }
        assert!(fair_order.is_forgotten());
    }

    #[test]
    fn a_returning_flow_goes_to_the_end() {
        let mut fair_order = FairOrder::default();
        fair_order.push(digest(1), digest(10));
        fair_order.push(digest(2), digest(20));
        assert_eq!(fair_order.pop(), Some(digest(10)));
        fair_order.push(digest(1), digest(11));
        assert_eq!(
            [fair_order.pop(), fair_order.pop(), fair_order.pop()],
            [Some(digest(20)), Some(digest(11)), None]
        );
        assert!(fair_order.is_forgotten());
    }
}
