//! How many requests were allowed, denied and left undecided since the start, for the last line of the log, and the
//! lines about those that the store had no part in.
//!
//! Counts are independent of each other and only ever grow, so no order between them is promised.

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
    allowed: AtomicU64,
    denied: AtomicU64,
    undecided: AtomicU64,
    degraded: AtomicU64,
    store_failures: AtomicU64,
    log: DegradationLog,
}

/// What was counted at one moment.
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
    /// The counts so far.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            allowed: self.allowed.load(Ordering::Relaxed),
            denied: self.denied.load(Ordering::Relaxed),
            undecided: self.undecided.load(Ordering::Relaxed),
            degraded: self.degraded.load(Ordering::Relaxed),
            store_failures: self.store_failures.load(Ordering::Relaxed),
        }
    }

    /// Counts a request that was allowed, by a limit that it brought itself.
    pub(crate) fn count_allowed(&self) {
        self.allowed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was denied, by a limit that it brought itself.
    pub(crate) fn count_denied(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
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
        if decision.is_allowed() {
            self.count_allowed()
        } else {
            self.count_denied()
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluicegate::clock::ManualClock;
    use sluicegate::rules::{OnStoreFailure, Rule, RuleSet, Unmatched};
    use sluicegate::store::ErrorClass;
    use sluicegate::{Limiter, MemoryStore, Request};
    use sluicegate_testkit::faulty_store::{FaultyStore, Trouble};

    use super::*;
    use crate::testing::hourly;

    #[tokio::test]
    async fn every_request_is_counted_by_what_came_of_it() {
        let rule = |resource: &str, on_store_failure| {
            let mut rule = Rule { on_store_failure, ..hourly(resource, 1) };
            rule.selector.resource = Some(sluicegate::rules::pattern::Pattern::new(resource));
            rule
        };
        let rules = vec![rule("local", OnStoreFailure::Local), rule("closed", OnStoreFailure::Closed)];
        let rules = RuleSet::new(rules, Vec::new(), Unmatched::Allow).expect("valid rules");
        let store = FaultyStore::new(MemoryStore::default());
        let tally = Arc::new(Tally::default());
        let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
        let limiter = Limiter::new(rules, store.clone(), clock).observed(Arc::clone(&tally));
        assert!(limiter.check(&Request::new("closed", "a")).await.is_ok());
        store.set(Some(Trouble::Fails(ErrorClass::Busy)));
        for resource in ["local", "local", "closed", "nothing"] {
            // What comes of it is what is counted.
            let _ = limiter.check(&Request::new(resource, "a")).await;
        }
        let _ = limiter.refund(&Request::new("closed", "a")).await;
        let expected = Totals { allowed: 3, denied: 1, undecided: 1, degraded: 2, store_failures: 4 };
        assert_eq!(tally.totals(), expected);
    }
}
