//! The RESP listener: the Redis protocol, for users of redis-cell and any Redis client.
//!
//! | part | purpose |
//! |---|---|
//! | [`parse`] | bytes to commands, pure and bounded |
//! | [`session`] | commands to replies, without a socket |
//! | [`throttle`], [`check`] | CL.THROTTLE and SG.CHECK |
//! | [`reply`] | replies to bytes, RESP2 and RESP3 |
//! | [`pipeline`] | calls to a shared store in flight |
//! | [`connection`] | reads, writes, deadlines |
//!
//! Accepting, the connection cap and the drain are those of every listener: see [`crate::net`].

mod check;
mod command;
mod connection;
mod parse;
mod pipeline;
mod reply;
mod session;
mod throttle;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::net::{self, ClientStream, ConnectionGuard, DrainSignals, Drained, Listener, Protocol, open_files};
use connection::Connection;
pub(crate) use session::Service;
use session::Session;
pub(crate) use throttle::SPACE as THROTTLE_SPACE;

/// The idle time after which the system sends TCP keep-alive probes.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(300);

/// The bounds and deadlines of the listener, which tests make smaller.
#[derive(Clone, Debug)]
pub(crate) struct RespOptions {
    /// The most connections at once.
    pub(crate) connections_max: NonZeroU32,
    /// From accept to the first command, and to the right password if there is one.
    pub(crate) first_command: Duration,
    /// From a command's first byte to its last.
    pub(crate) command_read: Duration,
    /// From one command to the next. Pools hold connections open for a long time without using them.
    pub(crate) idle: Duration,
    /// The connection ends if the client reads no reply for this time.
    pub(crate) write_stall: Duration,
    /// After the last reply, input is read and discarded for this time.
    pub(crate) linger: Duration,
    /// How long a connection is served after the drain has begun, so that a command in transit gets its reply.
    pub(crate) drain_quiet: Duration,
    /// From the start of the drain to closing the remaining connections.
    pub(crate) drain: Duration,
}

impl Default for RespOptions {
    fn default() -> Self {
        Self {
            connections_max: open_files::CONNECTIONS_MAX,
            first_command: Duration::from_secs(30),
            command_read: Duration::from_secs(30),
            idle: Duration::from_secs(3_600),
            write_stall: Duration::from_secs(30),
            linger: Duration::from_secs(2),
            drain_quiet: Duration::from_millis(500),
            drain: Duration::from_secs(8),
        }
    }
}

/// Serves `service` on `listener` until `drain` is cancelled, then replies to received commands and closes.
pub(crate) async fn serve(
    listener: Listener,
    service: Arc<Service>,
    options: RespOptions,
    drain: CancellationToken,
) -> Drained {
    let (connections_max, drain_deadline) = (options.connections_max, options.drain);
    net::serve_protocol(listener, connections_max, drain_deadline, drain, |signals| Connections {
        service,
        options: Arc::new(options),
        signals,
    })
    .await
}

/// The state that all connections of the listener share.
#[derive(Clone)]
struct Connections {
    service: Arc<Service>,
    options: Arc<RespOptions>,
    signals: DrainSignals,
}

impl Connections {
    async fn serve_io<I: AsyncRead + AsyncWrite + Unpin>(self, io: I, peer: SocketAddr) {
        let Self { service, options, signals } = self;
        let connection = Connection::new(io, Session::new(service, peer), &options);
        tokio::select! {
            biased;
            () = signals.cut.raised() => {}
            () = connection.serve(signals.drain.raised()) => {}
        }
    }
}

impl Protocol for Connections {
    fn prepare(&self, stream: &TcpStream) {
        let _ = stream.set_nodelay(true);
        // Idle connections are kept for long, so TCP keep-alive detects those whose peer is gone. Where it is not available,
        // the idle timeout does.
        let _ = sockopt::set_socket_keepalive(stream, true);
        let _ = sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_AFTER);
    }

    async fn serve(self, io: ClientStream, peer: SocketAddr, slot: ConnectionGuard) {
        self.serve_io(io, peer).await;
        // The socket is closed by now.
        drop(slot);
    }
}
