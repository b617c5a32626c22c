//! The counts of one place.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::{Micros, Quota};
use sluicegate::observe::{LimitOutcome, Observed, Operation};
use sluicegate::rules::RULES_MAX;

use super::histogram::{
    Counted, DURATION_MICROS, Durations, Histogram, RATIO_MILLIONTHS, Ratios, duration_bucket, ratio, ratio_bucket,
};

const ALGORITHMS: usize = Quota::ALGORITHMS.len();
const OUTCOMES: usize = LimitOutcome::ALL.len();

/// How many rules have their cells in one piece of memory, made when one of them is first counted.
const CHUNK: usize = 32;
/// Room for several whole sets of rules with no name in common: slots of one that is gone are used again as soon as nobody
/// decides by it.
const CHUNKS: usize = 4 * RULES_MAX / CHUNK;

/// Counts that the threads of one place add to. On cache lines of their own, because they are allocated by themselves.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Cells {
    is_shared: bool,
    decisions: Durations,
    allowed: AtomicU64,
    denied: AtomicU64,
    store: [Durations; Operation::ALL.len()],
    /// By slot, in chunks.
    rules: Box<[OnceLock<Box<[RuleCells; CHUNK]>>]>,
    /// Of limits that requests bring themselves.
    brought: RuleCells,
}

#[derive(Debug)]
struct RuleCells {
    outcomes: [[AtomicU64; OUTCOMES]; ALGORITHMS],
    /// Of all its limits together, once per request.
    said: [AtomicU64; OUTCOMES],
    remaining: Ratios,
}

impl Default for RuleCells {
    fn default() -> Self {
        let none = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { outcomes: std::array::from_fn(|_| none()), said: none(), remaining: Ratios::default() }
    }
}

impl Cells {
    pub(super) fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            decisions: Durations::default(),
            allowed: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            store: Default::default(),
            rules: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            brought: RuleCells::default(),
        }
    }

    /// A decision took so long.
    #[inline]
    pub(super) fn took(&self, took: Micros) {
        self.observe(&self.decisions, duration_bucket(took.as_micros()), took.as_micros());
    }

    /// A request was answered.
    #[inline]
    pub(super) fn answered(&self, is_allowed: bool) {
        self.add(if is_allowed { &self.allowed } else { &self.denied }, 1);
    }

    /// A call to the store took so long.
    #[inline]
    pub(super) fn store_took(&self, operation: Operation, took: Micros) {
        self.observe(&self.store[operation as usize], duration_bucket(took.as_micros()), took.as_micros());
    }

    /// Counts the limits of one request, which follow each other by rule.
    #[inline]
    pub(super) fn request(&self) -> RequestCells<'_> {
        RequestCells { cells: self, rule: None }
    }

    /// What came of one limit, and what is left of it.
    #[inline]
    fn limit(&self, rule: &RuleCells, observed: &Observed<'_>) {
        self.add(&rule.outcomes[observed.quota.algorithm_index()][observed.outcome as usize], 1);
        if let Some(verdict) = observed.verdict {
            let ratio = ratio(verdict.remaining, verdict.limit);
            self.observe(&rule.remaining, ratio_bucket(ratio), ratio);
        }
    }

    /// The cells of the rule in this slot.
    #[inline]
    fn rule(&self, slot: u32) -> Option<&RuleCells> {
        let slot = slot as usize;
        let chunk = self.rules.get(slot / CHUNK)?;
        Some(&chunk.get_or_init(Box::default)[slot % CHUNK])
    }

    #[inline]
    fn observe<const BUCKETS: usize>(&self, histogram: &Histogram<BUCKETS>, bucket: usize, value: u64) {
        self.add(&histogram.counts[bucket], 1);
        self.add(&histogram.sum, value);
    }

    #[inline]
    fn add(&self, cell: &AtomicU64, amount: u64) {
        if self.is_shared {
            cell.fetch_add(amount, Ordering::Relaxed);
        } else {
            // Nobody else writes here.
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }
}

