//! Who asks most, and who is denied most, right now: in fixed memory, at next to no cost per request.
//!
//! [`HotKeys`] watches the heaviest keys of any kind. [`HotIdentities`] are two of them, one for all requests and one for
//! those that were denied, with the names of the identities, to be shown to whoever runs the server. Denials have
//! counters of their own: somebody who is always denied must not go unseen because all others ask more often.
//!
//! Of [`ONE_IN`] requests one is looked at, drawn at random, and counts for all of them: nobody can time requests so that
//! they are not seen. The drawing is fair, so rates are right on average; around that, the count of an identity that
//! really asked n times is off by √(7·n) or less two times of three, and by three times that hardly ever. With the
//! default half-life that is 7 % at 100 requests per second, and 2 % at 1,000. [`HotKeys`] itself draws nothing: what it
//! says is exact within the error that it states.

mod decay;
mod keys;
mod label;
mod shard;

pub use keys::{Frequency, HOT_KEYS_MAX, HotKey, HotKeys, HotOptions};
pub use label::SHOWN_CHARACTERS;

use crate::identity::Identity;
use crate::store::{Key, KeySpace, Subject};
use label::Label;
use sluicegate_core::{Micros, Timestamp};

/// Of so many requests one is looked at.
pub const ONE_IN: u64 = 8;

/// How fast an identity fades that asks no more. Long enough that a rate is one, and not the last burst; short enough
/// that it tells of now.
pub const HALF_LIFE: Micros = Micros::from_secs(10);

/// The identities that ask most, and those that are denied most.
///
/// ```
/// use sluicegate::core::{Micros, Timestamp};
/// use sluicegate::hot::HotIdentities;
/// use sluicegate::Identity;
///
/// let start = Timestamp::now(1_705_312_800_000_000);
/// let (hot, mallory) = (HotIdentities::new(start), Identity::Named("mallory"));
/// // A thousand requests within a second, all of them denied.
/// for request in 0..1_000 {
///     hot.record("default", mallory, true, start.plus(Micros::from_millis(request)));
/// }
/// let top = hot.most_denied(1, start.plus(Micros::from_secs(1)));
/// assert_eq!(top[0].identity(), mallory);
/// ```
#[derive(Debug)]
pub struct HotIdentities {
    space: KeySpace,
    requests: HotKeys<Label>,
    denials: HotKeys<Label>,
}

/// An identity, how often it asks, and how often it is denied.
#[derive(Clone, Debug)]
pub struct HotIdentity {
    label: Label,
    /// How often it asks.
    pub requests: Frequency,
    /// How often it is denied.
    pub denials: Frequency,
}

impl HotIdentities {
    /// Nobody has asked yet.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let options = HotOptions { half_life: HALF_LIFE, ..HotOptions::default() };
        Self {
            space: KeySpace::new("hot identities"),
            requests: HotKeys::new(options, now),
            denials: HotKeys::new(options, now),
        }
    }

    /// Takes note of a request, if the lot falls on it.
    #[inline]
    pub fn record(&self, tenant: &str, identity: Identity<'_>, is_denied: bool, now: Timestamp) {
        if fastrand::u64(..).is_multiple_of(ONE_IN) {
            self.record_drawn(tenant, identity, is_denied, now);
        }
    }

    /// At most `limit` identities, the one that asks most often first.
    #[must_use]
    pub fn heaviest(&self, limit: usize, now: Timestamp) -> Vec<HotIdentity> {
        let named = |HotKey { hash, label, frequency }| HotIdentity {
            label,
            requests: frequency,
            denials: self.denials.frequency(hash, now),
        };
        self.requests.top(limit, now).into_iter().map(named).collect()
    }

    /// At most `limit` identities, the one that is denied most often first.
    #[must_use]
    pub fn most_denied(&self, limit: usize, now: Timestamp) -> Vec<HotIdentity> {
        let named = |HotKey { hash, label, frequency }| HotIdentity {
            label,
            requests: self.requests.frequency(hash, now),
            denials: frequency,
        };
        self.denials.top(limit, now).into_iter().map(named).collect()
    }

    /// How many requests could not be noted because two threads met.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.requests.skipped().saturating_add(self.denials.skipped())
    }

    /// Out of line, so that the way of all others stays short.
    #[inline(never)]
    fn record_drawn(&self, tenant: &str, identity: Identity<'_>, is_denied: bool, now: Timestamp) {
        let subject = Subject { tenant: Some(tenant), identity: Some(identity), address: None };
        let hash = Key { space: &self.space, subject }.digest().0;
        let name = |label: &mut Label| label.set(tenant, identity);
        self.requests.record(hash, ONE_IN, now, name);
        if is_denied {
            self.denials.record(hash, ONE_IN, now, name);
        }
    }
}

impl HotIdentity {
    /// Its tenant; the first [`SHOWN_CHARACTERS`] of it.
    #[must_use]
    pub fn tenant(&self) -> &str {
        self.label.tenant()
    }

    /// Who it is; the first [`SHOWN_CHARACTERS`] of a name.
    #[must_use]
    pub fn identity(&self) -> Identity<'_> {
        self.label.identity()
    }
}
