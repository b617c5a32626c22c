//! How long a server may be silent before calls treat it as unresponsive, depending on the number of waiting
//! requests.
//!
//! A server that sends nothing for the whole time of a request is unavailable, as far as that request can tell. But
//! under load, requests and server may wait for the same processors, and a flood would look like an outage. So with
//! many waiters, the silence must last longer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// From this many concurrent waiters on, the longer silence applies.
pub(crate) const MANY_WAITERS: usize = 128;
/// The silence with many waiters before a server counts as unresponsive.
pub(crate) const SILENCE_UNDER_LOAD: Duration = Duration::from_millis(150);

/// The number of requests that wait for the servers.
#[derive(Debug, Default)]
pub(crate) struct WaiterCount(AtomicUsize);

/// One waiting request, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedWaiter<'c>(&'c WaiterCount);

impl WaiterCount {
    /// Counts one more waiter.
    pub(crate) fn enter(&self) -> CountedWaiter<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        CountedWaiter(self)
    }

    /// The silence before a request with `allowed` to complete treats its server as unresponsive. It is half of that
    /// time, because the request may have spent the rest before its call was sent.
    pub(crate) fn patience(&self, allowed: Duration) -> Duration {
        let own = allowed / 2;
        if self.0.load(Ordering::Relaxed) < MANY_WAITERS { own } else { own.max(SILENCE_UNDER_LOAD) }
    }
}

impl Drop for CountedWaiter<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_many_waiters_a_server_may_be_silent_for_longer() {
        let (waiter_count, allowed) = (WaiterCount::default(), Duration::from_millis(15));
        let present: Vec<_> = (1..MANY_WAITERS).map(|_| waiter_count.enter()).collect();
        assert_eq!(waiter_count.patience(allowed), allowed / 2);
        let last = waiter_count.enter();
        assert_eq!(waiter_count.patience(allowed), SILENCE_UNDER_LOAD);
        assert_eq!(waiter_count.patience(SILENCE_UNDER_LOAD * 4), SILENCE_UNDER_LOAD * 2);
        drop(last);
        assert_eq!(waiter_count.patience(allowed), allowed / 2);
        drop(present);
        assert_eq!(waiter_count.0.into_inner(), 0);
    }
}
