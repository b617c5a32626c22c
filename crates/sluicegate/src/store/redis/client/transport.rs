//! The interface of the Redis client: how the rest of the store sends script calls.

use super::call::{Call, ScriptReply};
use super::error::CallError;
use super::servers::Servers;
use crate::store::Health;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Delivers script calls. Clones share their connections.
pub(crate) trait Transport: Clone + Send + Sync + 'static {
    /// Sends the call to the server that owns its keys, and returns the reply.
    fn call(
        &self,
        call: &Call<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<ScriptReply, CallError>> + Send;

    /// The number of routes. Keys share a call if they have the same route.
    fn routes(&self) -> usize;

    /// The route of a key.
    fn route_of(&self, key: &[u8]) -> usize;

    /// Whether the server of this route has sent nothing after `since`, although it had at least `patience` to do
    /// so. A transport that cannot tell returns true.
    fn is_unresponsive(&self, route: usize, since: Instant, patience: Duration) -> bool {
        let _ = (route, since, patience);
        true
    }

    /// The generation of the servers' data. State from another generation may be lost or outdated.
    fn generation(&self) -> u64 {
        0
    }

    /// Whether calls can be delivered, as far as is known.
    fn health(&self) -> Health {
        Health::Up
    }
}

impl Transport for Arc<Servers> {
    async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<ScriptReply, CallError> {
        Servers::call(self, call, deadline).await
    }

    fn routes(&self) -> usize {
        Servers::routes(self)
    }

    fn route_of(&self, key: &[u8]) -> usize {
        Servers::route_of(self, key)
    }

    fn is_unresponsive(&self, route: usize, since: Instant, patience: Duration) -> bool {
        Servers::is_unresponsive(self, route, since, patience)
    }

    fn generation(&self) -> u64 {
        Servers::generation(self)
    }

    fn health(&self) -> Health {
        let health = Servers::health(self);
        match health.first_error() {
            None => Health::Up,
            Some((class, _)) if health.up() > 0 => Health::Partial { class },
            Some((class, _)) => Health::Down { class },
        }
    }
}
