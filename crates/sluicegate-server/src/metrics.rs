//! Metrics for Prometheus: decisions, their durations and the remaining quota.
//!
//! Counting is on the path of every decision, so it must cost only a few nanoseconds. Each thread has
//! [counters](thread_counters::ThreadCounters) of its own in its [slot](thread_slot) and adds without a lock and without an
//! atomic read-modify-write. A reader adds up the counters of all threads. The slot of a rule and the index of an algorithm
//! address the counters of a limit directly. [`text`] renders all metrics in Prometheus' format.
//!
//! No label contains data from a client. Labels are the names of rules, algorithms, outcomes, operations and error classes, so
//! all series exist from the start. When rules are replaced, the remaining rules keep their counts, and the series of removed
//! rules disappear.

mod counters;
mod envoy_limits;
mod histogram;
mod snapshot;
mod text;
mod thread_counters;
mod thread_slot;

use std::collections::HashMap;

use parking_lot::RwLock;
use sluicegate::core::{Algorithm as _, Micros, Quota, TokenBucket};
use sluicegate::decision::LimitOutcome;
use sluicegate::observe::{DecisionEvent, FailClosedEvent, Operation};
use sluicegate::rules::{Rule, RuleSet};
use sluicegate::store::StoreError;

use counters::DecisionCounters;
pub(crate) use envoy_limits::{CallError, EnvoyLimits};
pub(crate) use histogram::{DURATION_MICROS, RATIO_MILLIONTHS};
pub(crate) use snapshot::{RuleCounts, RuleOutcomes, Snapshot};
pub(crate) use text::{CONTENT_TYPE, ControlPlaneGauges, Gauges};
use thread_counters::RuleTotals;

/// All metrics of the process.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The rules, in the order of their set. The counting path neither reads nor writes them.
    rules: RwLock<Box<[RuleLabels]>>,
    /// The labels for inline limits: limits that requests carry themselves.
    inline: Option<RuleLabels>,
    counters: DecisionCounters,
    envoy_limits: EnvoyLimits,
}

/// The labels of a rule's counts.
#[derive(Debug)]
struct RuleLabels {
    name: Box<str>,
    slot: u32,
    /// The counts in the slot before this rule had it.
    baseline: Option<Box<RuleTotals>>,
    /// The indices in [`Quota::ALGORITHMS`] of the algorithms in all its limit sets.
    algorithms: Vec<usize>,
}

impl Metrics {
    /// Metrics for these rules, and for inline limits under the name `inline`, if there are any.
    pub(crate) fn new(rules: &RuleSet, inline: Option<&str>) -> Self {
        let envoy_limits = EnvoyLimits::default();
        envoy_limits.rules_replaced(rules);
        Self {
            rules: RwLock::new(labels(rules).collect()),
            inline: inline.map(RuleLabels::inline),
            counters: DecisionCounters::default(),
            envoy_limits,
        }
    }

    /// Prepares for other rules. Call it before they take effect.
    pub(crate) fn rules_replaced(&self, rules: &RuleSet) {
        self.envoy_limits.rules_replaced(rules);
        let mut known = self.rules.write();
        let former = std::mem::take(&mut *known).into_iter();
        let mut baselines: HashMap<(Box<str>, u32), _> =
            former.map(|rule| ((rule.name, rule.slot), rule.baseline)).collect();
        *known = labels(rules)
            .map(|rule| {
                let stays = baselines.remove(&(rule.name.clone(), rule.slot));
                RuleLabels {
                    baseline: stays.unwrap_or_else(|| Some(Box::new(self.counters.in_slot(rule.slot)))),
                    ..rule
                }
            })
            .collect();
    }

    /// Counts a decision.
    #[inline]
    pub(crate) fn decided(&self, decided: &DecisionEvent<'_>) {
        self.counters.decided(decided);
        self.envoy_limits.decided(decided);
    }

    /// The metrics with the names of `envoyproxy/ratelimit`.
    pub(crate) fn envoy_limits(&self) -> &EnvoyLimits {
        &self.envoy_limits
    }

    /// Counts a request that was denied because the store could not decide (fail closed).
    pub(crate) fn undecided(&self, undecided: &FailClosedEvent<'_>) {
        self.counters.undecided(undecided);
    }

    /// Counts the outcome of an inline limit.
    pub(crate) fn inline(&self, quota: &Quota, outcome: LimitOutcome) {
        self.counters.inline(quota, outcome);
    }

    /// Counts a failure of the store.
    pub(crate) fn store_failed(&self, error: &StoreError) {
        self.counters.store_failed(error);
    }

    /// Counts a call to the store.
    #[inline]
    pub(crate) fn store_took(&self, operation: Operation, took: Micros) {
        self.counters.store_took(operation, took);
    }

    /// The numbers of allowed and of denied requests.
    pub(crate) fn decisions(&self) -> (u64, u64) {
        let totals = self.counters.totals();
        (totals.allowed, totals.denied)
    }

    /// All metrics in Prometheus' text format.
    pub(crate) fn text(&self, gauges: &Gauges) -> String {
        text::write(self, gauges)
    }

    /// The counts of a rule.
    fn of_rule(&self, rule: &RuleLabels) -> RuleTotals {
        let counted = self.counters.in_slot(rule.slot);
        rule.baseline.as_ref().map_or_else(|| counted.clone(), |baseline| counted.since(baseline))
    }
}

/// The labels of all rules, without baselines.
fn labels(rules: &RuleSet) -> impl Iterator<Item = RuleLabels> {
    rules.rules().iter().zip(rules.slots()).map(|(rule, slot)| RuleLabels::of(rule, *slot))
}

impl RuleLabels {
    fn inline(name: &str) -> Self {
        let token_bucket = Quota::ALGORITHMS.iter().position(|algorithm| *algorithm == TokenBucket::NAME);
        Self { name: name.into(), slot: 0, baseline: None, algorithms: token_bucket.into_iter().collect() }
    }

    fn of(rule: &Rule, slot: u32) -> Self {
        let tiers = rule.tiers.iter().map(|(_, limits)| limits);
        let overrides = rule.overrides.iter().map(|each| &each.limits);
        let all = tiers.chain(overrides).chain([&rule.limits]);
        let used: Vec<usize> = all.flat_map(|limits| limits.quotas()).map(Quota::algorithm_index).collect();
        let algorithms = (0..Quota::ALGORITHMS.len()).filter(|index| used.contains(index)).collect();
        Self { name: rule.space.name().into(), slot, baseline: None, algorithms }
    }
}

/// The resident memory of this process in bytes; `None` if the system has no such file.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

#[cfg(test)]
mod tests;
