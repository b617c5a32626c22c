//! Connections over in-memory streams and paused time, listeners over real sockets.
//!
//! With paused time the clock jumps to the next timer whenever nothing else can run, so a test that
//! waits for an hour takes no time, and elapsed times are exact.

mod http1;
mod http1_fast_check;
mod http2;
mod listener;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::{get, post};
use futures_util::StreamExt as _;
use futures_util::stream::{repeat, unfold};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::DrainSignals;
use super::connection::Connections;
use super::drain::DrainSignal;
use super::options::ListenerOptions;
use crate::http::HttpEndpoint;
use crate::problem;

/// Bytes the in-memory stream holds each way; small, so that unread answers fill it.
const PIPE_BYTES: usize = 8_192;

/// A connection under test, seen from the client.
struct Client {
    io: DuplexStream,
    drain: DrainSignal,
    served: JoinHandle<()>,
    opened: Instant,
}

impl Client {
    fn connect() -> Self {
        Self::connect_with(ListenerOptions::default())
    }

    fn connect_with(options: ListenerOptions) -> Self {
        let signals = DrainSignals::default();
        let drain = signals.drain.clone();
        Self::connect_to(Connections::new(endpoint(), options, signals), drain)
    }

    /// One more of these connections, which `drain` ends.
    fn connect_to(connections: Connections<HttpEndpoint>, drain: DrainSignal) -> Self {
        Self::connect_from(connections, drain, peer())
    }

    /// The same from this address.
    fn connect_from(connections: Connections<HttpEndpoint>, drain: DrainSignal, peer: SocketAddr) -> Self {
        let (io, server_io) = duplex(PIPE_BYTES);
        let served = tokio::spawn(connections.serve_io(server_io, peer, ()));
        Self { io, drain, served, opened: Instant::now() }
    }

    async fn send(&mut self, text: &str) {
        self.io.write_all(text.as_bytes()).await.expect("the server reads");
    }

    /// Everything up to the end of the connection, and the time since it was opened.
    async fn read_to_end(&mut self) -> (String, Duration) {
        let mut bytes = Vec::new();
        self.io.read_to_end(&mut bytes).await.expect("a clean end");
        let text = String::from_utf8(bytes).expect("text");
        (text, self.opened.elapsed())
    }

    /// One answer up to and with `end`.
    async fn read_until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            bytes.push(self.io.read_u8().await.expect("the answer goes on"));
        }
        String::from_utf8(bytes).expect("text")
    }
}

fn peer() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 4242))
}

fn endpoint() -> HttpEndpoint {
    HttpEndpoint::from(router())
}

fn router() -> Router {
    problem::with_fallbacks(
        Router::new()
            .route("/ok", get(async || "fine!"))
            .route("/echo", post(async |body: bytes::Bytes| body))
            .route("/count", post(async |body: bytes::Bytes| body.len().to_string()))
            .route("/ignore", post(async || "unread"))
            .route("/big", get(async || vec![b'x'; 1_000_000]))
            .route("/pieces", get(async || Body::from_stream(repeat(vec![b'x'; 1_000]).map(Ok::<_, Infallible>))))
            .route("/events", get(async || Body::from_stream(unfold((), event).map(Ok::<_, Infallible>))))
            .route("/never", get(async || std::future::pending::<()>().await))
            .route("/slow", get(slow))
            .route("/panic", get(panicking))
            .route("/peer", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string())),
        |_| None,
    )
}

/// One every 100 s.
async fn event(_: ()) -> Option<(&'static str, ())> {
    tokio::time::sleep(Duration::from_secs(100)).await;
    Some(("event", ()))
}

/// Takes 100 s, which is longer than any deadline of an idle connection.
async fn slow() -> &'static str {
    tokio::time::sleep(Duration::from_secs(100)).await;
    "slow!"
}

async fn panicking() -> &'static str {
    panic!("on purpose")
}

/// Timers may fire a little late and never early.
#[track_caller]
fn assert_about(elapsed: Duration, expected_ms: u64) {
    let expected = Duration::from_millis(expected_ms);
    assert!(elapsed.abs_diff(expected) < Duration::from_millis(50), "{elapsed:?}, not {expected:?}");
}
