//! One route: its upstreams, their rotation, and retries.
//!
//! Upstreams take turns. An upstream that could not be connected to a moment ago is tried only after the others. The
//! gateway tries to connect to each upstream once; no byte of the request has been sent by then. A request that was
//! sent is retried once, on a new connection, and only if it is safe, has no body, and went out on a reused
//! connection that broke before the head of the response. This happens when an upstream closes an idle connection at
//! that very moment.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{self, HeaderValue};
use axum::http::{Response, StatusCode};
use hyper::body::Incoming;
use sluicegate::response::ResponseClass;
use smallvec::SmallVec;
use tokio::time::{sleep, timeout};

use super::download::{self, Hold, Mover};
use super::outgoing::Outgoing;
use super::tunnel;
use super::upload::{PAUSE, Pace, Progress};
use super::upstream::{Link, NoLink, Permit, TlsFault, Upstream};
use crate::body::BodyWatch;
use crate::config::gateway::RouteSettings;
use crate::net::UpgradePermission;
use crate::problem::Problem;

/// A route.
#[derive(Debug)]
pub(super) struct Route {
    /// The path pattern as configured.
    pub(super) path: Box<str>,
    upstreams: Box<[Arc<Upstream>]>,
    turn: AtomicUsize,
    /// The time limit for the head of a response.
    timeout: Duration,
    /// The time limit for a pause of a body.
    pub(super) idle_timeout: Duration,
    /// True if the upstream gets the host that the client requested.
    pub(super) preserve_host: bool,
    /// The prefix that is removed from paths.
    pub(super) strip_prefix: Option<Box<str>>,
    /// The longest body of a request.
    pub(super) max_body_bytes: Option<u64>,
    /// The minimum rate of a request's body in bytes per second, or 0.
    pub(super) body_rate_min: u64,
    retry: bool,
}

/// Why there is no response.
#[derive(Debug)]
pub(super) enum Failure {
    /// No upstream accepted a connection.
    Unreachable,
    /// All upstreams have reached their `concurrency`.
    Busy,
    /// The upstream did not respond in time.
    Late,
    /// The upstream closed the connection, or sent an invalid response.
    Broken(hyper::Error),
    /// The upstream accepted an upgrade that was not requested.
    NotAsked,
    /// The client sent bytes of the new protocol before the response.
    TooEarly,
    /// The body came slowly, and another request needed the place at the upstream.
    Displaced,
}

impl Failure {
    /// The row of the response table.
    const fn class(&self) -> ResponseClass {
        match self {
            Self::Unreachable | Self::Broken(_) | Self::NotAsked => ResponseClass::UpstreamFailed,
            Self::Busy | Self::Displaced => ResponseClass::Unavailable,
            Self::Late => ResponseClass::UpstreamTimeout,
            Self::TooEarly => ResponseClass::Malformed,
        }
    }

    /// The message for the client.
    const fn detail(&self) -> &'static str {
        match self {
            Self::Unreachable => "the upstream cannot be reached; try again later",
            Self::Broken(_) => "the upstream closed the connection or sent an invalid response",
            Self::NotAsked => "the upstream accepted an upgrade that was not requested",
            Self::TooEarly => "bytes of the new protocol came before it was agreed on; wait for the answer 101",
            Self::Displaced => {
                "the request body came slowly and another request needed its place at the upstream; \
                 send it faster, or try again later"
            }
            Self::Late => "the upstream did not answer in time",
            Self::Busy => "the upstream has as many requests as it may have; try again later",
        }
    }

    /// The name of the error in spans.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Busy => "busy",
            Self::Late => "late",
            Self::Broken(_) => "broken",
            Self::NotAsked => "not_asked",
            Self::TooEarly => "too_early",
            Self::Displaced => "displaced",
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        if let Failure::Broken(error) = &failure {
            tracing::debug!(%error, "an upstream broke off");
        }
        let problem = failure.class().problem(failure.detail());
        match failure {
            Failure::TooEarly => problem.header(header::CONNECTION, HeaderValue::from_static("close")),
            _ => problem,
        }
    }
}

impl From<NoLink> for Failure {
    fn from(none: NoLink) -> Self {
        match none {
            NoLink::Unreachable => Self::Unreachable,
            NoLink::Busy => Self::Busy,
        }
    }
}

