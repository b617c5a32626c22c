//! A number for a calendar window, and the instant at which that window ends.
//!
//! The latest window with a number is the current one until it ends, even if the clock steps back before its start. If
//! it is more than a window, and more than a second, ahead, the next window replaces it.

use super::{Exact, Memory, Rules, believed_ahead, calendar_end, next_boundary, whole, with_debt};

/// A fixed window.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed {
    /// Units per window.
    pub limit: u64,
    /// The window in microseconds.
    pub window: u64,
}

/// Units charged in the window that ends at `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Count {
    pub(super) end: u64,
    pub(super) units: u64,
}

impl Fixed {
    /// The current window at `now`. A window of another length lasts until the next window end of this limit.
    fn current(&self, count: Option<&Count>, now: u64) -> Count {
        let latest = count.map(|count| Count { end: next_boundary(count.end, self.window), ..*count });
        let fresh = Count { end: calendar_end(now, self.window), units: 0 };
        latest.filter(|latest| now < latest.end).unwrap_or(fresh)
    }
}

impl Rules for Fixed {
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
        let furthest = calendar_end(now + believed_ahead(self.window), self.window);
        if next_boundary(count.end, self.window) <= furthest {
            return count;
        }
        Count { end: calendar_end(now, self.window) + self.window, ..count }
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
