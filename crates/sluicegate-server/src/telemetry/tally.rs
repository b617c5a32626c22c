//! How many requests the store had no part in since the start, and the lines about them.
//!
//! Counts are independent of each other and only ever grow, so no order between them is promised. All threads share them:
//! they are of what is rare. What comes of every request is counted by the [metrics](crate::metrics), thread by thread.

use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::Observer;
use sluicegate::core::{Quota, Timestamp};
use sluicegate::observe::{Decided, LimitOutcome, Observed, Undecided};
use sluicegate::store::StoreError;

use super::degradation::DegradationLog;

/// The counts, told by the limiter.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    undecided: AtomicU64,
    degraded: AtomicU64,
    store_failures: AtomicU64,
    log: DegradationLog,
}

/// What came of all requests up to one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Refused because the store could not decide.
    pub(crate) undecided: u64,
    /// Of those allowed and denied, how many without the store.
    pub(crate) degraded: u64,
    /// Calls to the store that failed, whatever they were for.
    pub(crate) store_failures: u64,
}

impl Tally {
    /// The counts so far, beside those of what was decided.
    pub(crate) fn totals(&self, (allowed, denied): (u64, u64)) -> Totals {
        Totals {
            allowed,
            denied,
            undecided: self.undecided.load(Ordering::Relaxed),
            degraded: self.degraded.load(Ordering::Relaxed),
            store_failures: self.store_failures.load(Ordering::Relaxed),
        }
    }

    /// Counts a request with a limit of its own that the store could not decide, and tells of it under `name`.
    pub(crate) fn count_undecided(&self, name: &str, quota: &Quota, error: &StoreError, now: Timestamp) {
        self.undecided.fetch_add(1, Ordering::Relaxed);
        let outcome = LimitOutcome::FailedClosed;
        let refused = Observed { rule: name, slot: None, quota, outcome, verdict: None };
        self.log.write(now, error, iter::once(refused));
    }
}

impl Observer for Tally {
    fn decided(&self, decided: &Decided<'_>) {
        let decision = decided.decision;
        if let Some(degradation) = decision.degradation() {
            self.degraded.fetch_add(1, Ordering::Relaxed);
            self.log.write(decision.now(), &degradation.error, decision.outcomes());
        }
    }

    fn undecided(&self, undecided: &Undecided<'_>) {
        self.undecided.fetch_add(1, Ordering::Relaxed);
        self.log.write(undecided.now, undecided.error, undecided.outcomes());
    }

    fn store_failed(&self, _error: &StoreError) {
        self.store_failures.fetch_add(1, Ordering::Relaxed);
    }
}
