//! The server of a call: the only one, the primary that Sentinel names, or the owner of the slot.

pub(crate) mod cluster;
pub(crate) mod sentinel;
pub(crate) mod slots;

use crate::store::ErrorClass;
use crate::store::redis::client::address::Address;
use crate::store::redis::client::call::{Call, ScriptReply};
use crate::store::redis::client::error::CallError;
use crate::store::redis::client::node::{Node, NodeContext, NodeOutcome};
use cluster::Cluster;
use sentinel::Sentinel;
use std::sync::Arc;
use tokio::time::Instant;

/// A key that the probe may write: it has the store's prefix, and a tag that no subject has.
pub(crate) fn probe_key(context: &NodeContext, number: u32) -> String {
    format!("{}{{{number}}}:probe", context.key_prefix)
}

/// The kind of deployment.
pub(crate) enum Topology {
    /// One server.
    Single(Arc<Node>),
    /// The primary that the sentinels name.
    Sentinel(Sentinel),
    /// All primaries of a Cluster.
    Cluster(Cluster),
}

impl Topology {
    /// Delivers a call.
    pub(crate) async fn call(&self, call: &Call<'_>, deadline: Instant) -> Result<ScriptReply, CallError> {
        match self {
            Self::Single(node) => call_on(node, call, deadline).await,
            Self::Sentinel(sentinel) => {
                let node = sentinel.primary(deadline).await?;
                call_on(&node, call, deadline).await
            }
            Self::Cluster(cluster) => cluster.call(call, deadline).await,
        }
    }

    /// All servers that are needed; `None` while they are unknown.
    pub(crate) fn nodes(&self) -> Option<Vec<Arc<Node>>> {
        match self {
            Self::Single(node) => Some(vec![Arc::clone(node)]),
            Self::Sentinel(sentinel) => sentinel.known().map(|node| vec![node]),
            Self::Cluster(cluster) => cluster.primaries(),
        }
    }

    /// The server of a route, if it is known.
    pub(crate) fn node_of(&self, route: usize) -> Option<Arc<Node>> {
        match self {
            Self::Single(node) => Some(Arc::clone(node)),
            Self::Sentinel(sentinel) => sentinel.known(),
            Self::Cluster(cluster) => cluster.owner(u16::try_from(route).ok()?),
        }
    }

    /// Why the servers are unknown.
    pub(crate) fn error(&self) -> Option<(ErrorClass, String)> {
        match self {
            Self::Single(_) => None,
            Self::Sentinel(sentinel) => sentinel.error(),
            Self::Cluster(cluster) => cluster.error(),
        }
    }

    /// Returns when the servers are known, or at the deadline.
    pub(crate) async fn known(&self, deadline: Instant) {
        match self {
            Self::Single(_) => {}
            Self::Sentinel(sentinel) => _ = sentinel.primary(deadline).await,
            Self::Cluster(cluster) => cluster.known(deadline).await,
        }
    }
}

/// Delivers a call to a server outside of a Cluster.
async fn call_on(node: &Node, call: &Call<'_>, deadline: Instant) -> Result<ScriptReply, CallError> {
    match node.call(call, deadline, false).await? {
        NodeOutcome::Answered(answer) => Ok(answer),
        NodeOutcome::Moved(_) | NodeOutcome::Ask(_) => {
            let message = format!("{} is a part of a Cluster; use redis+cluster://", node.address());
            Err(CallError::of_call(ErrorClass::Protocol, message))
        }
    }
}

/// Parses the address of a Sentinel reply.
fn address_of(host: &str, port: &str) -> Option<Address> {
    Some(Address { host: host.to_owned(), port: port.parse().ok()? })
}
