//! What was decided, how long it took and what is left, counted for Prometheus.
//!
//! Counting is part of every decision, so it must cost next to nothing: each thread has [cells](cells::Cells) of its own,
//! found by its [place], where it adds without a lock and without an atomic addition; whoever asks adds up the
//! cells of all threads. A limit's cells are found by the place of its rule in the set and the place of its algorithm,
//! nothing is looked up. [`text`] writes it all in Prometheus' format.
//!
//! No label holds anything that a client sends: labels are the names of rules, algorithms, outcomes, operations and
//! classes of errors, and all of them are there from the start.

mod cells;
mod histogram;
mod place;
mod text;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::{Algorithm as _, Micros, Quota, TokenBucket};
use sluicegate::observe::{Decided, LimitOutcome, Observed, Operation, Undecided};
use sluicegate::rules::{Rule, RuleSet};
use sluicegate::store::{ErrorClass, StoreError};

use cells::{Cells, Totals};
pub(crate) use text::{CONTENT_TYPE, Gauges};

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The rules, in the order of their set, and then what stands for limits that requests bring themselves.
    rules: Box<[RuleLabels]>,
    /// The place of the latter.
    brought: Option<usize>,
    /// The cells of each place, made when a thread first counts there.
    cells: [OnceLock<Box<Cells>>; place::PLACES],
    /// Rare enough to share.
    store_errors: [AtomicU64; ErrorClass::ALL.len()],
}

/// The labels of a rule's counts.
#[derive(Debug)]
struct RuleLabels {
    name: Box<str>,
    /// The places, in [`Quota::ALGORITHMS`], of those that it uses for anybody.
    algorithms: Vec<usize>,
}

impl Metrics {
    /// Nothing counted yet, by these rules, and by limits that requests bring themselves under this name.
    pub(crate) fn new(rules: &RuleSet, brought: Option<&str>) -> Self {
        let brought = brought.map(RuleLabels::brought);
        Self {
            brought: brought.as_ref().map(|_| rules.rules().len()),
            rules: rules.rules().iter().map(RuleLabels::of).chain(brought).collect(),
            cells: std::array::from_fn(|_| OnceLock::new()),
            store_errors: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Counts a decision.
    pub(crate) fn decided(&self, decided: &Decided<'_>) {
        let cells = self.cells();
        cells.took(decided.took);
        decided.decision.for_each_outcome(|observed| cells.limit(&observed));
    }

    /// Counts a request that was refused undecided.
    pub(crate) fn undecided(&self, undecided: &Undecided<'_>) {
        let cells = self.cells();
        cells.took(undecided.took);
        undecided.outcomes().for_each(|observed| cells.limit(&observed));
    }

    /// Counts what came of a limit that a request brought itself.
    pub(crate) fn brought(&self, quota: &Quota, outcome: LimitOutcome) {
        let observed = Observed { rule: "", rule_index: self.brought, quota, outcome, verdict: None };
        self.cells().limit(&observed);
    }

    /// Counts a failure of the store.
    pub(crate) fn store_failed(&self, error: &StoreError) {
        let classes = ErrorClass::ALL.iter().zip(&self.store_errors);
        if let Some((_, count)) = classes.into_iter().find(|(class, _)| **class == error.class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a call to the store.
    pub(crate) fn store_took(&self, operation: Operation, took: Micros) {
        self.cells().store_took(operation, took);
    }

    /// Everything in Prometheus' text format.
    pub(crate) fn text(&self, gauges: &Gauges) -> String {
        text::write(self, gauges)
    }

    /// The cells of this thread.
    #[inline]
    fn cells(&self) -> &Cells {
        let place = place::current();
        self.cells[place].get_or_init(|| Box::new(Cells::new(self.rules.len(), place::is_shared(place))))
    }

    /// The sums over all threads.
    fn totals(&self) -> Totals {
        let mut totals = Totals::new(self.rules.len());
        self.cells.iter().filter_map(OnceLock::get).for_each(|cells| totals.add(cells));
        totals
    }
}

impl RuleLabels {
    fn brought(name: &str) -> Self {
        let token_bucket = Quota::ALGORITHMS.iter().position(|algorithm| *algorithm == TokenBucket::NAME);
        Self { name: name.into(), algorithms: token_bucket.into_iter().collect() }
    }

    fn of(rule: &Rule) -> Self {
        let tiers = rule.tiers.iter().map(|(_, limits)| limits);
        let overrides = rule.overrides.iter().map(|each| &each.limits);
        let all = tiers.chain(overrides).chain([&rule.limits]);
        let used: Vec<usize> = all.flat_map(|limits| limits.quotas()).map(Quota::algorithm_index).collect();
        let algorithms = (0..Quota::ALGORITHMS.len()).filter(|index| used.contains(index)).collect();
        Self { name: rule.space.name().into(), algorithms }
    }
}

#[cfg(test)]
mod tests;
