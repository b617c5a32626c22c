//! Which server a call goes to: one, the one that sentinels name, or the one that has the slot.

pub(super) mod cluster;
pub(super) mod sentinel;
pub(super) mod slots;

use super::super::ErrorClass;
use super::address::Address;
use super::call::{Answer, Call};
use super::error::Trouble;
use super::node::{Common, Node, Outcome};
use cluster::Cluster;
use sentinel::Sentinel;
use std::sync::Arc;
use tokio::time::Instant;

/// A key that the probe may write: one of ours, with a tag that no subject has.
pub(super) fn probe_key(common: &Common, number: u32) -> String {
    format!("{}{{{number}}}:probe", common.key_prefix)
}

/// Which servers there are.
pub(super) enum Topology {
    /// One server.
    Single(Arc<Node>),
    /// Whichever server the sentinels name.
    Sentinel(Sentinel),
    /// All primaries of a Cluster.
    Cluster(Cluster),
}

impl Topology {
    /// Delivers a call.
    pub(super) async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<Answer, Trouble> {
        match self {
            Self::Single(node) => call_on(node, call, deadline).await,
            Self::Sentinel(sentinel) => {
                let node = sentinel.primary(deadline).await?;
                call_on(&node, call, deadline).await
            }
            Self::Cluster(cluster) => cluster.call(call, deadline).await,
        }
    }

    /// All servers that are needed; nothing while they are not known.
    pub(super) fn nodes(&self) -> Option<Vec<Arc<Node>>> {
        match self {
            Self::Single(node) => Some(vec![Arc::clone(node)]),
            Self::Sentinel(sentinel) => sentinel.known().map(|node| vec![node]),
            Self::Cluster(cluster) => cluster.primaries(),
        }
    }

    /// Why the servers are not known.
    pub(super) fn trouble(&self) -> Option<(ErrorClass, String)> {
        match self {
            Self::Single(_) => None,
            Self::Sentinel(sentinel) => sentinel.trouble(),
            Self::Cluster(cluster) => cluster.trouble(),
        }
    }

    /// Returns when the servers are known, or at the deadline.
    pub(super) async fn known(&self, deadline: Instant) {
        match self {
            Self::Single(_) => {}
            Self::Sentinel(sentinel) => _ = sentinel.primary(deadline).await,
            Self::Cluster(cluster) => cluster.known(deadline).await,
        }
    }
}

/// Delivers a call to a server that is not part of a Cluster.
async fn call_on(node: &Node, call: &Call<'_>, deadline: Instant) -> Result<Answer, Trouble> {
    match node.call(call, deadline, false).await? {
        Outcome::Answered(answer) => Ok(answer),
        Outcome::Moved(_) | Outcome::Ask(_) => {
            let message = format!("{} is a part of a Cluster; use redis+cluster://", node.address());
            Err(Trouble::with_call(ErrorClass::Protocol, message))
        }
    }
}

/// The address out of the words of a reply.
fn address_of(host: &str, port: &str) -> Option<Address> {
    Some(Address { host: host.to_owned(), port: port.parse().ok()? })
}
