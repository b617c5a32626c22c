//! One server behind the gateway, and the connections to it.
//!
//! HTTP/1.1 connections carry one request at a time and are kept in a [`Pool`]; an HTTP/2 connection carries many and
//! is shared. At most `concurrency` requests are under way to an upstream; who comes then waits for a moment.

mod dial;
mod http1;
mod pool;
mod stream;
mod tls;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use hyper::client::conn::http1::SendRequest as SendHttp1;
use hyper::client::conn::http2::{self, SendRequest as SendHttp2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::config::gateway::{RouteSettings, UpstreamUrl};
use dial::{DialError, Dialer, Spoken};
pub(super) use http1::{Http1, OnTask};
use pool::Pool;
use stream::Stream;
pub(crate) use tls::TlsFault;
use tls::{Encryption, Offer};

/// How long an upstream that cannot be connected to is left out while there are others.
const DOWN: Duration = Duration::from_secs(5);

/// Bytes that an HTTP/2 upstream may send ahead of a client's reading, for each request. A connection gets as much for
/// sixteen at once.
const HTTP2_WINDOW_BYTES: u32 = 256 * 1_024;
/// Bytes of an answer's head on HTTP/2.
const HTTP2_HEADER_LIST_BYTES_MAX: u32 = 64 * 1_024;
/// Pings that find dead HTTP/2 upstreams: sent this often …
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// … and answered within this time.
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

/// An upstream.
#[derive(Debug)]
pub(super) struct Upstream {
    /// What it is called where the client's `Host` is not kept.
    pub(super) authority: HeaderValue,
    /// `http` or `https`.
    pub(super) scheme: &'static str,
    dialer: Dialer,
    offer: Offer,
    pool: Pool,
    http2: Mutex<Option<SendHttp2<Body>>>,
    /// Held while a connection is opened that others may be able to share.
    opening: tokio::sync::Mutex<()>,
    /// Whether an upstream that may choose has chosen HTTP/1.1.
    prefers_http1: AtomicBool,
    permits: Arc<Semaphore>,
    wait: Duration,
    began: Instant,
    /// Milliseconds after `began` until which it is left out; 0 if it is not.
    down_until: AtomicU64,
}

/// A way to send one request.
#[derive(Debug)]
pub(super) enum Link {
    /// A connection for it alone.
    Http1(Box<Http1>),
    /// A place on a shared connection.
    Http2(SendHttp2<Body>),
}

/// Why there is no way.
#[derive(Debug)]
pub(super) enum NoLink {
    /// The upstream cannot be connected to.
    Unreachable,
    /// It has as many requests as it may have.
    Busy,
}

/// The right to have a request under way.
pub(super) type Permit = OwnedSemaphorePermit;

impl Upstream {
    /// The upstream at `url`, used as `route` says. Opens nothing yet.
    pub(super) fn new(url: &UpstreamUrl, route: &RouteSettings) -> Result<Self, TlsFault> {
        let encryption = if url.is_https() { Some(Encryption::new(&route.tls, url.host())?) } else { None };
        let offer = match (route.http2, url.is_https()) {
            (Some(true), _) => Offer::Http2,
            (None, true) => Offer::Either,
            (Some(false), _) | (None, false) => Offer::Http1,
        };
        Ok(Self {
            authority: url.authority(),
            scheme: if url.is_https() { "https" } else { "http" },
            dialer: Dialer::new(url, encryption, route.connect_timeout),
            offer,
            pool: Pool::new(route.keep_alive),
            http2: Mutex::new(None),
            opening: tokio::sync::Mutex::new(()),
            prefers_http1: AtomicBool::new(false),
            permits: Arc::new(Semaphore::new(route.concurrency)),
            wait: route.connect_timeout,
            began: Instant::now(),
            down_until: AtomicU64::new(0),
        })
    }

    /// Whether trailers can be asked for: only HTTP/2 carries them through.
    pub(super) fn may_speak_http2(&self) -> bool {
        self.offer != Offer::Http1
    }

    /// Whether it may become the other end of a tunnel, which is a thing of HTTP/1.1.
    pub(super) fn may_speak_http1(&self) -> bool {
        self.offer != Offer::Http2
    }

    /// Whether it could not be connected to a moment ago.
    pub(super) fn is_down(&self) -> bool {
        let until = self.down_until.load(Ordering::Relaxed);
        until != 0 && self.began.elapsed() < Duration::from_millis(until)
    }

    /// The right to have a request under way, as soon as there is one.
    pub(super) async fn permit(&self) -> Result<Permit, NoLink> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        match Box::pin(timeout(self.wait, Arc::clone(&self.permits).acquire_owned())).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(NoLink::Busy),
        }
    }

    /// A way to send a request, on a connection that is there already if possible.
    pub(super) async fn link(&self) -> Result<Link, NoLink> {
        if let Some(sender) = self.shared_http2() {
            return Ok(Link::Http2(sender));
        }
        match self.pool.take() {
            Some(http1) => Ok(Link::Http1(http1)),
            None => self.new_link().await,
        }
    }

    /// A way to send a request on a connection that is no older than this call, or that everybody shares. Boxed, because
    /// opening one takes a large future, which nearly no request needs, and all would carry it along.
    pub(super) fn new_link(&self) -> Pin<Box<dyn Future<Output = Result<Link, NoLink>> + Send + '_>> {
        Box::pin(self.opened_link())
    }

    async fn opened_link(&self) -> Result<Link, NoLink> {
        if !self.may_speak_http2() || self.prefers_http1.load(Ordering::Relaxed) {
            return self.open().await;
        }
        // One opens, and the others share what comes of it.
        let _opening = self.opening.lock().await;
        match self.shared_http2() {
            Some(sender) => Ok(Link::Http2(sender)),
            None => self.open().await,
        }
    }

    /// A connection that may become a tunnel.
    pub(super) async fn tunnel(&self) -> Result<(SendHttp1<Body>, OnTask), NoLink> {
        let (stream, _) = self.dial(Offer::Http1).await?;
        http1::with_upgrades(stream).await.map_err(|_| NoLink::Unreachable)
    }

    /// Keeps a connection whose answer has been read.
    pub(super) fn put(&self, http1: Box<Http1>) {
        self.pool.put(http1);
    }

    async fn open(&self) -> Result<Link, NoLink> {
        let (stream, spoken) = self.dial(self.offer).await?;
        let opened = match spoken {
            Spoken::Http1 => {
                self.prefers_http1.store(true, Ordering::Relaxed);
                Http1::new(stream).await.map(Link::Http1)
            }
            Spoken::Http2 => self.open_http2(stream).await.map(Link::Http2),
        };
        // Nothing has been said on it yet, so it is as if there were none.
        opened.map_err(|_| NoLink::Unreachable)
    }

    async fn open_http2(&self, stream: Stream) -> hyper::Result<SendHttp2<Body>> {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(HTTP2_WINDOW_BYTES)
            .initial_connection_window_size(HTTP2_WINDOW_BYTES * 16)
            .max_header_list_size(HTTP2_HEADER_LIST_BYTES_MAX)
            .keep_alive_interval(HTTP2_PING_INTERVAL)
            .keep_alive_timeout(HTTP2_PING_TIMEOUT);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move { drop(connection.await) });
        *self.http2.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender.clone());
        Ok(sender)
    }

    /// The HTTP/2 connection that is open, if one is.
    fn shared_http2(&self) -> Option<SendHttp2<Body>> {
        if !self.may_speak_http2() {
            return None;
        }
        let mut shared = self.http2.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.as_ref().is_some_and(|sender| !sender.is_ready()) {
            *shared = None;
        }
        shared.clone()
    }

    async fn dial(&self, offer: Offer) -> Result<(Stream, Spoken), NoLink> {
        match self.dialer.open(offer).await {
            Ok(opened) => {
                self.down_until.store(0, Ordering::Relaxed);
                Ok(opened)
            }
            Err(error) => {
                self.went_down(&error);
                Err(NoLink::Unreachable)
            }
        }
    }

    /// Leaves the upstream out for a while, and says so if it was not already.
    fn went_down(&self, error: &DialError) {
        let until = (self.began.elapsed() + DOWN).as_millis().try_into().unwrap_or(u64::MAX);
        let was_down = self.is_down();
        self.down_until.store(until, Ordering::Relaxed);
        if !was_down {
            let authority = self.authority.to_str().unwrap_or_default();
            tracing::warn!(upstream = authority, %error, "cannot connect to an upstream");
        }
    }
}
