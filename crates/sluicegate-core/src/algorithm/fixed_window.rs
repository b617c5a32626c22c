//! Fixed window: a counter that starts anew with every window of the calendar.
//!
//! Windows are half-open, [start, start + W), and start at multiples of W since the epoch (or shifted per
//! key, see [`Align`]), or they are those of a [`Calendar`], whose lengths differ. What is remembered is the counter and the *end* of the window it belongs to: an end
//! needs no window length to be read, so a rule may change its window and the counter still means what it
//! meant. Only an end that falls inside a window of the new length is moved to the end of that one, so that
//! the first window after the change is not a short one with a limit of its own.
//!
//! Symbols: L = limit, W = window. A request of cost c passes while count + c ≤ L.
//! Bound: at most 2L in any interval of length W (L at the end of one window, L at the start of the next),
//! (⌊d/W⌋ + 2)·L in any interval of length d; of a calendar, W is its shortest window.
//!
//! Worked example: L = 100, W = 60 s, 100 units at second 59: the next one is told to wait 1 s, and at second
//! 60 another 100 may pass.

use super::{Algorithm, believed_ahead};
use crate::calendar::Calendar;
use crate::quota::{Cost, QuotaError, UNITS_MAX, units_between, window_length};
use crate::time::{Micros, Timestamp};
use crate::verdict::{Outcome, Standing};
use std::num::NonZeroU32;
use std::sync::Arc;

/// Where windows start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Align {
    /// At multiples of the window since the epoch: one instant for all.
    #[default]
    Epoch,
    /// Shifted by a part of the window that the key picks, so that not all identities come back at once.
    Key,
}

/// A fixed window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    limit: u64,
    /// The longest one, where a calendar says how long each is.
    window: Micros,
    align: Align,
    calendar: Option<Arc<Calendar>>,
}

/// What is remembered of one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowState {
    /// Units charged in the window.
    pub count: u64,
    /// The first instant after the window.
    pub end: Timestamp,
}

impl FixedWindow {
    /// Lets nothing pass, ever.
    pub(super) const NOTHING: Self =
        Self { limit: 0, window: Micros::PERIOD_MAX, align: Align::Epoch, calendar: None };

    /// At most `limit` units per `window`. A limit of nothing denies always.
    ///
    /// # Errors
    /// If the limit is above [`UNITS_MAX`], or the window is not whole milliseconds from 1 ms to ten years.
    pub fn new(limit: u64, window: Micros, align: Align) -> Result<Self, QuotaError> {
        units_between("limit", limit, 0, UNITS_MAX)?;
        window_length(window)?;
        Ok(Self { limit, window, align, calendar: None })
    }

    /// At most `limit` units per window of `calendar`. A limit of nothing denies always.
    ///
    /// # Errors
    /// If the limit is above [`UNITS_MAX`].
    pub fn on_calendar(limit: u64, calendar: Arc<Calendar>) -> Result<Self, QuotaError> {
        units_between("limit", limit, 0, UNITS_MAX)?;
        Ok(Self { limit, window: calendar.longest(), align: Align::Epoch, calendar: Some(calendar) })
    }

    /// The calendar that its windows are of, if it has one.
    #[must_use]
    pub fn calendar(&self) -> Option<&Calendar> {
        self.calendar.as_deref()
    }

    /// How far the windows of the key with the digest `seed` are shifted, in whole milliseconds.
    #[must_use]
    pub fn phase(&self, seed: u64) -> Micros {
        match self.align {
            Align::Epoch => Micros::ZERO,
            Align::Key => Micros::from_millis(seed % (self.window.as_micros() / 1_000)),
        }
    }

    /// The counter that still counts at `now`, with the end of its window.
    fn live(&self, state: Option<&FixedWindowState>, now: Timestamp) -> FixedWindowState {
        let own = state.map(|state| FixedWindowState { end: self.boundary_from(state.end), ..*state });
        match own {
            Some(own) if now < own.end => own,
            _ => FixedWindowState { count: 0, end: self.window_end(now) },
        }
    }

