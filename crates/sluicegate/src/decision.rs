//! The decision about one request: whether it is allowed, and the verdict of every limit that applies.

use crate::rules::matching::Applied;
use crate::rules::{Mode, RuleSet, Unmatched};
use crate::store::{StoreError, Verdicts};
use sluicegate_core::decision::{ChargeMode, tightest};
use sluicegate_core::{Micros, Outcome, Quota, Timestamp, Verdict};
use smallvec::SmallVec;
use std::sync::Arc;

/// The decision about one request. It holds a reference to its rules, so names and limits stay correct after the
/// rules change.
#[derive(Clone, Debug)]
pub struct Decision {
    rules: Arc<RuleSet>,
    applied: SmallVec<[Applied; 2]>,
    verdicts: Verdicts,
    now: Timestamp,
    allowed: bool,
    tightest: Option<usize>,
    /// Behind a pointer, because few decisions have one.
    degradation: Option<Arc<Degradation>>,
}

/// The facts of a decision that was made without the store.
#[derive(Debug)]
pub struct Degradation {
    /// The error of the store.
    pub error: StoreError,
    /// The rules that failed open. This instance's share decided all other rules.
    pub(crate) open: SmallVec<[Applied; 2]>,
}

/// The verdict of one limit.
#[derive(Clone, Copy, Debug)]
pub struct LimitReport<'d> {
    /// The name of its rule.
    pub rule: &'d str,
    /// The index of the rule in its set.
    pub rule_index: usize,
    /// The name of the limit in header fields.
    pub label: &'d str,
    /// The limit as the rule defines it.
    pub quota: &'d Quota,
    /// The verdict; in a degraded decision, that of this instance's share of the limit.
    pub verdict: Verdict,
    /// Whether the rule is enforced or in shadow mode.
    pub mode: Mode,
}

/// When the client may retry a denied request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// After this time, counted from the decision.
    After(Micros),
    /// Never: the request does not fit the limit even at its full quota.
    Never,
}

impl Decision {
    #[inline]
    pub(crate) fn new(
        rules: Arc<RuleSet>,
        applied: SmallVec<[Applied; 2]>,
        verdicts: Verdicts,
        now: Timestamp,
        matched: bool,
    ) -> Self {
        let tightest = match (&*applied, &*verdicts) {
            // The frequent case of one limit: it determines the decision if it is enforced.
            ([one], [_]) => (rules.rules()[one.rule].mode == Mode::Enforce).then_some(0),
            _ => tightest(modes(&rules, &applied).into_iter().zip(&verdicts)),
        };
        // A limit that denies is tighter than any limit that allows.
        let is_denied = tightest.is_some_and(|index| !verdicts[index].outcome.is_allowed());
        let allowed = !is_denied && (matched || rules.unmatched() == Unmatched::Allow);
        Self { rules, applied, verdicts, now, allowed, tightest, degradation: None }
    }

    /// Marks the decision as made without the store.
    pub(crate) fn degraded(self, degradation: Degradation) -> Self {
        Self { degradation: Some(Arc::new(degradation)), ..self }
    }

    /// The same standing of all limits, as an allowed decision. A refund cannot be denied, even if as many units again would
    /// not fit.
    #[must_use]
    pub fn into_allowed(mut self) -> Self {
        self.verdicts.iter_mut().for_each(|verdict| verdict.outcome = Outcome::Allowed);
        self.tightest = tightest(modes(&self.rules, &self.applied).into_iter().zip(&self.verdicts));
        self.allowed = true;
        self
    }

    /// The rules and limit sets that applied, one per charge.
    pub(crate) fn applied(&self) -> &[Applied] {
        &self.applied
    }