/// Where the limits of one request are counted, and the rules that they belong to once for all their limits.
#[derive(Debug)]
pub(super) struct RequestCells<'c> {
    cells: &'c Cells,
    /// The rule whose limits are being told of, and what it says so far.
    rule: Option<(&'c RuleCells, LimitOutcome)>,
}

impl RequestCells<'_> {
    /// What came of the next limit.
    #[inline]
    pub(super) fn limit(&mut self, observed: &Observed<'_>) {
        let rule = match observed.slot {
            Some(slot) => self.cells.rule(slot),
            None => Some(&self.cells.brought),
        };
        let Some(rule) = rule else { return };
        self.cells.limit(rule, observed);
        match &mut self.rule {
            // A rule is as its worst limit is. Its limits share its mode and its policy, so the outcomes that can stand
            // beside each other stand in this order.
            Some((same, said)) if std::ptr::eq(*same, rule) => {
                if observed.outcome as usize > *said as usize {
                    *said = observed.outcome;
                }
            }
            _ => {
                self.end();
                self.rule = Some((rule, observed.outcome));
            }
        }
    }

    /// No limit follows.
    #[inline]
    pub(super) fn end(&mut self) {
        if let Some((rule, said)) = self.rule.take() {
            self.cells.add(&rule.said[said as usize], 1);
        }
    }
}

/// The sums over several places.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) decisions: Counted<{ DURATION_MICROS.len() + 1 }>,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) store: [Counted<{ DURATION_MICROS.len() + 1 }>; Operation::ALL.len()],
    pub(super) brought: RuleTotals,
}

/// The sums of one rule.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleTotals {
    pub(super) outcomes: [[u64; OUTCOMES]; ALGORITHMS],
    pub(super) said: [u64; OUTCOMES],
    pub(super) remaining: Counted<{ RATIO_MILLIONTHS.len() + 1 }>,
}

impl Totals {
    pub(super) fn add(&mut self, cells: &Cells) {
        self.decisions.add(&cells.decisions);
        self.allowed += cells.allowed.load(Ordering::Relaxed);
        self.denied += cells.denied.load(Ordering::Relaxed);
        for (sum, histogram) in self.store.iter_mut().zip(&cells.store) {
            sum.add(histogram);
        }
        self.brought.add(&cells.brought);
    }
}

impl RuleTotals {
    /// Adds what was counted for the rule in this slot.
    pub(super) fn add_slot(&mut self, cells: &Cells, slot: u32) {
        let slot = slot as usize;
        // A chunk that nobody counted in need not be made.
        if let Some(chunk) = cells.rules.get(slot / CHUNK).and_then(OnceLock::get) {
            self.add(&chunk[slot % CHUNK]);
        }
    }

    fn add(&mut self, cells: &RuleCells) {
        for (sum, count) in self.outcomes.as_flattened_mut().iter_mut().zip(cells.outcomes.as_flattened()) {
            *sum += count.load(Ordering::Relaxed);
        }
        for (sum, count) in self.said.iter_mut().zip(&cells.said) {
            *sum += count.load(Ordering::Relaxed);
        }
        self.remaining.add(&cells.remaining);
    }

    /// What was counted since there was as much as `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        let pairs = since.outcomes.as_flattened_mut().iter_mut().zip(before.outcomes.as_flattened());
        let pairs = pairs.chain(since.said.iter_mut().zip(&before.said));
        pairs.for_each(|(count, before)| *count = count.wrapping_sub(*before));
        since.remaining.subtract(&before.remaining);
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_and_outcomes_stand_where_they_are_listed() {
        assert!(Operation::ALL.iter().enumerate().all(|(place, operation)| *operation as usize == place));
        assert!(LimitOutcome::ALL.iter().enumerate().all(|(place, outcome)| *outcome as usize == place));
    }

    #[test]
    fn nothing_is_lost_where_threads_share_a_place() {
        let cells = Cells::new(true);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| cells.took(Micros::from_micros(3))));
            }
        });
        let mut totals = Totals::default();
        totals.add(&cells);
        assert_eq!((totals.decisions.counts[2], totals.decisions.sum), (40_000, 120_000));
    }
}
