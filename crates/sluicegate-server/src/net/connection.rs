//! One connection from its first byte to its end.
//!
//! hyper implements the protocol; this module enforces the deadlines. hyper's own header timeout is not used: it starts
//! with the wait for the next request, so it cannot distinguish an idle client from one that never finishes a head, and it
//! does not exist before the first bytes. [`Activity`] can. A handler's fast path, if it has one, comes before hyper.
//!
//! The task keeps one timer. It resets the timer only when the timer fires or would fire too late, so a busy connection
//! does not touch the timer wheel for every request.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;

use bytes::BytesMut;
use futures_util::FutureExt as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::either::Either;

use super::bodies::{BodyBudgets, ListenerBudget};
use super::deadlines::{Activity, Due};
use super::drain::DrainSignalFuture;
use super::io::WatchedIo;
use super::options::ListenerOptions;
use super::service::ConnectionService;
use super::{ClientStream, ConnectionGuard, DrainSignals, FastPathEnd, HttpHandler, Protocol};
use crate::body::MAX_HEADERS;

/// The state that all connections of one listener share.
pub(super) struct Connections<H> {
    handler: Arc<H>,
    options: Arc<ListenerOptions>,
    protocol: Arc<auto::Builder<TokioExecutor>>,
    signals: DrainSignals,
    bodies: Arc<ListenerBudget>,
    /// Whether the bytes come out of TLS.
    is_tls: bool,
    /// Whether the peer is a trusted proxy.
    is_trusted_proxy: bool,
    /// Whether connections begin in the handler's fast path.
    has_fast_path: bool,
}

impl<H> Clone for Connections<H> {
    fn clone(&self) -> Self {
        let Self { handler, options, protocol, signals, bodies, is_tls, is_trusted_proxy, has_fast_path } = self;
        Self {
            handler: Arc::clone(handler),
            options: Arc::clone(options),
            protocol: Arc::clone(protocol),
            signals: signals.clone(),
            bodies: Arc::clone(bodies),
            is_tls: *is_tls,
            is_trusted_proxy: *is_trusted_proxy,
            has_fast_path: *has_fast_path,
        }
    }
}

impl<H: HttpHandler> Connections<H> {
    /// Connections whose requests go to `handler` until `signals` end them.
    pub(super) fn new(handler: H, options: ListenerOptions, signals: DrainSignals) -> Self {
        let protocol = Arc::new(protocol(&options));
        let bodies = ListenerBudget::new(options.body_bytes_max);
        let (handler, options) = (Arc::new(handler), Arc::new(options));
        let (is_tls, is_trusted_proxy, has_fast_path) = (false, false, true);
        Self { handler, options, protocol, signals, bodies, is_tls, is_trusted_proxy, has_fast_path }
    }

    /// Connections that send every request through hyper.
    #[cfg(test)]
    pub(super) fn without_fast_path(self) -> Self {
        Self { has_fast_path: false, ..self }
    }

