//! Two numbers: the units charged in the current calendar window and in the previous one. The previous one is weighted
//! by the share of its window that the sliding window still covers, in whole milliseconds.

use super::{Exact, Memory, Rules, believed_ahead, calendar_end, next_boundary, whole, with_debt};
use num_bigint::BigInt;

/// A sliding counter.
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    /// Units within any window, approximately.
    pub limit: u64,
    /// The window in microseconds: whole milliseconds.
    pub window: u64,
}

/// Units charged in the window that ends at `end`, and in the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Windows {
    previous: u64,
    current: u64,
    end: u64,
}

impl Counter {
    /// The two windows at `now`. As for the fixed window, a window of another length lasts until the next window end of
    /// this limit.
    fn at(&self, windows: Option<&Windows>, now: u64) -> Windows {
        let empty = Windows { previous: 0, current: 0, end: calendar_end(now, self.window) };
        let Some(windows) = windows else { return empty };
        let end = next_boundary(windows.end, self.window);
        if now < end {
            return Windows { end, ..*windows };
        }
        if now < end + self.window {
            return Windows { previous: windows.current, ..empty };
        }
        empty
    }

    /// The used units, times the window in milliseconds, so that the result is a whole number. The previous window
    /// counts with the milliseconds that the window ending at `now` still covers, the current one with all of its
    /// milliseconds.
    fn weight(&self, windows: Option<&Windows>, now: u64) -> u128 {
        let windows = self.at(windows, now);
        let start = windows.end.saturating_sub(self.window);
        let elapsed = now.saturating_sub(start) / 1_000;
        let covered = self.window / 1_000 - elapsed;
        product(windows.previous, covered) + product(windows.current, self.window / 1_000)
    }
}

fn product(units: u64, millis: u64) -> u128 {
    u128::from(units) * u128::from(millis)
}

impl Rules for Counter {
    type Memory = Windows;

    fn wrap(windows: Windows) -> Memory {
        Memory::Counter(windows)
    }

    fn own(memory: &Memory) -> Option<&Windows> {
        match memory {
            Memory::Counter(windows) => Some(windows),
            _ => None,
        }
    }

    fn free(&self, windows: Option<&Windows>, now: u64) -> Exact {
        let used = Exact::new(BigInt::from(self.weight(windows, now)), BigInt::from(self.window / 1_000));
        whole(self.limit) - used
    }

    /// While nothing is charged, the free units only increase, so bisection finds the first instant.
    fn free_at(&self, windows: Option<&Windows>, cost: u64, now: u64) -> Option<u64> {
        if cost > self.limit {
            return None;
        }
        let millis = self.window / 1_000;
        let fits = |at| self.weight(windows, at) + product(cost, millis) <= product(self.limit, millis);
        let (mut early, mut late) = (now, self.at(windows, now).end + self.window);
        while early < late {
            let middle = early + (late - early) / 2;
            if fits(middle) { late = middle } else { early = middle + 1 }
        }
        Some(late)
    }

    fn whole_at(&self, windows: Option<&Windows>, now: u64) -> u64 {
        match self.at(windows, now) {
            Windows { current: 1.., end, .. } => end + self.window,
            Windows { previous: 1.., end, .. } => end,
            _ => now,
        }
    }

    fn settled(&self, windows: Windows, now: u64) -> Windows {
        let furthest = calendar_end(now + believed_ahead(self.window), self.window);
        if next_boundary(windows.end, self.window) <= furthest {
            return windows;
        }
        Windows { end: calendar_end(now, self.window) + self.window, ..windows }
    }

    fn taken(&self, windows: Option<Windows>, cost: u64, now: u64) -> Windows {
        let windows = self.at(windows.as_ref(), now);
        Windows { current: windows.current + cost, ..windows }
    }

    fn reported(&self, windows: Option<Windows>, cost: u64, now: u64) -> Option<Windows> {
        let at = self.at(windows.as_ref(), now);
        let current = (at.current + cost).min(with_debt(self.limit)).max(at.current);
        if self.limit == 0 { windows } else { Some(Windows { current, ..at }) }
    }

    fn given_back(&self, windows: Windows, cost: u64, now: u64) -> (Windows, Exact) {
        let windows = self.at(Some(&windows), now);
        let from_current = cost.min(windows.current);
        let from_previous = (cost - from_current).min(windows.previous);
        let current = windows.current - from_current;
        let previous = windows.previous - from_previous;
        (Windows { current, previous, ..windows }, whole(from_current + from_previous))
    }
}
