//! Sliding window: a log of charges, exact to the microsecond.
//!
//! Only charges within (now − W, now] count: a unit charged at t is free again at t + W, not one microsecond earlier.
//! So no interval of length W, wherever it starts, contains more than L. All L may arrive in one microsecond: this
//! limits the count, not the burst.
//!
//! Symbols: L = limit, W = window. A request of cost c is allowed while used + c ≤ L.
//! Charges of the same microsecond share an entry, and L is at most [`LIMIT_MAX`], which bounds the log.
//!
//! Worked example: L = 2, W = 60 s, units at second 0 and 10. At second 59 the next request must wait 1 s.

use super::{Algorithm, believed_ahead};
use crate::quota::{Cost, QuotaError, units_between, units_with_debt, window_length};
use crate::time::{Micros, Timestamp};
use crate::verdict::{Outcome, Standing};
use std::collections::VecDeque;
use std::num::NonZeroU32;

/// The maximum limit of a log, which may have one entry of 16 bytes per unit, those of its debt included. For larger
/// limits use the sliding counter or the token bucket, which need constant memory.
pub const LIMIT_MAX: u64 = 10_000;

/// The largest debt of a log. A debt of ten times the largest limit would need 110,000 entries, and the script in Redis copies
/// a log with each charge: several milliseconds, in which Redis does nothing else.
pub const LOG_DEBT_MAX: u64 = 10_000;

/// A sliding window.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    limit: u64,
    window: Micros,
}

/// The state of one identity: the log of charges, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlidingWindowState {
    entries: VecDeque<Entry>,
    /// The sum of all entries, cached so that decisions need not compute it.
    used: u64,
}

/// The units charged at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The instant of the charge.
    pub at: Timestamp,
    /// The number of units.
    pub units: u32,
}

impl SlidingWindowState {
    /// A state with these entries, sorted; entries of the same instant are merged.
    #[must_use]
    pub fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut entries: Vec<Entry> = entries.into_iter().collect();
        entries.sort_by_key(|entry| entry.at);
        let mut state = Self::default();
        for entry in entries {
            state.record(entry.at, u64::from(entry.units));
        }
        state
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry> + '_ {
        self.entries.iter().copied()
    }

    /// The number of entries of the log, including expired ones.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// The number of bytes allocated for the entries.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    fn record(&mut self, at: Timestamp, units: u64) {
        // Units are bounded by the limit, which is far below 2³².
        let mut units = u32::try_from(units).unwrap_or(u32::MAX);
        match self.entries.back_mut() {
            Some(newest) if newest.at >= at => {
                // Only a damaged log holds that much. Units that do not fit the entry must not be counted either,
                // because they would never expire.
                units = units.min(u32::MAX - newest.units);
                newest.units += units;
            }
            _ if units > 0 => self.entries.push_back(Entry { at, units }),
            _ => {}
        }
        self.used += u64::from(units);
    }

    fn forget_newest(&mut self, mut units: u64) {
        while units > 0 {
            let Some(newest) = self.entries.back_mut() else { return };
            let taken = units.min(u64::from(newest.units));
            // `taken` is at most `newest.units`.
            newest.units -= taken as u32;
            self.used -= taken;
            units -= taken;
            if newest.units == 0 {
                self.entries.pop_back();
            }
        }
    }
}

impl SlidingWindow {
    /// The most units with the largest debt: ten limits, and at most [`LOG_DEBT_MAX`].
    fn units_with_debt(&self) -> u64 {
        units_with_debt(self.limit).min(self.limit + LOG_DEBT_MAX)
    }

    /// At most `limit` units within any `window`. A limit of zero always denies.
    ///
    /// # Errors
    /// If the limit is above [`LIMIT_MAX`], or the window is not whole milliseconds from 1 ms to ten years.
    pub fn new(limit: u64, window: Micros) -> Result<Self, QuotaError> {
        if limit > LIMIT_MAX {
            let remedy = format!("a log holds at most {LIMIT_MAX}; use sliding_counter or token_bucket for more");
            return Err(QuotaError::new("limit", limit, remedy));
        }
        units_between("limit", limit, 0, LIMIT_MAX)?;
        window_length(window)?;
        Ok(Self { limit, window })
    }

    /// As [`Algorithm::charge`], but without a new entry: the newest entry takes the units and the time `now`. For a
    /// store that is out of capacity. It never admits more, but holds back the units of that entry for as long as the
    /// entry had existed.
    #[must_use]
    pub fn charge_merged(&self, mut state: SlidingWindowState, cost: Cost, now: Timestamp) -> SlidingWindowState {
        self.drop_expired(&mut state, now);
        if let Some(newest) = state.entries.back_mut() {
            newest.at = newest.at.max(now);
        }
        state.record(now, cost.units());
        Self::give_back_memory(&mut state);
        state
    }

