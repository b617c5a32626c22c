//! The answer to one request: whether it may pass, and how every limit that had a say stands.

use crate::observe::{LimitOutcome, Observed, of_rule};
use crate::rules::matching::Applied;
use crate::rules::{Mode, RuleSet, Unmatched};
use crate::store::{StoreError, Verdicts};
use sluicegate_core::decision::{Group, tightest};
use sluicegate_core::{Micros, Outcome, Quota, Timestamp, Verdict};
use smallvec::SmallVec;
use std::sync::Arc;

/// The answer to one request. It holds on to the rules that it was made by, so its words stay true when they
/// change.
#[derive(Clone, Debug)]
pub struct Decision {
    rules: Arc<RuleSet>,
    applied: SmallVec<[Applied; 2]>,
    verdicts: Verdicts,
    now: Timestamp,
    allowed: bool,
    tightest: Option<usize>,
    /// Elsewhere, because hardly any decision has one.
    degradation: Option<Arc<Degradation>>,
}

/// How a decision came about that the store had no part in.
#[derive(Debug)]
pub struct Degradation {
    /// Why the store had none.
    pub error: StoreError,
    /// The rules that had no objection because they could not know; all others that decide answered by this
    /// instance's share of their limits.
    pub(crate) open: SmallVec<[Applied; 2]>,
}

/// What one limit said.
#[derive(Clone, Copy, Debug)]
pub struct LimitReport<'d> {
    /// The rule it belongs to.
    pub rule: &'d str,
    /// The rule's place in its set.
    pub rule_index: usize,
    /// Its own name in header fields.
    pub label: &'d str,
    /// The limit, as the rule has it.
    pub quota: &'d Quota,
    /// Its verdict; in a degraded decision that of this instance's share of the limit.
    pub verdict: Verdict,
    /// Whether it decides.
    pub mode: Mode,
}

/// When a denied request may come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Exactly so long from the decision.
    After(Micros),
    /// Never: as things stand, waiting does not help.
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
            // One limit, as nearly always: it speaks, if it decides.
            ([one], [_]) => (rules.rules()[one.rule].mode == Mode::Enforce).then_some(0),
            _ => tightest(groups(&rules, &applied).into_iter().zip(&verdicts)),
        };
        // A limit that denies is tighter than all that do not.
        let is_denied = tightest.is_some_and(|index| !verdicts[index].outcome.is_allowed());
        let allowed = !is_denied && (matched || rules.unmatched() == Unmatched::Allow);
        Self { rules, applied, verdicts, now, allowed, tightest, degradation: None }
    }

    /// The same decision, made without the store.
    pub(crate) fn degraded(self, degradation: Degradation) -> Self {
        Self { degradation: Some(Arc::new(degradation)), ..self }
    }

    /// Which limits of which rules had a say.
    pub(crate) fn applied(&self) -> &[Applied] {
        &self.applied
    }

    /// True if the store had no part in the decision: it could not decide, and the rules answered by their
    /// [policies](crate::rules::OnStoreFailure).
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.degradation.is_some()
    }

    /// How the decision came about, if the store had no part in it.
    #[must_use]
    pub fn degradation(&self) -> Option<&Degradation> {
        self.degradation.as_deref()
    }

    /// What came of every limit, in the words of metrics: those that had a say in the order of the rules, then
    /// those that had none because the store could not decide.
    pub fn outcomes(&self) -> impl Iterator<Item = Observed<'_>> {
        let said = self.limits().map(|report| Observed {
            rule: report.rule,
            slot: Some(self.rules.slots()[report.rule_index]),
            quota: report.quota,
            outcome: LimitOutcome::said(report.mode, report.verdict.outcome, self.is_degraded()),
            verdict: Some(report.verdict),
        });
        let open = self.degradation.iter().flat_map(|degradation| &degradation.open);
        said.chain(open.flat_map(|applied| of_rule(&self.rules, *applied, LimitOutcome::FailedOpen)))
    }

    /// Tells of every limit what [`Decision::outcomes`] has of it, in the same order. Loops, where those are a chain of
    /// iterators: this is for whoever counts every decision.
    #[inline]
    pub fn for_each_outcome<'d>(&'d self, mut tell: impl FnMut(Observed<'d>)) {
        let (is_degraded, mut verdicts) = (self.is_degraded(), self.verdicts.iter());
        for applied in &self.applied {
            let rule = &self.rules.rules()[applied.rule];
            let quotas = rule.limits_of(applied.source).quotas();
            for (quota, verdict) in quotas.iter().zip(verdicts.by_ref()) {
                tell(Observed {
                    rule: rule.space.name(),
                    slot: Some(self.rules.slots()[applied.rule]),
                    quota,
                    outcome: LimitOutcome::said(rule.mode, verdict.outcome, is_degraded),
                    verdict: Some(*verdict),
                });
            }
        }
        if let Some(degradation) = &self.degradation {
            let open = degradation.open.iter();
            open.flat_map(|applied| of_rule(&self.rules, *applied, LimitOutcome::FailedOpen)).for_each(tell);
        }
    }

    /// True if the request may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// The instant of the decision.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// What every limit said, in the order of the rules.
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
            // One verdict per limit, in the same order.
            .map_while(move |(rule_index, rule, quota, label)| {
                let verdict = *verdicts.next()?;
                let (name, mode) = (rule.space.name(), rule.mode);
                Some(LimitReport { rule: name, rule_index, label, quota, verdict, mode })
            })
    }

    /// The limit that speaks for the decision: the longest wait of a denial, the least left otherwise.
    /// `None` where nothing that decides limits the request.
    #[must_use]
    pub fn tightest(&self) -> Option<LimitReport<'_>> {
        self.limits().nth(self.tightest?)
    }

    /// When a denied request may come again; `None` if it is allowed.
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

/// Whether each limit decides, in the order of the verdicts.
fn groups(rules: &RuleSet, applied: &[Applied]) -> SmallVec<[Group; 4]> {
    let mut groups = SmallVec::new();
    for applied in applied {
        let rule = &rules.rules()[applied.rule];
        let group = match rule.mode {
            Mode::Enforce => Group::Enforced,
            // Which shadow rule it is matters only while charging.
            Mode::Shadow | Mode::Off => Group::Shadow(0),
        };
        let limits = rule.limits_of(applied.source).quotas().len();
        groups.resize(groups.len() + limits, group);
    }
    groups
}

impl LimitReport<'_> {
    /// The instant, in milliseconds since the epoch and rounded up, at which the limit is whole again.
    #[must_use]
    pub fn reset_at_millis(&self, now: Timestamp) -> u64 {
        now.plus(self.verdict.reset_after).as_micros().div_ceil(1_000)
    }
}
