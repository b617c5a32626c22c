//! What all nodes of a store have in common.

use crate::store::redis::dialer::Dialer;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// What all nodes of a store have in common.
pub(in crate::store::redis) struct Common {
    /// Opens connections.
    pub(in crate::store::redis) dialer: Dialer,
    /// Whether a server that is a replica must not be used at all.
    pub(in crate::store::redis) primary_only: bool,
    /// How many connections to hold.
    pub(in crate::store::redis) connections: NonZeroUsize,
    /// How many calls may wait for their answers on one connection.
    pub(in crate::store::redis) in_flight_max: NonZeroUsize,
    /// How long an answer may take that no caller waits for.
    pub(in crate::store::redis) read_timeout: Duration,
    /// The scripts that servers should know before they are called.
    pub(in crate::store::redis) scripts: Vec<&'static str>,
    /// What all our keys begin with.
    pub(in crate::store::redis) key_prefix: String,
    /// Told when something suggests that another server should be asked.
    pub(in crate::store::redis) doubt: Arc<Notify>,
    /// Counts whatever may have lost states or brought back older ones: a new connection, another server for a key.
    pub(in crate::store::redis) era: Arc<AtomicU64>,
}

impl Common {
    /// The era of the states.
    pub(in crate::store::redis) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    /// From now on, states may be others than were seen before.
    pub(in crate::store::redis) fn begin_era(&self) {
        self.era.fetch_add(1, Ordering::AcqRel);
    }
}
