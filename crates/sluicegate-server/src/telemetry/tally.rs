//! Counts of requests that were decided without the store, and their log lines.
//!
//! The counters are independent and only grow, so relaxed atomics suffice. All threads share them, because these events are
//! rare. The [metrics](crate::metrics) count the outcomes of all requests per thread.

use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::Observer;
use sluicegate::core::{Quota, Timestamp};
use sluicegate::decision::{LimitEvent, LimitOutcome};
use sluicegate::observe::{DecisionEvent, FailClosedEvent};
use sluicegate::store::StoreError;

use super::degradation::DegradationLog;

/// An observer that counts requests without the store, and failures of the store.
#[derive(Debug, Default)]
pub(crate) struct DegradationTally {
    undecided: AtomicU64,
    degraded: AtomicU64,
    store_failures: AtomicU64,
    log: DegradationLog,
}

/// The outcomes of all requests since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestTotals {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Denied because the store could not decide (fail closed).
    pub(crate) undecided: u64,
    /// Of the allowed and denied requests, those decided without the store.
    pub(crate) degraded: u64,
    /// Failed calls to the store, of all operations.
    pub(crate) store_failures: u64,
}

impl DegradationTally {
    /// The totals, with the decisions that the metrics count.
    pub(crate) fn totals(&self, (allowed, denied): (u64, u64)) -> RequestTotals {
        RequestTotals {
            allowed,
            denied,
            undecided: self.undecided.load(Ordering::Relaxed),
            degraded: self.degraded.load(Ordering::Relaxed),
            store_failures: self.store_failures.load(Ordering::Relaxed),
        }
    }

    /// Counts and logs a request with an inline limit called `name` that was decided without the store.
    pub(crate) fn count_degraded(
        &self,
        name: &str,
        quota: &Quota,
        outcome: LimitOutcome,
        error: &StoreError,
        now: Timestamp,
    ) {
        self.degraded.fetch_add(1, Ordering::Relaxed);
        let decided = LimitEvent { rule: name, slot: None, quota, outcome, verdict: None };
        self.log.write(now, error, iter::once(decided));
    }

    /// Counts and logs a request with an inline limit called `name` that the store could not decide.
    pub(crate) fn count_undecided(&self, name: &str, quota: &Quota, error: &StoreError, now: Timestamp) {
        self.undecided.fetch_add(1, Ordering::Relaxed);
        let outcome = LimitOutcome::FailedClosed;
        let denied = LimitEvent { rule: name, slot: None, quota, outcome, verdict: None };
        self.log.write(now, error, iter::once(denied));
    }
}

impl Observer for DegradationTally {
    fn decided(&self, decided: &DecisionEvent<'_>) {
        let decision = decided.decision;
        if let Some(degradation) = decision.degradation() {
            self.degraded.fetch_add(1, Ordering::Relaxed);
            self.log.write(decision.now(), &degradation.error, decision.outcomes());
        }
    }

    fn undecided(&self, undecided: &FailClosedEvent<'_>) {
        self.undecided.fetch_add(1, Ordering::Relaxed);
        self.log.write(undecided.now, undecided.error, undecided.outcomes());
    }

    fn store_failed(&self, error: &StoreError) {
        if !error.class.is_overload() {
            self.store_failures.fetch_add(1, Ordering::Relaxed);
        }
    }
}
