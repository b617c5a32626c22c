//! Validation of rules, whatever their source.

use super::{DEADLINES, LIMITS_PER_RULE_MAX, Limits, Rule};

impl Rule {
    /// All its lists of limits: its own, those of tiers and those of overrides.
    pub(super) fn limit_lists(&self) -> impl Iterator<Item = &Limits> {
        let tiers = self.tiers.iter().map(|(_, limits)| limits);
        let overrides = self.overrides.iter().map(|each| &each.limits);
        [&self.limits].into_iter().chain(tiers).chain(overrides)
    }

    pub(super) fn check_deadline(&self) -> Result<(), RuleSetError> {
        if DEADLINES.contains(&self.deadline) {
            return Ok(());
        }
        let (name, deadline) = (self.space.name(), self.deadline);
        Err(RuleSetError(format!("rule {name:?} has a deadline of {deadline:?}: use 1 ms to 10 s")))
    }

    pub(super) fn check_limit_counts(&self) -> Result<(), RuleSetError> {
        for limits in self.limit_lists() {
            if let Limits::All { quotas, .. } = limits
                && !(1..=LIMITS_PER_RULE_MAX).contains(&quotas.len())
            {
                let name = self.space.name();
                let count = quotas.len();
                let remedy = format!("use 1 to {LIMITS_PER_RULE_MAX}, or unlimited");
                return Err(RuleSetError(format!("rule {name:?} has {count} limits in one list: {remedy}")));
            }
        }
        Ok(())
    }
}

/// Rules that contradict each other; the error names the rule and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSetError(pub(super) String);

impl std::fmt::Display for RuleSetError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for RuleSetError {}
