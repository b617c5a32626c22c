//! The server's observer of decisions: it feeds the log, the metrics, the spans and the top-k list of identities.

use opentelemetry_sdk::trace::SdkTracer;
use sluicegate::core::{Micros, Quota, Timestamp};
use sluicegate::decision::LimitOutcome;
use sluicegate::identify::Unauthorized;
use sluicegate::observe::{CompletionEvent, DecisionEvent, FailClosedEvent, Operation};
use sluicegate::rules::RuleSet;
use sluicegate::store::StoreError;
use sluicegate::top_k::TopClients;
use sluicegate::trace::Spans;
use sluicegate::{Identity, Observer};

use super::decision_log::DecisionLog;
use super::identity_events::IdentityEvents;
use super::tally::{DegradationTally, RequestTotals};
use crate::metrics::Metrics;

/// All consumers of decisions.
#[derive(Debug)]
pub(crate) struct ServerObserver {
    tally: DegradationTally,
    metrics: Metrics,
    hot: TopClients,
    identity_events: IdentityEvents,
    decision_log: Option<DecisionLog>,
    spans: Option<Spans<SdkTracer>>,
}

impl ServerObserver {
    /// An observer of decisions under these rules from `now` on, and of inline limits under the name `inline`, if there are
    /// any.
    pub(crate) fn new(rules: &RuleSet, inline: Option<&str>, now: Timestamp) -> Self {
        let (metrics, hot) = (Metrics::new(rules, inline), TopClients::new(now));
        Self {
            tally: DegradationTally::default(),
            metrics,
            hot,
            identity_events: IdentityEvents::default(),
            decision_log: None,
            spans: None,
        }
    }

    /// Adds a decision log.
    #[must_use]
    pub(crate) fn with_decision_log(self, decision_log: Option<DecisionLog>) -> Self {
        Self { decision_log, ..self }
    }

    /// Adds spans.
    #[must_use]
    pub(crate) fn with_spans(self, spans: Option<Spans<SdkTracer>>) -> Self {
        Self { spans, ..self }
    }

    /// The decision log, if there is one.
    pub(crate) fn decision_log(&self) -> Option<&DecisionLog> {
        self.decision_log.as_ref()
    }

    /// The outcomes of all requests since the start.
    pub(crate) fn totals(&self) -> RequestTotals {
        self.tally.totals(self.metrics.decisions())
    }

    /// The metrics for Prometheus.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The identities with the most requests and the most denials.
    pub(crate) fn hot(&self) -> &TopClients {
        &self.hot
    }

    /// The counts of requests without a valid identity.
    pub(crate) fn identity_events(&self) -> &IdentityEvents {
        &self.identity_events
    }

    /// Counts a request that was rejected without a valid identity.
    pub(crate) fn unauthorized(&self, error: &Unauthorized) {
        self.identity_events.unauthorized(error);
    }

    /// Records a decision of an inline limit called `name`.
    pub(crate) fn inline_decided(&self, name: &str, key: &str, quota: &Quota, is_denied: bool, now: Timestamp) {
        let outcome = if is_denied { LimitOutcome::Denied } else { LimitOutcome::Allowed };
        self.record_inline(name, key, quota, outcome, now);
        self.hot.record(name, Identity::Named(key), is_denied, now);
    }

    /// Records a decision by this instance's share of an inline limit, because the store was overloaded.
    pub(crate) fn inline_decided_in_overload(
        &self,
        name: &str,
        key: &str,
        quota: &Quota,
        is_denied: bool,
        error: &StoreError,
        now: Timestamp,
    ) {
        let outcome = if is_denied { LimitOutcome::OverloadDenied } else { LimitOutcome::OverloadAllowed };
        self.tally.count_degraded(name, quota, outcome, error, now);
        self.record_inline(name, key, quota, outcome, now);
        self.hot.record(name, Identity::Named(key), is_denied, now);
    }

