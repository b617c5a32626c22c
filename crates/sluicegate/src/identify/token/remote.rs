//! Keys of a remote publisher: one task fetches them, all requests use them, and they are valid for a limited time.
//!
//! Only the task that runs [`Remote::keep_fresh`] fetches, so at most one fetch is in flight, and a request that is
//! cancelled cannot cancel it. The task fetches at the start, then about every `refresh`, sooner after a failure, and
//! when a token names an unknown key. The last happens at most once per [`UNKNOWN_PAUSE`], so an attacker cannot
//! cause fetches by inventing names. If a set cannot be renewed, it stays valid until `keep` has passed since its
//! fetch.

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

/// The time limit of a fetch.
pub const FETCH_MAX: Duration = Duration::from_secs(5);

/// The minimum time between two fetches that unknown keys cause.
pub const UNKNOWN_PAUSE: Micros = Micros::from_secs(30);

/// How long a request waits for a fetch: a little more than a fetch may take, so that the request gets its result.
const WAIT_MAX: Duration = Duration::from_secs(6);

/// The first back-off after a failure. It doubles each time, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// A fetch in flight; its result is the text of a JSON Web Key Set.
pub type FetchFuture<'a> = Pin<Box<dyn Future<Output = Result<String, KeysError>> + Send + 'a>>;

/// A source of key sets.
pub trait KeySource: Send + Sync {
    /// Fetches the set once. The fetch is cancelled after [`FETCH_MAX`]. Implementations must read no more than
    /// [`JWKS_BYTES_MAX`](super::JWKS_BYTES_MAX) bytes.
    fn fetch(&self) -> FetchFuture<'_>;

    /// Receives the outcome of each fetch.
    fn observe(&self, outcome: &FetchOutcome) {
        let _ = outcome;
    }
}

/// The outcome of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FetchOutcome {
    /// The set was fetched.
    Renewed {
        /// The number of usable keys.
        keys: usize,
        /// Why each of the others was skipped.
        skipped: Vec<String>,
        /// True if the keys differ from those before.
        is_changed: bool,
    },
    /// The fetch failed, and the last set stays in use.
    Failed {
        /// The error.
        error: KeysError,
        /// The age of the last good set, if there ever was one.
        age: Option<Micros>,
    },
}

/// The keys of one issuer, and the state of their renewal.
pub(super) struct Remote {
    source: Arc<dyn KeySource>,
    pub(super) refresh: Duration,
    pub(super) keep: Duration,
    loaded: RwLock<Option<LoadedKeys>>,
    phase: watch::Sender<RefreshState>,
}

struct LoadedKeys {
    set: Arc<KeySet>,
    at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default)]
struct RefreshState {
    /// True while a task fetches.
    is_kept: bool,
    /// A fetch is requested or in flight.
    is_wanted: bool,
    /// The time from which an unknown key may cause a fetch again.
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
        let phase = watch::Sender::new(RefreshState::default());
        Self { source, refresh, keep, loaded: RwLock::new(None), phase }
    }

    /// The set that is valid at `now`. If there is none and a fetch is in flight, waits for it.
    pub(super) async fn set(&self, now: Timestamp) -> Result<Arc<KeySet>, TokenError> {
        if let Some(set) = self.usable(now) {
            return Ok(set);
        }
        self.end_of_fetch().await;
        self.usable(now).ok_or_else(|| {
            let message = "the issuer's keys could not be fetched, or are too old; see the log";
            TokenError::new(TokenErrorKind::KeysUnavailable, message)
        })
    }

    /// The set after a fetch for an unknown key, if [`UNKNOWN_PAUSE`] allows one.
    ///
    /// A fetch in flight ends first. It may have begun before the issuer published the key, so a key that `has_key` still
    /// does not find may cause another fetch.
    pub(super) async fn renewed(
        &self,
        now: Timestamp,
        has_key: impl Fn(&KeySet) -> bool,
    ) -> Result<Arc<KeySet>, TokenError> {
        let is_in_flight = self.phase.borrow().is_wanted;
        if is_in_flight {
            self.end_of_fetch().await;
            let set = self.set(now).await?;
            if has_key(&set) {
                return Ok(set);
            }
        }
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

    /// Fetches for ever. Only one task may run this.
    pub(super) async fn keep_fresh(&self, clock: &dyn Clock) {
        let _kept = RefreshGuard::begin(&self.phase);
        let mut wishes = self.phase.subscribe();
        let mut failures = 0;
        loop {
            self.phase.send_modify(|phase| phase.is_wanted = true);
            let fetched = self.fetch(clock).await;
            failures = if matches!(fetched, FetchOutcome::Renewed { .. }) { 0 } else { failures + 1 };
            self.source.observe(&fetched);
            self.phase.send_modify(|phase| phase.is_wanted = false);
            let pause = self.pause(failures);
            // A fetch is due: the pause is over, or a request needs an unknown key.
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

    async fn fetch(&self, clock: &dyn Clock) -> FetchOutcome {
        let fetched = match timeout(FETCH_MAX, self.source.fetch()).await {
            Ok(fetched) => fetched,
            Err(_elapsed) => Err(KeysError::new(format!("no answer within {} s", FETCH_MAX.as_secs()))),
        };
        let now = clock.now();
        match fetched.and_then(|json| jwks::read(&json)) {
            Ok(jwks) => self.install(jwks, now),
            Err(error) => {
                let age = self.loaded.read().as_ref().map(|loaded| now.since(loaded.at));
                FetchOutcome::Failed { error, age }
            }
        }
    }

    fn install(&self, jwks: jwks::Jwks, now: Timestamp) -> FetchOutcome {
        let jwks::Jwks { mut set, skipped } = jwks;
        let mut loaded = self.loaded.write();
        let is_changed = loaded.as_ref().is_none_or(|old| set.take_over(&old.set));
        set.extend(now.plus(micros(self.keep)));
        let keys = set.len();
        *loaded = Some(LoadedKeys { set: Arc::new(set), at: now });
        FetchOutcome::Renewed { keys, skipped, is_changed }
    }

    fn pause(&self, failures: u32) -> Duration {
        match failures.checked_sub(1) {
            None => self.refresh,
            Some(doublings) => (RETRY_MIN * (1 << doublings.min(5))).min(RETRY_MAX).min(self.refresh),
        }
    }
}

/// Marks the fetch task as running while it lives. Without it, requests do not wait for a fetch.
struct RefreshGuard<'a>(&'a watch::Sender<RefreshState>);

impl<'a> RefreshGuard<'a> {
    fn begin(phase: &'a watch::Sender<RefreshState>) -> Self {
        phase.send_modify(|phase| phase.is_kept = true);
        Self(phase)
    }
}

impl Drop for RefreshGuard<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|phase| (phase.is_kept, phase.is_wanted) = (false, false));
    }
}

fn micros(length: Duration) -> Micros {
    Micros::from_micros(u64::try_from(length.as_micros()).unwrap_or(u64::MAX))
}
