//! The shared store: state in Redis or Valkey. One Lua script decides all limits of a request atomically, and the store
//! makes as few calls as possible.
//!
//! A request takes the first of these paths that applies:
//!
//! | path | package |
//! |---|---|
//! | an instance holds a permit that was charged in advance | `lease` |
//! | the request is certain to be denied | `denial_cache` |
//! | the request shares a call with concurrent requests | `coalesce` |
//! | its keys lie in different Cluster slots and need several calls | `cross_slot` |
//! | it has a call of its own | `dispatch` |
//!
//! The script decides by the server's clock and returns the state that it found. The core computes the numbers of the
//! reply from that state. `protocol` has the key names, the script arguments and the replies, and `lua/charge.lua`
//! documents the script. `client` delivers calls to the servers that own their keys, and never later than their
//! deadline.
//!
//! The packages form layers: `client` ← `protocol` ← `denial_cache` ← `lease` ← `coalesce` and `cross_slot` ← `dispatch`.

mod client;
mod coalesce;
mod cross_slot;
mod deferred;
mod denial_cache;
mod dispatch;
mod lease;
mod lease_reset;
mod protocol;
mod request;
mod shared;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod undo;

pub use client::heartbeat::Heartbeat;
pub use client::options::{OptionsError, RedisOptions};
pub use client::servers::Servers;
pub use protocol::key::{self, KeyEncoder};

use super::{Charge, Health, Reply, Savings, Store, StoreError, UnchargedUsage};
use crate::instances::Instances;
use client::call::Script;
use client::heartbeat;
use client::transport::Transport;
use deferred::settle::{defer, settle_forever};
use denial_cache::{DenialCache, broadcast};
use dispatch::{act, charge};
use lease::SWEEP_INTERVAL;
use lease::grant::LeaseTerms;
use protocol::arguments::Operation;
use protocol::scripts;
use request::{Request, has_usage};
use shared::{ClockSource, SharedStore};
use sluicegate_core::Timestamp;
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// State in Redis. See the [module documentation](self).
#[derive(Debug)]
pub struct RedisStore<T = Arc<Servers>> {
    shared: Arc<SharedStore<T>>,
    _tasks: Vec<BackgroundTask>,
}

/// A task that ends when this is dropped.
#[derive(Debug)]
struct BackgroundTask(JoinHandle<()>);

impl BackgroundTask {
    /// Starts the task on the current runtime.
    fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }
}

impl Drop for BackgroundTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl RedisStore {
    /// Whether a Redis store would charge permits for this decision in advance: every enforced charge has a lease, and
    /// its cost fits into the permits that an instance may hold.
    #[must_use]
    pub fn can_lease(charges: &[Charge<'_>]) -> bool {
        LeaseTerms::of(charges).is_some()
    }

    /// A store on the servers that `options` name. It connects in the background, on the current runtime, and returns
    /// at once.
    ///
    /// # Errors
    /// If certificates cannot be used.
    pub fn start(options: &RedisOptions, encoder: KeyEncoder) -> Result<Self, OptionsError> {
        let scripts: [&Script; 3] = [&scripts::CHARGE, &heartbeat::SCRIPT, &broadcast::SCRIPT];
        let servers = Arc::new(Servers::start(options, &scripts, &encoder.start())?);
        let cache = Arc::new(DenialCache::new());
        let exchange = broadcast::exchange_forever(Arc::clone(&servers), Arc::clone(&cache), &encoder.start());
        let shared = SharedStore::new(servers, encoder, ClockSource::Server, Some(cache));
        let tasks = vec![
            BackgroundTask::spawn(exchange),
            BackgroundTask::spawn(sweep_forever(Arc::clone(&shared))),
            BackgroundTask::spawn(settle_forever(Arc::clone(&shared))),
        ];
        Ok(Self { shared, _tasks: tasks })
    }

    /// Waits until all servers can be used, but no longer than `within`.
    ///
    /// # Errors
    /// The first error, if a server cannot be used.
    pub async fn ready(&self, within: Duration) -> Result<(), StoreError> {
        self.shared.transport.ready(within).await
    }

    /// Announces this instance to the others from now on, and keeps `instances` at the number of live instances.
    pub fn announce(&self, instances: Instances) -> Heartbeat {
        *self.shared.leases.instances.lock() = instances.clone();
        Heartbeat::start(Arc::clone(&self.shared.transport), &self.shared.encoder.start(), instances)
    }

    /// Gives back all permits and stops charging in advance, because this instance shuts down. Returns when the calls
    /// have ended.
    pub async fn close(&self) {
        let returns = self.shared.leases.close(self.shared.transport.generation());
        if let Some(giving_back) = self.shared.give_back(returns) {
            // The task has a timeout of its own.
            let _ = giving_back.await;
        }
    }
}

/// Gives expired permits back, forever.
async fn sweep_forever<T: Transport>(shared: Arc<SharedStore<T>>) {
    loop {
        sleep(SWEEP_INTERVAL).await;
        drop(shared.give_back(shared.leases.sweep(shared.transport.generation())));
    }
}

impl<T> RedisStore<T> {
    /// How many stored values were unreadable so far. Each counted as an exhausted limit and was replaced.
    pub fn damaged_values(&self) -> u64 {
        self.shared.damaged.load(Ordering::Relaxed)
    }

