//! The compared limiters behind one trait. Each reads its own clock, as in real use, and has a
//! limit so large that all requests are allowed.

use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use sluicegate::clock::{Clock, SystemClock};
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::{Cost, Micros, Quota, Rate, Timestamp, TokenBucket};
use sluicegate::store::{Charge, Key, KeySpace, Subject};
use sluicegate::{Identity, MemoryStore};
use std::hash::BuildHasher as _;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// One unit per this many seconds, with a burst of the same number: slow enough that a key is not full, and so
/// forgotten, between two of its requests; large enough that no request is denied.
const PERIOD_SECS: u64 = 10;
const BURST: u32 = 30_000_000;

/// The names of all contenders; Sluicegate's first.
pub(crate) const NAMES: [&str; 3] = ["sluicegate", "governor", "throttlecrab"];

/// Not a limiter, but the work that every exact limiter needs: see [`Floor`].
pub(crate) const FLOOR: &str = "clock, hash, one line";

/// A limiter under test.
pub(crate) trait Contender: Sync {
    /// True if a request of this key is allowed. The key is a `String` because one peer requires its own key type.
    #[expect(clippy::ptr_arg, reason = "what the peer takes")]
    fn is_allowed(&self, key: &String) -> bool;
}

/// A new contender by name, sized for the number of keys.
pub(crate) fn new(name: &str, key_count: usize) -> Result<Box<dyn Contender>, String> {
    match name {
        "sluicegate" => Ok(Box::new(Ours::new()?)),
        "governor" => Ok(Box::new(Governor::new()?)),
        "throttlecrab" => Ok(Box::new(Throttlecrab::new())),
        FLOOR => Ok(Box::new(Floor::new(key_count))),
        _ => Err(format!("unknown contender {name}: use one of {}", NAMES.join(", "))),
    }
}

/// The embedded store with the server's clock.
pub(crate) struct Ours {
    pub(crate) store: MemoryStore,
    pub(crate) clock: SystemClock,
    space: KeySpace,
    quotas: [Quota; 1],
}

impl Ours {
    pub(crate) fn new() -> Result<Self, String> {
        let rate = Rate::new(1, Micros::from_secs(PERIOD_SECS)).map_err(|error| error.to_string())?;
        Self::with_quota(TokenBucket::new(u64::from(BURST), rate).map_err(|error| error.to_string())?)
    }

    pub(crate) fn with_quota(bucket: TokenBucket) -> Result<Self, String> {
        let (store, clock) = (MemoryStore::default(), SystemClock::new());
        Ok(Self { store, clock, space: KeySpace::new("bench"), quotas: [Quota::from(bucket)] })
    }
}

impl Ours {
    /// As [`Contender::is_allowed`], at a given time.
    #[inline]
    pub(crate) fn is_allowed_at(&self, key: &str, now: Timestamp) -> bool {
        let subject = Subject { tenant: None, identity: Some(Identity::Named(key)), address: None };
        let charge = Charge {
            key: Key { space: &self.space, subject },
            quotas: &self.quotas,
            cost: Cost::ONE,
            usage: Cost::ZERO,
            mode: ChargeMode::Enforced,
            lease: None,
        };
        let verdicts = self.store.charge_now(&[charge], now);
        verdicts.iter().all(|verdict| verdict.outcome.is_allowed())
    }
}

impl Contender for Ours {
    #[inline]
    fn is_allowed(&self, key: &String) -> bool {
        self.is_allowed_at(key, self.clock.now())
    }
}

struct Governor {
    limiter: governor::RateLimiter<String, DashMapStateStore<String>, DefaultClock>,
}

impl Governor {
    fn new() -> Result<Self, String> {
        let quota = governor::Quota::with_period(Duration::from_secs(PERIOD_SECS)).ok_or("zero is not a rate")?;
        let quota = quota.allow_burst(NonZeroU32::new(BURST).ok_or("zero is not a burst")?);
        Ok(Self { limiter: governor::RateLimiter::dashmap(quota) })
    }
}

impl Contender for Governor {
    #[inline]
    fn is_allowed(&self, key: &String) -> bool {
        self.limiter.check_key(key).is_ok()
    }
}

/// throttlecrab's library takes `&mut self`: shared between threads it needs a lock around it.
struct Throttlecrab {
    limiter: Mutex<throttlecrab::RateLimiter<throttlecrab::PeriodicStore>>,
}

impl Throttlecrab {
    fn new() -> Self {
        Self { limiter: Mutex::new(throttlecrab::RateLimiter::new(throttlecrab::PeriodicStore::new())) }
    }
}

impl Contender for Throttlecrab {
    #[inline]
    #[expect(clippy::disallowed_methods, reason = "this peer is given the time of day at every call")]
    fn is_allowed(&self, key: &String) -> bool {
        let (burst, period) = (i64::from(BURST), PERIOD_SECS as i64);
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter.rate_limit(key, burst, 1, period, 1, SystemTime::now()).is_ok_and(|(allowed, _)| allowed)
    }
}

/// It decides nothing: it reads the clock, hashes the key and changes one word in the cache line of the hash. It is the
/// lower bound for the time of a decision.
struct Floor {
    clock: SystemClock,
    hasher: foldhash::fast::RandomState,
    lines: Box<[Line]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Floor {
    fn new(key_count: usize) -> Self {
        // As much memory per key as Sluicegate's tables take.
        let line_count = (key_count * 3 / 5).max(1);
        Self {
            clock: SystemClock::new(),
            hasher: foldhash::fast::RandomState::default(),
            lines: (0..line_count).map(|_| Line::default()).collect(),
        }
    }
}

impl Contender for Floor {
    #[inline]
    fn is_allowed(&self, key: &String) -> bool {
        let now = self.clock.now().as_micros();
        let at = (u128::from(self.hasher.hash_one(key)) * self.lines.len() as u128) >> u64::BITS;
        // Never true, but the compiler does not know.
        self.lines[at as usize].0.swap(now, Ordering::Relaxed) != u64::MAX
    }
}
