//! Who wants to know what was decided: the hook for metrics, logs and dashboards, with none of their
//! libraries.

mod headline;

pub use headline::Headline;

use crate::decision::Decision;
use crate::identity::Request;
use crate::limiter::CheckError;
use crate::rules::matching::Applied;
use crate::rules::{Mode, RuleSet};
use crate::store::StoreError;
use sluicegate_core::{Micros, Outcome, Quota, Timestamp, Verdict};
use std::sync::Arc;

/// Is told of everything that happens to a request. Called on the request's own path, so it must be quick
/// and must not block.
pub trait Observer: Send + Sync {
    /// Whether the time that things take is wanted. If not, the clock is not read for it, and every length is zero.
    fn wants_durations(&self) -> bool {
        false
    }

    /// A request was decided, with the store or [without](Decision::degradation). Not called for peeks, refunds
    /// and resets.
    fn decided(&self, decided: &Decided<'_>) {
        let _ = decided;
    }

    /// A request was refused because the store could not decide and a rule is closed then. Not called for peeks,
    /// refunds and resets.
    fn undecided(&self, undecided: &Undecided<'_>) {
        let _ = undecided;
    }

    /// The store could not answer, whatever it was asked. What comes of the request is told afterwards.
    fn store_failed(&self, error: &StoreError) {
        let _ = error;
    }

    /// The store was asked for something and took so long to answer, or to fail. Told only if
    /// [wanted](Observer::wants_durations).
    fn store_took(&self, operation: Operation, took: Micros) {
        let _ = (operation, took);
    }

    /// The limiter is done with something that it was asked, whatever that was and however it ended; a request that is
    /// malformed is not even begun. Told last, and with times only if those are [wanted](Observer::wants_durations).
    fn finished(&self, finished: &Finished<'_>) {
        let _ = finished;
    }

    /// A credential named a tier that the rules do not know, so it counted for nothing.
    fn unknown_tier(&self, tier: &str) {
        let _ = tier;
    }

    /// These rules are about to take the place of those in force. A slot that none of the latter has may have been
    /// another rule's before them.
    fn rules_replaced(&self, rules: &RuleSet) {
        let _ = rules;
    }
}

/// What a store is asked to do, in the words of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Charge all limits, or none.
    Charge,
    /// Say how they stand.
    Peek,
    /// Give back.
    Refund,
    /// Forget.
    Reset,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Charge, Self::Peek, Self::Refund, Self::Reset];

    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Reset => "reset",
        }
    }
}

/// A request that was decided.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// Who asked for what.
    pub request: &'a Request<'a>,
    /// The answer.
    pub decision: &'a Decision,
    /// When the store was asked, by the limiter's own clock. The [decision's](Decision::now) is the store's.
    pub asked_at: Timestamp,
    /// How long it all took.
    pub took: Micros,
}

/// Something that the limiter was asked, from its beginning to its end.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// What was asked; several requests are one decision.
    pub requests: &'a [Request<'a>],
    /// What for.
    pub operation: Operation,
    /// When it began.
    pub began: Timestamp,
    /// When the store was asked.
    pub asked_at: Timestamp,
    /// Whether the store was asked: what nothing limits needs none.
    pub asked_store: bool,
    /// How long it all took; the store is the last that is waited for.
    pub took: Micros,
    /// What came of it.
    pub answer: Result<&'a Decision, &'a CheckError>,
}

impl Finished<'_> {
    /// Why the store could not answer, if it could not.
    #[must_use]
    pub fn store_error(&self) -> Option<&StoreError> {
        match self.answer {
            Ok(decision) => decision.degradation().map(|degradation| &degradation.error),
            Err(CheckError::Store(error)) => Some(error),
            Err(_) => None,
        }
    }
}

