//! What is counted on the path of every decision, and nothing else of the metrics: no labels, no text. `cargo xtask bench`
//! compiles this file, too, and measures what it costs.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::{Micros, Quota};
use sluicegate::observe::{Decided, LimitOutcome, Observed, Operation, Undecided};
use sluicegate::store::{ErrorClass, StoreError};

use super::cells::{Cells, RuleTotals, Totals};
use super::place;

/// The counts of all threads.
#[derive(Debug)]
pub(crate) struct Counters {
    /// The cells of each place, made when a thread first counts there.
    cells: [OnceLock<Box<Cells>>; place::PLACES],
    /// Rare enough to share.
    store_errors: [AtomicU64; ErrorClass::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            cells: std::array::from_fn(|_| OnceLock::new()),
            store_errors: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Counters {
    /// Counts a decision.
    #[inline]
    pub(crate) fn decided(&self, decided: &Decided<'_>) {
        let cells = self.cells();
        cells.took(decided.took);
        cells.answered(decided.decision.is_allowed());
        let mut request = cells.request();
        decided.decision.for_each_outcome(|observed| request.limit(&observed));
        request.end();
    }

    /// Counts a request that was refused undecided.
    pub(super) fn undecided(&self, undecided: &Undecided<'_>) {
        let cells = self.cells();
        cells.took(undecided.took);
        let mut request = cells.request();
        undecided.outcomes().for_each(|observed| request.limit(&observed));
        request.end();
    }

    /// Counts what came of a limit that a request brought itself.
    pub(super) fn brought(&self, quota: &Quota, outcome: LimitOutcome) {
        let cells = self.cells();
        match outcome {
            LimitOutcome::Allowed => cells.answered(true),
            LimitOutcome::Denied => cells.answered(false),
            _ => {}
        }
        let observed = Observed { rule: "", slot: None, quota, outcome, verdict: None };
        let mut request = cells.request();
        request.limit(&observed);
        request.end();
    }

    /// Counts a failure of the store.
    pub(super) fn store_failed(&self, error: &StoreError) {
        let classes = ErrorClass::ALL.iter().zip(&self.store_errors);
        if let Some((_, count)) = classes.into_iter().find(|(class, _)| **class == error.class) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a call to the store.
    #[inline]
    pub(crate) fn store_took(&self, operation: Operation, took: Micros) {
        self.cells().store_took(operation, took);
    }

    /// The failures of the store, by their class.
    pub(super) fn store_errors(&self) -> impl Iterator<Item = (ErrorClass, u64)> {
        let counts = self.store_errors.iter().map(|count| count.load(Ordering::Relaxed));
        ErrorClass::ALL.into_iter().zip(counts)
    }

    /// The sums over all threads.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.cells.iter().filter_map(OnceLock::get).for_each(|cells| totals.add(cells));
        totals
    }

    /// All that was ever counted in this slot.
    pub(super) fn in_slot(&self, slot: u32) -> RuleTotals {
        let mut totals = RuleTotals::default();
        self.cells.iter().filter_map(OnceLock::get).for_each(|cells| totals.add_slot(cells, slot));
        totals
    }

    /// The cells of this thread.
    #[inline]
    fn cells(&self) -> &Cells {
        let place = place::current();
        self.cells[place].get_or_init(|| Box::new(Cells::new(place::is_shared(place))))
    }
}
