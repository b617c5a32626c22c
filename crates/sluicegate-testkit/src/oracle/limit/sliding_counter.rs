//! The sliding counter: the units of the current window and of the previous one. The previous ones are weighted by the
//! share of their window that the sliding window still covers, in whole milliseconds.

use super::fixed_window::even_end_from;
use super::{Algorithm, DEBT, SECOND, usage};

/// A sliding counter.
#[derive(Clone, Debug, PartialEq)]
pub struct SlidingCounter {
    /// Units within any window, approximately.
    pub limit: u64,
    /// The window: whole milliseconds.
    pub window: u64,
}

/// Units of the window that ends at `end`, and of the one before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Counts {
    previous: u64,
    current: u64,
    end: u64,
}

impl SlidingCounter {
    fn end_after(&self, now: u64) -> u64 {
        even_end_from(now + 1, self.window)
    }

    /// The two windows at `now`. A window of another length lasts until the next window end of this limit.
    fn at(&self, counts: Option<&Counts>, now: u64) -> Counts {
        let fresh = Counts { previous: 0, current: 0, end: self.end_after(now) };
        let Some(counts) = counts else { return fresh };
        let end = even_end_from(counts.end, self.window);
        match now {
            _ if now < end => Counts { end, ..*counts },
            _ if now < end + self.window => Counts { previous: counts.current, ..fresh },
            _ => fresh,
        }
    }

    /// The units that count, times the window in milliseconds.
    fn weight(&self, counts: Option<&Counts>, now: u64) -> u128 {
        let counts = self.at(counts, now);
        let (covered, window) = ((counts.end - now).div_ceil(1_000), self.window / 1_000);
        times(counts.previous, covered.min(window)) + times(counts.current, window)
    }

    fn room(&self) -> u128 {
        times(self.limit, self.window / 1_000)
    }
}

fn times(units: u64, millis: u64) -> u128 {
    u128::from(units) * u128::from(millis)
}

impl Algorithm for SlidingCounter {
    usage!(SlidingCounter(Counts));

    fn limit(&self) -> u64 {
        self.limit
    }

    fn remaining(&self, counts: Option<&Counts>, now: u64) -> u64 {
        let room = self.room().saturating_sub(self.weight(counts, now));
        u64::try_from(room / u128::from(self.window / 1_000)).unwrap_or(u64::MAX)
    }

    fn debt(&self, counts: Option<&Counts>, now: u64) -> u64 {
        let beyond = self.weight(counts, now).saturating_sub(self.room());
        u64::try_from(beyond.div_ceil(u128::from(self.window / 1_000))).unwrap_or(u64::MAX)
    }

    fn fits(&self, counts: Option<&Counts>, cost: u64, now: u64) -> bool {
        self.weight(counts, now) + times(cost, self.window / 1_000) <= self.room()
    }

    /// While nothing is charged, the room only increases, and two windows later all of it is free. Bisection finds the
    /// instant.
    fn fits_at(&self, counts: Option<&Counts>, cost: u64, now: u64) -> Option<u64> {
        if cost > self.limit {
            return None;
        }
        let (mut early, mut late) = (now, self.at(counts, now).end + self.window);
        while early < late {
            let middle = early + (late - early) / 2;
            if self.fits(counts, cost, middle) { late = middle } else { early = middle + 1 }
        }
        Some(late)
    }

    fn restored_at(&self, counts: Option<&Counts>, now: u64) -> u64 {
        match self.at(counts, now) {
            Counts { current: 1.., end, .. } => end + self.window,
            Counts { previous: 1.., end, .. } => end,
            _ => now,
        }
    }

    fn charged(&self, counts: Option<&Counts>, cost: u64, now: u64) -> Counts {
        let counts = self.at(counts, now);
        Counts { current: counts.current + cost, ..counts }
    }

    /// The bound holds for each window.
    fn reported(&self, counts: Option<&Counts>, cost: u64, now: u64) -> Counts {
        let counts = self.at(counts, now);
        let current = (counts.current + cost).min(self.limit + DEBT * self.limit).max(counts.current);
        Counts { current, ..counts }
    }

    fn refunded(&self, counts: &Counts, cost: u64, now: u64) -> Counts {
        let counts = self.at(Some(counts), now);
        let from_current = cost.min(counts.current);
        let previous = counts.previous.saturating_sub(cost - from_current);
        Counts { previous, current: counts.current - from_current, ..counts }
    }

    fn repaired(&self, counts: &Counts, now: u64) -> Option<Counts> {
        let latest = self.end_after(now + self.window.max(SECOND));
        (counts.end > latest).then(|| Counts { end: self.end_after(now) + self.window, ..*counts })
    }

    fn matters_until(&self, counts: &Counts) -> u64 {
        let is_empty = counts.previous == 0 && counts.current == 0;
        if is_empty { 0 } else { even_end_from(counts.end, self.window) + self.window }
    }
}
