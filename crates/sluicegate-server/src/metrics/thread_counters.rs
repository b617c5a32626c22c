//! The counters of one thread slot, and sums over several.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use sluicegate::core::{Micros, Quota};
use sluicegate::decision::{LimitEvent, LimitOutcome};
use sluicegate::observe::Operation;
use sluicegate::rules::RULES_MAX;

use super::histogram::{
    DURATION_MICROS, Durations, Histogram, HistogramSnapshot, RATIO_MILLIONTHS, Ratios, duration_bucket, ratio,
    ratio_bucket,
};

const ALGORITHMS: usize = Quota::ALGORITHMS.len();
const OUTCOMES: usize = LimitOutcome::ALL.len();

/// The rules per chunk. A chunk is allocated when a rule in it is first counted.
const CHUNK: usize = 32;
/// Room for several disjoint rule sets. The slots of a removed set are reused as soon as no request is decided under it.
const CHUNKS: usize = 4 * RULES_MAX / CHUNK;

/// The counters of one thread slot. The alignment and a separate allocation give them cache lines of their own.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct ThreadCounters {
    is_shared: bool,
    decisions: Durations,
    allowed: AtomicU64,
    denied: AtomicU64,
    store: [Durations; Operation::ALL.len()],
    /// The counters of rules by their slots, in chunks.
    rules: Box<[OnceLock<Box<[RuleCounters; CHUNK]>>]>,
    /// Inline limits.
    inline: RuleCounters,
}

#[derive(Debug)]
struct RuleCounters {
    outcomes: [[AtomicU64; OUTCOMES]; ALGORITHMS],
    /// The combined outcome of all limits, counted once per request.
    combined: [AtomicU64; OUTCOMES],
    remaining: Ratios,
}

impl Default for RuleCounters {
    fn default() -> Self {
        let none = || std::array::from_fn(|_| AtomicU64::new(0));
        Self { outcomes: std::array::from_fn(|_| none()), combined: none(), remaining: Ratios::default() }
    }
}

impl ThreadCounters {
    pub(super) fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            decisions: Durations::default(),
            allowed: AtomicU64::new(0),
            denied: AtomicU64::new(0),
            store: Default::default(),
            rules: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            inline: RuleCounters::default(),
        }
    }

    /// Records the duration of a decision.
    #[inline]
    pub(super) fn took(&self, took: Micros) {
        self.observe(&self.decisions, duration_bucket(took.as_micros()), took.as_micros());
    }

    /// Counts a decided request.
    #[inline]
    pub(super) fn decided(&self, is_allowed: bool) {
        self.add(if is_allowed { &self.allowed } else { &self.denied }, 1);
    }

    /// Records the duration of a call to the store.
    #[inline]
    pub(super) fn store_took(&self, operation: Operation, took: Micros) {
        self.observe(&self.store[operation as usize], duration_bucket(took.as_micros()), took.as_micros());
    }

    /// Starts to count the limits of one request. The limits of a rule must be consecutive.
    #[inline]
    pub(super) fn request(&self) -> RequestCounters<'_> {
        RequestCounters { counters: self, rule: None }
    }

    /// Counts the outcome and the remaining quota of one limit.
    #[inline]
    fn limit(&self, rule: &RuleCounters, observed: &LimitEvent<'_>) {
        self.add(&rule.outcomes[observed.quota.algorithm_index()][observed.outcome as usize], 1);
        if let Some(verdict) = observed.verdict {
            let ratio = ratio(verdict.remaining, verdict.limit);
            self.observe(&rule.remaining, ratio_bucket(ratio), ratio);
        }
    }

    /// The counters of the rule in this slot.
    #[inline]
    fn rule(&self, slot: u32) -> Option<&RuleCounters> {
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
    fn add(&self, counter: &AtomicU64, amount: u64) {
        if self.is_shared {
            counter.fetch_add(amount, Ordering::Relaxed);
        } else {
            // Only this thread writes to its counters.
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        }
    }
}

/// Counts the limits of one request, and the combined outcome of each rule.
#[derive(Debug)]
pub(super) struct RequestCounters<'c> {
    counters: &'c ThreadCounters,
    /// The rule of the last limit, and its combined outcome so far.
    rule: Option<(&'c RuleCounters, LimitOutcome)>,
}

