//! Constructors and operations for tests: a store on plain connections, by the caller's clock, and the operations that
//! the store otherwise combines by itself. Only with the feature `testing`.

use super::RedisStore;
use super::client::call::{Call, ScriptReply};
use super::client::error::{CallError, Executed};
use super::client::topology::slots::{SLOTS, slot_of};
use super::client::transport::Transport;
use super::denial_cache::DenialCache;
use super::dispatch::act;
use super::protocol::arguments::Operation;
use super::protocol::key::KeyEncoder;
use super::protocol::reply::{DecisionResult, ParsedReply};
use super::request::Request;
use super::shared::{ClockSource, SharedStore};
use crate::store::{Charge, ErrorClass, Reply, StoreError};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use sluicegate_core::Timestamp;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// A transport over one connection to one server, or to each node of a Cluster. It does not reconnect, and passes no
/// deadline to the script.
#[derive(Clone, Debug)]
pub struct SingleConnection {
    /// The nodes share the slots evenly, in this order.
    nodes: Arc<[MultiplexedConnection]>,
    /// Whether only keys of the same slot share a call, as on a Cluster.
    by_slot: bool,
    nonce: Arc<AtomicU64>,
}

impl SingleConnection {
    /// All calls go over `connection`. If `by_slot`, only keys of the same slot share a call.
    pub(crate) fn new(connection: MultiplexedConnection, by_slot: bool) -> Self {
        Self { nodes: [connection].into(), by_slot, nonce: Arc::default() }
    }

    /// A call goes to the node that owns the slot of its keys: each of `n` nodes has an `n`th of the slots, in order.
    pub(crate) fn to_nodes(nodes: Vec<MultiplexedConnection>) -> Self {
        Self { nodes: nodes.into(), by_slot: true, nonce: Arc::default() }
    }

    /// The connection to the node that owns the keys of the call.
    fn node_of(&self, call: &Call<'_>) -> MultiplexedConnection {
        let slot = call.keys.first().map_or(0, |key| usize::from(slot_of(key)));
        let has_slot = |node: &usize| slot < usize::from(SLOTS) * (node + 1) / self.nodes.len();
        let node = (0..self.nodes.len()).find(has_slot).unwrap_or(0);
        self.nodes[node].clone()
    }

    async fn send(&self, verb: &str, script: &str, call: &Call<'_>, nonce: &str) -> Result<Vec<u8>, RedisError> {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(call.keys.len()).arg(call.keys).arg(0).arg(nonce);
        for argument in call.arguments {
            command.arg(argument.as_slice());
        }
        command.query_async(&mut self.node_of(call)).await
    }
}

impl Transport for SingleConnection {
    async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<ScriptReply, CallError> {
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed).to_string();
        let unknown = |class, message: String| CallError::of_server(class, Executed::Unknown, message);
        let exchange = async {
            match self.send("EVALSHA", &call.script.hash, call, &nonce).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    self.send("EVAL", call.script.text, call, &nonce).await
                }
                other => other,
            }
        };
        match tokio::time::timeout_at(deadline, exchange).await {
            Ok(Ok(reply)) => script_reply(&reply, &nonce)
                .ok_or_else(|| unknown(ErrorClass::Protocol, reply.escape_ascii().to_string())),
            Ok(Err(error)) => Err(unknown(ErrorClass::Connection, error.to_string())),
            Err(_) => Err(unknown(ErrorClass::Timeout, "no answer within the deadline".to_owned())),
        }
    }

    fn routes(&self) -> usize {
        if self.by_slot { usize::from(SLOTS) } else { 1 }
    }

    fn route_of(&self, key: &[u8]) -> usize {
        if self.by_slot { usize::from(slot_of(key)) } else { 0 }
    }
}

fn script_reply(reply: &[u8], nonce: &str) -> Option<ScriptReply> {
    let rest = reply.strip_prefix(nonce.as_bytes())?.strip_prefix(b" ")?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let micros = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
    Some(ScriptReply { now: Timestamp::now(micros), body: rest[space + 1..].to_vec() })
}

impl RedisStore<SingleConnection> {
    /// A store on one connection. If `by_slot`, only keys of the same slot share a call, as on a Cluster.
    #[must_use]
    pub fn over_connection(connection: MultiplexedConnection, encoder: KeyEncoder, by_slot: bool) -> Self {
        let transport = SingleConnection::new(connection, by_slot);
        Self::of(SharedStore::new(transport, encoder, ClockSource::Server, None))
    }

