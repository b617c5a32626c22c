//! Keys that somebody else publishes: fetched by one task, used by everybody, and believed for a limited time.
//!
//! Only the task that runs [`Remote::keep_fresh`] fetches, so there is never more than one fetch on its way, and no
//! caller who goes away can stop one. It fetches at the start, then about every `refresh`, sooner after a failure, and
//! when a caller asks because a token names an unknown key. That wish is granted once per [`UNKNOWN_PAUSE`]: names of
//! keys cost an attacker nothing. A set that cannot be renewed is believed until `keep` has passed since it was fetched.

use super::error::{KeysError, TokenError, TokenErrorKind};
use super::jwks;
use super::keys::KeySet;
use crate::clock::Clock;
use parking_lot::RwLock;
use sluicegate_core::{Micros, Timestamp};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long a fetch may take.
pub const FETCH_MAX: Duration = Duration::from_secs(5);

/// The least time between two fetches that unknown keys cause.
pub const UNKNOWN_PAUSE: Micros = Micros::from_secs(30);

/// How long a caller waits for a fetch: a little more than one may take, so that he hears of its end.
const WAIT_MAX: Duration = Duration::from_secs(6);

/// After a failure it is tried again this soon, and then each time twice as late, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// A fetch on its way; its result is the text of a JSON Web Key Set.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Result<String, KeysError>> + Send + 'a>>;

/// Somebody who fetches a key set.
pub trait KeySource: Send + Sync {
    /// Fetches the set once. It is given up after [`FETCH_MAX`]. Whoever implements this sees to it that no more than
    /// [`JWKS_BYTES_MAX`](super::JWKS_BYTES_MAX) bytes are read.
    fn fetch(&self) -> Fetching<'_>;

    /// Hears how each fetch went.
    fn observe(&self, outcome: &Fetched) {
        let _ = outcome;
    }
}

/// How a fetch went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fetched {
    /// There is a set.
    Renewed {
        /// How many of its keys can be used.
        keys: usize,
        /// Why each of the others cannot.
        skipped: Vec<String>,
        /// Whether the keys are others than before.
        is_changed: bool,
    },
    /// There is none, and the last one goes on.
    Failed {
        /// Why.
        error: KeysError,
        /// How long ago the last good set was fetched, if there ever was one.
        age: Option<Micros>,
    },
}

/// The keys of one issuer, and what is going on with them.
pub(super) struct Remote {
    source: Arc<dyn KeySource>,
    pub(super) refresh: Duration,
    pub(super) keep: Duration,
    loaded: RwLock<Option<Loaded>>,
    phase: watch::Sender<Phase>,
}

struct Loaded {
    set: Arc<KeySet>,
    at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct Phase {
    /// Somebody is there who fetches.
    is_kept: bool,
    /// A fetch is wanted or on its way.
    is_wanted: bool,
    /// When an unknown key may cause a fetch again.
    unknown_again_at: Timestamp,
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Remote")
            .field("refresh", &self.refresh)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

impl Remote {
    pub(super) fn new(source: Arc<dyn KeySource>, refresh: Duration, keep: Duration) -> Self {
        let phase = watch::Sender::new(Phase::default());
        Self { source, refresh, keep, loaded: RwLock::new(None), phase }
    }

    /// The set that is believed at `now`. If there is none and one is being fetched, waits for it.
    pub(super) async fn set(&self, now: Timestamp) -> Result<Arc<KeySet>, TokenError> {
        if let Some(set) = self.usable(now) {
            return Ok(set);
        }
        self.end_of_fetch().await;
        self.usable(now).ok_or_else(|| {
            let message = "the issuer's keys could not be fetched, or are too old; the log says why";
            TokenError::new(TokenErrorKind::KeysUnavailable, message)
        })
    }

    /// The set after a fetch that is made because a key is unknown, if it is time for one or one is on its way.
    pub(super) async fn renewed(&self, now: Timestamp) -> Result<Arc<KeySet>, TokenError> {
        self.phase.send_if_modified(|phase| {
            let is_granted = phase.is_kept && !phase.is_wanted && now >= phase.unknown_again_at;
            if is_granted {
                phase.is_wanted = true;
                phase.unknown_again_at = now.plus(UNKNOWN_PAUSE);
            }
            is_granted
        });
        self.end_of_fetch().await;
        self.set(now).await
    }

    /// Fetches for ever. Nobody else does.
    pub(super) async fn keep_fresh(&self, clock: &dyn Clock) {
        let _kept = Kept::begin(&self.phase);
        let mut wishes = self.phase.subscribe();
        let mut failures = 0;
        loop {
            self.phase.send_modify(|phase| phase.is_wanted = true);
            let fetched = self.fetch(clock).await;
            failures = if matches!(fetched, Fetched::Renewed { .. }) { 0 } else { failures + 1 };
            self.source.observe(&fetched);
            self.phase.send_modify(|phase| phase.is_wanted = false);
            let pause = self.pause(failures);
            // Either way it is time to fetch: the pause is over, or somebody wishes it.
            let _ = timeout(pause, wishes.wait_for(|phase| phase.is_wanted)).await;
        }
    }

    fn usable(&self, now: Timestamp) -> Option<Arc<KeySet>> {
        let loaded = self.loaded.read();
        loaded.as_ref().filter(|loaded| loaded.set.is_usable(now)).map(|loaded| Arc::clone(&loaded.set))
    }

    /// Waits until no fetch is wanted or on its way.
    async fn end_of_fetch(&self) {
        let mut phases = self.phase.subscribe();
        let _ = timeout(WAIT_MAX, phases.wait_for(|phase| !phase.is_wanted)).await;
    }

    async fn fetch(&self, clock: &dyn Clock) -> Fetched {
        let fetched = match timeout(FETCH_MAX, self.source.fetch()).await {
            Ok(fetched) => fetched,
            Err(_elapsed) => Err(KeysError::new(format!("no answer within {} s", FETCH_MAX.as_secs()))),
        };
        let now = clock.now();
        match fetched.and_then(|json| jwks::read(&json)) {
            Ok(jwks) => self.install(jwks, now),
            Err(error) => {
                let age = self.loaded.read().as_ref().map(|loaded| now.since(loaded.at));
                Fetched::Failed { error, age }
            }
        }
    }

    fn install(&self, jwks: jwks::Jwks, now: Timestamp) -> Fetched {
        let jwks::Jwks { mut set, skipped } = jwks;
        let mut loaded = self.loaded.write();
        let is_changed = loaded.as_ref().is_none_or(|old| set.take_over(&old.set));
        set.extend(now.plus(micros(self.keep)));
        let keys = set.len();
        *loaded = Some(Loaded { set: Arc::new(set), at: now });
        Fetched::Renewed { keys, skipped, is_changed }
    }

    fn pause(&self, failures: u32) -> Duration {
        match failures.checked_sub(1) {
            None => self.refresh,
            Some(doublings) => (RETRY_MIN * (1 << doublings.min(5))).min(RETRY_MAX).min(self.refresh),
        }
    }
}

/// Says while it lives that somebody fetches. Without, nobody would be waited for.
struct Kept<'a>(&'a watch::Sender<Phase>);

impl<'a> Kept<'a> {
    fn begin(phase: &'a watch::Sender<Phase>) -> Self {
        phase.send_modify(|phase| phase.is_kept = true);
        Self(phase)
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|phase| (phase.is_kept, phase.is_wanted) = (false, false));
    }
}

fn micros(length: Duration) -> Micros {
    Micros::from_micros(u64::try_from(length.as_micros()).unwrap_or(u64::MAX))
}
