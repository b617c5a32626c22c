//! Sliding counter: approximates the sliding window by two counters, in constant memory.
//!
//! Time is divided into windows as for the fixed window. The previous window counts by the fraction that the sliding
//! window still covers, as if its units had arrived evenly. With e the time since the start of the current window, a
//! request of cost c is allowed while previous·(W − e) + (current + c)·W ≤ L·W.
//!
//! Symbols: L = limit, W = window, e = elapsed, all in whole milliseconds, so that L·W < 2⁵³ keeps every product
//! exact in a double, too.
//! Error, by construction: the admissions within one W can reach 2L − 1 (L at the very end of the previous window,
//! then nearly L as its fraction fades). Right after a boundary a request can be denied although the true sliding
//! window is almost empty. Use the sliding window or the token bucket if that matters.
//!
//! Worked example: L = 100, W = 60 s, 80 units in the previous window, none yet in this one. After 15 s the previous
//! units weigh 80·45/60 = 60, so 40 are allowed.

use super::Algorithm;
use super::fixed_window::{boundary_from, pulled_back, window_end};
use crate::quota::{Cost, QuotaError, UNITS_MAX, units_between, units_with_debt, window_length};
use crate::time::{Micros, Timestamp};
use crate::verdict::{Outcome, Standing};
use std::num::NonZeroU32;

/// Limit times window in milliseconds stays below this: the first integer without an exact successor in a double.
pub const WEIGHT_MAX: u64 = 1 << 53;

/// A sliding counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    limit: u64,
    window_millis: u64,
}

/// The state of one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingCounterState {
    /// The units charged in the previous window.
    pub previous: u64,
    /// The units charged in the current window.
    pub current: u64,
    /// The first instant after the current window.
    pub end: Timestamp,
}

impl SlidingCounter {
    /// About `limit` units within any `window`. A limit of zero always denies.
    ///
    /// # Errors
    /// If the window is not whole milliseconds from 1 ms to ten years, or limit times window in milliseconds reaches
    /// 2⁵³.
    pub fn new(limit: u64, window: Micros) -> Result<Self, QuotaError> {
        units_between("limit", limit, 0, UNITS_MAX)?;
        window_length(window)?;
        let window_millis = window.as_micros() / 1_000;
        let limit_max = (WEIGHT_MAX - 1) / window_millis;
        if limit > limit_max {
            let remedy = format!("use at most {limit_max} for this window, a shorter window, or a token_bucket");
            return Err(QuotaError::new("limit", limit, remedy));
        }
        Ok(Self { limit, window_millis })
    }

    /// The two counters at `now`.
    fn live(&self, state: Option<&SlidingCounterState>, now: Timestamp) -> SlidingCounterState {
        let window = self.window();
        let empty = SlidingCounterState { previous: 0, current: 0, end: window_end(now, window) };
        let own = state.map(|state| SlidingCounterState { end: boundary_from(state.end, window), ..*state });
        match own {
            Some(own) if now < own.end => own,
            Some(own) if now.since(own.end) < window => SlidingCounterState { previous: own.current, ..empty },
            _ => empty,
        }
    }

    /// W − e: the milliseconds of the previous window that still count.
    fn overlap_millis(&self, end: Timestamp, now: Timestamp) -> u64 {
        // Elapsed milliseconds are rounded down, so the rest is rounded up.
        end.since(now).ceil_millis().min(self.window_millis)
    }

    /// previous·(W − e) + current·W, in unit milliseconds.
    fn weight(&self, live: &SlidingCounterState, now: Timestamp) -> u128 {
        let overlap = u128::from(self.overlap_millis(live.end, now));
        u128::from(live.previous) * overlap + u128::from(live.current) * u128::from(self.window_millis)
    }

    /// The number of milliseconds of a counter of `units` that may still count if `room` units must be free.
    fn overlap_for_room(&self, room: u64, units: u64) -> u64 {
        let overlap = u128::from(room) * u128::from(self.window_millis) / u128::from(units.max(1));
        u64::try_from(overlap).unwrap_or(u64::MAX).min(self.window_millis)
    }
}

