//! What was decided, how long it took and what is left, counted for Prometheus.
//!
//! Counting is part of every decision, so it must cost next to nothing: each thread has [cells](cells::Cells) of its own,
//! found by its [place], where it adds without a lock and without an atomic addition; whoever asks adds up the
//! cells of all threads. A limit's cells are found by the slot of its rule and the place of its algorithm, nothing is
//! looked up. [`text`] writes it all in Prometheus' format.
//!
//! No label holds anything that a client sends: labels are the names of rules, algorithms, outcomes, operations and
//! classes of errors, and all of them are there from the start. When rules are replaced, those that stay go on counting,
//! and those that go take their series with them.

mod cells;
mod counters;
mod histogram;
mod place;
mod snapshot;
mod text;

use std::collections::HashMap;

use sluicegate::core::{Algorithm as _, Micros, Quota, TokenBucket};
use sluicegate::observe::{Decided, LimitOutcome, Operation, Undecided};
use sluicegate::rules::{Rule, RuleSet};
use sluicegate::store::StoreError;

use cells::RuleTotals;
use counters::Counters;
pub(crate) use histogram::{DURATION_MICROS, RATIO_MILLIONTHS};
use parking_lot::RwLock;
pub(crate) use snapshot::{Outcomes, RuleCounts, Snapshot};
pub(crate) use text::{CONTENT_TYPE, Gauges};

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The rules, in the order of their set. Read and written by those who look, never by those who count.
    rules: RwLock<Box<[RuleLabels]>>,
    /// What limits that requests bring themselves are counted under.
    brought: Option<RuleLabels>,
    counters: Counters,
}

/// The labels of a rule's counts.
#[derive(Debug)]
struct RuleLabels {
    name: Box<str>,
    slot: u32,
    /// What was counted in the slot before it was this rule's.
    before: Option<Box<RuleTotals>>,
    /// The places, in [`Quota::ALGORITHMS`], of those that it uses for anybody.
    algorithms: Vec<usize>,
}

impl Metrics {
    /// Nothing counted yet, by these rules, and by limits that requests bring themselves under this name.
    pub(crate) fn new(rules: &RuleSet, brought: Option<&str>) -> Self {
        Self {
            rules: RwLock::new(labels(rules).collect()),
            brought: brought.map(RuleLabels::brought),
            counters: Counters::default(),
        }
    }

    /// Other rules are about to be in force.
    pub(crate) fn rules_replaced(&self, rules: &RuleSet) {
        let mut known = self.rules.write();
        let known_before = std::mem::take(&mut *known).into_iter();
        let mut before: HashMap<(Box<str>, u32), _> =
            known_before.map(|rule| ((rule.name, rule.slot), rule.before)).collect();
        *known = labels(rules)
            .map(|rule| {
                let stays = before.remove(&(rule.name.clone(), rule.slot));
                RuleLabels {
                    before: stays.unwrap_or_else(|| Some(Box::new(self.counters.in_slot(rule.slot)))),
                    ..rule
                }
            })
            .collect();
    }

    /// Counts a decision.
    #[inline]
    pub(crate) fn decided(&self, decided: &Decided<'_>) {
        self.counters.decided(decided);
    }

    /// Counts a request that was refused undecided.
    pub(crate) fn undecided(&self, undecided: &Undecided<'_>) {
        self.counters.undecided(undecided);
    }

    /// Counts what came of a limit that a request brought itself.
    pub(crate) fn brought(&self, quota: &Quota, outcome: LimitOutcome) {
        self.counters.brought(quota, outcome);
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

    /// How many requests were allowed, and how many denied.
    pub(crate) fn answers(&self) -> (u64, u64) {
        let totals = self.counters.totals();
        (totals.allowed, totals.denied)
    }

    /// Everything in Prometheus' text format.
    pub(crate) fn text(&self, gauges: &Gauges) -> String {
        text::write(self, gauges)
    }

    /// What was counted for this rule.
    fn of_rule(&self, rule: &RuleLabels) -> RuleTotals {
        let counted = self.counters.in_slot(rule.slot);
        rule.before.as_ref().map_or_else(|| counted.clone(), |before| counted.since(before))
    }
}

/// The labels of all rules, in whose slots nothing was counted yet.
fn labels(rules: &RuleSet) -> impl Iterator<Item = RuleLabels> {
    rules.rules().iter().zip(rules.slots()).map(|(rule, slot)| RuleLabels::of(rule, *slot))
}

impl RuleLabels {
    fn brought(name: &str) -> Self {
        let token_bucket = Quota::ALGORITHMS.iter().position(|algorithm| *algorithm == TokenBucket::NAME);
        Self { name: name.into(), slot: 0, before: None, algorithms: token_bucket.into_iter().collect() }
    }

    fn of(rule: &Rule, slot: u32) -> Self {
        let tiers = rule.tiers.iter().map(|(_, limits)| limits);
        let overrides = rule.overrides.iter().map(|each| &each.limits);
        let all = tiers.chain(overrides).chain([&rule.limits]);
        let used: Vec<usize> = all.flat_map(|limits| limits.quotas()).map(Quota::algorithm_index).collect();
        let algorithms = (0..Quota::ALGORITHMS.len()).filter(|index| used.contains(index)).collect();
        Self { name: rule.space.name().into(), slot, before: None, algorithms }
    }
}

#[cfg(test)]
mod tests;
