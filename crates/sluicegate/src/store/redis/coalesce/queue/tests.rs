//! The invariants of the queue, over random sequences of arrivals, departures and ends of calls.

use super::*;
use proptest::prelude::*;

/// A waiter by number, and whether it is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TestWaiter {
    number: usize,
    is_there: bool,
}

type TestQueue = Queue<u64, TestWaiter>;

fn digest(decision: u64) -> Digest {
    Digest(decision, !decision)
}

fn arrive(queue: &mut TestQueue, decision: u64, number: usize) -> JoinOutcome<u64, TestWaiter> {
    let waiter = TestWaiter { number, is_there: true };
    // Two decisions belong to one identity, the others to one each.
    queue.join(digest(decision), || digest(decision.max(1)), waiter, || decision)
}

fn end(queue: &mut TestQueue, call: &Batch<u64, TestWaiter>) -> Option<Batch<u64, TestWaiter>> {
    queue.end(call.iter().map(|decision| decision.digest), |waiter| waiter.is_there)
}

fn numbers(call: &Batch<u64, TestWaiter>) -> Vec<(u64, Vec<usize>)> {
    let of_entry = |decision: &BatchEntry<u64, TestWaiter>| {
        (decision.plan, decision.waiters.iter().map(|each| each.number).collect())
    };
    call.iter().map(of_entry).collect()
}

fn sent(joined: JoinOutcome<u64, TestWaiter>) -> Batch<u64, TestWaiter> {
    match joined {
        JoinOutcome::Send(call) => call,
        other => panic!("{other:?}"),
    }
}

#[test]
fn waiters_join_the_next_call_in_fifo_order() {
    let mut queue = TestQueue::default();
    let first = sent(arrive(&mut queue, 7, 0));
    assert_eq!(numbers(&first), [(7, vec![0])]);
    for number in 1..=3 {
        assert!(matches!(arrive(&mut queue, 7, number), JoinOutcome::Wait));
    }
    // The decision of another identity does not wait for it.
    let other = sent(arrive(&mut queue, 8, 4));
    let second = end(&mut queue, &first).unwrap();
    assert_eq!(numbers(&second), [(7, vec![1, 2, 3])]);
    assert!(end(&mut queue, &second).is_none());
    assert!(end(&mut queue, &other).is_none());
    assert!(queue.decisions.is_empty() && queue.calls == 0 && queue.waiting == 0);
}

#[test]
fn decisions_share_a_call_only_while_many_calls_are_in_flight() {
    let mut queue = TestQueue::default();
    let calls: Vec<_> = (0..CALLS_MAX).map(|number| sent(arrive(&mut queue, number as u64, number))).collect();
    for number in CALLS_MAX..CALLS_MAX + DECISIONS_PER_CALL + 3 {
        assert!(matches!(arrive(&mut queue, number as u64, number), JoinOutcome::Wait));
    }
    let together = end(&mut queue, &calls[0]).unwrap();
    assert_eq!(together.len(), DECISIONS_PER_CALL);
    assert_eq!(together[0].plan, CALLS_MAX as u64, "the order is first in, first out");
    assert_eq!(end(&mut queue, &calls[1]).unwrap().len(), 3);
    assert!(end(&mut queue, &calls[2]).is_none());
}

#[test]
fn abandoned_waiters_are_dropped_with_their_decision() {
    let mut queue = TestQueue::default();
    let first = sent(arrive(&mut queue, 7, 0));
    for number in 1..=2 {
        arrive(&mut queue, 7, number);
    }
    for waiter in &mut queue.decisions.get_mut(&digest(7)).unwrap().waiters {
        waiter.is_there = false;
    }
    assert!(end(&mut queue, &first).is_none());
    assert!(queue.decisions.is_empty() && queue.calls == 0 && queue.waiting == 0);
}

#[test]
fn waiters_are_taken_from_the_front() {
    let mut queue = TestQueue::default();
    let first = sent(arrive(&mut queue, 7, 0));
    for number in 1..=3 {
        arrive(&mut queue, 7, number);
    }
    let served: Vec<usize> = queue.take_next(digest(7), 2).iter().map(|waiter| waiter.number).collect();
    assert_eq!(served, [1, 2]);
    assert!(queue.take_next(digest(8), 2).is_empty());
    assert_eq!(numbers(&end(&mut queue, &first).unwrap()), [(7, vec![3])]);
}

#[test]
fn the_number_of_waiters_is_bounded_per_flow_and_in_total() {
    let mut queue = TestQueue::default();
    let first = sent(arrive(&mut queue, 7, 0));
    let mut others = Vec::new();
    for flow in 8..15 {
        others.push(sent(arrive(&mut queue, flow, 0)));
    }
    for flow in 7..15 {
        for number in 1..=WAITING_OF_FLOW_MAX {
            assert!(matches!(arrive(&mut queue, flow, number), JoinOutcome::Wait));
        }
        assert!(
            matches!(arrive(&mut queue, flow, 0), JoinOutcome::Full),
            "{flow} has a bounded share of the queue"
        );
    }
    assert!(matches!(arrive(&mut queue, 15, 0), JoinOutcome::Full), "the queue is full");
    let second = end(&mut queue, &first).unwrap();
    assert_eq!(second[0].waiters.len(), (TIMES_MAX as usize).min(WAITING_OF_FLOW_MAX));
    assert!(matches!(arrive(&mut queue, 7, 0), JoinOutcome::Wait));
    assert!(matches!(arrive(&mut queue, 15, 0), JoinOutcome::Wait));
}

