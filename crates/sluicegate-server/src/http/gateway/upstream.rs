//! One server behind the gateway, and the connections to it.
//!
//! An HTTP/1.1 connection carries one request at a time and is kept in a [`Pool`]. An HTTP/2 connection carries many
//! and is shared. At most `concurrency` requests are in flight to an upstream; further ones wait for a moment. One
//! place in [`SLOW_SHARE`] may be held by requests whose body pauses and whose response has not begun. A request whose body
//! becomes slow later gives its place up to a waiting request, unless it holds one of these.

mod dial;
mod http1;
mod pool;
mod stream;
mod tls;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use hyper::client::conn::http1::SendRequest as SendHttp1;
use hyper::client::conn::http2::{self, SendRequest as SendHttp2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use super::upload::Pace;
use crate::config::gateway::{RouteSettings, UpstreamUrl};
use dial::{DialError, Dialer, Protocol};
pub(super) use http1::{DriverTask, Http1};
use pool::Pool;
use stream::Stream;
pub(crate) use tls::TlsFault;
use tls::{Encryption, Offer};

/// How long an upstream that refuses connections is tried last.
const DOWN: Duration = Duration::from_secs(5);

/// One place in this many is also for requests with a slow body.
const SLOW_SHARE: usize = 4;

/// Bytes that an HTTP/2 upstream may send ahead of the client's reading, for each request. A connection gets as much
/// for sixteen at once.
const HTTP2_WINDOW_BYTES: u32 = 256 * 1_024;
/// The bound of a response's head on HTTP/2, in bytes.
const HTTP2_HEADER_LIST_BYTES_MAX: u32 = 64 * 1_024;
/// Pings that detect dead HTTP/2 upstreams: the interval …
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(20);
/// … and the time limit of the reply.
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(10);

/// An upstream.
#[derive(Debug)]
pub(super) struct Upstream {
    /// The host to send where the client's `Host` is not kept.
    pub(super) authority: HeaderValue,
    /// `http` or `https`.
    pub(super) scheme: &'static str,
    dialer: Dialer,
    offer: Offer,
    pool: Pool,
    http2: Mutex<Option<SendHttp2<Body>>>,
    /// Held while opening a connection that others may share.
    opening: tokio::sync::Mutex<()>,
    /// True if an upstream with a choice has chosen HTTP/1.1.
    prefers_http1: AtomicBool,
    places: Arc<Semaphore>,
    slow_places: Arc<Semaphore>,
    /// Requests that wait for a place.
    waiting: AtomicUsize,
    /// One permit for each waiting request. A slow upload that gives up its place takes one.
    claims: Semaphore,
    wait: Duration,
    began: Instant,
    /// Milliseconds after `began` until which the upstream is tried last; 0 if it is not.
    down_until: AtomicU64,
}

/// A connection for one request.
#[derive(Debug)]
pub(super) enum Link {
    /// A connection of its own.
    Http1(Box<Http1>),
    /// A stream of a shared connection.
    Http2(SendHttp2<Body>),
}

/// Why there is no connection for a request.
#[derive(Debug)]
pub(super) enum NoLink {
    /// The upstream does not accept connections.
    Unreachable,
    /// The upstream has reached its `concurrency`.
    Busy,
}

/// A place among the requests in flight.
#[derive(Debug)]
pub(super) struct Permit {
    _place: OwnedSemaphorePermit,
    /// Held as long as the response may be waiting for a slow body.
    slow: Option<OwnedSemaphorePermit>,
}

impl Permit {
    /// The response has begun.
    pub(super) fn answered(&mut self) {
        self.slow = None;
    }

    /// Whether it includes a place for slow bodies.
    pub(super) fn is_slow(&self) -> bool {
        self.slow.is_some()
    }
}

/// The claim of a waiting request to the place of a slow upload.
struct Claim<'u>(&'u Upstream);

impl<'u> Claim<'u> {
    fn new(upstream: &'u Upstream) -> Self {
        upstream.waiting.fetch_add(1, Ordering::Relaxed);
        upstream.claims.add_permits(1);
        Self(upstream)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let others = self.0.waiting.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
        // No upload has taken the claim, so none has to give up its place any more.
        if self.0.claims.available_permits() > others
            && let Ok(claim) = self.0.claims.try_acquire()
        {
            claim.forget();
        }
    }
}

