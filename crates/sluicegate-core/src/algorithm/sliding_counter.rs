//! Sliding counter: the sliding window approximated by two counters, in constant memory.
//!
//! Time is cut into windows as for the fixed window. The previous window counts by the share of it that the
//! sliding window still covers, as if its units had come evenly: with e the time since the current window
//! began, a request of cost c passes while previous·(W − e) + (current + c)·W ≤ L·W.
//!
//! Symbols: L = limit, W = window, e = elapsed, all in whole milliseconds, so that L·W < 2⁵³ keeps every
//! product exact in a double too.
//! Error, by construction: what really passes within one W can reach 2L − 1 (L at the very end of the
//! previous window, then nearly L as its share fades), and right after a boundary a request can be denied
//! although the true sliding window is all but empty. Use the sliding window or the token bucket where that
//! matters.
//!
//! Worked example: L = 100, W = 60 s, 80 units in the previous window, none yet in this one. After 15 s the
//! previous ones weigh 80·45/60 = 60, so 40 pass.

use super::Algorithm;
use super::fixed_window::{boundary_from, pulled_back, window_end};
use crate::quota::{Cost, QuotaError, UNITS_MAX, units_between, window_length};
use crate::time::{Micros, Timestamp};
use crate::verdict::{Outcome, Standing};
use std::num::NonZeroU32;

/// limit · window in milliseconds stays below this, the first integer whose successor no double can hold.
pub const WEIGHT_MAX: u64 = 1 << 53;

/// A sliding counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlidingCounter {
    limit: u64,
    window_millis: u64,
}

/// What is remembered of one identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingCounterState {
    /// Units charged in the window before the current one.
    pub previous: u64,
    /// Units charged in the current window.
    pub current: u64,
    /// The first instant after the current window.
    pub end: Timestamp,
}

impl SlidingCounter {
    /// About `limit` units within any `window`. A limit of nothing denies always.
    ///
    /// # Errors
    /// If the window is not whole milliseconds from 1 ms to ten years, or limit times window in milliseconds
    /// reaches 2⁵³.
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

    /// The two counters as they count at `now`.
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

    /// W − e: how many milliseconds of the previous window still count.
    fn overlap_millis(&self, end: Timestamp, now: Timestamp) -> u64 {
        // Whole milliseconds elapsed are rounded down, so the rest is rounded up.
        end.since(now).ceil_millis().min(self.window_millis)
    }

    /// previous·(W − e) + current·W, in unit milliseconds.
    fn weight(&self, live: &SlidingCounterState, now: Timestamp) -> u128 {
        let overlap = u128::from(self.overlap_millis(live.end, now));
        u128::from(live.previous) * overlap + u128::from(live.current) * u128::from(self.window_millis)
    }

    /// How many milliseconds of a full counter of `units` may still count for `room` units to be free.
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
            // Room appears in this window, once little enough of the previous one is left.
            let overlap = self.overlap_for_room(room - live.current, live.previous);
            before(live.end, overlap)
        } else {
            // Only in the next window, where the current counter is the one that fades.
            before(live.end.plus(self.window()), self.overlap_for_room(room, live.current))
        };
        Outcome::Denied { retry_after: free_at.since(now) }
    }

    fn charge(&self, state: Option<SlidingCounterState>, cost: Cost, now: Timestamp) -> SlidingCounterState {
        let live = self.live(state.as_ref(), now);
        SlidingCounterState { current: live.current.saturating_add(cost.units()), ..live }
    }

    /// The counter counts on above the limit.
    fn force(
        &self,
        state: Option<SlidingCounterState>,
        cost: Cost,
        now: Timestamp,
    ) -> Option<SlidingCounterState> {
        Some(self.charge(state, cost, now))
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
        let left = (u128::from(self.limit) * window).saturating_sub(self.weight(&live, now)) / window;
        let reset_after = match live {
            SlidingCounterState { current: 1.., end, .. } => end.plus(self.window()).since(now),
            SlidingCounterState { previous: 1.., end, .. } => end.since(now),
            _ => Micros::ZERO,
        };
        // What is left is at most the limit, which is a u64.
        Standing { remaining: left as u64, reset_after }
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