/// The upstreams in the order in which they are tried.
type Rotation<'r> = SmallVec<[&'r Arc<Upstream>; 8]>;

impl Route {
    /// Builds the route and opens no connection yet.
    pub(super) fn new(settings: &RouteSettings) -> Result<Self, TlsFault> {
        let upstreams = settings.upstreams.iter().map(|url| Upstream::new(url, settings).map(Arc::new));
        Ok(Self {
            path: settings.path.text().into(),
            upstreams: upstreams.collect::<Result<_, _>>()?,
            turn: AtomicUsize::new(0),
            timeout: settings.timeout,
            idle_timeout: settings.idle_timeout,
            preserve_host: settings.preserve_host,
            strip_prefix: settings.strip_prefix.clone(),
            max_body_bytes: settings.max_body_bytes,
            body_rate_min: settings.min_body_rate,
            retry: settings.retry,
        })
    }

    /// Forwards a request, and returns the response as soon as its head is complete.
    pub(super) async fn send(&self, outgoing: Outgoing) -> Result<Response<Body>, Failure> {
        let (upstream, mut permit, link) = self.linked(outgoing.pace).await?;
        let is_reused = match &link {
            Link::Http1(http1) => http1.is_reused(),
            Link::Http2(_) => true,
        };
        let spare = if self.retry && is_reused { outgoing.copy() } else { None };
        let (response, mover) = match (self.attempt(upstream, &mut permit, link, outgoing).await, spare) {
            (Err(Failure::Broken(error)), Some(spare)) if !error.is_parse() => {
                let link = upstream.new_link().await?;
                Box::pin(self.attempt(upstream, &mut permit, link, spare)).await?
            }
            (attempt, _) => attempt?,
        };
        permit.answered();
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::NotAsked);
        }
        let hold = Hold { upstream: Arc::clone(upstream), mover, _permit: permit };
        Ok(response.map(|incoming| download::body(incoming, hold, self.idle_timeout)))
    }

    /// The first upstream that accepts the request, and the connection to it.
    async fn linked(&self, pace: Pace) -> Result<(&Arc<Upstream>, Permit, Link), Failure> {
        let mut failure = Failure::Unreachable;
        for upstream in self.turns() {
            let linked =
                async { Ok::<_, NoLink>((upstream, upstream.permit(pace).await?, upstream.link().await?)) };
            match linked.await {
                Ok(linked) => return Ok(linked),
                Err(none) => failure = none.into(),
            }
        }
        Err(failure)
    }

    async fn attempt(
        &self,
        upstream: &Upstream,
        permit: &mut Permit,
        link: Link,
        outgoing: Outgoing,
    ) -> Result<(Response<Incoming>, Mover), Failure> {
        let watch = outgoing.watch.clone();
        let watch = watch.as_ref();
        match link {
            Link::Http1(mut http1) => {
                let response = {
                    let answer = pin!(http1.exchange(outgoing.into_http1(upstream)));
                    self.in_time((upstream, permit), answer, watch).await?
                };
                let is_sent = watch.is_none_or(BodyWatch::is_gone);
                let mover = if is_sent { Mover::Own(http1) } else { Mover::Task(http1.onto_task()) };
                Ok((response, mover))
            }
            Link::Http2(mut sender) => {
                let request = outgoing.into_http2(upstream).ok_or(Failure::Unreachable)?;
                let answer = pin!(sender.send_request(request));
                Ok((self.in_time((upstream, permit), answer, watch).await?, Mover::Shared))
            }
        }
    }

    /// Forwards an upgrade to WebSocket. If the upstream accepts, the client's connection becomes a tunnel as soon as
    /// the response has been sent.
    pub(super) async fn tunnel(
        &self,
        outgoing: Outgoing,
        (client, permission): (hyper::upgrade::OnUpgrade, UpgradePermission),
    ) -> Result<Response<Body>, Failure> {
        let mut failure = Failure::Unreachable;
        for upstream in self.turns() {
            let opened =
                async { Ok::<_, NoLink>((upstream.permit(outgoing.pace).await?, upstream.tunnel().await?)) };
            let (mut permit, (mut sender, task)) = match opened.await {
                Ok(opened) => opened,
                Err(none) => {
                    failure = none.into();
                    continue;
                }
            };
            let watch = outgoing.watch.clone();
            let request = outgoing.into_upgrade(upstream);
            let answer = pin!(sender.send_request(request));
            let mut response = self.in_time((upstream, &mut permit), answer, watch.as_ref()).await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                let hold = Hold { upstream: Arc::clone(upstream), mover: Mover::Task(task), _permit: permit };
                return Ok(response.map(|incoming| download::body(incoming, hold, self.idle_timeout)));
            }
            if !super::hop_headers::accepts_websocket(response.headers()) {
                return Err(Failure::NotAsked);
            }
            if !permission.grant() {
                return Err(Failure::TooEarly);
            }
            let agreed = hyper::upgrade::on(&mut response);
            tunnel::spawn(client, agreed, self.idle_timeout, (permit, task));
            return Ok(response.map(|_| Body::empty()));
        }
        Err(failure)
    }

    /// True if the upstreams can be the other end of a tunnel.
    pub(super) fn may_tunnel(&self) -> bool {
        self.upstreams.iter().all(|upstream| upstream.may_speak_http1())
    }

    /// All upstreams in rotation order, with those that seem to be down at the end.
    fn turns(&self) -> Rotation<'_> {
        if let [only] = &*self.upstreams {
            return Rotation::from_slice(&[only]);
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.upstreams.len();
        let (before, after) = self.upstreams.split_at(first);
        let mut turns: Rotation<'_> = after.iter().chain(before).collect();
        turns.sort_by_key(|upstream| upstream.is_down());
        turns
    }

    /// Waits for the head of a response. The time counts from the last piece of the request's body, and excludes time
    /// spent waiting for the client.
    fn in_time<T>(
        &self,
        place: (&Upstream, &mut Permit),
        mut answer: Pin<&mut impl Future<Output = hyper::Result<T>>>,
        watch: Option<&BodyWatch>,
    ) -> impl Future<Output = Result<T, Failure>> {
        let begun = watch.map(|watch| (watch, watch.pieces(), watch.bytes()));
        let first = if begun.is_some() { self.timeout.min(PAUSE) } else { self.timeout };
        // Not an `async fn`, because its future would store the arguments twice.
        async move {
            if let Ok(answer) = timeout(first, answer.as_mut()).await {
                return answer.map_err(Failure::Broken);
            }
            let Some((watch, pieces, bytes)) = begun else { return Err(Failure::Late) };
            let (left, progress) = (self.timeout.saturating_sub(PAUSE), Progress::since(bytes));
            // Boxed, because most responses have arrived by now.
            Box::pin(async move {
                tokio::select! {
                    biased;
                    answer = self.in_time_after(left, pieces, answer, watch) => answer,
                    () = displaced(place, progress, watch), if self.body_rate_min > 0 => Err(Failure::Displaced),
                }
            })
            .await
        }
    }

    /// The same, with `left` of the timeout left since the body had this number of `pieces`.
    async fn in_time_after<T>(
        &self,
        mut left: Duration,
        mut pieces: u32,
        mut answer: Pin<&mut impl Future<Output = hyper::Result<T>>>,
        watch: &BodyWatch,
    ) -> Result<T, Failure> {
        loop {
            if let Ok(answer) = timeout(left, answer.as_mut()).await {
                return answer.map_err(Failure::Broken);
            }
            let is_sending = watch.is_waiting() && !watch.is_gone();
            if !is_sending && watch.pieces() == pieces {
                return Err(Failure::Late);
            }
            (left, pieces) = (self.timeout, watch.pieces());
        }
    }
}

/// Completes when an upload that has become slow must give up its place. An upload that gets a place for slow bodies keeps
/// it.
async fn displaced((upstream, permit): (&Upstream, &mut Permit), mut progress: Progress, watch: &BodyWatch) {
    while !watch.is_gone() && !permit.is_slow() {
        if !progress.is_slow(watch) {
            sleep(PAUSE).await;
        } else if !upstream.slow_down(permit)
            && let Ok(claim) = timeout(PAUSE, upstream.claimed()).await
            && !watch.is_gone()
        {
            claim.forget();
            return;
        }
    }
    std::future::pending().await
}
