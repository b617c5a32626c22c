//! Loom models of the queue, for every interleaving of threads: requests that join while a call is in flight, ends,
//! and is followed by the next. The queue is behind a lock, as in production. A call is the time between two
//! acquisitions of that lock.

use super::{Batch, Digest, JoinOutcome, Queue};
use crate::sync::Mutex;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

/// The state of a waiter.
const WAITING: usize = 0;
const SERVED: usize = 1;
const ABANDONED: usize = 2;

type Sent = Batch<u64, usize>;

/// The queue of one route, and all its waiters.
struct Model {
    queue: Mutex<Queue<u64, usize>>,
    /// The state of each waiter.
    waiters: Vec<AtomicUsize>,
    /// The calls in flight that contain each decision.
    calls_in_flight: Vec<AtomicUsize>,
    /// The charges that were made, and those that no waiter needed.
    charged: AtomicUsize,
    unclaimed: AtomicUsize,
}

impl Model {
    fn new(waiters: usize, decisions: usize) -> Arc<Self> {
        let zeros = |count| (0..count).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self {
            queue: Mutex::default(),
            waiters: zeros(waiters),
            calls_in_flight: zeros(decisions),
            charged: AtomicUsize::new(0),
            unclaimed: AtomicUsize::new(0),
        })
    }

    /// A request arrives, and sends a call if it has to.
    fn arrive(&self, decision: u64, waiter: usize) {
        let joined =
            self.queue.lock().join(Digest(decision, decision), || Digest(decision, decision), waiter, || decision);
        match joined {
            JoinOutcome::Send(call) => self.run(call),
            JoinOutcome::Wait => {}
            JoinOutcome::Full => unreachable!("the queue is small"),
        }
    }

    fn run(&self, call: Sent) {
        let mut next = Some(call);
        while let Some(call) = next {
            for decision in &call {
                let others = self.calls_in_flight[decision.plan as usize].fetch_add(1, Ordering::AcqRel);
                assert_eq!(others, 0, "two calls contain the same decision");
            }
            for decision in &call {
                self.distribute(decision.digest, &decision.waiters);
                self.calls_in_flight[decision.plan as usize].fetch_sub(1, Ordering::AcqRel);
            }
            let is_there = |waiter: &usize| self.waiters[*waiter].load(Ordering::Acquire) != ABANDONED;
            next = self.queue.lock().end(call.iter().map(|decision| decision.digest), is_there);
        }
    }

    /// Every waiter has one charge. The charges of waiters that are gone are for the next waiters.
    fn distribute(&self, digest: Digest, waiters: &[usize]) {
        self.charged.fetch_add(waiters.len(), Ordering::AcqRel);
        let mut left = waiters.len() - waiters.iter().filter(|waiter| self.send(**waiter)).count();
        if left > 0 {
            let next_waiters = self.queue.lock().take_next(digest, left);
            left -= next_waiters.into_iter().filter(|waiter| self.send(*waiter)).count();
        }
        self.unclaimed.fetch_add(left, Ordering::AcqRel);
    }

    /// Returns false if the waiter is gone.
    fn send(&self, waiter: usize) -> bool {
        let before = self.waiters[waiter].compare_exchange(WAITING, SERVED, Ordering::AcqRel, Ordering::Acquire);
        assert_ne!(before, Err(SERVED), "a waiter was served twice");
        before.is_ok()
    }

    /// The waiter leaves, unless it has a result already.
    fn abandon(&self, waiter: usize) {
        let _ = self.waiters[waiter].compare_exchange(WAITING, ABANDONED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Every waiter has a result or is gone, every charge is accounted for, and the queue is empty.
    fn assert_over(&self) {
        let count = |what| self.waiters.iter().filter(|waiter| waiter.load(Ordering::Acquire) == what).count();
        assert_eq!(count(WAITING), 0, "a waiter is left");
        let unclaimed = self.unclaimed.load(Ordering::Acquire);
        assert_eq!(self.charged.load(Ordering::Acquire), count(SERVED) + unclaimed, "a charge was used twice");
        let queue = self.queue.lock();
        assert!(queue.decisions.is_empty() && queue.next.is_forgotten());
        assert_eq!((queue.calls, queue.waiting), (0, 0));
    }
}

fn in_thread(model: &Arc<Model>, act: impl FnOnce(&Model) + 'static) -> thread::JoinHandle<()> {
    let model = Arc::clone(model);
    thread::spawn(move || act(&model))
}

#[test]
fn loom_each_waiter_is_served_once_and_no_decision_is_in_two_calls() {
    loom::model(|| {
        let model = Model::new(3, 1);
        let others = [1, 2].map(|waiter| in_thread(&model, move |model| model.arrive(0, waiter)));
        model.arrive(0, 0);
        others.into_iter().for_each(|other| other.join().unwrap());
        model.assert_over();
    });
}

#[test]
fn loom_a_charge_of_a_waiter_that_left_is_used_at_most_once() {
    loom::model(|| {
        let model = Model::new(2, 1);
        let other = in_thread(&model, |model| model.arrive(0, 1));
        let leaver = in_thread(&model, |model| model.abandon(0));
        model.arrive(0, 0);
        other.join().unwrap();
        leaver.join().unwrap();
        model.assert_over();
    });
}

/// All calls but one are in flight throughout, so decisions have to share a call.
#[test]
fn loom_waiting_decisions_share_the_call_after_one_ends() {
    loom::model(|| {
        let model = Model::new(3, 3);
        model.queue.lock().calls = super::CALLS_MAX - 1;
        let others = [1, 2].map(|waiter| in_thread(&model, move |model| model.arrive(waiter as u64, waiter)));
        model.arrive(0, 0);
        others.into_iter().for_each(|other| other.join().unwrap());
        model.queue.lock().calls -= super::CALLS_MAX - 1;
        model.assert_over();
    });
}
