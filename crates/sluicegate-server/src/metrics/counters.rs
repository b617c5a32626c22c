//! The counting path of the metrics, without labels and text. The benchmarks compile this file separately and measure its cost.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::{Micros, Quota};
use sluicegate::decision::{LimitEvent, LimitOutcome};
use sluicegate::observe::{DecisionEvent, FailClosedEvent, Operation};
use sluicegate::store::{ErrorClass, StoreError};

use super::thread_counters::{CounterTotals, RuleTotals, ThreadCounters};
use super::thread_slot;

/// The counters of all threads.
#[derive(Debug)]
pub(crate) struct DecisionCounters {
    /// The counters of each thread slot, allocated when a thread first counts in it.
    threads: [OnceLock<Box<ThreadCounters>>; thread_slot::SLOTS],
    /// Errors are rare, so all threads share these counters.
    store_errors: [AtomicU64; ErrorClass::ALL.len()],
}

impl Default for DecisionCounters {
    fn default() -> Self {
        Self {
            threads: std::array::from_fn(|_| OnceLock::new()),
            store_errors: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl DecisionCounters {
    /// Counts a decision.
    #[inline]
    pub(crate) fn decided(&self, decided: &DecisionEvent<'_>) {
        let counters = self.current();
        counters.took(decided.took);
        counters.decided(decided.decision.is_allowed());
        let mut request = counters.request();
        decided.decision.for_each_outcome(|observed| request.limit(&observed));
        request.end();
    }

    /// Counts a request that was denied because the store could not decide (fail closed).
    pub(super) fn undecided(&self, undecided: &FailClosedEvent<'_>) {
        let counters = self.current();
        counters.took(undecided.took);
        let mut request = counters.request();
        undecided.outcomes().for_each(|observed| request.limit(&observed));
        request.end();
    }

    /// Counts the outcome of an inline limit.
    pub(super) fn inline(&self, quota: &Quota, outcome: LimitOutcome) {
        let counters = self.current();
        match outcome {
            LimitOutcome::Allowed | LimitOutcome::OverloadAllowed => counters.decided(true),
            LimitOutcome::Denied | LimitOutcome::OverloadDenied => counters.decided(false),
            _ => {}
        }
        let observed = LimitEvent { rule: "", slot: None, quota, outcome, verdict: None };
        let mut request = counters.request();
        request.limit(&observed);
        request.end();
    }

    /// Counts a failure of the store.
    pub(super) fn store_failed(&self, error: &StoreError) {
        let classes = ErrorClass::ALL.iter().zip(&self.store_errors);
        if let Some((_, count)) = classes.into_iter().find(|(class, _)| **class == error.class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a call to the store.
    #[inline]
    pub(crate) fn store_took(&self, operation: Operation, took: Micros) {
        self.current().store_took(operation, took);
    }

    /// The failures of the store by error class.
    pub(super) fn store_errors(&self) -> impl Iterator<Item = (ErrorClass, u64)> {
        let counts = self.store_errors.iter().map(|count| count.load(Ordering::Relaxed));
        ErrorClass::ALL.into_iter().zip(counts)
    }

    /// The sums over all threads.
    pub(super) fn totals(&self) -> CounterTotals {
        let mut totals = CounterTotals::default();
        self.threads.iter().filter_map(OnceLock::get).for_each(|counters| totals.add(counters));
        totals
    }

    /// All counts of this rule slot since the start of the process.
    pub(super) fn in_slot(&self, slot: u32) -> RuleTotals {
        let mut totals = RuleTotals::default();
        self.threads.iter().filter_map(OnceLock::get).for_each(|counters| totals.add_slot(counters, slot));
        totals
    }

    /// The counters of this thread.
    #[inline]
    fn current(&self) -> &ThreadCounters {
        let slot = thread_slot::current();
        self.threads[slot].get_or_init(|| Box::new(ThreadCounters::new(thread_slot::is_shared(slot))))
    }
}