impl RequestCounters<'_> {
    /// Counts the next limit.
    #[inline]
    pub(super) fn limit(&mut self, observed: &LimitEvent<'_>) {
        let rule = match observed.slot {
            Some(slot) => self.counters.rule(slot),
            None => Some(&self.counters.inline),
        };
        let Some(rule) = rule else { return };
        self.counters.limit(rule, observed);
        match &mut self.rule {
            // The combined outcome of a rule is that of its worst limit. The limits of a rule share its mode and policy, so
            // the possible outcomes are ordered in the enumeration.
            Some((same, combined)) if std::ptr::eq(*same, rule) => {
                if observed.outcome as usize > *combined as usize {
                    *combined = observed.outcome;
                }
            }
            _ => {
                self.end();
                self.rule = Some((rule, observed.outcome));
            }
        }
    }

    /// Counts the combined outcome of the last rule.
    #[inline]
    pub(super) fn end(&mut self) {
        if let Some((rule, combined)) = self.rule.take() {
            self.counters.add(&rule.combined[combined as usize], 1);
        }
    }
}

/// The sums over several thread slots.
#[derive(Debug, Default)]
pub(super) struct CounterTotals {
    pub(super) decisions: HistogramSnapshot<{ DURATION_MICROS.len() + 1 }>,
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) store: [HistogramSnapshot<{ DURATION_MICROS.len() + 1 }>; Operation::ALL.len()],
    pub(super) inline: RuleTotals,
}

/// The sums of one rule.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleTotals {
    pub(super) outcomes: [[u64; OUTCOMES]; ALGORITHMS],
    pub(super) combined: [u64; OUTCOMES],
    pub(super) remaining: HistogramSnapshot<{ RATIO_MILLIONTHS.len() + 1 }>,
}

impl CounterTotals {
    pub(super) fn add(&mut self, counters: &ThreadCounters) {
        self.decisions.add(&counters.decisions);
        self.allowed += counters.allowed.load(Ordering::Relaxed);
        self.denied += counters.denied.load(Ordering::Relaxed);
        for (sum, histogram) in self.store.iter_mut().zip(&counters.store) {
            sum.add(histogram);
        }
        self.inline.add(&counters.inline);
    }
}

impl RuleTotals {
    /// Adds the counts of the rule in this slot.
    pub(super) fn add_slot(&mut self, counters: &ThreadCounters, slot: u32) {
        let slot = slot as usize;
        // A chunk without counts is not allocated.
        if let Some(chunk) = counters.rules.get(slot / CHUNK).and_then(OnceLock::get) {
            self.add(&chunk[slot % CHUNK]);
        }
    }

    fn add(&mut self, counters: &RuleCounters) {
        for (sum, count) in self.outcomes.as_flattened_mut().iter_mut().zip(counters.outcomes.as_flattened()) {
            *sum += count.load(Ordering::Relaxed);
        }
        for (sum, count) in self.combined.iter_mut().zip(&counters.combined) {
            *sum += count.load(Ordering::Relaxed);
        }
        self.remaining.add(&counters.remaining);
    }

    /// The counts since `before`.
    pub(super) fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        let pairs = since.outcomes.as_flattened_mut().iter_mut().zip(before.outcomes.as_flattened());
        let pairs = pairs.chain(since.combined.iter_mut().zip(&before.combined));
        pairs.for_each(|(count, before)| *count = count.wrapping_sub(*before));
        since.remaining.subtract(&before.remaining);
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_are_indices_of_operations_and_outcomes() {
        assert!(Operation::ALL.iter().enumerate().all(|(index, operation)| *operation as usize == index));
        assert!(LimitOutcome::ALL.iter().enumerate().all(|(index, outcome)| *outcome as usize == index));
    }

    #[test]
    fn threads_that_share_a_slot_lose_no_count() {
        let counters = ThreadCounters::new(true);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| counters.took(Micros::from_micros(3))));
            }
        });
        let mut totals = CounterTotals::default();
        totals.add(&counters);
        assert_eq!((totals.decisions.counts[2], totals.decisions.sum), (40_000, 120_000));
    }
}
