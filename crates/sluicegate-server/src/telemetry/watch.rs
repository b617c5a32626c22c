//! Whoever wants to know what was decided, together: the log, the metrics, and the list of the busiest identities.

use opentelemetry_sdk::trace::SdkTracer;
use sluicegate::core::{Micros, Quota, Timestamp};
use sluicegate::hot::HotIdentities;
use sluicegate::identify::Unauthorized;
use sluicegate::observe::{Decided, Finished, LimitOutcome, Operation, Undecided};
use sluicegate::rules::RuleSet;
use sluicegate::store::StoreError;
use sluicegate::trace::Spans;
use sluicegate::{Identity, Observer};

use super::callers::Callers;
use super::decision_log::DecisionLog;
use super::tally::{Tally, Totals};
use crate::metrics::Metrics;

/// All that is told of decisions.
#[derive(Debug)]
pub(crate) struct Watch {
    tally: Tally,
    metrics: Metrics,
    hot: HotIdentities,
    callers: Callers,
    decision_log: Option<DecisionLog>,
    spans: Option<Spans<SdkTracer>>,
}

impl Watch {
    /// Watches from `now` on what is decided by these rules, and by limits that requests bring themselves, if there are
    /// any, under this name.
    pub(crate) fn new(rules: &RuleSet, brought: Option<&str>, now: Timestamp) -> Self {
        let (metrics, hot) = (Metrics::new(rules, brought), HotIdentities::new(now));
        Self {
            tally: Tally::default(),
            metrics,
            hot,
            callers: Callers::default(),
            decision_log: None,
            spans: None,
        }
    }

    /// The same, which also writes decisions down.
    #[must_use]
    pub(crate) fn with_decision_log(self, decision_log: Option<DecisionLog>) -> Self {
        Self { decision_log, ..self }
    }

    /// The same, which also makes spans.
    #[must_use]
    pub(crate) fn with_spans(self, spans: Option<Spans<SdkTracer>>) -> Self {
        Self { spans, ..self }
    }

    /// What writes decisions down, if something does.
    pub(crate) fn decision_log(&self) -> Option<&DecisionLog> {
        self.decision_log.as_ref()
    }

    /// What came of all requests so far.
    pub(crate) fn totals(&self) -> Totals {
        self.tally.totals(self.metrics.answers())
    }

    /// The counts for Prometheus.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The busiest identities.
    pub(crate) fn hot(&self) -> &HotIdentities {
        &self.hot
    }

    /// Who could not be known.
    pub(crate) fn callers(&self) -> &Callers {
        &self.callers
    }

    /// A request whose sender is not known was refused.
    pub(crate) fn unauthorized(&self, error: &Unauthorized) {
        self.callers.unauthorized(error);
    }

    /// A request with a limit of its own, under this name, was decided.
    pub(crate) fn decided_brought(&self, name: &str, key: &str, quota: &Quota, is_denied: bool, now: Timestamp) {
        let outcome = if is_denied { LimitOutcome::Denied } else { LimitOutcome::Allowed };
        self.metrics.brought(quota, outcome);
        if let Some(log) = &self.decision_log {
            log.brought(name, key, quota, outcome, now);
        }
        self.hot.record(name, Identity::Named(key), is_denied, now);
    }

    /// A request with a limit of its own, under this name, could not be decided.
    pub(crate) fn undecided_brought(
        &self,
        name: &str,
        key: &str,
        quota: &Quota,
        error: &StoreError,
        now: Timestamp,
    ) {
        self.tally.count_undecided(name, quota, error, now);
        self.metrics.brought(quota, LimitOutcome::FailedClosed);
        if let Some(log) = &self.decision_log {
            log.brought(name, key, quota, LimitOutcome::FailedClosed, now);
        }
    }
}

impl Observer for Watch {
    fn wants_durations(&self) -> bool {
        true
    }

    fn decided(&self, decided: &Decided<'_>) {
        self.tally.decided(decided);
        self.metrics.decided(decided);
        if let Some(log) = &self.decision_log {
            log.decided(decided);
        }
        let Decided { request, decision, asked_at, .. } = decided;
        self.hot.record(request.tenant, request.identity, !decision.is_allowed(), *asked_at);
    }

    fn undecided(&self, undecided: &Undecided<'_>) {
        self.tally.undecided(undecided);
        self.metrics.undecided(undecided);
        if let Some(log) = &self.decision_log {
            log.undecided(undecided);
        }
        // It was refused because of the store, and not because of anything that it did.
        let Undecided { request, now, .. } = undecided;
        self.hot.record(request.tenant, request.identity, false, *now);
    }

    fn store_failed(&self, error: &StoreError) {
        self.tally.store_failed(error);
        self.metrics.store_failed(error);
    }

    fn store_took(&self, operation: Operation, took: Micros) {
        self.metrics.store_took(operation, took);
    }

    fn finished(&self, finished: &Finished<'_>) {
        if let Some(spans) = &self.spans {
            spans.finished(finished);
        }
    }

    fn unknown_tier(&self, tier: &str) {
        self.callers.unknown_tier(tier);
    }

    fn rules_replaced(&self, rules: &RuleSet) {
        self.metrics.rules_replaced(rules);
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
        let now = Timestamp::now(1_705_312_800_000_000);
        let watch = Arc::new(Watch::new(&rules, Some("brought"), now));
        let limiter = Limiter::new(rules, store.clone(), ManualClock::at(now)).observed(Arc::clone(&watch));
        assert!(limiter.check(&Request::new("closed", "a")).await.is_ok());
        store.set(Some(Trouble::Fails(ErrorClass::Busy)));
        for resource in ["local", "local", "closed", "nothing"] {
            // What comes of it is what is counted.
            let _ = limiter.check(&Request::new(resource, "a")).await;
        }
        let _ = limiter.refund(&Request::new("closed", "a")).await;
        let expected = Totals { allowed: 3, denied: 1, undecided: 1, degraded: 2, store_failures: 4 };
        assert_eq!(watch.totals(), expected);

        let error = StoreError::new(ErrorClass::Busy, "busy");
        let quota = hourly("any", 1).limits.quotas()[0].clone();
        watch.decided_brought("brought", "a", &quota, false, now);
        watch.decided_brought("brought", "a", &quota, true, now);
        watch.undecided_brought("brought", "a", &quota, &error, now);
        let expected = Totals { allowed: 4, denied: 2, undecided: 2, ..expected };
        assert_eq!(watch.totals(), expected);
    }
}
