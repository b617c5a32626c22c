//! The correction from steady instants to the time of day, and its updates.
//!
//! The offset changes only when the system clock is stepped or after a suspension of the machine, because both system
//! clocks run at the same rate. Once per second, the thread that reads the clock checks it. The offset is one atomic
//! number, so readers never wait and never see a partial update.

use sluicegate_core::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The interval between two checks of the time of day.
const LOOK_MICROS: u64 = 1_000_000;

/// Smaller differences are ignored: replies show milliseconds, and two readings are never exactly simultaneous.
const TOLERANCE_MICROS: u64 = 1_000;

/// The correction of a clock that shows the time of day.
pub(super) static NONE: Correction = Correction(None);

/// The offset that turns an instant of a [`Clock`](super::Clock) into the time of day. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Correction(Option<Arc<AtomicI64>>);

impl Correction {
    /// A correction of zero that can be changed.
    pub(super) fn new() -> Self {
        Self(Some(Arc::default()))
    }

    /// The time of day at the instant `now` of the clock.
    #[must_use]
    #[inline]
    pub fn apply(&self, now: Timestamp) -> Timestamp {
        match self.micros() {
            // The frequent case.
            0 => now,
            micros => corrected(now, micros),
        }
    }

    /// Sets the correction so that the instant `now` of the clock is `time_of_day`.
    pub(super) fn set(&self, now: Timestamp, time_of_day: Timestamp) {
        self.store(difference(time_of_day.as_micros(), now.as_micros()));
    }

    #[inline]
    fn micros(&self) -> i64 {
        self.0.as_ref().map_or(0, |micros| micros.load(Ordering::Relaxed))
    }

    fn store(&self, micros: i64) {
        if let Some(kept) = &self.0 {
            kept.store(micros, Ordering::Relaxed);
        }
    }
}

#[cold]
#[inline(never)]
fn corrected(now: Timestamp, micros: i64) -> Timestamp {
    Timestamp::now(now.as_micros().saturating_add_signed(micros))
}

/// Keeps a correction up to date.
#[derive(Debug)]
pub(super) struct CorrectionUpdater {
    correction: Correction,
    /// The steady instant of the next check.
    due: AtomicU64,
}

impl Default for CorrectionUpdater {
    fn default() -> Self {
        Self { correction: Correction::new(), due: AtomicU64::new(0) }
    }
}

impl CorrectionUpdater {
    #[inline]
    pub(super) fn correction(&self) -> &Correction {
        &self.correction
    }

    /// Compares the time of day with the steady clock at the instant `now`, if a second has passed since the last
    /// check. Only one thread does so.
    pub(super) fn look(&self, now: u64, steady: impl Fn() -> u64, time_of_day: impl Fn() -> u64) {
        let due = self.due.load(Ordering::Relaxed);
        let next = now.saturating_add(LOOK_MICROS);
        let is_ours =
            now >= due && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_ours {
            let (earliest, shown, latest) = (steady(), time_of_day(), steady());
            self.compare(earliest, shown, latest);
        }
    }

    /// The system clock showed `shown` at some instant between `earliest` and `latest`. After a preemption the
    /// interval is wide, and a correction within it does not change.
    fn compare(&self, earliest: u64, shown: u64, latest: u64) {
        let corrected = |steady: u64| steady.saturating_add_signed(self.correction.micros());
        let is_early = shown.saturating_add(TOLERANCE_MICROS) < corrected(earliest);
        let is_late = shown > corrected(latest).saturating_add(TOLERANCE_MICROS);
        if is_early || is_late {
            self.correction.store(difference(shown, latest));
        }
    }
}

/// `left` − `right`, saturated to 64 bits.
fn difference(left: u64, right: u64) -> i64 {
    let (left, right) = (i128::from(left), i128::from(right));
    let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
    // The clamped value fits 64 bits.
    i64::try_from((left - right).clamp(least, most)).unwrap_or(0)
}