impl Algorithm for SlidingCounter {
    type State = SlidingCounterState;
    const NAME: &'static str = "sliding_counter";

    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> Micros {
        Micros::from_millis(self.window_millis)
    }

    fn repair(&self, state: &SlidingCounterState, now: Timestamp) -> Option<SlidingCounterState> {
        let end = pulled_back(state.end, self.window(), now)?;
        Some(SlidingCounterState { end, ..*state })
    }

    fn outcome(&self, state: Option<&SlidingCounterState>, cost: Cost, now: Timestamp) -> Outcome {
        if cost.units() > self.limit {
            return Outcome::NeverAdmissible;
        }
        let live = self.live(state, now);
        let window = u128::from(self.window_millis);
        if self.weight(&live, now) + u128::from(cost.units()) * window <= u128::from(self.limit) * window {
            return Outcome::Allowed;
        }
        let room = self.limit - cost.units();
        let free_at = if live.current <= room {
            // There is room in this window once little enough of the previous one is left.
            let overlap = self.overlap_for_room(room - live.current, live.previous);
            before(live.end, overlap)
        } else {
            // There is room only in the next window, in which the current counter fades.
            before(live.end.plus(self.window()), self.overlap_for_room(room, live.current))
        };
        Outcome::Denied { retry_after: free_at.since(now) }
    }

    fn charge(&self, state: Option<SlidingCounterState>, cost: Cost, now: Timestamp) -> SlidingCounterState {
        let live = self.live(state.as_ref(), now);
        SlidingCounterState { current: live.current.saturating_add(cost.units()), ..live }
    }

    /// The counter continues above the limit. A limit that never admits anything needs no state.
    fn force(
        &self,
        state: Option<SlidingCounterState>,
        cost: Cost,
        now: Timestamp,
    ) -> Option<SlidingCounterState> {
        if self.limit == 0 {
            return state;
        }
        let live = self.live(state.as_ref(), now);
        let charged = cost.units() - self.cut_off(state.as_ref(), cost, now);
        Some(SlidingCounterState { current: live.current + charged, ..live })
    }

    /// The bound applies to each window: the units of the previous one fade.
    fn cut_off(&self, state: Option<&SlidingCounterState>, cost: Cost, now: Timestamp) -> u64 {
        let room = units_with_debt(self.limit).saturating_sub(self.live(state, now).current);
        cost.units().saturating_sub(room)
    }

    fn refund(&self, state: SlidingCounterState, cost: Cost, now: Timestamp) -> SlidingCounterState {
        let live = self.live(Some(&state), now);
        let from_current = cost.units().min(live.current);
        SlidingCounterState {
            current: live.current - from_current,
            previous: live.previous.saturating_sub(cost.units() - from_current),
            ..live
        }
    }

    fn standing(&self, state: Option<&SlidingCounterState>, now: Timestamp) -> Standing {
        let live = self.live(state, now);
        let window = u128::from(self.window_millis);
        let (full, weight) = (u128::from(self.limit) * window, self.weight(&live, now));
        let (left, debt) =
            if weight <= full { ((full - weight) / window, 0) } else { (0, (weight - full).div_ceil(window)) };
        let reset_after = match live {
            SlidingCounterState { current: 1.., end, .. } => end.plus(self.window()).since(now),
            SlidingCounterState { previous: 1.., end, .. } => end.since(now),
            _ => Micros::ZERO,
        };
        // The rest is at most the limit, and the debt at most the sum of two counters.
        Standing { remaining: left as u64, debt: u64::try_from(debt).unwrap_or(u64::MAX), reset_after }
    }

    fn kept_until(&self, state: &SlidingCounterState) -> Timestamp {
        boundary_from(state.end, self.window()).plus(self.window())
    }

    fn share(&self, parts: NonZeroU32) -> Option<Self> {
        Some(Self { limit: self.limit.div_ceil(parts.get().into()), ..*self })
    }
}

/// The instant `millis` before `end`.
fn before(end: Timestamp, millis: u64) -> Timestamp {
    Timestamp::from_micros(end.as_micros().saturating_sub(millis.saturating_mul(1_000)))
}
