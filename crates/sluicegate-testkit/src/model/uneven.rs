//! A number for a window of a calendar with windows of different lengths, and the instant at which that window ends.
//!
//! It keeps the same state as [`super::Fixed`]: a window of another calendar, or of a fixed length, lasts until the
//! next window end of this limit. If the latest window is further ahead than the next one, the next one replaces it.

use super::fixed::Count;
use super::{Exact, Memory, Rules, whole, with_debt};

/// A fixed window of a calendar.
#[derive(Clone, Debug, PartialEq)]
pub struct Uneven {
    /// Units per window.
    pub limit: u64,
    /// The end of the first window. The start of that window is not known.
    pub first: u64,
    /// The lengths of the windows after that, in microseconds. The last length repeats.
    pub lengths: Vec<u64>,
}

impl Uneven {
    /// The end of the window that contains `now`, found by a linear search.
    #[must_use]
    pub fn end_after(&self, now: u64) -> u64 {
        let mut end = self.first;
        for length in &self.lengths {
            if end > now {
                return end;
            }
            end += length;
        }
        let last = self.lengths.last().copied().unwrap_or(1);
        if end > now { end } else { end + ((now - end) / last + 1) * last }
    }

    /// The first end of a window at or after `instant`.
    fn end_from(&self, instant: u64) -> u64 {
        instant.checked_sub(1).map_or(self.first, |before| self.end_after(before))
    }

    fn current(&self, count: Option<&Count>, now: u64) -> Count {
        let latest = count.map(|count| Count { end: self.end_from(count.end), ..*count });
        let fresh = Count { end: self.end_after(now), units: 0 };
        latest.filter(|latest| now < latest.end).unwrap_or(fresh)
    }
}

impl Rules for Uneven {
    type Memory = Count;

    fn wrap(count: Count) -> Memory {
        Memory::Fixed(count)
    }

    fn own(memory: &Memory) -> Option<&Count> {
        match memory {
            Memory::Fixed(count) => Some(count),
            _ => None,
        }
    }

    fn free(&self, count: Option<&Count>, now: u64) -> Exact {
        whole(self.limit) - whole(self.current(count, now).units)
    }

    fn free_at(&self, count: Option<&Count>, cost: u64, now: u64) -> Option<u64> {
        (cost <= self.limit).then_some(self.current(count, now).end)
    }

    fn whole_at(&self, count: Option<&Count>, now: u64) -> u64 {
        match self.current(count, now) {
            Count { units: 0, .. } => now,
            Count { end, .. } => end,
        }
    }

    fn settled(&self, count: Count, now: u64) -> Count {
        let furthest = self.end_after(self.end_after(now));
        if self.end_from(count.end) <= furthest { count } else { Count { end: furthest, ..count } }
    }

    fn taken(&self, count: Option<Count>, cost: u64, now: u64) -> Count {
        let current = self.current(count.as_ref(), now);
        Count { units: current.units + cost, ..current }
    }

    fn reported(&self, count: Option<Count>, cost: u64, now: u64) -> Option<Count> {
        let current = self.current(count.as_ref(), now);
        let units = (current.units + cost).min(with_debt(self.limit)).max(current.units);
        if self.limit == 0 { count } else { Some(Count { units, ..current }) }
    }

    fn given_back(&self, count: Count, cost: u64, now: u64) -> (Count, Exact) {
        let current = self.current(Some(&count), now);
        let given_back = cost.min(current.units);
        (Count { units: current.units - given_back, ..current }, whole(given_back))
    }
}