    fn record_inline(&self, name: &str, key: &str, quota: &Quota, outcome: LimitOutcome, now: Timestamp) {
        self.metrics.inline(quota, outcome);
        if let Some(log) = &self.decision_log {
            log.inline(name, key, quota, outcome, now);
        }
    }

    /// Records a request with an inline limit called `name` that the store could not decide.
    pub(crate) fn inline_undecided(
        &self,
        name: &str,
        key: &str,
        quota: &Quota,
        error: &StoreError,
        now: Timestamp,
    ) {
        self.tally.count_undecided(name, quota, error, now);
        self.metrics.inline(quota, LimitOutcome::FailedClosed);
        if let Some(log) = &self.decision_log {
            log.inline(name, key, quota, LimitOutcome::FailedClosed, now);
        }
    }
}

impl Observer for ServerObserver {
    fn wants_durations(&self) -> bool {
        true
    }

    fn decided(&self, decided: &DecisionEvent<'_>) {
        self.tally.decided(decided);
        self.metrics.decided(decided);
        if let Some(log) = &self.decision_log {
            log.decided(decided);
        }
        let DecisionEvent { request, decision, asked_at, .. } = decided;
        self.hot.record(request.tenant, request.identity, !decision.is_allowed(), *asked_at);
    }

    fn undecided(&self, undecided: &FailClosedEvent<'_>) {
        self.tally.undecided(undecided);
        self.metrics.undecided(undecided);
        if let Some(log) = &self.decision_log {
            log.undecided(undecided);
        }
        // The store caused the denial, so the identity is not counted as denied.
        let FailClosedEvent { request, now, .. } = undecided;
        self.hot.record(request.tenant, request.identity, false, *now);
    }

    fn store_failed(&self, error: &StoreError) {
        self.tally.store_failed(error);
        self.metrics.store_failed(error);
    }

    fn store_took(&self, operation: Operation, took: Micros) {
        self.metrics.store_took(operation, took);
    }

    fn finished(&self, finished: &CompletionEvent<'_>) {
        if let Some(spans) = &self.spans {
            spans.finished(finished);
        }
    }

    fn unknown_tier(&self, tier: &str) {
        self.identity_events.unknown_tier(tier);
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
    async fn every_request_is_counted_by_outcome() {
        let rule = |resource: &str, on_store_failure| {
            let mut rule = Rule { on_store_failure, ..hourly(resource, 1) };
            rule.selector.resource = Some(sluicegate::pattern::Pattern::new(resource));
            rule
        };
        let rules = vec![rule("local", OnStoreFailure::Local), rule("closed", OnStoreFailure::Closed)];
        let rules = RuleSet::new(rules, Vec::new(), Unmatched::Allow).expect("valid rules");
        let store = FaultyStore::new(MemoryStore::default());
        let now = Timestamp::now(1_705_312_800_000_000);
        let observer = Arc::new(ServerObserver::new(&rules, Some("inline"), now));
        let limiter = Limiter::new(rules, store.clone(), ManualClock::at(now)).observed(Arc::clone(&observer));
        assert!(limiter.check(&Request::new("closed", "a")).await.is_ok());
        store.set(Some(Trouble::Fails(ErrorClass::Busy)));
        for resource in ["local", "local", "closed", "nothing"] {
            // The observer counts the outcome, so the result is not needed here.
            let _ = limiter.check(&Request::new(resource, "a")).await;
        }
        let _ = limiter.refund(&Request::new("closed", "a")).await;
        let expected = RequestTotals { allowed: 3, denied: 1, undecided: 1, degraded: 2, store_failures: 4 };
        assert_eq!(observer.totals(), expected);

        let error = StoreError::new(ErrorClass::Busy, "busy");
        let quota = hourly("any", 1).limits.quotas()[0].clone();
        observer.inline_decided("inline", "a", &quota, false, now);
        observer.inline_decided("inline", "a", &quota, true, now);
        observer.inline_undecided("inline", "a", &quota, &error, now);
        let expected = RequestTotals { allowed: 4, denied: 2, undecided: 2, ..expected };
        assert_eq!(observer.totals(), expected);
    }
}
