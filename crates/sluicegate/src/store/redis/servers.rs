//! All servers of a store, however many there are: the one door for calls.

use super::super::leases::Generation;
use super::super::{ErrorClass, StoreError};
use super::call::{Answer, Call, Repeat, Script};
use super::counters::Counters;
use super::dialer::Dialer;
use super::error::{Ran, Trouble};
use super::node::{Common, Node};
use super::options::{OptionsError, RedisOptions, ServerNames};
use super::topology::cluster::Cluster;
use super::topology::sentinel::Sentinel;
use super::topology::slots::slot_of;
use super::topology::{Topology, probe_key};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The servers of a store. Connections and tasks end when this is dropped.
pub struct Servers {
    topology: Topology,
    /// How many connections were opened.
    opened: Arc<AtomicU64>,
}

/// How the servers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    /// Every server that is needed. None while it is not known which those are.
    pub(super) servers: Vec<ServerHealth>,
    /// Why it is not known which servers are needed.
    pub(super) trouble: Option<(ErrorClass, String)>,
}

/// How one server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerHealth {
    /// Where it listens.
    pub(super) address: String,
    /// Why it cannot be used; nothing if it can.
    pub(super) trouble: Option<(ErrorClass, String)>,
    /// What happened on the way there so far.
    pub(super) counts: Counts,
}

/// A reading of a server's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Connections that were opened.
    pub(super) connected: u64,
    /// Connections that were lost.
    pub(super) lost: u64,
    /// Calls whose script the server did not know.
    pub(super) no_script: u64,
    /// Calls that the server sent elsewhere.
    pub(super) redirected: u64,
    /// Calls that came to the server after their time.
    pub(super) late: u64,
    /// How often the circuit breaker opened.
    pub(super) opened: u64,
    /// Calls that were turned away because too many were under way.
    pub(super) overloaded: u64,
}

impl fmt::Debug for Servers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Servers").field("health", &self.health()).finish()
    }
}

impl Servers {
    /// Starts to connect, on the current runtime, and waits for nothing. Servers are made to know the scripts. All
    /// keys begin with `key_prefix`, also those that are written to find out whether a server can be used.
    pub(super) fn start(
        options: &RedisOptions,
        scripts: &[&Script],
        key_prefix: &str,
    ) -> Result<Self, OptionsError> {
        let (database, primary_only) = match &options.servers {
            ServerNames::Single { database, .. } => (*database, false),
            ServerNames::Sentinel { database, .. } => (*database, true),
            ServerNames::Cluster { .. } => (0, false),
        };
        let dialer = Dialer::for_servers(options, database)?;
        let opened = dialer.opened();
        let common = Arc::new(Common {
            dialer,
            primary_only,
            connections: options.connections,
            in_flight_max: options.in_flight_max,
            read_timeout: options.read_timeout,
            scripts: scripts.iter().map(|script| script.text).collect(),
            key_prefix: key_prefix.to_owned(),
            doubt: Arc::new(Notify::new()),
        });
        let topology = match options.servers.clone() {
            ServerNames::Single { address, .. } => {
                let key = probe_key(&common, 0);
                Topology::Single(Arc::new(Node::start(address, common, Some(key))))
            }
            ServerNames::Sentinel { sentinels, service, .. } => {
                let dialer = Dialer::for_sentinels(options)?;
                Topology::Sentinel(Sentinel::start(sentinels, service, dialer, common))
            }
            ServerNames::Cluster { seeds } => Topology::Cluster(Cluster::start(seeds, common)),
        };
        Ok(Self { topology, opened })
    }

    /// Sends the call to the server that has its keys, and brings the answer, or an error by the deadline.
    ///
    /// It is sent again only when it certainly did not run, or when the connection broke and the call says that
    /// this does no harm.
    pub(super) async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<Answer, Trouble> {
        if Instant::now() >= deadline {
            return Err(Trouble::with_call(ErrorClass::Timeout, "no time was left to ask"));
        }
        match self.topology.call(call, deadline).await {
            Err(trouble) if may_repeat(call, &trouble) && Instant::now() < deadline => {
                self.topology.call(call, deadline).await
            }
            result => result,
        }
    }

    /// Whether one call may speak of both keys.
    pub(super) fn share_a_call(&self, left: &[u8], right: &[u8]) -> bool {
        match self.topology {
            Topology::Single(_) | Topology::Sentinel(_) => true,
            Topology::Cluster(_) => slot_of(left) == slot_of(right),
        }
    }

    /// Changes whenever some server may have lost its memory, or another may have taken its place: both take a new
    /// connection.
    pub(super) fn generation(&self) -> Generation {
        Generation(self.opened.load(Ordering::Acquire))
    }

    /// How the servers are now.
    pub(super) fn health(&self) -> Health {
        let Some(nodes) = self.topology.nodes() else {
            let unknown = || (ErrorClass::Connection, "the servers are not known yet".to_owned());
            return Health { servers: Vec::new(), trouble: Some(self.topology.trouble().unwrap_or_else(unknown)) };
        };
        let servers = nodes.iter().map(|node| ServerHealth {
            address: node.address().to_string(),
            trouble: node.trouble(),
            counts: Counts::of(node.counters()),
        });
        Health { servers: servers.collect(), trouble: None }
    }

    /// Waits until all servers can be used, but no longer than this; then says what is wrong.
    pub(super) async fn ready(&self, within: Duration) -> Result<(), StoreError> {
        let deadline = Instant::now() + within;
        self.topology.known(deadline).await;
        for node in self.topology.nodes().unwrap_or_default() {
            node.tried(deadline).await;
        }
        self.health().first_trouble().map_or(Ok(()), |(class, why)| Err(StoreError::new(class, why)))
    }
}

/// Whether a call that failed may be sent once more.
fn may_repeat(call: &Call<'_>, trouble: &Trouble) -> bool {
    call.repeat == Repeat::Allowed && trouble.class == ErrorClass::Connection && trouble.ran == Ran::Unknown
}

impl Health {
    /// How many of the needed servers can be used.
    pub(super) fn up(&self) -> usize {
        self.servers.iter().filter(|server| server.trouble.is_none()).count()
    }

    /// Whether every call can be delivered.
    #[cfg(test)]
    pub(super) fn is_up(&self) -> bool {
        self.first_trouble().is_none()
    }

    pub(super) fn first_trouble(&self) -> Option<(ErrorClass, String)> {
        self.trouble.clone().or_else(|| self.servers.iter().find_map(|server| server.trouble.clone()))
    }
}

impl Counts {
    fn of(counters: &Counters) -> Self {
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
