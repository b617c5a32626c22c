//! The clients with the highest request rates and denial rates (heavy hitters), in constant memory and at almost no
//! cost per request.
//!
//! [`TopKeys`] tracks the heaviest keys of any kind. [`TopClients`] combines two of them, one for all requests and
//! one for denied requests, with the names of the clients for display to operators. Denials have counters of their
//! own, so that clients with many requests do not hide a client that is always denied.
//!
//! One of [`SAMPLE_ONE_IN`] requests is sampled at random and counts for all of them, so a client cannot time its
//! requests to avoid the sample. Rates are unbiased. The count of a client with n requests has a standard deviation
//! of at most √(7·n), and errors of three times that are rare. With the default half-life that is 7 % at 100 requests
//! per second, and 2 % at 1,000. [`TopKeys`] itself does not sample: its rates are exact within the error that it
//! reports.

mod decay;
mod keys;
mod label;
mod sketch;

pub use keys::{RequestRate, TOP_KEYS_MAX, TopKey, TopKeys, TopKeysOptions};
pub use label::LABEL_CHARACTERS_MAX;

use crate::identity::Identity;
use crate::store::{Key, KeySpace, Subject};
use label::Label;
use sluicegate_core::{Micros, Timestamp};

/// One of this many requests is sampled.
pub const SAMPLE_ONE_IN: u64 = 8;

/// The half-life of the counts. It is long enough that a rate is more than the last burst, and short enough to be
/// current.
pub const HALF_LIFE: Micros = Micros::from_secs(10);

/// The clients with the highest request rates, and those with the highest denial rates.
///
/// ```
/// use sluicegate::core::{Micros, Timestamp};
/// use sluicegate::top_k::TopClients;
/// use sluicegate::Identity;
///
/// let start = Timestamp::now(1_705_312_800_000_000);
/// let (hot, mallory) = (TopClients::new(start), Identity::Named("mallory"));
/// // A thousand requests within a second, all of them denied.
/// for request in 0..1_000 {
///     hot.record("default", mallory, true, start.plus(Micros::from_millis(request)));
/// }
/// let top = hot.most_denied(1, start.plus(Micros::from_secs(1)));
/// assert_eq!(top[0].identity(), mallory);
/// ```
#[derive(Debug)]
pub struct TopClients {
    space: KeySpace,
    requests: TopKeys<Label>,
    denials: TopKeys<Label>,
}

/// A client with its request rate and its denial rate.
#[derive(Clone, Debug)]
pub struct TopClient {
    label: Label,
    /// The rate of all its requests.
    pub requests: RequestRate,
    /// The rate of its denied requests.
    pub denials: RequestRate,
}

impl TopClients {
    /// No requests counted yet.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let options = TopKeysOptions { half_life: HALF_LIFE, ..TopKeysOptions::default() };
        Self {
            space: KeySpace::new("hot identities"),
            requests: TopKeys::new(options, now),
            denials: TopKeys::new(options, now),
        }
    }

    /// Counts a request, if the sampling selects it.
    #[inline]
    pub fn record(&self, tenant: &str, identity: Identity<'_>, is_denied: bool, now: Timestamp) {
        if fastrand::u64(..).is_multiple_of(SAMPLE_ONE_IN) {
            self.record_sampled(tenant, identity, is_denied, now);
        }
    }

    /// At most `limit` clients, in descending order of their request rates.
    #[must_use]
    pub fn heaviest(&self, limit: usize, now: Timestamp) -> Vec<TopClient> {
        let named = |TopKey { hash, label, rate }| TopClient {
            label,
            requests: rate,
            denials: self.denials.rate(hash, now),
        };
        self.requests.top(limit, now).into_iter().map(named).collect()
    }

    /// At most `limit` clients, in descending order of their denial rates.
    #[must_use]
    pub fn most_denied(&self, limit: usize, now: Timestamp) -> Vec<TopClient> {
        let named = |TopKey { hash, label, rate }| TopClient {
            label,
            requests: self.requests.rate(hash, now),
            denials: rate,
        };
        self.denials.top(limit, now).into_iter().map(named).collect()
    }

    /// The number of requests that were not counted because of lock contention.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.requests.skipped().saturating_add(self.denials.skipped())
    }

    /// Not inlined, to keep the path of requests outside the sample short.
    #[inline(never)]
    fn record_sampled(&self, tenant: &str, identity: Identity<'_>, is_denied: bool, now: Timestamp) {
        let subject = Subject { tenant: Some(tenant), identity: Some(identity), address: None };
        let hash = Key { space: &self.space, subject }.digest().0;
        let name = |label: &mut Label| label.set(tenant, identity);
        self.requests.record(hash, SAMPLE_ONE_IN, now, name);
        if is_denied {
            self.denials.record(hash, SAMPLE_ONE_IN, now, name);
        }
    }
}

impl TopClient {
    /// The tenant, truncated to [`LABEL_CHARACTERS_MAX`].
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.label.tenant()
    }

    /// The identity; a name is truncated to [`LABEL_CHARACTERS_MAX`].
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        self.label.identity()
    }
}
