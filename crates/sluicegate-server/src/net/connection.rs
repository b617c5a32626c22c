//! One connection from its first byte to its end.
//!
//! hyper speaks the protocol; this decides how long it may. hyper's own header timeout is not used:
//! it starts with the wait for the next request, so it cannot tell a client that is merely idle
//! from one that never finishes a head, and it does not exist before the first bytes at all.
//! [`Activity`] can tell.
//!
//! The task keeps one timer, which is moved only when it would be late or when it fires, so that a
//! busy connection does not touch the timer wheel for every request.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::either::Either;

use super::activity::{Activity, Due};
use super::io::WatchedIo;
use super::options::ListenerOptions;
use super::service::Served;
use super::{Notices, Protocol, Slot, Transport};
use crate::body::MAX_HEADERS;
use crate::http::Site;

/// What all connections of one listener share.
#[derive(Clone)]
pub(super) struct Connections {
    site: Arc<Site>,
    options: Arc<ListenerOptions>,
    protocol: Arc<auto::Builder<TokioExecutor>>,
    notices: Notices,
    /// Whether the bytes come out of TLS.
    is_over_tls: bool,
}

impl Connections {
    /// Connections that are served `site` until they are told otherwise.
    pub(super) fn new(site: impl Into<Site>, options: ListenerOptions, notices: Notices) -> Self {
        let protocol = Arc::new(protocol(&options));
        let (site, options) = (Arc::new(site.into()), Arc::new(options));
        Self { site, options, protocol, notices, is_over_tls: false }
    }

    /// Serves one connection until it is closed. `slot` is dropped together with `io`.
    pub(super) async fn serve_io<I, S>(self, io: I, peer: SocketAddr, slot: S)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Send + Unpin + 'static,
    {
        let Self { site, options, protocol, notices, is_over_tls } = self;
        let activity = Activity::new(Arc::clone(&options));
        let io = TokioIo::new(WatchedIo::new(io, Arc::clone(&activity), &options, slot));
        let served = Arc::new(Served { site, peer, activity: Arc::clone(&activity), is_over_tls });
        let service = service_fn(|request| Arc::clone(&served).answer(request));
        let mut connection = pin!(protocol.serve_connection_with_upgrades(io, service));
        let mut timer = pin!(sleep_until(Instant::now() + options.first_byte));
        let (mut drained, mut cut) = (notices.drain.given(), notices.cut.given());
        let mut is_draining = false;

        loop {
            let armed = timer.deadline();
            tokio::select! {
                biased;
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%peer, error, "a connection ended early");
                    }
                    return;
                }
                () = &mut cut => return,
                () = &mut drained, if !is_draining => {
                    is_draining = true;
                    activity.drain();
                    // On HTTP/2 the peer can be told at once without losing a request; on HTTP/1 it
                    // is told by the next answer, or by closing after a quiet moment.
                    if activity.is_http2() {
                        activity.closing();
                        connection.as_mut().graceful_shutdown();
                    }
                }
                // The connection has just been polled: what it does now may be due earlier.
                deadline = poll_fn(|_| activity.due_before(armed)) => {
                    timer.as_mut().reset(deadline);
                }
                () = timer.as_mut() => match activity.due(Instant::now()) {
                    Due::Wait(deadline) => timer.as_mut().reset(deadline),
                    Due::Close => {
                        activity.closing();
                        connection.as_mut().graceful_shutdown();
                    }
                    Due::Cut(reason) => {
                        tracing::debug!(%peer, reason, "a connection was cut");
                        return;
                    }
                },
            }
        }
    }
}

impl Protocol for Connections {
    async fn serve(self, io: Transport, peer: SocketAddr, slot: Slot) {
        let is_over_tls = matches!(io, Either::Right(_));
        Self { is_over_tls, ..self }.serve_io(io, peer, slot).await;
    }
}

/// hyper, with the bounds of `options`.
fn protocol(options: &ListenerOptions) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_headers(MAX_HEADERS)
        .max_buf_size(options.http1_buffer_bytes_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.http2_streams_max)
        .max_header_list_size(options.http2_header_list_bytes_max)
        .initial_connection_window_size(options.http2_window_bytes)
        .initial_stream_window_size(options.http2_window_bytes / 2)
        .keep_alive_interval(options.http2_ping_interval)
        .keep_alive_timeout(options.http2_ping_timeout)
        // The two answers to rapid reset: streams reset before we saw them, and by us.
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(1_024);
    builder
}