/// What came of one limit, in the words of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitOutcome {
    /// It had room.
    Allowed,
    /// It had none.
    Denied,
    /// It would have had none, but its rule only watches.
    ShadowDenied,
    /// The store could not decide, and its rule is open then.
    FailedOpen,
    /// The store could not decide, and its rule is closed then.
    FailedClosed,
    /// The store could not decide, and this instance's share of it had room.
    FallbackAllowed,
    /// The store could not decide, and this instance's share of it had no room.
    FallbackDenied,
}

impl LimitOutcome {
    /// All outcomes.
    pub const ALL: [Self; 7] = [
        Self::Allowed,
        Self::Denied,
        Self::ShadowDenied,
        Self::FailedOpen,
        Self::FailedClosed,
        Self::FallbackAllowed,
        Self::FallbackDenied,
    ];

    /// The name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::FailedOpen => "failed_open",
            Self::FailedClosed => "failed_closed",
            Self::FallbackAllowed => "fallback_allowed",
            Self::FallbackDenied => "fallback_denied",
        }
    }

    /// What a limit of a rule in `mode` that said `outcome` counts as.
    pub(crate) fn said(mode: Mode, outcome: Outcome, is_degraded: bool) -> Self {
        match (outcome.is_allowed(), mode, is_degraded) {
            (true, _, false) => Self::Allowed,
            (true, _, true) => Self::FallbackAllowed,
            (false, Mode::Shadow | Mode::Off, _) => Self::ShadowDenied,
            (false, Mode::Enforce, false) => Self::Denied,
            (false, Mode::Enforce, true) => Self::FallbackDenied,
        }
    }
}

/// One limit and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observed<'a> {
    /// The rule it belongs to.
    pub rule: &'a str,
    /// The rule's [slot](RuleSet::slots); none if the request brought the limit itself.
    pub slot: Option<u32>,
    /// The limit, as the rule has it.
    pub quota: &'a Quota,
    /// What came of it.
    pub outcome: LimitOutcome,
    /// What it said, if it was asked.
    pub verdict: Option<Verdict>,
}

/// A request that was refused undecided.
#[derive(Clone, Copy, Debug)]
pub struct Undecided<'a> {
    /// Who asked for what.
    pub request: &'a Request<'a>,
    /// Why the store could not decide.
    pub error: &'a StoreError,
    /// The instant of the request.
    pub now: Timestamp,
    /// How long it all took.
    pub took: Micros,
    pub(crate) rules: &'a RuleSet,
    pub(crate) closed: &'a [Applied],
}

impl<'a> Undecided<'a> {
    /// The limits of the rules that refused.
    pub fn outcomes(&self) -> impl Iterator<Item = Observed<'a>> + use<'a> {
        let rules = self.rules;
        self.closed.iter().flat_map(move |applied| of_rule(rules, *applied, LimitOutcome::FailedClosed))
    }
}

/// All limits that `applied` stands for, with one outcome.
pub(crate) fn of_rule(
    rules: &RuleSet,
    applied: Applied,
    outcome: LimitOutcome,
) -> impl Iterator<Item = Observed<'_>> {
    let rule = &rules.rules()[applied.rule];
    let (name, slot) = (rule.space.name(), Some(rules.slots()[applied.rule]));
    let quotas = rule.limits_of(applied.source).quotas();
    quotas.iter().map(move |quota| Observed { rule: name, slot, quota, outcome, verdict: None })
}

/// Nobody wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn wants_durations(&self) -> bool {
        (**self).wants_durations()
    }

    fn decided(&self, decided: &Decided<'_>) {
        (**self).decided(decided);
    }

    fn undecided(&self, undecided: &Undecided<'_>) {
        (**self).undecided(undecided);
    }

    fn store_failed(&self, error: &StoreError) {
        (**self).store_failed(error);
    }

    fn store_took(&self, operation: Operation, took: Micros) {
        (**self).store_took(operation, took);
    }

    fn finished(&self, finished: &Finished<'_>) {
        (**self).finished(finished);
    }

    fn unknown_tier(&self, tier: &str) {
        (**self).unknown_tier(tier);
    }

    fn rules_replaced(&self, rules: &RuleSet) {
        (**self).rules_replaced(rules);
    }
}
