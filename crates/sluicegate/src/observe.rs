//! The [`Observer`] trait: hooks for metrics, logs and traces, without depending on their libraries.

use crate::decision::{Decision, LimitEvent, LimitOutcome, of_rule};
use crate::error::CheckError;
use crate::identity::Request;
use crate::rules::RuleSet;
use crate::rules::matching::Applied;
use crate::store::StoreError;
use sluicegate_core::{Micros, Timestamp};
use std::sync::Arc;

/// Receives the events of all requests. Each method runs on the path of the request, so it must be fast and must not
/// block.
pub trait Observer: Send + Sync {
    /// True if the observer needs durations. If not, the limiter reads the clock less often, and all durations are
    /// zero.
    fn wants_durations(&self) -> bool {
        false
    }

    /// A request was decided, with the store or [without](Decision::degradation). Not called for peeks, refunds,
    /// reports and resets.
    fn decided(&self, decided: &DecisionEvent<'_>) {
        let _ = decided;
    }

    /// A request was rejected without a decision, because the store failed and a rule fails closed. Not called for
    /// peeks, refunds, reports and resets.
    fn undecided(&self, undecided: &FailClosedEvent<'_>) {
        let _ = undecided;
    }

    /// The store failed in any operation. The outcome of the request follows in another event.
    fn store_failed(&self, error: &StoreError) {
        let _ = error;
    }

    /// A store call succeeded or failed after this time. Called only if [durations are
    /// wanted](Observer::wants_durations).
    fn store_took(&self, operation: Operation, took: Micros) {
        let _ = (operation, took);
    }

    /// The limiter has completed a call of any operation, successfully or not; an invalid request causes no call.
    /// This is the last event of a call. Durations are zero unless [wanted](Observer::wants_durations).
    fn finished(&self, finished: &CompletionEvent<'_>) {
        let _ = finished;
    }

    /// A credential names a tier that the rules do not define, so the tier is ignored.
    fn unknown_tier(&self, tier: &str) {
        let _ = tier;
    }

    /// The given rules are about to come into force. A slot that the current rules do not use may have belonged to
    /// another rule before.
    fn rules_replaced(&self, rules: &RuleSet) {
        let _ = rules;
    }
}

/// An operation of the store, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Charge all limits, or none.
    Charge,
    /// Return the verdicts without charging.
    Peek,
    /// Refund the costs.
    Refund,
    /// Charge usage in full.
    Report,
    /// Delete the states.
    Reset,
}

impl Operation {
    /// All operations, in the order of the metrics.
    pub const ALL: [Self; 5] = [Self::Charge, Self::Peek, Self::Refund, Self::Report, Self::Reset];

    /// The stable name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Report => "report",
            Self::Reset => "reset",
        }
    }
}

/// A request was decided.
#[derive(Clone, Copy, Debug)]
pub struct DecisionEvent<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The decision.
    pub decision: &'a Decision,
    /// The instant at which the store was called, by the limiter's steady clock. The [instant of the
    /// decision](Decision::now) is a time of day by the store's clock.
    pub asked_at: Timestamp,
    /// The duration of the whole call.
    pub took: Micros,
}

/// A call was completed.
#[derive(Clone, Copy, Debug)]
pub struct CompletionEvent<'a> {
    /// The requests of the call; a batch has several under one decision.
    pub requests: &'a [Request<'a>],
    /// The operation.
    pub operation: Operation,
    /// The time of day at the start of the call.
    pub began: Timestamp,
    /// The time of day at which the store was called.
    pub asked_at: Timestamp,
    /// Whether the store was called: requests without limits need no store.
    pub asked_store: bool,
    /// The duration of the whole call. Waiting for the store is its last step of any length.
    pub took: Micros,
    /// The result.
    pub answer: Result<&'a Decision, &'a CheckError>,
}

impl CompletionEvent<'_> {
    /// The error of the store, if it failed.
    #[must_use]
    pub fn store_error(&self) -> Option<&StoreError> {
        match self.answer {
            Ok(decision) => decision.degradation().map(|degradation| &degradation.error),
            Err(CheckError::Store(error)) => Some(error),
            Err(_) => None,
        }
    }
}

/// A request was rejected because a rule fails closed.
#[derive(Clone, Copy, Debug)]
pub struct FailClosedEvent<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The error of the store.
    pub error: &'a StoreError,
    /// The instant of the request, by the limiter's steady clock.
    pub now: Timestamp,
    /// The duration of the whole call.
    pub took: Micros,
    pub(crate) rules: &'a RuleSet,
    pub(crate) closed: &'a [Applied],
}

impl<'a> FailClosedEvent<'a> {
    /// The limits of the rules that fail closed.
    pub fn outcomes(&self) -> impl Iterator<Item = LimitEvent<'a>> + use<'a> {
        let rules = self.rules;
        self.closed.iter().flat_map(move |applied| of_rule(rules, *applied, LimitOutcome::FailedClosed))
    }
}

/// The observer that ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn wants_durations(&self) -> bool {
        (**self).wants_durations()
    }

    fn decided(&self, decided: &DecisionEvent<'_>) {
        (**self).decided(decided);
    }

    fn undecided(&self, undecided: &FailClosedEvent<'_>) {
        (**self).undecided(undecided);
    }

    fn store_failed(&self, error: &StoreError) {
        (**self).store_failed(error);
    }

    fn store_took(&self, operation: Operation, took: Micros) {
        (**self).store_took(operation, took);
    }

    fn finished(&self, finished: &CompletionEvent<'_>) {
        (**self).finished(finished);
    }

    fn unknown_tier(&self, tier: &str) {
        (**self).unknown_tier(tier);
    }

    fn rules_replaced(&self, rules: &RuleSet) {
        (**self).rules_replaced(rules);
    }
}
