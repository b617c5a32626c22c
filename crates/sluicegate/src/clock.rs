//! The one place that reads the time. Everything else is given an instant.

use sluicegate_core::{Micros, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Somebody who knows what time it is.
pub trait Clock: Send + Sync {
    /// The current instant.
    fn now(&self) -> Timestamp;
}

/// The system's monotonic clock, set to the time of day once, when it is made.
///
/// It never steps: a time of day that is corrected later changes no decision.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: Instant,
    started_micros: u64,
}

impl SystemClock {
    /// A clock that starts at the current time of day.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the home of the clock")]
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_micros = u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX);
        Self { started: Instant::now(), started_micros }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.started.elapsed();
        // Whole seconds and the rest apart: both fit 64 bits, where 128-bit arithmetic would cost more than
        // the reading itself.
        let elapsed_micros = elapsed.as_secs().saturating_mul(1_000_000) + u64::from(elapsed.subsec_micros());
        Timestamp::now(self.started_micros.saturating_add(elapsed_micros))
    }
}

/// A clock for tests, set by hand. All clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.as_micros())))
    }

    /// Lets `length` pass.
    pub fn advance(&self, length: Micros) {
        self.0.fetch_add(length.as_micros(), Ordering::SeqCst);
    }

    /// Sets the clock, backwards too.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::now(self.0.load(Ordering::SeqCst))
    }
}
