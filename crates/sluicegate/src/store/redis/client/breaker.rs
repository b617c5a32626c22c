//! The circuit breaker of one server. It opens after several failures in a row, or when many calls fail.
//!
//! Calls never test whether the server has recovered; a background probe does. After three successful probes the
//! breaker admits a small share of the calls, then a larger one, then all.
//!
//! The whole state is one atomic word, and pure functions of state and time change it. So a read costs one load, and
//! no update is lost.

use std::sync::atomic::{AtomicU64, Ordering};

/// This many failures in a row open the breaker.
const FAILURES_IN_A_ROW: u64 = 5;
/// The least number of calls in a window for the failure rate to count. The breaker opens if at least half of them
/// fail.
const CALLS_MIN: u64 = 20;
/// The length of a window, in milliseconds.
const WINDOW_MS: u32 = 1000;
/// This many successful probes in a row start the ramp.
const GOOD_PROBES: u64 = 3;
/// The steps of the ramp: their end in milliseconds, and the share of calls they admit in percent. After the last
/// step the breaker is closed.
const RAMP: [(u32, u64); 2] = [(333, 1), (666, 10)];

/// A circuit breaker. Times are milliseconds since any fixed instant, and may wrap around.
#[derive(Debug, Default)]
pub(crate) struct Breaker(AtomicU64);

/// Which calls the breaker admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// All calls.
    Closed,
    /// No calls.
    Open,
    /// A share of the calls.
    Ramping,
}

/// The effect of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The breaker has opened.
    Opened,
    /// Any other effect, or none.
    Other,
}

impl Breaker {
    /// Whether the call with this number is admitted. Numbers count up.
    pub(crate) fn admits(&self, now_ms: impl FnOnce() -> u32, number: u64) -> bool {
        let state = State::unpack(self.0.load(Ordering::Relaxed));
        match state.phase {
            Phase::Closed => true,
            Phase::Open => false,
            Phase::Ramping => number % 100 < state.share(now_ms()),
        }
    }

    /// The current phase.
    pub(crate) fn phase(&self) -> Phase {
        State::unpack(self.0.load(Ordering::Relaxed)).phase
    }

    /// A call succeeded.
    pub(crate) fn succeeded(&self, now_ms: u32) {
        self.change(|state| state.after_success(now_ms));
    }

    /// A call failed by a fault of the server.
    pub(crate) fn failed(&self, now_ms: u32) -> Change {
        self.change(|state| state.after_failure(now_ms))
    }

    /// A probe has ended.
    pub(crate) fn probed(&self, now_ms: u32, good: bool) -> Change {
        self.change(|state| if good { state.after_good_probe(now_ms) } else { state.after_bad_probe(now_ms) })
    }

    fn change(&self, next: impl Fn(State) -> State) -> Change {
        let mut before = self.0.load(Ordering::Relaxed);
        loop {
            let (old, new) = (State::unpack(before), next(State::unpack(before)));
            match self.0.compare_exchange_weak(before, new.pack(), Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if old.phase != Phase::Open && new.phase == Phase::Open => return Change::Opened,
                Ok(_) => return Change::Other,
                Err(current) => before = current,
            }
        }
    }
}

/// The unpacked state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    phase: Phase,
    /// The start of the window, or of the phase.
    since_ms: u32,
    /// Closed: calls and failures in the window.
    calls: u64,
    failures: u64,
    /// Closed: failures in a row. Open: successful probes in a row.
    row: u64,
}

/// The most calls that fit into 12 bits. At this count calls and failures are halved, which keeps their ratio.
const CALLS_MAX: u64 = (1 << 12) - 1;

impl State {
    const CLOSED: Self = Self { phase: Phase::Closed, since_ms: 0, calls: 0, failures: 0, row: 0 };

    /// Phase in 2 bits, row in 6, failures and calls in 12 each, time in 32. Zero is a new, closed breaker.
    fn pack(self) -> u64 {
        let phase = match self.phase {
            Phase::Closed => 0,
            Phase::Open => 1,
            Phase::Ramping => 2,
        };
        phase | self.row << 2 | self.failures << 8 | self.calls << 20 | u64::from(self.since_ms) << 32
    }

    fn unpack(word: u64) -> Self {
        let phase = match word & 3 {
            0 => Phase::Closed,
            1 => Phase::Open,
            _ => Phase::Ramping,
        };
        let (row, failures, calls) = (word >> 2 & 0x3f, word >> 8 & CALLS_MAX, word >> 20 & CALLS_MAX);
        Self { phase, since_ms: u32::try_from(word >> 32).unwrap_or(0), calls, failures, row }
    }

    fn open(now_ms: u32) -> Self {
        Self { phase: Phase::Open, since_ms: now_ms, ..Self::CLOSED }
    }

    /// The share of calls that is admitted while ramping, in percent.
    fn share(self, now_ms: u32) -> u64 {
        let elapsed = now_ms.wrapping_sub(self.since_ms);
        RAMP.iter().find(|(until, _)| elapsed < *until).map_or(100, |(_, share)| *share)
    }

    fn after_success(self, now_ms: u32) -> Self {
        match self.phase {
            Phase::Closed => Self { row: 0, ..self.with_call(now_ms) },
            Phase::Ramping if self.share(now_ms) == 100 => Self { since_ms: now_ms, ..Self::CLOSED },
            Phase::Ramping | Phase::Open => self,
        }
    }

    fn after_failure(self, now_ms: u32) -> Self {
        if self.phase != Phase::Closed {
            // A failure while ramping contradicts the probes, so they start over.
            return if self.phase == Phase::Open { self } else { Self::open(now_ms) };
        }
        let counted = self.with_call(now_ms);
        let (row, failures) = (counted.row + 1, counted.failures + 1);
        if row >= FAILURES_IN_A_ROW || (counted.calls >= CALLS_MIN && failures * 2 >= counted.calls) {
            return Self::open(now_ms);
        }
        Self { row, failures, ..counted }
    }

    fn after_good_probe(self, now_ms: u32) -> Self {
        match self.phase {
            Phase::Open if self.row + 1 >= GOOD_PROBES => {
                Self { phase: Phase::Ramping, since_ms: now_ms, ..Self::CLOSED }
            }
            Phase::Open => Self { row: self.row + 1, ..self },
            Phase::Closed | Phase::Ramping => self.after_success(now_ms),
        }
    }

    fn after_bad_probe(self, now_ms: u32) -> Self {
        match self.phase {
            Phase::Open => Self { row: 0, ..self },
            Phase::Closed | Phase::Ramping => self.after_failure(now_ms),
        }
    }

    /// Counts one more call, in a new window if the last one is over.
    fn with_call(self, now_ms: u32) -> Self {
        let fresh = if now_ms.wrapping_sub(self.since_ms) >= WINDOW_MS {
            Self { since_ms: now_ms, calls: 0, failures: 0, ..self }
        } else if self.calls == CALLS_MAX {
            Self { calls: self.calls / 2, failures: self.failures / 2, ..self }
        } else {
            self
        };
        Self { calls: fresh.calls + 1, ..fresh }
    }
}

#[cfg(test)]
mod tests;