    fn is_expired(&self, entry: &Entry, now: Timestamp) -> bool {
        now.since(entry.at) >= self.window
    }

    fn drop_expired(&self, state: &mut SlidingWindowState, now: Timestamp) {
        while let Some(oldest) = state.entries.front() {
            if !self.is_expired(oldest, now) {
                return;
            }
            state.used -= u64::from(oldest.units);
            state.entries.pop_front();
        }
    }

    /// Frees the memory of a past burst when a quarter of it is in use; the low threshold avoids oscillation.
    fn give_back_memory(state: &mut SlidingWindowState) {
        let needed = state.entries.len().max(4);
        if state.entries.capacity() > 4 * needed {
            state.entries.shrink_to(2 * needed);
        }
    }

    /// The units that count at `now`.
    fn used(&self, state: &SlidingWindowState, now: Timestamp) -> u64 {
        let expired = state.entries.iter().take_while(|entry| self.is_expired(entry, now));
        state.used - expired.map(|entry| u64::from(entry.units)).sum::<u64>()
    }
}

impl Algorithm for SlidingWindow {
    type State = SlidingWindowState;
    const NAME: &'static str = "sliding_window";

    fn limit(&self) -> u64 {
        self.limit
    }

    fn window(&self) -> Micros {
        self.window
    }

    fn repair(&self, state: &SlidingWindowState, now: Timestamp) -> Option<SlidingWindowState> {
        let furthest = now.plus(believed_ahead(self.window));
        if state.entries.back().is_none_or(|newest| newest.at <= furthest) {
            return None;
        }
        let mut repaired = SlidingWindowState::default();
        for entry in &state.entries {
            repaired.record(entry.at.min(now), u64::from(entry.units));
        }
        Some(repaired)
    }

    fn outcome(&self, state: Option<&SlidingWindowState>, cost: Cost, now: Timestamp) -> Outcome {
        if cost.units() > self.limit {
            return Outcome::NeverAdmissible;
        }
        let Some(state) = state else { return Outcome::Allowed };
        let wanted = self.used(state, now) + cost.units();
        if wanted <= self.limit {
            return Outcome::Allowed;
        }
        let mut missing = wanted - self.limit;
        let mut retry_after = self.window;
        for entry in state.entries.iter().skip_while(|entry| self.is_expired(entry, now)) {
            retry_after = entry.at.plus(self.window).since(now);
            missing = missing.saturating_sub(u64::from(entry.units));
            if missing == 0 {
                break;
            }
        }
        Outcome::Denied { retry_after }
    }

    fn charge(&self, state: Option<SlidingWindowState>, cost: Cost, now: Timestamp) -> SlidingWindowState {
        let mut state = state.unwrap_or_default();
        self.drop_expired(&mut state, now);
        state.record(now, cost.units());
        Self::give_back_memory(&mut state);
        state
    }

    /// The log continues above the limit.
    fn force(&self, state: Option<SlidingWindowState>, cost: Cost, now: Timestamp) -> Option<SlidingWindowState> {
        // The difference is at most the cost.
        let charged = Cost::new((cost.units() - self.cut_off(state.as_ref(), cost, now)) as u32);
        if charged.is_zero() { state } else { Some(self.charge(state, charged, now)) }
    }

    fn cut_off(&self, state: Option<&SlidingWindowState>, cost: Cost, now: Timestamp) -> u64 {
        let used = state.map_or(0, |state| self.used(state, now));
        cost.units().saturating_sub(self.units_with_debt().saturating_sub(used))
    }

    fn refund(&self, mut state: SlidingWindowState, cost: Cost, now: Timestamp) -> SlidingWindowState {
        self.drop_expired(&mut state, now);
        // A refund usually follows its charge, so the newest units are removed first, as if the charge had not
        // happened.
        state.forget_newest(cost.units());
        Self::give_back_memory(&mut state);
        state
    }

    fn standing(&self, state: Option<&SlidingWindowState>, now: Timestamp) -> Standing {
        let used = state.map_or(0, |state| self.used(state, now));
        let newest = state.and_then(|state| state.entries.back());
        Standing {
            remaining: self.limit.saturating_sub(used),
            debt: used.saturating_sub(self.limit),
            reset_after: newest.map_or(Micros::ZERO, |entry| entry.at.plus(self.window).since(now)),
        }
    }

    fn kept_until(&self, state: &SlidingWindowState) -> Timestamp {
        state.entries.back().map_or(Timestamp::default(), |newest| newest.at.plus(self.window))
    }

    fn share(&self, parts: NonZeroU32) -> Option<Self> {
        Some(Self { limit: self.limit.div_ceil(parts.get().into()), ..*self })
    }
}
