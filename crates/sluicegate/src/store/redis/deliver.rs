//! How calls get to servers, as far as the store needs to know, and the plainest way there is.

use super::call::{Answer, Call};
use super::error::{Ran, Trouble};
use super::servers::Servers;
use crate::store::leases::Generation;
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

    /// True if one call may speak of both keys.
    fn share_a_call(&self, left: &[u8], right: &[u8]) -> bool;

    /// Which memory of the servers calls are delivered to: another one when something may have been forgotten.
    #[cfg_attr(not(test), expect(dead_code, reason = "leases come next"))]
    fn generation(&self) -> Generation {
        Generation::default()
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

    fn share_a_call(&self, left: &[u8], right: &[u8]) -> bool {
        Servers::share_a_call(self, left, right)
    }

    fn generation(&self) -> Generation {
        Servers::generation(self)
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

    fn share_a_call(&self, left: &[u8], right: &[u8]) -> bool {
        !self.apart || tag(left) == tag(right)
    }
}

fn tag(key: &[u8]) -> Option<&[u8]> {
    key.split(|byte| *byte == b'{' || *byte == b'}').nth(1)
}

fn answer(reply: &[u8], nonce: &str) -> Option<Answer> {
    let rest = reply.strip_prefix(nonce.as_bytes())?.strip_prefix(b" ")?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let micros = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
    Some(Answer { now: Timestamp::now(micros), body: rest[space + 1..].to_vec() })
}
