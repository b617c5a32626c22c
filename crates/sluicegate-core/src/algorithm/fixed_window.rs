//! Fixed window: a counter that restarts with every window.
//!
//! Windows are half-open, [start, start + W). They start at multiples of W since the epoch (or shifted per key, see
//! [`Align`]), or they follow a [`Calendar`] with unequal lengths. The state is the counter and the *end* of its
//! window. An end is valid without the window length, so the counter keeps its meaning when a rule changes its
//! window. Only an end inside a window of the new length moves to the end of that window. Otherwise the first window
//! after the change would be a short one with a limit of its own.
//!
//! Symbols: L = limit, W = window. A request of cost c is allowed while count + c ≤ L.
//! Bound: at most 2L in any interval of length W (L at the end of one window, L at the start of the next), and
//! (⌊d/W⌋ + 2)·L in any interval of length d. For a calendar, W is its shortest window.
//!
//! Worked example: L = 100, W = 60 s, 100 units at second 59: the next request must wait 1 s, and at second 60
//! another 100 are allowed.

use super::{Algorithm, believed_ahead};
use crate::calendar::Calendar;
use crate::quota::{Cost, QuotaError, UNITS_MAX, units_between, units_with_debt, window_length};
use crate::time::{Micros, Timestamp};
use crate::verdict::{Outcome, Standing, Verdict};
use std::num::NonZeroU32;
use std::sync::Arc;

/// The alignment of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Align {
    /// To multiples of the window since the epoch, the same for all keys.
    #[default]
    Epoch,
    /// Shifted by a part of the window that depends on the key, so that not all clients return at the same instant.
    Key,
}

/// A fixed window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    limit: u64,
    /// The longest window, if a calendar defines the lengths.
    window: Micros,
    align: Align,
    calendar: Option<Arc<Calendar>>,
}

/// The state of one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowState {
    /// The units charged in the window.
    pub count: u64,
    /// The first instant after the window.
    pub end: Timestamp,
}

impl FixedWindow {
    /// A limit that never admits anything.
    pub(super) const NOTHING: Self =
        Self { limit: 0, window: Micros::PERIOD_MAX, align: Align::Epoch, calendar: None };

    /// At most `limit` units per `window`. A limit of zero always denies.
    ///
    /// # Errors
    /// If the limit is above [`UNITS_MAX`], or the window is not whole milliseconds from 1 ms to ten years.
    pub fn new(limit: u64, window: Micros, align: Align) -> Result<Self, QuotaError> {
        units_between("limit", limit, 0, UNITS_MAX)?;
        window_length(window)?;
        Ok(Self { limit, window, align, calendar: None })
    }

    /// At most `limit` units per window of `calendar`. A limit of zero always denies.
    ///
    /// # Errors
    /// If the limit is above [`UNITS_MAX`].
    pub fn on_calendar(limit: u64, calendar: Arc<Calendar>) -> Result<Self, QuotaError> {
        units_between("limit", limit, 0, UNITS_MAX)?;
        Ok(Self { limit, window: calendar.longest(), align: Align::Epoch, calendar: Some(calendar) })
    }

    /// The calendar of its windows, if it has one.
    #[must_use]
    pub fn calendar(&self) -> Option<&Calendar> {
        self.calendar.as_deref()
    }

    /// The shift of the windows of the key with the digest `seed`, in whole milliseconds.
    #[must_use]
    pub fn phase(&self, seed: u64) -> Micros {
        match self.align {
            Align::Epoch => Micros::ZERO,
            Align::Key => Micros::from_millis(seed % (self.window.as_micros() / 1_000)),
        }
    }
}

/// Evaluates `$body` with `$counter` bound to the counter over the windows of `$window`. The kind of the windows is
/// checked once, so a decision by windows of one length has no extra cost.
macro_rules! with_counter {
    ($window:expr, $counter:ident => $body:expr) => {
        match &$window.calendar {
            None => {
                let $counter = Counter { limit: $window.limit, windows: Even($window.window) };
                $body
            }
            Some(calendar) => out_of_line(move || {
                let $counter = Counter { limit: $window.limit, windows: &**calendar };
                $body
            }),
        }
    };
}

#[cold]
#[inline(never)]
fn out_of_line<T>(body: impl FnOnce() -> T) -> T {
    body()
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
        with_counter!(self, counter => counter.repair(state, now))
    }

    fn outcome(&self, state: Option<&FixedWindowState>, cost: Cost, now: Timestamp) -> Outcome {
        with_counter!(self, counter => counter.outcome(state, cost, now))
    }

    fn charge(&self, state: Option<FixedWindowState>, cost: Cost, now: Timestamp) -> FixedWindowState {
        with_counter!(self, counter => counter.charge(state, cost, now))
    }

    /// The counter continues above the limit, and the debt ends with the window. A limit that never admits anything
    /// needs no state.
    fn force(&self, state: Option<FixedWindowState>, cost: Cost, now: Timestamp) -> Option<FixedWindowState> {
        if self.limit == 0 {
            return state;
        }
        with_counter!(self, counter => counter.force(state, cost, now))
    }

    fn cut_off(&self, state: Option<&FixedWindowState>, cost: Cost, now: Timestamp) -> u64 {
        with_counter!(self, counter => counter.cut_off(state, cost, now))
    }

    fn refund(&self, state: FixedWindowState, cost: Cost, now: Timestamp) -> FixedWindowState {
        with_counter!(self, counter => counter.refund(state, cost, now))
    }

    fn standing(&self, state: Option<&FixedWindowState>, now: Timestamp) -> Standing {
        with_counter!(self, counter => counter.standing(state, now))
    }

    fn kept_until(&self, state: &FixedWindowState) -> Timestamp {
        with_counter!(self, counter => counter.kept_until(state))
    }

    fn share(&self, parts: NonZeroU32) -> Option<Self> {
        Some(Self { limit: self.limit.div_ceil(parts.get().into()), ..self.clone() })
    }

    #[inline(always)]
    fn decide(
        &self,
        state: Option<FixedWindowState>,
        cost: Cost,
        now: Timestamp,
    ) -> (Option<FixedWindowState>, Verdict) {
        with_counter!(self, counter => counter.decide(state, cost, now))
    }
}

