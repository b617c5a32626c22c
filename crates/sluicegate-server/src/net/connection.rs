//! One connection from its first byte to its end.
//!
//! hyper speaks the protocol; this decides how long it may. hyper's own header timeout is not used:
//! it starts with the wait for the next request, so it cannot tell a client that is merely idle
//! from one that never finishes a head, and it does not exist before the first bytes at all.
//! [`Activity`] can tell. Before hyper there is the [express lane](super::express), where there is one.
//!
//! The task keeps one timer, which is moved only when it would be late or when it fires, so that a
//! busy connection does not touch the timer wheel for every request.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::FutureExt as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::either::Either;

use super::activity::{Activity, Due};
use super::express::{Express, Left};
use super::io::WatchedIo;
use super::notice::Given;
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
    /// Whether plain checks may be answered without hyper.
    has_express: bool,
}

impl Connections {
    /// Connections that are served `site` until they are told otherwise.
    pub(super) fn new(site: impl Into<Site>, options: ListenerOptions, notices: Notices) -> Self {
        let protocol = Arc::new(protocol(&options));
        let (site, options) = (Arc::new(site.into()), Arc::new(options));
        Self { site, options, protocol, notices, is_over_tls: false, has_express: true }
    }

    /// The same, all of whose requests hyper has.
    #[cfg(test)]
    pub(super) fn without_express(self) -> Self {
        Self { has_express: false, ..self }
    }

    /// Serves one connection until it is closed. `slot` is dropped together with `io`.
    pub(super) async fn serve_io<I, S>(self, io: I, peer: SocketAddr, slot: S)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: Send + Unpin + 'static,
    {
        let Self { site, options, protocol, notices, is_over_tls, has_express } = self;
        let activity = Activity::new(Arc::clone(&options));
        let mut io = WatchedIo::new(io, Arc::clone(&activity), &options, slot);
        let mut watch = Watch {
            peer,
            activity: &activity,
            timer: pin!(sleep_until(Instant::now() + options.first_byte)),
            drained: notices.drain.given(),
            cut: notices.cut.given(),
            is_draining: false,
        };
        if let Some(app) = site.express().filter(|_| has_express) {
            let left = {
                let lane = pin!(Express::new(app, &activity).serve(&mut io));
                // Whoever is told to finish is waiting for a request.
                watch.over(lane, |_| ControlFlow::Break(())).await
            };
            match left {
                Some(Ok(Left::Rest(rest))) => io.put_back(rest),
                Some(Ok(Left::Closed)) | None => {
                    // Whoever is still there is told, as far as that takes no time.
                    let _ = io.shutdown().now_or_never();
                    return;
                }
                Some(Err(error)) => return log_end(peer, &error),
            }
        }
        let served = Arc::new(Served { site, peer, activity: Arc::clone(&activity), is_over_tls });
        // Boxed, because on HTTP/2 every request becomes a task, and what it holds is moved nine times until then.
        let service = service_fn(|request| Box::pin(Arc::clone(&served).answer(request)));
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

/// Sees to it that nobody serves a connection for longer than it may be served.
struct Watch<'c> {
    peer: SocketAddr,
    activity: &'c Activity,
    timer: Pin<&'c mut Sleep>,
    drained: Given,
    cut: Given,
    is_draining: bool,
}

impl Watch<'_> {
    /// Waits for whoever serves the connection, or else says that it is to be dropped. `finish` tells it to answer what it
    /// has begun to and end; it breaks if there is nothing to wait for then.
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
                    // On HTTP/2 the peer can be told at once without losing a request; on HTTP/1 it
                    // is told by the next answer, or by closing after a quiet moment.
                    if !activity.is_http2() {
                        continue;
                    }
                    activity.closing();
                    finish(serving.as_mut())
                }
                // The connection has just been polled: what it does now may be due earlier.
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
