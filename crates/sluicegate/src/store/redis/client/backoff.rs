//! Back-off with jitter, so that many clients do not reconnect at the same moment.

use std::time::Duration;

/// The bound of the first pause after a failed attempt or a short connection.
const FIRST: Duration = Duration::from_millis(50);
/// The bound of the first pause after a lasting connection. It is short, so that most waiting requests can still use
/// the next connection.
const FIRST_AFTER_LASTING: Duration = Duration::from_millis(10);
/// The age from which a connection counts as lasting.
const LASTING: Duration = Duration::from_secs(1);
/// The longest pause while no server accepts connections. Such an attempt is cheap.
const UNREACHED_MAX: Duration = Duration::from_millis(250);
/// The longest pause while the server accepts the connection and then rejects this client. Each attempt costs the
/// server a handshake.
const REACHED_MAX: Duration = Duration::from_secs(2);

/// Full-jitter back-off: each pause is random between zero and a bound that doubles.
#[derive(Debug)]
pub(crate) struct Backoff {
    bound: Duration,
}

/// Whether a failed attempt reached a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The server accepted the connection and then rejected this client.
    Yes,
    /// No server accepted the connection.
    No,
}

impl Backoff {
    /// The state before the first failure.
    pub(crate) fn new() -> Self {
        Self { bound: FIRST }
    }

    /// The state after a connection that lasted this long.
    pub(crate) fn after(lived: Duration) -> Self {
        Self { bound: if lived >= LASTING { FIRST_AFTER_LASTING } else { FIRST } }
    }

    /// The next pause.
    pub(crate) fn next(&mut self, reached: Reached) -> Duration {
        let most = if reached == Reached::Yes { REACHED_MAX } else { UNREACHED_MAX };
        let bound = self.bound.min(most);
        self.bound = (self.bound * 2).min(REACHED_MAX);
        Duration::from_micros(fastrand::u64(0..=micros(bound)))
    }
}

/// A random duration within 20 % of `span`.
pub(crate) fn jittered(span: Duration) -> Duration {
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
        let longest = |reached, attempt: usize| {
            let pauses = (0..500).map(|_| {
                let mut backoff = Backoff::new();
                (0..attempt).map(|_| backoff.next(reached)).last().unwrap_or_default()
            });
            pauses.max().unwrap_or_default().as_millis()
        };
        for (attempt, bound) in [(1, 50), (2, 100), (3, 200), (6, 1600), (7, 2000), (40, 2000)] {
            let longest = longest(Reached::Yes, attempt);
            assert!(longest <= bound && longest > bound * 9 / 10, "{attempt}: {longest}");
        }
        assert!(longest(Reached::No, 40) <= 250);
        let lasting = Duration::from_secs(1);
        assert!((0..500).all(|_| Backoff::after(lasting).next(Reached::Yes).as_millis() <= 10));
        assert!((0..500).any(|_| Backoff::after(lasting / 2).next(Reached::Yes).as_millis() > 10));
    }

    #[test]
    fn a_jittered_span_stays_near() {
        for _ in 0..1000 {
            let span = jittered(Duration::from_millis(100)).as_micros();
            assert!((80_000..=120_000).contains(&span), "{span}");
        }
    }
}