    /// Serves one connection until it is closed. `guard` is dropped together with `io`.
    pub(super) async fn serve_io<I, S>(self, io: I, peer: SocketAddr, guard: S)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Send + Unpin + 'static,
    {
        let Self { handler, options, protocol, signals, bodies, is_tls, is_trusted_proxy, has_fast_path } = self;
        let activity = Activity::new(Arc::clone(&options));
        let mut io = WatchedIo::new(io, Arc::clone(&activity), &options, guard);
        let mut watch = DeadlineWatch {
            peer,
            activity: &activity,
            timer: pin!(sleep_until(Instant::now() + options.first_byte)),
            drained: signals.drain.raised(),
            cut: signals.cut.raised(),
            is_draining: false,
        };
        let end = match handler.fast_path(&activity, &mut io).filter(|_| has_fast_path) {
            None => Some(Ok(FastPathEnd::Unread(BytesMut::new()))),
            // During a drain the fast path is cut, because it only waits for a request then.
            Some(fast_path) => watch.over(pin!(fast_path), |_| ControlFlow::Break(())).await,
        };
        match end {
            Some(Ok(FastPathEnd::Unread(unread))) if unread.is_empty() => {}
            Some(Ok(FastPathEnd::Unread(unread))) => io.put_back(unread),
            Some(Ok(FastPathEnd::Closed)) | None => {
                // Sends the end of the stream, if that needs no wait.
                let _ = io.shutdown().now_or_never();
                return;
            }
            Some(Err(error)) => return log_end(peer, &error),
        }
        let bodies = BodyBudgets::new(options.body_bytes_per_connection_max, bodies, peer.ip(), is_trusted_proxy);
        let service = ConnectionService { handler, peer, activity: Arc::clone(&activity), bodies, is_tls };
        let service = Arc::new(service);
        // Boxed, because on HTTP/2 every request becomes a task, and its state is moved nine times until then.
        let service = service_fn(|request| Box::pin(Arc::clone(&service).answer(request)));
        let connection = pin!(protocol.serve_connection_with_upgrades(TokioIo::new(io), service));
        let finish = |connection: Pin<&mut _>| {
            auto::UpgradeableConnection::graceful_shutdown(connection);
            ControlFlow::Continue(())
        };
        if let Some(Err(error)) = watch.over(connection, finish).await {
            log_end(peer, &*error);
        }
    }
}

fn log_end(peer: SocketAddr, error: &(dyn std::error::Error + 'static)) {
    tracing::debug!(%peer, error, "a connection ended early");
}

/// Ends a connection at its deadlines and on its listener's signals.
struct DeadlineWatch<'c> {
    peer: SocketAddr,
    activity: &'c Activity,
    timer: Pin<&'c mut Sleep>,
    drained: DrainSignalFuture,
    cut: DrainSignalFuture,
    is_draining: bool,
}

impl DeadlineWatch<'_> {
    /// Polls `serving` to its end; `None` if it must be dropped before. `finish` makes it end after the requests in flight,
    /// and breaks if there is nothing to wait for.
    async fn over<F: Future>(
        &mut self,
        mut serving: Pin<&mut F>,
        finish: impl Fn(Pin<&mut F>) -> ControlFlow<()>,
    ) -> Option<F::Output> {
        let Self { peer, activity, timer, drained, cut, is_draining } = self;
        loop {
            let armed = timer.deadline();
            let finished = tokio::select! {
                biased;
                ended = serving.as_mut() => return Some(ended),
                () = &mut *cut => return None,
                () = &mut *drained, if !*is_draining => {
                    *is_draining = true;
                    activity.drain();
                    // On HTTP/2 the GOAWAY frame can be sent at once without losing a request. On HTTP/1 the next
                    // response closes the connection, or a quiet period does.
                    if !activity.is_http2() {
                        continue;
                    }
                    activity.closing();
                    finish(serving.as_mut())
                }
                // The connection has just been polled, and its new phase may have an earlier deadline.
                deadline = poll_fn(|_| activity.due_before(armed)) => {
                    timer.as_mut().reset(deadline);
                    continue;
                }
                () = timer.as_mut() => match activity.due(Instant::now()) {
                    Due::Wait(deadline) => {
                        timer.as_mut().reset(deadline);
                        continue;
                    }
                    Due::Close => {
                        activity.closing();
                        finish(serving.as_mut())
                    }
                    Due::Cut(reason) => {
                        tracing::debug!(%peer, reason, "a connection was cut");
                        return None;
                    }
                },
            };
            if finished.is_break() {
                return None;
            }
        }
    }
}

impl<H: HttpHandler> Protocol for Connections<H> {
    async fn serve(self, io: ClientStream, peer: SocketAddr, guard: ConnectionGuard) {
        let is_tls = matches!(io, Either::Right(_));
        let is_trusted_proxy = guard.is_trusted_proxy();
        Self { is_tls, is_trusted_proxy, ..self }.serve_io(io, peer, guard).await;
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
        // The bounds against rapid reset: streams that the peer resets before they are accepted, and streams that the
        // server resets.
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(1_024);
    builder
}
