//! All servers of a store: the entry point for calls.

use crate::store::redis::client::call::{Call, Resend, Script, ScriptReply};
use crate::store::redis::client::dialer::Dialer;
use crate::store::redis::client::error::{CallError, Executed};
use crate::store::redis::client::node::{Node, NodeContext, NodeCounters};
use crate::store::redis::client::options::{OptionsError, RedisOptions, ServerNames};
use crate::store::redis::client::topology::cluster::Cluster;
use crate::store::redis::client::topology::sentinel::Sentinel;
use crate::store::redis::client::topology::slots::{SLOTS, slot_of};
use crate::store::redis::client::topology::{Topology, probe_key};
use crate::store::{ErrorClass, StoreError};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The servers of a store. Dropping it ends the connections and tasks.
pub struct Servers {
    topology: Topology,
    generation: Arc<AtomicU64>,
}

/// The health of all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServersHealth {
    /// Every server that is needed; empty while they are unknown.
    pub(crate) servers: Vec<ServerHealth>,
    /// Why the servers are unknown.
    pub(crate) error: Option<(ErrorClass, String)>,
}

/// The health of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerHealth {
    pub(crate) address: String,
    /// Why it cannot be used; `None` if it can.
    pub(crate) error: Option<(ErrorClass, String)>,
    pub(crate) counts: CounterSnapshot,
}

/// A reading of a server's counters: see [`NodeCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CounterSnapshot {
    pub(crate) connected: u64,
    pub(crate) lost: u64,
    pub(crate) no_script: u64,
    pub(crate) redirected: u64,
    pub(crate) late: u64,
    pub(crate) opened: u64,
    pub(crate) overloaded: u64,
}

impl fmt::Debug for Servers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Servers").field("health", &self.health()).finish()
    }
}

impl Servers {
    /// Starts to connect in the background, on the current runtime. The scripts are loaded on every connection. All
    /// keys begin with `key_prefix`, including those of the probe.
    pub(crate) fn start(
        options: &RedisOptions,
        scripts: &[&Script],
        key_prefix: &str,
    ) -> Result<Self, OptionsError> {
        let (database, primary_only) = match &options.servers {
            ServerNames::Single { database, .. } => (*database, false),
            ServerNames::Sentinel { database, .. } => (*database, true),
            ServerNames::Cluster { .. } => (0, false),
        };
        let generation = Arc::new(AtomicU64::new(0));
        let context = Arc::new(NodeContext {
            dialer: Dialer::for_servers(options, database)?,
            primary_only,
            connections: options.connections,
            in_flight_max: options.in_flight_max,
            read_timeout: options.read_timeout,
            scripts: scripts.iter().map(|script| script.text).collect(),
            key_prefix: key_prefix.to_owned(),
            doubt: Arc::new(Notify::new()),
            generation: Arc::clone(&generation),
        });
        let topology = match options.servers.clone() {
            ServerNames::Single { address, .. } => {
                let key = probe_key(&context, 0);
                Topology::Single(Arc::new(Node::start(address, context, Some(key))))
            }
            ServerNames::Sentinel { sentinels, service, .. } => {
                let dialer = Dialer::for_sentinels(options)?;
                Topology::Sentinel(Sentinel::start(sentinels, service, dialer, context))
            }
            ServerNames::Cluster { seeds } => Topology::Cluster(Cluster::start(seeds, context)),
        };
        Ok(Self { topology, generation })
    }

    /// Whether the server of this route has sent nothing after `since`, although a call has been waiting for at
    /// least `patience`. An unknown server is unresponsive.
    pub(crate) fn is_unresponsive(&self, route: usize, since: Instant, patience: Duration) -> bool {
        self.topology.node_of(route).is_none_or(|node| node.is_unresponsive(since, patience))
    }

    /// Sends the call to the server that owns its keys. Returns the reply, or an error by the deadline.
    ///
    /// The call is sent again only if it certainly did not run, or if the connection broke and [`Call::resend`]
    /// allows it.
    pub(crate) async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<ScriptReply, CallError> {
        if Instant::now() >= deadline {
            // The time was spent in this process, so the error is overload.
            return Err(CallError::overloaded(Executed::No));
        }
        match self.topology.call(call, deadline).await {
            Err(error) if may_resend(call, &error) && Instant::now() < deadline => {
                self.topology.call(call, deadline).await
            }
            result => result,
        }
    }

    /// The number of routes. The keys of one call must have the same route.
    pub(crate) fn routes(&self) -> usize {
        match self.topology {
            Topology::Single(_) | Topology::Sentinel(_) => 1,
            Topology::Cluster(_) => usize::from(SLOTS),
        }
    }

    /// The route of a key.
    pub(crate) fn route_of(&self, key: &[u8]) -> usize {
        match self.topology {
            Topology::Single(_) | Topology::Sentinel(_) => 0,
            Topology::Cluster(_) => usize::from(slot_of(key)),
        }
    }

    /// The generation of the servers' data. State from another generation may be lost or outdated.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The current health.
    pub(crate) fn health(&self) -> ServersHealth {
        let Some(nodes) = self.topology.nodes() else {
            let unknown = || (ErrorClass::Connection, "the servers are not known yet".to_owned());
            return ServersHealth {
                servers: Vec::new(),
                error: Some(self.topology.error().unwrap_or_else(unknown)),
            };
        };
        let servers = nodes.iter().map(|node| ServerHealth {
            address: node.address().to_string(),
            error: node.error(),
            counts: CounterSnapshot::of(node.counters()),
        });
        ServersHealth { servers: servers.collect(), error: None }
    }

    /// Waits until all servers can be used, at most `within`. Returns the first error.
    pub(crate) async fn ready(&self, within: Duration) -> Result<(), StoreError> {
        let deadline = Instant::now() + within;
        self.topology.known(deadline).await;
        for node in self.topology.nodes().unwrap_or_default() {
            node.tried(deadline).await;
        }
        self.health().first_error().map_or(Ok(()), |(class, why)| Err(StoreError::new(class, why)))
    }
}

/// Whether a failed call may be sent once more.
fn may_resend(call: &Call<'_>, error: &CallError) -> bool {
    call.resend == Resend::Allowed && error.class == ErrorClass::Connection && error.executed == Executed::Unknown
}

impl ServersHealth {
    /// How many of the needed servers can be used.
    pub(crate) fn up(&self) -> usize {
        self.servers.iter().filter(|server| server.error.is_none()).count()
    }

    /// Whether all needed servers can be used.
    #[cfg(test)]
    pub(crate) fn is_up(&self) -> bool {
        self.first_error().is_none()
    }

    pub(crate) fn first_error(&self) -> Option<(ErrorClass, String)> {
        self.error.clone().or_else(|| self.servers.iter().find_map(|server| server.error.clone()))
    }
}

impl CounterSnapshot {
    fn of(counters: &NodeCounters) -> Self {
        Self {
            connected: counters.connected.load(Ordering::Relaxed),
            lost: counters.lost.load(Ordering::Relaxed),
            no_script: counters.no_script.load(Ordering::Relaxed),
            redirected: counters.redirected.load(Ordering::Relaxed),
            late: counters.late.load(Ordering::Relaxed),
            opened: counters.opened.load(Ordering::Relaxed),
            overloaded: counters.overloaded.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
