//! The counts of one moment, for those who look at them as a person does: the dashboard and its history.

use sluicegate::observe::{LimitOutcome, Operation};

use super::cells::RuleTotals;
use super::histogram::{Counted, DURATION_MICROS, RATIO_MILLIONTHS};
use super::{Metrics, RuleLabels};

/// The counts since the start.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// How long decisions took.
    pub(crate) decisions: Counted<{ DURATION_MICROS.len() + 1 }>,
    /// How long charges took in the store.
    pub(crate) charges: Counted<{ DURATION_MICROS.len() + 1 }>,
    /// Each rule, in the order of the set.
    pub(crate) rules: Vec<RuleCounts>,
}

/// The counts of a rule.
#[derive(Debug)]
pub(crate) struct RuleCounts {
    /// Its name.
    pub(crate) name: Box<str>,
    /// What came of requests by all its limits together.
    pub(crate) outcomes: Outcomes,
    /// What was left of them, over the limit.
    pub(crate) remaining: Counted<{ RATIO_MILLIONTHS.len() + 1 }>,
}

/// What came of requests by a rule, in the fewest words that matter to a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcomes {
    /// All limits had room, or the rule is open without the store.
    pub(crate) allowed: u64,
    /// One had none, or the rule is closed without the store.
    pub(crate) denied: u64,
    /// One would have had none, but the rule only watches.
    pub(crate) shadow_denied: u64,
    /// Of all these, how many without the store.
    pub(crate) degraded: u64,
}

impl Metrics {
    /// The counts of this moment.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let totals = self.counters.totals();
        let rules = self.rules.read();
        let brought = self.brought.iter().map(|rule| counts(rule, &totals.brought));
        Snapshot {
            decisions: totals.decisions,
            charges: totals.store[Operation::Charge as usize],
            rules: rules.iter().map(|rule| counts(rule, &self.of_rule(rule))).chain(brought).collect(),
        }
    }
}

fn counts(rule: &RuleLabels, totals: &RuleTotals) -> RuleCounts {
    let mut outcomes = Outcomes::default();
    for (outcome, count) in LimitOutcome::ALL.into_iter().zip(totals.said) {
        outcomes.add(outcome, count);
    }
    RuleCounts { name: rule.name.clone(), outcomes, remaining: totals.remaining }
}

impl Outcomes {
    fn add(&mut self, outcome: LimitOutcome, count: u64) {
        use LimitOutcome::{
            Allowed, Denied, FailedClosed, FailedOpen, FallbackAllowed, FallbackDenied, ShadowDenied,
        };
        match outcome {
            Allowed | FallbackAllowed | FailedOpen => self.allowed += count,
            Denied | FallbackDenied | FailedClosed => self.denied += count,
            ShadowDenied => self.shadow_denied += count,
        }
        if matches!(outcome, FallbackAllowed | FallbackDenied | FailedOpen | FailedClosed) {
            self.degraded += count;
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> u64 {
        self.allowed + self.denied + self.shadow_denied
    }

    /// What came after there were `before`. Whoever began anew in between has none less than none.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            allowed: self.allowed.saturating_sub(before.allowed),
            denied: self.denied.saturating_sub(before.denied),
            shadow_denied: self.shadow_denied.saturating_sub(before.shadow_denied),
            degraded: self.degraded.saturating_sub(before.degraded),
        }
    }
}