    /// See [`window_end`].
    fn window_end(&self, now: Timestamp) -> Timestamp {
        match &self.calendar {
            None => window_end(now, self.window),
            Some(calendar) => calendar.after(now),
        }
    }

    /// See [`boundary_from`].
    fn boundary_from(&self, end: Timestamp) -> Timestamp {
        match &self.calendar {
            None => boundary_from(end, self.window),
            Some(calendar) => calendar.at_or_after(end),
        }
    }

    /// See [`pulled_back`]. The end of the next window is also the last that is believed, as with even windows that are
    /// not shorter than a second.
    fn pulled_back(&self, end: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let Some(calendar) = &self.calendar else { return pulled_back(end, self.window, now) };
        let latest = calendar.after(calendar.after(now));
        (end > latest).then_some(latest)
    }
}

impl Algorithm for FixedWindow {
    type State = FixedWindowState;
    const NAME: &'static str = "fixed_window";

    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> Micros {
        self.window
    }

    fn window_at(&self, now: Timestamp) -> Micros {
        self.calendar.as_ref().map_or(self.window, |calendar| calendar.length_at(now))
    }

    fn repair(&self, state: &FixedWindowState, now: Timestamp) -> Option<FixedWindowState> {
        let end = self.pulled_back(state.end, now)?;
        Some(FixedWindowState { end, ..*state })
    }

    fn outcome(&self, state: Option<&FixedWindowState>, cost: Cost, now: Timestamp) -> Outcome {
        if cost.units() > self.limit {
            return Outcome::NeverAdmissible;
        }
        let live = self.live(state, now);
        if live.count.saturating_add(cost.units()) <= self.limit {
            return Outcome::Allowed;
        }
        Outcome::Denied { retry_after: live.end.since(now) }
    }

    fn charge(&self, state: Option<FixedWindowState>, cost: Cost, now: Timestamp) -> FixedWindowState {
        let live = self.live(state.as_ref(), now);
        FixedWindowState { count: live.count.saturating_add(cost.units()), ..live }
    }

    /// The counter counts on above the limit. Where nothing ever passes nothing need be remembered.
    fn force(&self, state: Option<FixedWindowState>, cost: Cost, now: Timestamp) -> Option<FixedWindowState> {
        if self.limit == 0 { state } else { Some(self.charge(state, cost, now)) }
    }

    fn refund(&self, state: FixedWindowState, cost: Cost, now: Timestamp) -> FixedWindowState {
        let live = self.live(Some(&state), now);
        FixedWindowState { count: live.count.saturating_sub(cost.units()), ..live }
    }

    fn standing(&self, state: Option<&FixedWindowState>, now: Timestamp) -> Standing {
        let live = self.live(state, now);
        Standing {
            remaining: self.limit.saturating_sub(live.count),
            reset_after: if live.count > 0 { live.end.since(now) } else { Micros::ZERO },
        }
    }

    fn kept_until(&self, state: &FixedWindowState) -> Timestamp {
        self.boundary_from(state.end)
    }

    fn share(&self, parts: NonZeroU32) -> Option<Self> {
        Some(Self { limit: self.limit.div_ceil(parts.get().into()), ..self.clone() })
    }
}

/// The end of the window that `now` lies in.
pub(super) fn window_end(now: Timestamp, window: Micros) -> Timestamp {
    let elapsed = now.as_micros() % window.as_micros();
    now.plus(Micros::from_micros(window.as_micros() - elapsed))
}

/// `end`, or if it was written under another window, the end of the window of this length that it falls into.
pub(super) fn boundary_from(end: Timestamp, window: Micros) -> Timestamp {
    let beyond = end.as_micros() % window.as_micros();
    if beyond == 0 { end } else { end.plus(Micros::from_micros(window.as_micros() - beyond)) }
}

/// The end of the next window, if `end` is too far ahead to be believed: it came from a clock that has since
/// stepped back or from a longer window. Not the end of this one, which may be over in a moment.
pub(super) fn pulled_back(end: Timestamp, window: Micros, now: Timestamp) -> Option<Timestamp> {
    let latest = window_end(now.plus(believed_ahead(window)), window);
    (end > latest).then(|| window_end(now, window).plus(window))
}
