//! Listening sockets: bind, accept, serve and drain.
//!
//! axum's own `serve` installs no timer, so hyper's timeouts do not work there, and it accepts without bound. This module
//! is a loop over hyper instead. It guarantees, per listener:
//!
//! - At most [`ListenerOptions::connections_max`] connections are served at once; the rest wait in the kernel's backlog.
//! - Each connection passes [`ConnectionAdmission`] first: the PROXY header, the cap per address, and TLS.
//! - Every connection without a request ends at a deadline ([`deadlines`]).
//! - A shortage of file descriptors slows down the accept loop; it neither spins nor ends.
//! - [`serve`] returns only after every connection is closed, or cut at the drain deadline.
//!
//! HTTP/1.1 and HTTP/2 with prior knowledge share each port of [`serve`], whose requests go to an [`HttpHandler`].
//! [`serve_protocol`] is the same loop for any other [`Protocol`]. Front doors depend on this module and not the reverse.

mod accept;
mod admission;
mod bodies;
mod connection;
mod deadlines;
pub(crate) mod drain;
mod head;
mod http1_framing;
mod http2_abuse;
mod io;
pub(crate) mod open_files;
mod options;
mod per_address;
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

use crate::body::RequestBody;
use accept::Acceptor;
pub(crate) use admission::{ClientStream, ConnectionAdmission};
use axum::http::Request;
use axum::response::Response;
use bytes::BytesMut;
use connection::Connections;
pub(crate) use deadlines::Activity;
use drain::DrainSignal;
pub(crate) use options::{ListenerOptions, connections_per_address_max};
use per_address::AddressPermit;
pub(crate) use service::{IsTls, UpgradePermission};
use tokio::io::{AsyncRead, AsyncWrite};

/// A listener that could not be opened.
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

/// A bound socket. The kernel queues its connections until [`serve`] accepts them.
#[derive(Debug)]
pub(crate) struct Listener {
    name: &'static str,
    address: SocketAddr,
    tcp: TcpListener,
    admission: ConnectionAdmission,
}

impl Listener {
    /// Binds `address`. Messages and the command line call the listener `name`.
    pub(crate) async fn bind(name: &'static str, address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { name, address, source };
        let tcp = TcpListener::bind(address).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        let per_address = connections_per_address_max(open_files::CONNECTIONS_MAX);
        let admission = ConnectionAdmission::new(per_address, TrustedProxies::default());
        Ok(Self { name, address, tcp, admission })
    }

    /// Replaces the admission steps of the listener's connections.
    pub(crate) fn with_admission(self, admission: ConnectionAdmission) -> Self {
        Self { admission, ..self }
    }

    /// Whether the listener requires TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.admission.has_tls()
    }

    /// The listener's name in messages and on the command line.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The bound address; the kernel has replaced port 0 by the port it chose.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The outcome of a listener's drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drained {
    /// Connections that were still open at the drain deadline and were cut.
    pub(crate) connections_cut: usize,
}

/// One connection's share of the listener's cap and of its address's cap. Dropping it frees both.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    _permit: OwnedSemaphorePermit,
    address: AddressPermit,
}

impl ConnectionGuard {
    /// Whether the peer is a trusted proxy.
    fn is_trusted_proxy(&self) -> bool {
        self.address.is_trusted_proxy()
    }
}

/// The protocol of a listener's connections.
pub(crate) trait Protocol: Clone + Send + Sync + 'static {
    /// Sets the options of a new connection's socket.
    fn prepare(&self, stream: &TcpStream) {
        // Each response is small and complete when written, so Nagle's algorithm would only delay it. An error means
        // that the peer is gone, which the first read detects too.
        let _ = stream.set_nodelay(true);
    }

    /// Serves one connection until it is closed, and drops `guard` only then.
    fn serve(self, io: ClientStream, peer: SocketAddr, guard: ConnectionGuard) -> impl Future<Output = ()> + Send;
}

/// The handler of an HTTP listener's requests. The front doors implement it; this module knows none of them.
pub(crate) trait HttpHandler: Send + Sync + 'static {
    /// Whether request bodies are read whole before the response. Such bodies count against the body budgets.
    fn buffers_bodies(&self) -> bool;

    /// Responds to one request of the client at `peer`.
    fn respond<B: RequestBody>(
        &self,
        request: Request<B>,
        peer: SocketAddr,
    ) -> impl Future<Output = Response> + Send;

    /// The handler's fast path, if it has one: it serves the first requests of an HTTP/1 connection straight from `io`,
    /// before hyper, and reports them to `activity`.
    fn fast_path<'c, I>(
        &'c self,
        activity: &'c Arc<Activity>,
        io: &'c mut I,
    ) -> Option<impl Future<Output = std::io::Result<FastPathEnd>> + Send + 'c>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send;
}

/// How a connection left its handler's fast path.
#[derive(Debug)]
pub(crate) enum FastPathEnd {
    /// The connection is finished.
    Closed,
    /// hyper continues with these bytes, which were read and not consumed.
    Unread(BytesMut),
}

/// The signals that all connections of a listener watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct DrainSignals {
    /// Finish the requests in flight, then close.
    pub(crate) drain: DrainSignal,
    /// Close now.
    pub(crate) cut: DrainSignal,
}

/// Serves `handler` on `listener` until `drain` is cancelled, then lets the open connections finish.
///
/// The listening socket is closed as soon as the drain begins. Connections that the kernel has already accepted are still
/// served.
pub(crate) async fn serve(
    listener: Listener,
    handler: impl HttpHandler,
    options: ListenerOptions,
    drain: CancellationToken,
) -> Drained {
    let (connections_max, drain_deadline) = (options.connections_max, options.drain);
    serve_protocol(listener, connections_max, drain_deadline, drain, |signals| {
        Connections::new(handler, options, signals)
    })
    .await
}

/// [`serve`] for any [`Protocol`], which `protocol` builds from the signals that its connections watch.
pub(crate) async fn serve_protocol<P: Protocol>(
    listener: Listener,
    connections_max: NonZeroU32,
    drain_deadline: Duration,
    drain: CancellationToken,
    protocol: impl FnOnce(DrainSignals) -> P,
) -> Drained {
    let name = listener.name;
    let connections_max = connections_max.get();
    let permits = Arc::new(Semaphore::new(connections_max as usize));
    let signals = DrainSignals::default();
    // Dropping this future closes every connection, too.
    let _cut_on_drop = signals.cut.raise_on_drop();
    let protocol = protocol(signals.clone());

    Acceptor::new(listener, Arc::clone(&permits), signals.cut.clone()).run(&drain, &protocol).await;
    signals.drain.raise();

    // A connection releases its permit when its socket is closed, so all connections are closed once all permits are
    // free.
    let connections_cut = match timeout(drain_deadline, permits.acquire_many(connections_max)).await {
        Ok(_) => 0,
        Err(_elapsed) => connections_max as usize - permits.available_permits(),
    };
    if connections_cut > 0 {
        tracing::warn!(listener = name, connections_cut, "connections were still open and were cut");
    }
    Drained { connections_cut }
}
