//! Brute-force protection: counts wrong tokens and passwords per client network.
//!
//! Every comparison of a client's credential with a secret reports mismatches here. A network may fail
//! [`FAILURES_PER_MINUTE_MAX`] times a minute. Further failures are answered with 429 after a delay (see
//! [`BruteForceGuard::delay`]) and are not logged. A correct secret always passes at once, so an attacker cannot lock others
//! out. The length of the secrets makes guessing them infeasible: see [`SECRET_BYTES_MIN`].

use std::net::IpAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
use sluicegate::identify::address::counted;
use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::{Identity, Limiter, MemoryStore, Request};
use tokio::sync::Semaphore;
use tokio::time::sleep;

/// The minimum length of a token. Sixteen hexadecimal digits withstand a million guesses per second for half a million years.
pub(crate) const SECRET_BYTES_MIN: usize = 16;

/// The most wrong secrets that one network may send per minute.
const FAILURES_PER_MINUTE_MAX: u64 = 10;
/// The prefixes by which IPv6 addresses are counted, and the factor of the limit for each. A client with one /64 often has
/// the whole /48.
const IPV6_NETWORKS: [(u8, u64); 2] = [(64, 1), (48, 10)];
/// The most networks with a count of their own; further networks share one count.
const NETWORKS_MAX: usize = 10_000;
/// The delay of the response to a wrong secret once its network is over the limit.
const DELAY: Duration = Duration::from_secs(1);
/// The most responses that are delayed at the same time.
const DELAYED_MAX: usize = 1_024;

/// Counts failures per network, with the limiter of the library.
#[derive(Debug)]
pub(crate) struct BruteForceGuard {
    networks: [Limiter<MemoryStore, SystemClock>; 2],
    delayed: Semaphore,
}

impl Default for BruteForceGuard {
    fn default() -> Self {
        Self {
            networks: IPV6_NETWORKS.map(|(_, times)| limiter(FAILURES_PER_MINUTE_MAX * times)),
            delayed: Semaphore::new(DELAYED_MAX),
        }
    }
}

impl BruteForceGuard {
    /// Records a wrong secret from `address`. True if its network has exceeded the limit.
    pub(crate) fn record_failure(&self, address: IpAddr) -> bool {
        let mut is_too_many = false;
        for (limiter, (prefix, _)) in self.networks.iter().zip(IPV6_NETWORKS) {
            let request = Request {
                identity: Identity::Address(counted(address, prefix)),
                ..Request::new("secrets", "network")
            };
            // The embedded store decides without waiting.
            let decision = limiter.check(&request).now_or_never();
            is_too_many |= matches!(decision, Some(Ok(decision)) if !decision.is_allowed());
        }
        is_too_many
    }

    /// Delays the response to a wrong secret of a network that is over the limit, so that a guess occupies a connection or a
    /// stream of its client for [`DELAY`]. At most [`DELAYED_MAX`] responses are delayed at the same time. The next one is sent
    /// at once, so guesses cannot exhaust the memory of the server.
    pub(crate) async fn delay(&self) {
        if let Ok(_permit) = self.delayed.try_acquire() {
            sleep(DELAY).await;
        }
    }
}

/// A limiter with this limit per minute and network.
fn limiter(per_minute: u64) -> Limiter<MemoryStore, SystemClock> {
    let bucket = Rate::new(per_minute, Micros::from_secs(60)).and_then(|rate| TokenBucket::new(per_minute, rate));
    let limits = bucket.map_or(Limits::Unlimited, |bucket| Limits::all("secrets", [(None, Quota::from(bucket))]));
    let rules = RuleSet::new(vec![Rule::new("secrets", limits)], Vec::new(), Unmatched::Allow);
    let clock = SystemClock::new();
    // The embedded store reserves half of its keys for addresses.
    let options = MemoryOptions { max_keys: 2 * NETWORKS_MAX, ..MemoryOptions::default() };
    let store = MemoryStore::new(options, clock.now());
    Limiter::new(rules.unwrap_or_default(), store, clock)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_network_may_fail_ten_times_a_minute_without_affecting_others() {
        let guard = BruteForceGuard::default();
        for (guesser, neighbour, stranger) in [
            ("192.0.2.7", "::ffff:192.0.2.7", "192.0.2.8"),
            ("2001:db8::1", "2001:db8::ffff:0:0:1", "2001:db8:0:1::1"),
        ] {
            let wrong = (0..10).filter(|_| guard.record_failure(address(guesser))).count();
            assert_eq!(wrong, 0, "{guesser}");
            assert!(guard.record_failure(address(guesser)), "{guesser}");
            assert!(guard.record_failure(address(neighbour)), "{neighbour} is of the same network");
            assert!(!guard.record_failure(address(stranger)), "{stranger} is of another");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_bounded_number_of_responses_is_delayed() {
        let guard = BruteForceGuard::default();
        let mut delayed: Vec<_> = (0..DELAYED_MAX).map(|_| Box::pin(guard.delay())).collect();
        assert!(delayed.iter_mut().all(|delay| delay.now_or_never().is_none()));
        assert!(guard.delay().now_or_never().is_some(), "no place is left");
        let started = tokio::time::Instant::now();
        futures_util::future::join_all(delayed).await;
        assert!(started.elapsed() >= DELAY);
        assert!(guard.delay().now_or_never().is_none(), "the places are free again");
    }

    #[test]
    fn failures_from_many_ipv6_networks_also_count_for_their_common_prefix() {
        let guard = BruteForceGuard::default();
        let from = |network: u16| guard.record_failure(address(&format!("2001:db8:7:{network:x}::1")));
        assert_eq!((0..100).filter(|network| from(*network)).count(), 0);
        assert!(from(100));
        assert!(!guard.record_failure(address("2001:db8:8::1")));
    }
}