    /// A store on a connection to each node of a Cluster with evenly divided slots, in order.
    #[must_use]
    pub fn over_cluster(nodes: Vec<MultiplexedConnection>, encoder: KeyEncoder) -> Self {
        let transport = SingleConnection::to_nodes(nodes);
        Self::of(SharedStore::new(transport, encoder, ClockSource::Server, None))
    }

    fn of(shared: Arc<SharedStore<SingleConnection>>) -> Self {
        Self { shared, _tasks: Vec::new() }
    }

    /// The same store with a denial cache, as [`RedisStore::start`] has it.
    #[must_use]
    pub fn with_denial_cache(self) -> Self {
        let SharedStore { transport, encoder, clock, .. } = &*self.shared;
        let cache = Some(Arc::new(DenialCache::new()));
        Self::of(SharedStore::new(transport.clone(), encoder.clone(), *clock, cache))
    }

    /// The same store, but scripts decide by the caller's clock, and keys do not expire before the year 2200.
    #[must_use]
    pub fn with_caller_clock(self) -> Self {
        let SharedStore { transport, encoder, denial_cache, .. } = &*self.shared;
        let (transport, encoder, cache) = (transport.clone(), encoder.clone(), denial_cache.clone());
        Self::of(SharedStore::new(transport, encoder, ClockSource::Caller, cache))
    }

    /// Makes several decisions in one call.
    ///
    /// # Errors
    /// As [`Store::charge`](crate::store::Store::charge).
    pub async fn charge_batch(
        &self,
        requests: &[Vec<Charge<'_>>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Vec<Reply>, StoreError> {
        let once = |charges: &Vec<_>| (NonZeroU32::MIN, charges.clone());
        let requests: Vec<(NonZeroU32, Vec<Charge<'_>>)> = requests.iter().map(once).collect();
        let replies = self.charge_repeated(&requests, now, deadline).await?;
        Ok(replies.into_iter().flat_map(|(_, replies)| replies).collect())
    }

    /// Makes several decisions in one call, each several times in a row. Returns the number of admissions and all
    /// replies of each.
    ///
    /// # Errors
    /// As [`Store::charge`](crate::store::Store::charge).
    pub async fn charge_repeated(
        &self,
        requests: &[(NonZeroU32, Vec<Charge<'_>>)],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Vec<(u32, Vec<Reply>)>, StoreError> {
        let request = Request::new(&self.shared, &[], now, deadline);
        let mut input = request.input();
        for (times, charges) in requests {
            input.add_times(*times, charges);
        }
        let ParsedReply { now, decisions, .. } = request.execute(input).await?;
        let replies = |decided: DecisionResult<'_>| {
            (decided.admitted, decided.replay().map(|verdicts| Reply { now, verdicts }).collect())
        };
        Ok(decisions.into_iter().map(replies).collect())
    }

    /// Undoes a charge that was made at this instant, as for unused permits.
    ///
    /// # Errors
    /// As [`Store::charge`](crate::store::Store::charge).
    pub async fn undo(
        &self,
        charges: &[Charge<'_>],
        charged_at: Timestamp,
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        act(&Request::new(&self.shared, charges, now, deadline), Operation::Undo(charged_at)).await
    }

    /// Reserves, as the first call of a cross-slot request does.
    ///
    /// # Errors
    /// As [`Store::charge`](crate::store::Store::charge).
    pub async fn reserve(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        act(&Request::new(&self.shared, charges, now, deadline), Operation::Reserve).await
    }

    /// Releases a reservation that was made at this instant, as when a later call of the same request denies.
    ///
    /// # Errors
    /// As [`Store::charge`](crate::store::Store::charge).
    pub async fn release(
        &self,
        charges: &[Charge<'_>],
        reserved_at: Timestamp,
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        act(&Request::new(&self.shared, charges, now, deadline), Operation::Release(reserved_at)).await
    }
}

impl<T> RedisStore<T> {
    /// How many coalesced calls are in flight.
    pub fn calls_in_flight(&self) -> usize {
        self.shared.queues.iter().map(|queue| queue.lock().calls()).sum()
    }
}