#[test]
fn a_flow_with_many_decisions_has_one_turn_per_round() {
    let mut queue = Queue::<u64, TestWaiter>::default();
    let mut join = |decision: u64, flow: u64| {
        let waiter = TestWaiter { number: 0, is_there: true };
        queue.join(digest(decision), || digest(flow), waiter, || decision)
    };
    let mut calls: Vec<_> = (0..CALLS_MAX as u64).map(|number| sent(join(number, 0))).collect();
    for decision in 100..1_100 {
        assert!(matches!(join(decision, 0), JoinOutcome::Wait));
    }
    for quiet in 1..=50 {
        assert!(matches!(join(2_000 + quiet, quiet), JoinOutcome::Wait));
    }
    let next = end(&mut queue, &calls.remove(0)).unwrap();
    let quiet = next.iter().filter(|decision| decision.plan > 2_000).count();
    assert_eq!(quiet, 50, "all flows with one decision are in the next call");
    assert_eq!(next.len(), (1_050 / CALLS_MAX).min(DECISIONS_PER_CALL_MAX), "the batch grows with the backlog");
}

/// An event.
#[derive(Clone, Debug)]
enum Step {
    /// A request for this decision arrives.
    Arrive(u64),
    /// A waiter leaves.
    Leave(usize),
    /// A call ends. Some of its waiters are gone, and their results are passed on.
    End { call: usize, gone: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..20_u64).prop_map(Step::Arrive),
        1 => any::<usize>().prop_map(Step::Leave),
        3 => (any::<usize>(), 0..3_usize).prop_map(|(call, gone)| Step::End { call, gone }),
    ]
}

/// The queue, the calls in flight, and the history of all waiters.
#[derive(Default)]
struct QueueModel {
    queue: TestQueue,
    calls: Vec<Batch<u64, TestWaiter>>,
    /// How often each waiter was served, or left.
    ended: Vec<u32>,
    /// The number of the last waiter in a call, for each decision: no waiter overtakes another.
    sent_last: HashMap<u64, usize>,
}

impl QueueModel {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Arrive(decision) => {
                let number = self.ended.len();
                self.ended.push(0);
                if let JoinOutcome::Send(call) = arrive(&mut self.queue, decision, number) {
                    self.send(call);
                }
            }
            Step::Leave(pick) => {
                let mut decisions: Vec<_> = self.queue.decisions.iter_mut().collect();
                decisions.sort_by_key(|(digest, _)| digest.0);
                let mut waiters: Vec<_> =
                    decisions.into_iter().flat_map(|(_, decision)| &mut decision.waiters).collect();
                if let Some(count) = waiters.len().checked_sub(1) {
                    let waiter = &mut waiters[pick % (count + 1)];
                    if std::mem::replace(&mut waiter.is_there, false) {
                        self.ended[waiter.number] += 1;
                    }
                }
            }
            Step::End { call, gone } if !self.calls.is_empty() => {
                let call = self.calls.swap_remove(call % self.calls.len());
                self.end_call(call, gone);
            }
            Step::End { .. } => {}
        }
        self.check();
    }

    fn send(&mut self, call: Batch<u64, TestWaiter>) {
        for decision in &call {
            assert!(!decision.waiters.is_empty());
            for waiter in &decision.waiters {
                assert!(
                    waiter.is_there && self.sent_last.insert(decision.plan, waiter.number) < Some(waiter.number)
                );
            }
        }
        self.calls.push(call);
    }

    fn end_call(&mut self, call: Batch<u64, TestWaiter>, gone: usize) {
        for decision in &call {
            decision.waiters.iter().for_each(|waiter| self.ended[waiter.number] += 1);
            for waiter in self.queue.take_next(decision.digest, gone.min(decision.waiters.len())) {
                self.sent_last.insert(decision.plan, waiter.number);
                self.ended[waiter.number] += u32::from(waiter.is_there);
            }
        }
        if let Some(next) = end(&mut self.queue, &call) {
            self.send(next);
        }
    }

    fn check(&self) {
        let Self { queue, calls, ended, .. } = self;
        assert!(ended.iter().all(|times| *times <= 1), "a waiter was served twice");
        assert_eq!(queue.calls, calls.len());
        assert!(calls.len() <= CALLS_MAX);
        let mut calls_in_flight: Vec<u64> = calls.iter().flatten().map(|decision| decision.plan).collect();
        let count = calls_in_flight.len();
        calls_in_flight.sort_unstable();
        calls_in_flight.dedup();
        assert_eq!(calls_in_flight.len(), count, "two calls contain the same decision");
        let waiting: usize = queue.decisions.values().map(|decision| decision.waiters.len()).sum();
        assert_eq!(queue.waiting, waiting);
        assert!(queue.next.is_empty() || calls.len() == CALLS_MAX, "a decision waits without need");
        let waits_for_nothing = |(digest, decision): (&Digest, &PendingDecision<u64, TestWaiter>)| {
            !calls_in_flight.contains(&decision.plan) && !queue.next.contains(digest)
        };
        assert!(!queue.decisions.iter().any(waits_for_nothing), "a decision is never sent");
    }
}

proptest! {
    #[test]
    fn every_waiter_is_served_exactly_once(steps in prop::collection::vec(step(), 1..400)) {
        let mut model = QueueModel::default();
        steps.iter().for_each(|step| model.step(step));
        while !model.calls.is_empty() {
            model.step(&Step::End { call: 0, gone: 0 });
        }
        prop_assert!(model.ended.iter().all(|times| *times == 1));
        prop_assert!(model.queue.decisions.is_empty() && model.queue.next.is_forgotten());
    }
}
