//! Pauses that do not make many clients act at the same moment.

use std::time::Duration;

/// The longest first pause after a connection was not made, or did not last.
const FIRST: Duration = Duration::from_millis(50);
/// The longest first pause after a connection that had lasted: most callers can still wait for the next one.
const FIRST_AFTER_LASTING: Duration = Duration::from_millis(10);
/// A connection has lasted when it was good for so long.
const LASTING: Duration = Duration::from_secs(1);
/// The longest pause while nobody listens: such an attempt costs nobody much.
const UNHEARD_MAX: Duration = Duration::from_millis(250);
/// The longest pause while the server is there and says no: each attempt costs it a handshake.
const HEARD_MAX: Duration = Duration::from_secs(2);

/// Pauses between attempts: anything between nothing and a bound that doubles each time.
#[derive(Debug)]
pub(super) struct Backoff {
    bound: Duration,
}

/// Whether a failed attempt got through to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// The server took the connection and then turned us away.
    Yes,
    /// Nobody answered.
    No,
}

impl Backoff {
    /// The state before the first failure.
    pub(super) fn new() -> Self {
        Self { bound: FIRST }
    }

    /// The state after a connection that was good for this long.
    pub(super) fn after(lived: Duration) -> Self {
        Self { bound: if lived >= LASTING { FIRST_AFTER_LASTING } else { FIRST } }
    }

    /// How long to pause now.
    pub(super) fn next(&mut self, heard: Heard) -> Duration {
        let most = if heard == Heard::Yes { HEARD_MAX } else { UNHEARD_MAX };
        let bound = self.bound.min(most);
        self.bound = (self.bound * 2).min(HEARD_MAX);
        Duration::from_micros(fastrand::u64(0..=micros(bound)))
    }
}

/// A span that differs by up to a fifth each time.
pub(super) fn jittered(span: Duration) -> Duration {
    let micros = micros(span);
    Duration::from_micros(fastrand::u64(micros - micros / 5..=micros + micros / 5))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound() {
        let longest = |heard, attempt: usize| {
            let pauses = (0..500).map(|_| {
                let mut backoff = Backoff::new();
                (0..attempt).map(|_| backoff.next(heard)).last().unwrap_or_default()
            });
            pauses.max().unwrap_or_default().as_millis()
        };
        for (attempt, bound) in [(1, 50), (2, 100), (3, 200), (6, 1600), (7, 2000), (40, 2000)] {
            let longest = longest(Heard::Yes, attempt);
            assert!(longest <= bound && longest > bound * 9 / 10, "{attempt}: {longest}");
        }
        assert!(longest(Heard::No, 40) <= 250);
        let lasting = Duration::from_secs(1);
        assert!((0..500).all(|_| Backoff::after(lasting).next(Heard::Yes).as_millis() <= 10));
        assert!((0..500).any(|_| Backoff::after(lasting / 2).next(Heard::Yes).as_millis() > 10));
    }

    #[test]
    fn a_jittered_span_stays_near() {
        for _ in 0..1000 {
            let span = jittered(Duration::from_millis(100)).as_micros();
            assert!((80_000..=120_000).contains(&span), "{span}");
        }
    }
}
