//! Listening sockets: bind, accept, serve and drain.
//!
//! axum's own `serve` installs no timer, so none of hyper's timeouts work there, and it accepts
//! without bound. This is our own loop over hyper instead. It guarantees, per listener:
//!
//! - at most [`ListenerOptions::connections_max`] connections; the rest wait in the kernel's
//!   backlog, and what passes the [`Door`] before it is served: who a connection is from, how many
//!   that address may have, and TLS,
//! - no connection lives for ever without asking something ([`connection`] has the deadlines),
//! - running out of file descriptors slows accepting down and never spins or ends it,
//! - [`serve`] returns only after every connection is closed, or cut at the drain deadline.
//!
//! HTTP/1.1 and HTTP/2 with prior knowledge share each port of [`serve`]; [`serve_protocol`] is the same loop for
//! any other [`Protocol`].

mod accept;
mod activity;
mod connection;
mod crowd;
mod door;
mod express;
mod frames;
mod framing;
mod head;
mod io;
pub(crate) mod notice;
pub(crate) mod open_files;
mod options;
mod proxy_header;
mod service;
#[cfg(test)]
mod tests;
pub(crate) mod tls;

use std::future::Future;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use sluicegate::identify::address::TrustedProxies;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::http::Site;

use accept::Acceptor;
use connection::Connections;
use crowd::Place;
pub(crate) use door::{Door, Transport};
pub(crate) use express::reply::Outbox;
pub(crate) use head::is_host;
use notice::Notice;
pub(crate) use options::{ListenerOptions, connections_per_address_max};

/// Why a listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for {name}: {}", self.reason())]
pub(crate) struct BindError {
    name: &'static str,
    address: SocketAddr,
    source: std::io::Error,
}

impl BindError {
    fn reason(&self) -> String {
        let Self { name, address, source } = self;
        match source.kind() {
            ErrorKind::AddrInUse => format!(
                "the port is in use; stop what uses it, or choose another with --{name} {}:PORT \
                 (0 takes a free one) or --{name} off",
                HostOf(*address)
            ),
            ErrorKind::PermissionDenied => {
                format!("permission denied; choose a port above 1023 with --{name} {}:PORT", HostOf(*address))
            }
            ErrorKind::AddrNotAvailable => format!(
                "this machine has no such address; give one it has with --{name} ADDRESS:{}",
                address.port()
            ),
            _ => format!("{source}; choose another address with --{name}"),
        }
    }
}

/// The host part of an address as it is written before a port.
struct HostOf(SocketAddr);

impl std::fmt::Display for HostOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            SocketAddr::V4(v4) => write!(f, "{}", v4.ip()),
            SocketAddr::V6(v6) => write!(f, "[{}]", v6.ip()),
        }
    }
}

/// A bound socket. The kernel takes connections from here on; they are served by [`serve`].
#[derive(Debug)]
pub(crate) struct Listener {
    name: &'static str,
    address: SocketAddr,
    tcp: TcpListener,
    door: Door,
}

impl Listener {
    /// Binds `address`; `name` is what the listener is called in messages and on the command line.
    pub(crate) async fn bind(name: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { name, address, source };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        let door = Door::new(connections_per_address_max(open_files::CONNECTIONS_MAX), TrustedProxies::default());
        Ok(Self { name, address, tcp, door })
    }

    /// The same listener behind another door.
    pub(crate) fn behind(self, door: Door) -> Self {
        Self { door, ..self }
    }

    /// Whether it speaks TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.door.has_tls()
    }

    /// What the listener is called.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The address that was really bound, with the port the kernel chose for port 0.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// How a listener's connections ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// Connections that were still open at the drain deadline and were cut.
    pub(crate) connections_cut: usize,
}

/// A connection's place among those that are served at once, and among those of its address; free again when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _permit: OwnedSemaphorePermit,
    _place: Place,
}

/// What is spoken on the connections of a listener.
pub(crate) trait Protocol: Clone + Send + Sync + 'static {
    /// Sets up the socket of a new connection.
    fn prepare(&self, stream: &TcpStream) {
        // Answers are small and complete when written: waiting for more to send only delays them.
        // Failure means that the peer is gone, which the first read finds out too.
        let _ = stream.set_nodelay(true);
    }

    /// Serves one connection until it is closed, and drops `slot` only then.
    fn serve(self, io: Transport, peer: SocketAddr, slot: Slot) -> impl Future<Output = ()> + Send;
}

/// What connections are told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices {
    /// To finish what they do.
    pub(crate) drain: Notice,
    /// To stop at once.
    pub(crate) cut: Notice,
}

/// Serves `site` on `listener` until `drain` is cancelled, then lets the open connections finish.
///
/// The listening socket is closed as soon as the drain begins; connections that the kernel had
/// already taken are still served.
pub(crate) async fn serve(
    listener: Listener,
    site: impl Into<Site>,
    options: ListenerOptions,
    drain: CancellationToken,
) -> Drained {
    let (connections_max, drain_deadline) = (options.connections_max, options.drain);
    serve_protocol(listener, connections_max, drain_deadline, drain, |notices| {
        Connections::new(site, options, notices)
    })
    .await
}

/// [`serve`] for any protocol. `protocol` is given what its connections are to look out for.
pub(crate) async fn serve_protocol<P: Protocol>(
    listener: Listener,
    connections_max: NonZeroU32,
    drain_deadline: Duration,
    drain: CancellationToken,
    protocol: impl FnOnce(Notices) -> P,
) -> Drained {
    let name = listener.name;
    let connections_max = connections_max.get();
    let slots = Arc::new(Semaphore::new(connections_max as usize));
    let notices = Notices::default();
    // Also when this future is dropped, no connection outlives it.
    let _cut_on_drop = notices.cut.on_drop();
    let protocol = protocol(notices.clone());

    Acceptor::new(listener, Arc::clone(&slots), notices.cut.clone()).run(&drain, &protocol).await;
    notices.drain.give();

    // A connection gives its slot back when its socket is closed, so all slots back means all
    // closed.
    let connections_cut = match timeout(drain_deadline, slots.acquire_many(connections_max)).await {
        Ok(_) => 0,
        Err(_elapsed) => connections_max as usize - slots.available_permits(),
    };
    if connections_cut > 0 {
        tracing::warn!(listener = name, connections_cut, "connections were still open and were cut");
    }
    Drained { connections_cut }
}
