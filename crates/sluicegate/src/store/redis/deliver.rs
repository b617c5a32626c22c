//! How calls get to servers, as far as the store needs to know, and the plainest way there is.

use super::call::{Answer, Call};
use super::error::{Ran, Trouble};
use super::servers::Servers;
use super::topology::slots::{SLOTS, slot_of};
use crate::store::{ErrorClass, Health};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use sluicegate_core::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

/// Somebody who delivers calls. Clones share the way.
pub(super) trait Deliver: Clone + Send + Sync + 'static {
    /// Sends the call to the server that has its keys, and brings the answer.
    fn call(&self, call: &Call<'_>, deadline: Instant) -> impl Future<Output = Result<Answer, Trouble>> + Send;

    /// How many ways there are. Keys share a call if they go the same way.
    fn ways(&self) -> usize;

    /// Which way a key goes.
    fn way_of(&self, key: &[u8]) -> usize;

    /// The era of the states: those that were seen in another one may be lost, or older ones be back.
    fn era(&self) -> u64 {
        0
    }

    /// Whether calls can be delivered, for all that is known.
    fn health(&self) -> Health {
        Health::Up
    }
}

impl Deliver for Arc<Servers> {
    async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<Answer, Trouble> {
        Servers::call(self, call, deadline).await
    }

    fn ways(&self) -> usize {
        Servers::ways(self)
    }

    fn way_of(&self, key: &[u8]) -> usize {
        Servers::way_of(self, key)
    }

    fn era(&self) -> u64 {
        Servers::era(self)
    }

    fn health(&self) -> Health {
        let health = Servers::health(self);
        match health.first_trouble() {
            None => Health::Up,
            Some((class, _)) if health.up() > 0 => Health::Partial { class },
            Some((class, _)) => Health::Down { class },
        }
    }
}

/// One connection to one server: no reconnecting, no deadline in the script. For tests.
#[derive(Clone, Debug)]
pub struct OneConnection {
    connection: MultiplexedConnection,
    /// Whether keys are kept apart as a Cluster would.
    apart: bool,
    nonce: Arc<AtomicU64>,
}

impl OneConnection {
    /// Calls go over `connection`, and if `apart` then only those keys share one that have the same tag.
    pub(super) fn new(connection: MultiplexedConnection, apart: bool) -> Self {
        Self { connection, apart, nonce: Arc::default() }
    }

    async fn send(&self, verb: &str, script: &str, call: &Call<'_>, nonce: &str) -> Result<Vec<u8>, RedisError> {
        let mut command = redis::cmd(verb);
        command.arg(script).arg(call.keys.len()).arg(call.keys).arg(0).arg(nonce);
        for word in call.arguments {
            command.arg(word.as_slice());
        }
        command.query_async(&mut self.connection.clone()).await
    }
}

impl Deliver for OneConnection {
    async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<Answer, Trouble> {
        let nonce = self.nonce.fetch_add(1, Ordering::Relaxed).to_string();
        let unknown = |class, message: String| Trouble::with_server(class, Ran::Unknown, message);
        let exchange = async {
            match self.send("EVALSHA", &call.script.hash, call, &nonce).await {
                Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                    self.send("EVAL", call.script.text, call, &nonce).await
                }
                other => other,
            }
        };
        match tokio::time::timeout_at(deadline, exchange).await {
            Ok(Ok(reply)) => answer(&reply, &nonce)
                .ok_or_else(|| unknown(ErrorClass::Protocol, reply.escape_ascii().to_string())),
            Ok(Err(error)) => Err(unknown(ErrorClass::Connection, error.to_string())),
            Err(_) => Err(unknown(ErrorClass::Timeout, "no answer within the deadline".to_owned())),
        }
    }

    fn ways(&self) -> usize {
        if self.apart { usize::from(SLOTS) } else { 1 }
    }

    fn way_of(&self, key: &[u8]) -> usize {
        if self.apart { usize::from(slot_of(key)) } else { 0 }
    }
}

fn answer(reply: &[u8], nonce: &str) -> Option<Answer> {
    let rest = reply.strip_prefix(nonce.as_bytes())?.strip_prefix(b" ")?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let micros = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
    Some(Answer { now: Timestamp::now(micros), body: rest[space + 1..].to_vec() })
}