    /// True if the decision was made without the store, because the store failed and the rules applied their
    /// [policies](crate::rules::OnStoreFailure).
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degradation.is_some()
    }

    /// The source of the verdicts.
    pub(crate) fn source(&self) -> DecisionSource {
        match &self.degradation {
            None => DecisionSource::Store,
            Some(degradation) if degradation.error.class.is_overload() => DecisionSource::ShareInOverload,
            Some(_) => DecisionSource::Share,
        }
    }

    /// The error of the store, if the decision was made without it.
    #[must_use]
    pub fn degradation(&self) -> Option<&Degradation> {
        self.degradation.as_deref()
    }

    /// The outcome of every limit for metrics: first the limits with a verdict, in the order of the rules, then the
    /// limits of rules that failed open.
    pub fn outcomes(&self) -> impl Iterator<Item = LimitEvent<'_>> {
        let decided = self.limits().map(|report| LimitEvent {
            rule: report.rule,
            slot: Some(self.rules.slots()[report.rule_index]),
            quota: report.quota,
            outcome: LimitOutcome::of(report.mode, report.verdict.outcome, self.source()),
            verdict: Some(report.verdict),
        });
        let open = self.degradation.iter().flat_map(|degradation| &degradation.open);
        decided.chain(open.flat_map(|applied| of_rule(&self.rules, *applied, LimitOutcome::FailedOpen)))
    }

    /// Calls `report` with each item of [`Decision::outcomes`], in the same order. Observers that count every
    /// decision use this: plain loops are faster than the chain of iterators.
    #[inline]
    pub fn for_each_outcome<'d>(&'d self, mut report: impl FnMut(LimitEvent<'d>)) {
        let (source, mut verdicts) = (self.source(), self.verdicts.iter());
        for applied in &self.applied {
            let rule = &self.rules.rules()[applied.rule];
            let quotas = rule.limits_of(applied.source).quotas();
            for (quota, verdict) in quotas.iter().zip(verdicts.by_ref()) {
                report(LimitEvent {
                    rule: rule.space.name(),
                    slot: Some(self.rules.slots()[applied.rule]),
                    quota,
                    outcome: LimitOutcome::of(rule.mode, verdict.outcome, source),
                    verdict: Some(*verdict),
                });
            }
        }
        if let Some(degradation) = &self.degradation {
            let open = degradation.open.iter();
            open.flat_map(|applied| of_rule(&self.rules, *applied, LimitOutcome::FailedOpen)).for_each(report);
        }
    }

    /// True if the request is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// The time of day of the decision.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The verdicts of all limits, in the order of the rules.
    pub fn limits(&self) -> impl Iterator<Item = LimitReport<'_>> {
        let mut verdicts = self.verdicts.iter();
        self.applied
            .iter()
            .flat_map(|applied| {
                let rule = &self.rules.rules()[applied.rule];
                let limits = rule.limits_of(applied.source);
                let labelled = limits.quotas().iter().zip(limits.labels());
                labelled.map(move |(quota, label)| (applied.rule, rule, quota, label))
            })
            // There is one verdict per limit, in the same order.
            .map_while(move |(rule_index, rule, quota, label)| {
                let verdict = *verdicts.next()?;
                let (name, mode) = (rule.space.name(), rule.mode);
                Some(LimitReport { rule: name, rule_index, label, quota, verdict, mode })
            })
    }

    /// The limit that determines the decision: if the request is denied, the denying limit with the longest wait,
    /// otherwise the limit with the smallest remaining quota. `None` if no enforced limit applies.
    #[must_use]
    pub fn tightest(&self) -> Option<LimitReport<'_>> {
        self.limits().nth(self.tightest?)
    }

    /// The largest cost that all enforced limits admit now: the minimum of their remaining quotas. If the request is
    /// allowed, that is the remaining quota of the tightest limit. If it is denied, a limit with a shorter wait may
    /// have less left than the tightest. `None` if no enforced limit applies.
    #[must_use]
    pub fn remaining(&self) -> Option<u64> {
        let tightest = self.verdicts.get(self.tightest?)?;
        if self.allowed || self.verdicts.len() == 1 {
            return Some(tightest.remaining);
        }
        self.limits().filter(|report| report.mode == Mode::Enforce).map(|report| report.verdict.remaining).min()
    }

    /// When the client may retry; `None` if the request is allowed.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        if self.allowed {
            return None;
        }
        match self.tightest().map(|report| report.verdict.outcome) {
            Some(Outcome::Denied { retry_after }) => Some(Retry::After(retry_after)),
            _ => Some(Retry::Never),
        }
    }
}

/// The mode of each limit, in the order of the verdicts.
fn modes(rules: &RuleSet, applied: &[Applied]) -> SmallVec<[ChargeMode; 4]> {
    let mut modes = SmallVec::new();
    for applied in applied {
        let rule = &rules.rules()[applied.rule];
        let mode = match rule.mode {
            Mode::Enforce => ChargeMode::Enforced,
            // The number of the shadow rule matters only while charging.
            Mode::Shadow | Mode::Off => ChargeMode::Shadow(0),
        };
        let limits = rule.limits_of(applied.source).quotas().len();
        modes.resize(modes.len() + limits, mode);
    }
    modes
}

impl LimitReport<'_> {
    /// The instant at which the limit is full again, in milliseconds since the epoch, rounded up.
    #[must_use]
    pub fn reset_at_millis(&self, now: Timestamp) -> u64 {
        now.plus(self.verdict.reset_after).as_micros().div_ceil(1_000)
    }
}

