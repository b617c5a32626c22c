//! One instant on both time scales of the embedded store.
//!
//! Fixed windows may follow the calendar, so they begin and end by the time of day. All other algorithms count
//! durations on the steady clock, which no correction of the time of day moves.

use super::MemoryStore;
use crate::store::key::Digest;
use sluicegate_core::{Quota, State, Timestamp};

/// The time scale of an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeScale {
    /// The steady clock, which never steps.
    Steady,
    /// The time of day.
    Date,
}

/// An instant on both time scales.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Instants {
    pub(super) steady: Timestamp,
    pub(super) date: Timestamp,
}

impl TimeScale {
    /// The time scale for the states of this limit.
    #[inline]
    pub(super) fn of(quota: &Quota) -> Self {
        if matches!(quota, Quota::FixedWindow(_)) { Self::Date } else { Self::Steady }
    }

    /// The time scale of this state.
    pub(super) fn of_state(state: &State) -> Self {
        if matches!(state, State::FixedWindow(_)) { Self::Date } else { Self::Steady }
    }
}

impl Instants {
    /// The instant on this time scale.
    #[inline]
    pub(super) fn on(self, scale: TimeScale) -> Timestamp {
        match scale {
            TimeScale::Steady => self.steady,
            TimeScale::Date => self.date,
        }
    }

    /// Mutable access to the instant on this time scale.
    pub(super) fn on_mut(&mut self, scale: TimeScale) -> &mut Timestamp {
        match scale {
            TimeScale::Steady => &mut self.steady,
            TimeScale::Date => &mut self.date,
        }
    }

    /// The instant that decides the state under `digest`, shifted to the alignment of its windows.
    pub(super) fn time_for(self, quota: &Quota, digest: Digest) -> Timestamp {
        quota.aligned(self.on(TimeScale::of(quota)), digest.1)
    }
}

impl MemoryStore {
    /// `now` on both time scales.
    #[inline]
    pub(super) fn instants(&self, now: Timestamp) -> Instants {
        Instants { steady: now, date: self.time_of_day(now) }
    }

    /// The instant that decides the state under `digest` at the steady instant `now`.
    #[inline(always)]
    pub(super) fn time_for(&self, quota: &Quota, digest: Digest, now: Timestamp) -> Timestamp {
        if TimeScale::of(quota) == TimeScale::Steady { now } else { self.window_time(quota, digest, now) }
    }

    /// Not inlined, to keep the fast path short.
    #[inline(never)]
    fn window_time(&self, quota: &Quota, digest: Digest, now: Timestamp) -> Timestamp {
        quota.aligned(self.time_of_day(now), digest.1)
    }
}
