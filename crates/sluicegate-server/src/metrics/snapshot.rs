//! Snapshots of the counters for the dashboard and its history.

use sluicegate::decision::LimitOutcome;
use sluicegate::observe::Operation;

use super::histogram::{DURATION_MICROS, HistogramSnapshot, RATIO_MILLIONTHS};
use super::thread_counters::RuleTotals;
use super::{Metrics, RuleLabels};

/// The counts since the start.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The durations of decisions.
    pub(crate) decisions: HistogramSnapshot<{ DURATION_MICROS.len() + 1 }>,
    /// The durations of charges in the store.
    pub(crate) charges: HistogramSnapshot<{ DURATION_MICROS.len() + 1 }>,
    /// The rules, in the order of their set.
    pub(crate) rules: Vec<RuleCounts>,
}

/// The counts of a rule.
#[derive(Debug)]
pub(crate) struct RuleCounts {
    /// Its name.
    pub(crate) name: Box<str>,
    /// The combined outcomes of all its limits.
    pub(crate) outcomes: RuleOutcomes,
    /// The remaining quota as a share of the limit.
    pub(crate) remaining: HistogramSnapshot<{ RATIO_MILLIONTHS.len() + 1 }>,
}

/// The outcomes of requests under a rule, in the categories that the dashboard shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleOutcomes {
    /// All limits allowed the request, or the rule failed open.
    pub(crate) allowed: u64,
    /// At least one limit denied the request, or the rule failed closed.
    pub(crate) denied: u64,
    /// A limit of a rule in shadow mode would have denied the request.
    pub(crate) shadow_denied: u64,
    /// Of all these, the requests decided without the store.
    pub(crate) degraded: u64,
}

impl Metrics {
    /// A snapshot of all counters.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let totals = self.counters.totals();
        let rules = self.rules.read();
        let inline = self.inline.iter().map(|rule| counts(rule, &totals.inline));
        Snapshot {
            decisions: totals.decisions,
            charges: totals.store[Operation::Charge as usize],
            rules: rules.iter().map(|rule| counts(rule, &self.of_rule(rule))).chain(inline).collect(),
        }
    }
}

fn counts(rule: &RuleLabels, totals: &RuleTotals) -> RuleCounts {
    let mut outcomes = RuleOutcomes::default();
    for (outcome, count) in LimitOutcome::ALL.into_iter().zip(totals.combined) {
        outcomes.add(outcome, count);
    }
    RuleCounts { name: rule.name.clone(), outcomes, remaining: totals.remaining }
}

impl RuleOutcomes {
    fn add(&mut self, outcome: LimitOutcome, count: u64) {
        use LimitOutcome::{
            Allowed, Denied, FailedClosed, FailedOpen, FallbackAllowed, FallbackDenied, OverloadAllowed,
            OverloadDenied, ShadowDenied,
        };
        match outcome {
            Allowed | FallbackAllowed | OverloadAllowed | FailedOpen => self.allowed += count,
            Denied | FallbackDenied | OverloadDenied | FailedClosed => self.denied += count,
            ShadowDenied => self.shadow_denied += count,
        }
        if !matches!(outcome, Allowed | Denied | ShadowDenied) {
            self.degraded += count;
        }
    }

    /// The sum of all outcomes except `degraded`, which overlaps with them.
    pub(crate) fn all(&self) -> u64 {
        self.allowed + self.denied + self.shadow_denied
    }

    /// The outcomes since `before`. Counts that were reset in between give zero.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(before.allowed),
            denied: self.denied.saturating_sub(before.denied),
            shadow_denied: self.shadow_denied.saturating_sub(before.shadow_denied),
            degraded: self.degraded.saturating_sub(before.degraded),
        }
    }
}
