//! The shared store: state in Redis or Valkey, one atomic script call per decision.
//!
//! The script decides, by the server's clock, and says what it found; the numbers of the answer are computed by the core
//! from that. [`key`] says where states are, `lua/charge.lua` what is said, written and answered. Where the keys of one
//! request cannot share a call, `reserve` says what happens instead. `servers` brings calls to where the keys are,
//! within their deadline or not at all.

mod address;
mod answer;
mod arguments;
mod breaker;
mod call;
mod counters;
mod deliver;
mod dialer;
mod error;
mod heartbeat;
pub mod key;
#[cfg_attr(not(test), expect(dead_code, reason = "calls that ask for more than one decision come next"))]
mod leases;
mod link;
mod node;
mod options;
mod password;
mod pause;
mod reply;
mod request;
mod reserve;
mod reserved;
mod script;
mod server_clock;
mod servers;
mod tls;
mod topology;

#[doc(hidden)]
pub use deliver::OneConnection;
pub use heartbeat::Heartbeat;
pub use key::KeyEncoder;
pub use options::{OptionsError, RedisOptions};
pub use servers::Servers;

use super::{Charge, Health, Reply, Store, StoreError};
use crate::instances::Instances;
use arguments::{Message, Operation};
use deliver::Deliver;
use reply::{Found, verdicts};
use request::Request;
use sluicegate_core::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// State in Redis. See the [module documentation](self).
#[derive(Debug)]
pub struct RedisStore<D = Arc<Servers>> {
    delivery: D,
    encoder: KeyEncoder,
    clock: Whose,
    damaged: AtomicU64,
}

/// Whose clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Servers,
    Callers,
}

impl RedisStore {
    /// A store on the servers that `options` name, which begins to connect to them on the current runtime and waits for
    /// nothing.
    ///
    /// # Errors
    /// If certificates cannot be used.
    pub fn start(options: &RedisOptions, encoder: KeyEncoder) -> Result<Self, OptionsError> {
        let servers = Servers::start(options, &[&script::CHARGE, &heartbeat::SCRIPT], &encoder.start())?;
        Ok(Self { delivery: Arc::new(servers), encoder, clock: Whose::Servers, damaged: AtomicU64::new(0) })
    }

    /// Waits until all servers can be used, but no longer than this.
    ///
    /// # Errors
    /// What is wrong, if some cannot.
    pub async fn ready(&self, within: Duration) -> Result<(), StoreError> {
        self.delivery.ready(within).await
    }

    /// Says from now on that this server lives, and keeps `instances` at the number of those that do.
    pub fn announce(&self, instances: Instances) -> Heartbeat {
        Heartbeat::start(Arc::clone(&self.delivery), &self.encoder.start(), instances)
    }
}

#[doc(hidden)]
impl RedisStore<OneConnection> {
    /// A store on one connection, for tests. If `apart`, only keys with the same tag share a call, as on a Cluster.
    #[must_use]
    pub fn over(connection: redis::aio::MultiplexedConnection, encoder: KeyEncoder, apart: bool) -> Self {
        let delivery = OneConnection::new(connection, apart);
        Self { delivery, encoder, clock: Whose::Servers, damaged: AtomicU64::new(0) }
    }

    /// The same store, but the caller's clock counts, and what it writes does not expire before the year 2200.
    #[must_use]
    pub fn by_callers_clock(self) -> Self {
        Self { clock: Whose::Callers, ..self }
    }

    /// Makes several decisions in one call, each a charge of its own.
    ///
    /// # Errors
    /// As [`Store::charge`].
    pub async fn charge_together(
        &self,
        requests: &[Vec<Charge<'_>>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Vec<Reply>, StoreError> {
        let mut message = Message::new(&self.encoder);
        for charges in requests {
            message.add(Operation::Charge, charges);
        }
        let findings = Request::new(self, &[], now, deadline).say(message).await?;
        let now = findings.now;
        let reply = |(operation, findings): &(Operation, Found<'_>)| Reply {
            now,
            verdicts: verdicts(*operation, findings),
        };
        Ok(findings.decisions.iter().map(reply).collect())
    }
}

#[doc(hidden)]
impl RedisStore<OneConnection> {
    /// Undoes a charge that was made at this instant, as it is done when a later call of the same request denies.
    ///
    /// # Errors
    /// As [`Store::charge`].
    pub async fn undo(
        &self,
        charges: &[Charge<'_>],
        charged_at: Timestamp,
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        Request::new(self, charges, now, deadline).act(Operation::Undo(charged_at)).await
    }
}

impl<D> RedisStore<D> {
    /// How many values could not be read so far. Each counted as a drained limit and was replaced.
    pub fn damaged_values(&self) -> u64 {
        self.damaged.load(Ordering::Relaxed)
    }
}

impl<D: Deliver> Store for RedisStore<D> {
    async fn charge(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        Request::new(self, charges, now, deadline).act(Operation::Charge).await
    }

    async fn peek(&self, charges: &[Charge<'_>], now: Timestamp, deadline: Duration) -> Result<Reply, StoreError> {
        Request::new(self, charges, now, deadline).act(Operation::Peek).await
    }

    async fn refund(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        Request::new(self, charges, now, deadline).act(Operation::Refund).await
    }

    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        Request::new(self, charges, now, deadline).act(Operation::Reset).await
    }

    fn health(&self) -> Health {
        self.delivery.health()
    }

    fn can_fail(&self) -> bool {
        true
    }
}