/// The ends of windows.
trait Windows: Copy {
    /// The maximum length of a window.
    fn longest(self) -> Micros;

    /// See [`window_end`].
    fn end_after(self, now: Timestamp) -> Timestamp;

    /// See [`boundary_from`].
    fn end_from(self, end: Timestamp) -> Timestamp;

    /// See [`pulled_back`].
    fn pulled_back(self, end: Timestamp, now: Timestamp) -> Option<Timestamp>;
}

/// Windows of one length.
#[derive(Clone, Copy)]
struct Even(Micros);

impl Windows for Even {
    fn longest(self) -> Micros {
        self.0
    }

    fn end_after(self, now: Timestamp) -> Timestamp {
        window_end(now, self.0)
    }

    fn end_from(self, end: Timestamp) -> Timestamp {
        boundary_from(end, self.0)
    }

    fn pulled_back(self, end: Timestamp, now: Timestamp) -> Option<Timestamp> {
        pulled_back(end, self.0, now)
    }
}

impl Windows for &Calendar {
    fn longest(self) -> Micros {
        Calendar::longest(self)
    }

    fn end_after(self, now: Timestamp) -> Timestamp {
        self.after(now)
    }

    fn end_from(self, end: Timestamp) -> Timestamp {
        self.at_or_after(end)
    }

    /// The end of the next window is also the latest accepted end, as with even windows of at least a second.
    fn pulled_back(self, end: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let latest = self.after(self.after(now));
        (end > latest).then_some(latest)
    }
}

/// A limit over any kind of windows. Its parts are inlined, so that a decision checks the kind once.
struct Counter<W> {
    limit: u64,
    windows: W,
}

impl<W: Windows> Counter<W> {
    /// The counter that is live at `now`, with the end of its window.
    #[inline(always)]
    fn live(&self, state: Option<&FixedWindowState>, now: Timestamp) -> FixedWindowState {
        let own = state.map(|state| FixedWindowState { end: self.windows.end_from(state.end), ..*state });
        match own {
            Some(own) if now < own.end => own,
            _ => FixedWindowState { count: 0, end: self.windows.end_after(now) },
        }
    }
}

impl<W: Windows> Algorithm for Counter<W> {
    type State = FixedWindowState;
    const NAME: &'static str = FixedWindow::NAME;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> Micros {
        self.windows.longest()
    }

    #[inline(always)]
    fn repair(&self, state: &FixedWindowState, now: Timestamp) -> Option<FixedWindowState> {
        let end = self.windows.pulled_back(state.end, now)?;
        Some(FixedWindowState { end, ..*state })
    }

    #[inline(always)]
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

    #[inline(always)]
    fn charge(&self, state: Option<FixedWindowState>, cost: Cost, now: Timestamp) -> FixedWindowState {
        let live = self.live(state.as_ref(), now);
        FixedWindowState { count: live.count.saturating_add(cost.units()), ..live }
    }

    fn force(&self, state: Option<FixedWindowState>, cost: Cost, now: Timestamp) -> Option<FixedWindowState> {
        let live = self.live(state.as_ref(), now);
        let charged = cost.units() - self.cut_off(state.as_ref(), cost, now);
        Some(FixedWindowState { count: live.count + charged, ..live })
    }

    fn cut_off(&self, state: Option<&FixedWindowState>, cost: Cost, now: Timestamp) -> u64 {
        let room = units_with_debt(self.limit).saturating_sub(self.live(state, now).count);
        cost.units().saturating_sub(room)
    }

    fn refund(&self, state: FixedWindowState, cost: Cost, now: Timestamp) -> FixedWindowState {
        let live = self.live(Some(&state), now);
        FixedWindowState { count: live.count.saturating_sub(cost.units()), ..live }
    }

    #[inline(always)]
    fn standing(&self, state: Option<&FixedWindowState>, now: Timestamp) -> Standing {
        let live = self.live(state, now);
        Standing {
            remaining: self.limit.saturating_sub(live.count),
            debt: live.count.saturating_sub(self.limit),
            reset_after: if live.count > 0 { live.end.since(now) } else { Micros::ZERO },
        }
    }

    fn kept_until(&self, state: &FixedWindowState) -> Timestamp {
        self.windows.end_from(state.end)
    }
}

/// The end of the window that contains `now`.
pub(super) fn window_end(now: Timestamp, window: Micros) -> Timestamp {
    let elapsed = now.as_micros() % window.as_micros();
    now.plus(Micros::from_micros(window.as_micros() - elapsed))
}

/// `end`, or the end of the window that contains it if it was written under another window length.
pub(super) fn boundary_from(end: Timestamp, window: Micros) -> Timestamp {
    let beyond = end.as_micros() % window.as_micros();
    if beyond == 0 { end } else { end.plus(Micros::from_micros(window.as_micros() - beyond)) }
}

/// The end of the next window, if `end` is too far ahead: it comes from a clock that has since stepped back, or from
/// a longer window. The end of the current window would be wrong, because that may be over in a moment.
pub(super) fn pulled_back(end: Timestamp, window: Micros, now: Timestamp) -> Option<Timestamp> {
    let latest = window_end(now.plus(believed_ahead(window)), window);
    (end > latest).then(|| window_end(now, window).plus(window))
}
