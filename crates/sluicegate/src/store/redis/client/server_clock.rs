//! An estimate of a server's time, to give each call a deadline on the server's clock.

use std::sync::atomic::{AtomicI64, Ordering};
use tokio::time::Instant;

/// The difference between a server's clock and the monotonic clock of this process.
///
/// As far as replies show, the estimate is never ahead of the server's clock: a script that arrives late must not
/// consider itself in time. It is behind by at most the duration of the quickest round trip.
#[derive(Debug)]
pub(crate) struct ServerClock {
    /// The zero of local instants.
    origin: Instant,
    /// The server's time at the origin, in microseconds.
    offset_micros: AtomicI64,
}

impl ServerClock {
    /// A clock with one reading: the server's time was `server_micros` in a reply that arrived at `received`.
    pub(crate) fn new(server_micros: u64, received: Instant) -> Self {
        Self { origin: received, offset_micros: AtomicI64::new(signed(server_micros)) }
    }

    /// The server's time at this instant, in microseconds.
    pub(crate) fn at(&self, instant: Instant) -> u64 {
        let micros = self.offset_micros.load(Ordering::Relaxed).saturating_add(self.since_origin(instant));
        u64::try_from(micros).unwrap_or(0)
    }

    /// Adds a reading: the server's time was `server_micros` at some instant between `sent` and `received`.
    pub(crate) fn learn(&self, server_micros: u64, sent: Instant, received: Instant) {
        let server = signed(server_micros);
        let earliest = server.saturating_sub(self.since_origin(received));
        let latest = server.saturating_sub(self.since_origin(sent));
        let offset = self.offset_micros.load(Ordering::Relaxed);
        // Below the earliest offset, either a quicker reply narrows the estimate or the clock was set forward. Above
        // the latest, the clock was set back. If two replies race here, either result is valid.
        if offset < earliest || offset > latest {
            self.offset_micros.store(earliest, Ordering::Relaxed);
        }
    }

    fn since_origin(&self, instant: Instant) -> i64 {
        let micros = |span: std::time::Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        match instant.checked_duration_since(self.origin) {
            Some(after) => micros(after),
            None => -micros(self.origin.duration_since(instant)),
        }
    }
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn micros(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    #[test]
    fn a_clock_step_is_followed_by_the_next_reply() {
        let origin = Instant::now();
        let clock = ServerClock::new(1_000_000, origin);
        for set_to in [9_000_000, 500, 4_000_000_000_000_000] {
            clock.learn(set_to, origin + micros(100), origin + micros(300));
            assert_eq!(clock.at(origin + micros(300)), set_to);
        }
    }

    proptest! {
        /// With any delays, the estimate is never ahead, and behind by at most the quickest round trip.
        #[test]
        fn the_estimate_is_never_ahead(
            trips in prop::collection::vec((0..50_000_u64, 0..5_000_u64, 0..5_000_u64), 1..50),
            ahead in 0..10_000_000_000_u64,
        ) {
            let origin = Instant::now();
            let clock = ServerClock::new(ahead, origin + micros(7_000));
            let (mut now, mut quickest) = (10_000, 7_000);
            for (pause, out, back) in trips {
                now += pause;
                clock.learn(ahead + now + out, origin + micros(now), origin + micros(now + out + back));
                now += out + back;
                quickest = quickest.min(out + back);
                let (estimate, truth) = (clock.at(origin + micros(now)), ahead + now);
                prop_assert!(estimate <= truth && truth - estimate <= quickest, "{} {}", estimate, truth);
            }
        }
    }
}
