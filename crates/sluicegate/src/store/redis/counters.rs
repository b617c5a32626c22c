//! What happened on the way to a server, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters that only grow.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Connections that were opened.
    pub(super) connected: AtomicU64,
    /// Connections that were lost.
    pub(super) lost: AtomicU64,
    /// Calls whose script the server did not know.
    pub(super) no_script: AtomicU64,
    /// Calls that the server sent elsewhere.
    pub(super) redirected: AtomicU64,
    /// Calls that came to the server after their time.
    pub(super) late: AtomicU64,
    /// How often the circuit breaker opened.
    pub(super) opened: AtomicU64,
    /// Calls that were turned away because too many were under way.
    pub(super) overloaded: AtomicU64,
}

/// Adds one.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
