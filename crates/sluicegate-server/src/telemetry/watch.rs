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
use super::tally::Tally;
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

    /// The counts for the last line of the log.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
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
        let outcome = if is_denied {
            self.tally.count_denied();
            LimitOutcome::Denied
        } else {
            self.tally.count_allowed();
            LimitOutcome::Allowed
        };
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
