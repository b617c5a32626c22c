//! How many requests were allowed and denied since the start, for the last line of the log.
//!
//! Counts are independent of each other and only ever grow, so no order between them is promised.

use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::store::StoreError;
use sluicegate::{Decision, Observer};

/// The counts, told by the limiter.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    allowed: AtomicU64,
    denied: AtomicU64,
    store_failures: AtomicU64,
}

/// What was counted at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) store_failures: u64,
}

impl Tally {
    /// The counts so far.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            allowed: self.allowed.load(Ordering::Relaxed),
            denied: self.denied.load(Ordering::Relaxed),
            store_failures: self.store_failures.load(Ordering::Relaxed),
        }
    }
}

impl Observer for Tally {
    fn decided(&self, decision: &Decision) {
        let count = if decision.is_allowed() { &self.allowed } else { &self.denied };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn store_failed(&self, _error: &StoreError) {
        self.store_failures.fetch_add(1, Ordering::Relaxed);
    }
}