    /// The units of usage that were not charged so far, because of the bound on debt.
    pub fn cut_off_units(&self) -> u64 {
        self.shared.cut_off.load(Ordering::Relaxed)
    }

    /// How many charges so far have waited for a call that they shared with other requests.
    pub fn coalesced(&self) -> u64 {
        self.shared.coalesced.load(Ordering::Relaxed)
    }

    /// How many denials came from the denial cache so far.
    pub fn denied_from_cache(&self) -> u64 {
        self.shared.denial_cache.as_ref().map_or(0, |cache| cache.hits())
    }

    /// How many keys the denial cache holds: at most 65,536.
    pub fn cached_denials(&self) -> usize {
        self.shared.denial_cache.as_ref().map_or(0, |cache| cache.observed_keys())
    }
}

impl<T: Transport> Store for RedisStore<T> {
    async fn charge(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        // Neither permits nor cached denials can charge usage that has already happened.
        if has_usage(charges) {
            return charge(&Request::new(&self.shared, charges, now, deadline), Operation::Charge).await;
        }
        // Permits come before cached denials: after the denial of a large cost there may still be permits of a small one.
        if let Some(paid) = self.shared.spend_permit(charges) {
            return Ok(paid);
        }
        let arrived = Instant::now();
        if let Some(denial) = self.shared.cached_denial(charges, now, arrived) {
            return Ok(denial);
        }
        charge(&Request::since(arrived, &self.shared, charges, now, deadline), Operation::Charge).await
    }

    async fn peek(&self, charges: &[Charge<'_>], now: Timestamp, deadline: Duration) -> Result<Reply, StoreError> {
        act(&Request::new(&self.shared, charges, now, deadline), Operation::Peek).await
    }

    async fn refund(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        act(&Request::new(&self.shared, charges, now, deadline), Operation::Refund).await
    }

    async fn report(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        let in_full: SmallVec<[Charge<'_>; 2]> =
            charges.iter().map(|charge| Charge { usage: charge.cost, ..*charge }).collect();
        charge(&Request::new(&self.shared, &in_full, now, deadline), Operation::Report).await
    }

    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        act(&Request::new(&self.shared, charges, now, deadline), Operation::Reset).await
    }

    fn charge_later(&self, charges: &[Charge<'_>], error: &mut StoreError) {
        defer(&self.shared, charges, error);
    }

    fn uncharged_usage(&self) -> UnchargedUsage {
        UnchargedUsage { debt: self.cut_off_units(), ..self.shared.deferred.uncharged_usage() }
    }

    fn health(&self) -> Health {
        self.shared.transport.health()
    }

    fn can_fail(&self) -> bool {
        true
    }

    fn charges_ahead(&self) -> bool {
        true
    }

    fn savings(&self) -> Savings {
        Savings {
            coalesced_requests: Some(self.coalesced()),
            denied_from_cache: Some(self.denied_from_cache()),
            leased_tokens: self.shared.leases.tokens(),
        }
    }
}