impl Upstream {
    /// The upstream at `url`, with the settings of `route`. It opens nothing yet.
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
            places: Arc::new(Semaphore::new(route.concurrency)),
            slow_places: Arc::new(Semaphore::new((route.concurrency / SLOW_SHARE).max(1))),
            waiting: AtomicUsize::new(0),
            claims: Semaphore::new(0),
            wait: route.connect_timeout,
            began: Instant::now(),
            down_until: AtomicU64::new(0),
        })
    }

    /// True if trailers can be requested: only HTTP/2 carries them through.
    pub(super) fn may_speak_http2(&self) -> bool {
        self.offer != Offer::Http1
    }

    /// True if the upstream can become the other end of a tunnel, which HTTP/1.1 only can.
    pub(super) fn may_speak_http1(&self) -> bool {
        self.offer != Offer::Http2
    }

    /// True if connecting failed a moment ago.
    pub(super) fn is_down(&self) -> bool {
        let until = self.down_until.load(Ordering::Relaxed);
        until != 0 && self.began.elapsed() < Duration::from_millis(until)
    }

    /// A place among the requests in flight, as soon as one is free.
    pub(super) async fn permit(&self, pace: Pace) -> Result<Permit, NoLink> {
        // First, so that a request that waits for it holds no other place.
        let slow = match pace {
            Pace::Steady => None,
            Pace::Slow => Some(self.one_of(&self.slow_places).await?),
        };
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(Permit { _place: place, slow });
        }
        // Boxed, because there is nearly always a place.
        let claimed = Box::pin(async {
            let _claim = Claim::new(self);
            self.one_of(&self.places).await
        });
        Ok(Permit { _place: claimed.await?, slow })
    }

    /// Adds a place for slow bodies to `permit`, if one is left.
    pub(super) fn slow_down(&self, permit: &mut Permit) -> bool {
        if permit.slow.is_none() {
            permit.slow = Arc::clone(&self.slow_places).try_acquire_owned().ok();
        }
        permit.is_slow()
    }

    /// Waits until a request needs the place of a slow upload. An upload that gives up its place forgets the claim.
    pub(super) async fn claimed(&self) -> SemaphorePermit<'_> {
        match self.claims.acquire().await {
            Ok(claim) => claim,
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    async fn one_of(&self, places: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, NoLink> {
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Ok(place);
        }
        match Box::pin(timeout(self.wait, Arc::clone(places).acquire_owned())).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(NoLink::Busy),
        }
    }

    /// A connection for a request, reused if possible.
    pub(super) async fn link(&self) -> Result<Link, NoLink> {
        if let Some(sender) = self.shared_http2() {
            return Ok(Link::Http2(sender));
        }
        match self.pool.take() {
            Some(http1) => Ok(Link::Http1(http1)),
            None => self.new_link().await,
        }
    }

    /// A connection that is no older than this call, or that all requests share. Boxed, because opening one takes a
    /// large future that nearly no request needs.
    pub(super) fn new_link(&self) -> Pin<Box<dyn Future<Output = Result<Link, NoLink>> + Send + '_>> {
        Box::pin(self.opened_link())
    }

    async fn opened_link(&self) -> Result<Link, NoLink> {
        if !self.may_speak_http2() || self.prefers_http1.load(Ordering::Relaxed) {
            return self.open().await;
        }
        // One request opens it, and the others share the result.
        let _opening = self.opening.lock().await;
        match self.shared_http2() {
            Some(sender) => Ok(Link::Http2(sender)),
            None => self.open().await,
        }
    }

    /// A connection that may become a tunnel.
    pub(super) async fn tunnel(&self) -> Result<(SendHttp1<Body>, DriverTask), NoLink> {
        let (stream, _) = self.dial(Offer::Http1).await?;
        http1::with_upgrades(stream).await.map_err(|_| NoLink::Unreachable)
    }

    /// Keeps a connection whose response has been read.
    pub(super) fn put(&self, http1: Box<Http1>) {
        self.pool.put(http1);
    }

    async fn open(&self) -> Result<Link, NoLink> {
        let (stream, protocol) = self.dial(self.offer).await?;
        let opened = match protocol {
            Protocol::Http1 => {
                self.prefers_http1.store(true, Ordering::Relaxed);
                Http1::new(stream).await.map(Link::Http1)
            }
            Protocol::Http2 => self.open_http2(stream).await.map(Link::Http2),
        };
        // The connection has not been used yet, so dropping it is harmless.
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

    /// The open HTTP/2 connection, if there is one.
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

    async fn dial(&self, offer: Offer) -> Result<(Stream, Protocol), NoLink> {
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

    /// Tries the upstream last for a while, and logs that if it is new.
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
