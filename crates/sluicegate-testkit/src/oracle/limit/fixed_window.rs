//! The fixed window: a number of units, and the instant at which their window ends.

use super::{Algorithm, DEBT, SECOND, usage};

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

/// A fixed window.
#[derive(Clone, Debug, PartialEq)]
pub struct FixedWindow {
    /// Units per window.
    pub limit: u64,
    /// The position of the windows.
    pub windows: Windows,
}

/// The position of the window ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Windows {
    /// At multiples of this length since the epoch.
    Even(u64),
    /// When an hour begins.
    Hours,
    /// When a day begins (UTC).
    Days,
    /// When a week begins, on this day of the week; Monday is 0.
    Weeks(u64),
    /// When this day of a month begins, or its last one if it has no such day.
    Months(u64),
}

/// Units of the window that ends at `end`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Count {
    units: u64,
    end: u64,
}

/// The first multiple of `window` at or after `instant`.
pub(super) fn even_end_from(instant: u64, window: u64) -> u64 {
    instant.div_ceil(window) * window
}

impl Windows {
    /// The first end of a window at or after `instant`.
    fn end_from(self, instant: u64) -> u64 {
        match self {
            Self::Even(window) => even_end_from(instant, window),
            Self::Hours => even_end_from(instant, HOUR),
            Self::Days => even_end_from(instant, DAY),
            Self::Weeks(first) => {
                // The first Monday was 5 January 1970.
                let shift = (4 + first) % 7 * DAY;
                even_end_from(instant - shift, 7 * DAY) + shift
            }
            Self::Months(anchor) => month_begins_from(instant, anchor),
        }
    }

    pub(super) fn end_after(self, now: u64) -> u64 {
        self.end_from(now + 1)
    }

    /// The end of the last window that usage may belong to: the window after the current one.
    fn latest(self, now: u64) -> u64 {
        match self {
            Self::Even(window) => self.end_after(now + window.max(SECOND)),
            _ => self.end_after(self.end_after(now)),
        }
    }
}

/// Goes through all months since 1970.
fn month_begins_from(instant: u64, anchor: u64) -> u64 {
    let mut first = 0;
    for month in 0.. {
        let days = days_of(1970 + month / 12, month % 12);
        let begins = (first + anchor.min(days) - 1) * DAY;
        if begins >= instant {
            return begins;
        }
        first += days;
    }
    first
}

/// Year, month and day of the month, from 1 on, of a day since 1970.
pub(in super::super) fn date_of(days: u64) -> (u64, u64, u64) {
    let mut first = 0;
    for month in 0.. {
        let (year, month) = (1970 + month / 12, month % 12);
        if days < first + days_of(year, month) {
            return (year, month + 1, days - first + 1);
        }
        first += days_of(year, month);
    }
    (1970, 1, 1)
}

fn days_of(year: u64, month: u64) -> u64 {
    let divides = |years: u64| year.is_multiple_of(years);
    let is_leap_year = divides(4) && (!divides(100) || divides(400));
    match month {
        1 if is_leap_year => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

impl FixedWindow {
    /// The window at `now`. A window of another length lasts until the next window end of this limit.
    fn at(&self, count: Option<&Count>, now: u64) -> Count {
        let count = count.map(|count| Count { end: self.windows.end_from(count.end), ..*count });
        count
            .filter(|count| now < count.end)
            .unwrap_or_else(|| Count { units: 0, end: self.windows.end_after(now) })
    }
}

impl Algorithm for FixedWindow {
    usage!(FixedWindow(Count));

    fn limit(&self) -> u64 {
        self.limit
    }

    fn remaining(&self, count: Option<&Count>, now: u64) -> u64 {
        self.limit.saturating_sub(self.at(count, now).units)
    }

    fn debt(&self, count: Option<&Count>, now: u64) -> u64 {
        self.at(count, now).units.saturating_sub(self.limit)
    }

    fn fits(&self, count: Option<&Count>, cost: u64, now: u64) -> bool {
        self.at(count, now).units + cost <= self.limit
    }

    fn fits_at(&self, count: Option<&Count>, cost: u64, now: u64) -> Option<u64> {
        (cost <= self.limit).then(|| self.at(count, now).end)
    }

    fn restored_at(&self, count: Option<&Count>, now: u64) -> u64 {
        let count = self.at(count, now);
        if count.units > 0 { count.end } else { now }
    }

    fn charged(&self, count: Option<&Count>, cost: u64, now: u64) -> Count {
        let count = self.at(count, now);
        Count { units: count.units + cost, ..count }
    }

    fn reported(&self, count: Option<&Count>, cost: u64, now: u64) -> Count {
        let count = self.at(count, now);
        let units = (count.units + cost).min(self.limit + DEBT * self.limit).max(count.units);
        Count { units, ..count }
    }

    fn refunded(&self, count: &Count, cost: u64, now: u64) -> Count {
        let count = self.at(Some(count), now);
        Count { units: count.units.saturating_sub(cost), ..count }
    }

    fn repaired(&self, count: &Count, now: u64) -> Option<Count> {
        let pulled_back = match self.windows {
            Windows::Even(window) => self.windows.end_after(now) + window,
            _ => self.windows.latest(now),
        };
        (count.end > self.windows.latest(now)).then_some(Count { end: pulled_back, ..*count })
    }

    fn matters_until(&self, count: &Count) -> u64 {
        if count.units == 0 { 0 } else { self.windows.end_from(count.end) }
    }
}
