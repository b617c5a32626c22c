//! The RESP listener: the protocol of Redis, for those who use redis-cell and for every Redis client there is.
//!
//! | part | does |
//! |---|---|
//! | [`parse`] | bytes to commands, pure and bounded |
//! | [`session`] | commands to answers, without a socket |
//! | [`throttle`], [`check`] | CL.THROTTLE and SG.CHECK |
//! | [`reply`] | answers to bytes, RESP2 and RESP3 |
//! | [`pipeline`] | what waits for a shared store |
//! | [`connection`] | reads, writes, deadlines |
//!
//! Accepting, the cap on connections and the drain are those of every listener: see [`crate::net`].

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

use crate::net::{self, Drained, Listener, Notices, Protocol, Slot, Transport, open_files};
use connection::Connection;
pub(crate) use session::Service;
use session::Session;
pub(crate) use throttle::SPACE as THROTTLE_SPACE;

/// How long a connection may be silent before the system asks whether its peer is still there.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(300);

/// Everything about the listener that a test may want to be smaller or shorter.
#[derive(Clone, Debug)]
pub(crate) struct RespOptions {
    /// Connections served at once.
    pub(crate) connections_max: NonZeroU32,
    /// From accept to the first command, and to the right password if there is one.
    pub(crate) first_command: Duration,
    /// From a command's first byte to its last.
    pub(crate) command_read: Duration,
    /// From one command to the next. Pools hold connections open for a long time without using them.
    pub(crate) idle: Duration,
    /// Answers that the client does not take for so long end the connection.
    pub(crate) write_stall: Duration,
    /// After the last answer, so long what the client still sends is read and thrown away.
    pub(crate) linger: Duration,
    /// How long a connection is still served once the drain has begun: a command that was under way is answered.
    pub(crate) drain_quiet: Duration,
    /// From the start of the drain to cutting what is still open.
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

/// Serves `service` on `listener` until `drain` is cancelled, then answers what was received and closes.
pub(crate) async fn serve(
    listener: Listener,
    service: Arc<Service>,
    options: RespOptions,
    drain: CancellationToken,
) -> Drained {
    let (connections_max, drain_deadline) = (options.connections_max, options.drain);
    net::serve_protocol(listener, connections_max, drain_deadline, drain, |notices| Connections {
        service,
        options: Arc::new(options),
        notices,
    })
    .await
}

/// What all connections of the listener share.
#[derive(Clone)]
struct Connections {
    service: Arc<Service>,
    options: Arc<RespOptions>,
    notices: Notices,
}

impl Connections {
    async fn serve_io<I: AsyncRead + AsyncWrite + Unpin>(self, io: I, peer: SocketAddr) {
        let Self { service, options, notices } = self;
        let connection = Connection::new(io, Session::new(service, peer), &options);
        tokio::select! {
            biased;
            () = notices.cut.given() => {}
            () = connection.serve(notices.drain.given()) => {}
        }
    }
}

impl Protocol for Connections {
    fn prepare(&self, stream: &TcpStream) {
        let _ = stream.set_nodelay(true);
        // Idle connections are kept for long, so the system looks after those whose peer is gone. Where it cannot,
        // the idle timeout does.
        let _ = sockopt::set_socket_keepalive(stream, true);
        let _ = sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_AFTER);
    }

    async fn serve(self, io: Transport, peer: SocketAddr, slot: Slot) {
        self.serve_io(io, peer).await;
        // The socket is closed by now.
        drop(slot);
    }
}
