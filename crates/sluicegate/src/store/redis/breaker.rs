//! The circuit breaker of one server: after some failures in a row, or when many fail, it is not asked for a while.
//!
//! Callers never try whether the server is well again: one background probe does. After three good probes calls are
//! let through again, first a few, then more, then all.
//!
//! The whole state is one word, changed by pure functions of the state and the time, so that reading it costs a
//! caller nothing and no change is lost.

use std::sync::atomic::{AtomicU64, Ordering};

/// So many failures in a row open it.
const FAILURES_IN_A_ROW: u64 = 5;
/// Opens when at least half of at least so many calls in one window fail.
const CALLS_MIN: u64 = 20;
/// The length of a window, in milliseconds.
const WINDOW_MS: u32 = 1000;
/// So many good probes in a row let calls through again.
const GOOD_PROBES: u64 = 3;
/// How long each step of letting more through takes, in milliseconds, and its share in percent. Then it is closed.
const RAMP: [(u32, u64); 2] = [(333, 1), (666, 10)];

/// A circuit breaker. Times are in milliseconds since any instant, and may wrap around.
#[derive(Debug, Default)]
pub(super) struct Breaker(AtomicU64);

/// What a breaker does with calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// All pass.
    Closed,
    /// None passes.
    Open,
    /// Some pass.
    Ramping,
}

/// What a change did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It has opened.
    Opened,
    /// Anything else, or nothing.
    Other,
}

impl Breaker {
    /// Whether the call with this number, out of numbers that count up, may pass.
    pub(super) fn admits(&self, now_ms: impl FnOnce() -> u32, number: u64) -> bool {
        let state = State::unpack(self.0.load(Ordering::Relaxed));
        match state.phase {
            Phase::Closed => true,
            Phase::Open => false,
            Phase::Ramping => number % 100 < state.share(now_ms()),
        }
    }

    /// What it does now.
    pub(super) fn phase(&self) -> Phase {
        State::unpack(self.0.load(Ordering::Relaxed)).phase
    }

    /// A call was answered.
    pub(super) fn succeeded(&self, now_ms: u32) {
        self.change(|state| state.after_success(now_ms));
    }

    /// A call failed in a way that speaks against the server.
    pub(super) fn failed(&self, now_ms: u32) -> Change {
        self.change(|state| state.after_failure(now_ms))
    }

    /// A probe was answered, or failed.
    pub(super) fn probed(&self, now_ms: u32, good: bool) -> Change {
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

/// The state, as numbers that fit one word together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    phase: Phase,
    /// When the window, or the phase, began.
    since_ms: u32,
    /// Closed: calls and failures in the window, and failures in a row.
    calls: u64,
    failures: u64,
    /// Closed: failures in a row. Open: good probes in a row.
    row: u64,
}

/// The most calls that fit; then calls and failures are halved, which keeps their ratio.
const CALLS_MAX: u64 = (1 << 12) - 1;

impl State {
    const CLOSED: Self = Self { phase: Phase::Closed, since_ms: 0, calls: 0, failures: 0, row: 0 };

    /// Phase in 2 bits, row in 6, failures and calls in 12 each, time in 32. Zero is closed and fresh.
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

    /// The share of calls that pass while ramping, in percent.
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
            // While ramping, the probes were wrong about the server: they have to start over.
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

    /// One more call in the window, which begins anew when it is over.
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