/// The outcome of one limit, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LimitOutcome {
    /// The limit had room.
    Allowed,
    /// The limit had no room.
    Denied,
    /// The limit had no room, but its rule is in shadow mode.
    ShadowDenied,
    /// The store failed, and the rule fails open.
    FailedOpen,
    /// The store failed, and the rule fails closed.
    FailedClosed,
    /// The store failed, and this instance's share of the limit had room.
    FallbackAllowed,
    /// The store failed, and this instance's share of the limit had no room.
    FallbackDenied,
    /// The store was overloaded, and this instance's share of the limit had room.
    OverloadAllowed,
    /// The store was overloaded, and this instance's share of the limit had no room.
    OverloadDenied,
}

/// The source of the verdicts of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionSource {
    /// The store.
    Store,
    /// This instance's share, because the store failed.
    Share,
    /// This instance's share, because the store was overloaded.
    ShareInOverload,
}

impl LimitOutcome {
    /// All outcomes, in the order of the metrics.
    pub const ALL: [Self; 9] = [
        Self::Allowed,
        Self::Denied,
        Self::ShadowDenied,
        Self::FailedOpen,
        Self::FailedClosed,
        Self::FallbackAllowed,
        Self::FallbackDenied,
        Self::OverloadAllowed,
        Self::OverloadDenied,
    ];

    /// The stable name in metrics.
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
            Self::OverloadAllowed => "overload_allowed",
            Self::OverloadDenied => "overload_denied",
        }
    }

    /// The outcome of a limit of a rule in `mode`.
    pub(crate) fn of(mode: Mode, outcome: Outcome, source: DecisionSource) -> Self {
        match (outcome.is_allowed(), mode, source) {
            (true, _, source) => Self::allowed_by(source),
            (false, Mode::Shadow | Mode::Off, _) => Self::ShadowDenied,
            (false, Mode::Enforce, source) => Self::denied_by(source),
        }
    }

    /// The outcome of a limit with room.
    pub(crate) fn allowed_by(source: DecisionSource) -> Self {
        match source {
            DecisionSource::Store => Self::Allowed,
            DecisionSource::Share => Self::FallbackAllowed,
            DecisionSource::ShareInOverload => Self::OverloadAllowed,
        }
    }

    /// The outcome of a limit without room.
    pub(crate) fn denied_by(source: DecisionSource) -> Self {
        match source {
            DecisionSource::Store => Self::Denied,
            DecisionSource::Share => Self::FallbackDenied,
            DecisionSource::ShareInOverload => Self::OverloadDenied,
        }
    }
}

/// One limit and its outcome, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitEvent<'a> {
    /// The name of its rule.
    pub rule: &'a str,
    /// The [slot](RuleSet::slots) of the rule; `None` if the request carried the limit itself.
    pub slot: Option<u32>,
    /// The limit as the rule defines it.
    pub quota: &'a Quota,
    /// The outcome.
    pub outcome: LimitOutcome,
    /// The verdict; `None` if the limit was not evaluated.
    pub verdict: Option<Verdict>,
}

/// All limits of the applied limit set, with one outcome.
pub(crate) fn of_rule(
    rules: &RuleSet,
    applied: Applied,
    outcome: LimitOutcome,
) -> impl Iterator<Item = LimitEvent<'_>> {
    let rule = &rules.rules()[applied.rule];
    let (name, slot) = (rule.space.name(), Some(rules.slots()[applied.rule]));
    let quotas = rule.limits_of(applied.source).quotas();
    quotas.iter().map(move |quota| LimitEvent { rule: name, slot, quota, outcome, verdict: None })
}

/// The summary of a decision in one outcome.
///
/// A decision has an outcome for every limit. The headline is the most important one: a denial, else the denial of a
/// rule in shadow mode, else the way in which the request was allowed.
#[derive(Clone, Copy, Debug)]
pub struct Headline<'d> {
    /// The outcome of the decision.
    pub outcome: LimitOutcome,
    /// The limit that determines it; `None` if no enforced limit applies.
    pub limit: Option<LimitReport<'d>>,
}

impl<'d> Headline<'d> {
    /// The headline of a decision.
    #[must_use]
    pub fn of(decision: &'d Decision) -> Self {
        let headline = decision.tightest();
        if !decision.is_allowed() {
            return Self { outcome: LimitOutcome::denied_by(decision.source()), limit: headline };
        }
        let shadow = |limit: &LimitReport<'_>| limit.mode != Mode::Enforce && !limit.verdict.outcome.is_allowed();
        if let Some(limit) = decision.limits().find(shadow) {
            return Self { outcome: LimitOutcome::ShadowDenied, limit: Some(limit) };
        }
        let outcome = match decision.degradation() {
            Some(degradation) if !degradation.open.is_empty() => LimitOutcome::FailedOpen,
            _ => LimitOutcome::allowed_by(decision.source()),
        };
        Self { outcome, limit: headline }
    }
}
