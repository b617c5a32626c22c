//! One route: which upstreams it has, whose turn it is, and what is tried again.
//!
//! Upstreams take turns. One that could not be connected to a moment ago is asked only after the others. Connecting is
//! tried at each upstream once: no byte of the request has been sent by then. A request that was sent is sent again only
//! if it is a safe one without a body, and if it went out on a connection that had been used before and broke before
//! the head of the answer was there, which is what happens when an upstream closes at that very moment. Then a new
//! connection is opened for it, so that happens once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use hyper::body::Incoming;
use smallvec::SmallVec;
use tokio::time::timeout;

use super::download::{self, Hold, Mover};
use super::outgoing::Outgoing;
use super::tunnel;
use super::upstream::{Link, NoLink, Permit, TlsFault, Upstream};
use crate::body::BodyWatch;
use crate::config::gateway::RouteSettings;
use crate::http::Handover;

/// A route.
#[derive(Debug)]
pub(super) struct Route {
    /// The paths that it is for, as they are written.
    pub(super) path: Box<str>,
    upstreams: Box<[Arc<Upstream>]>,
    turn: AtomicUsize,
    /// How long the head of an answer may take.
    timeout: Duration,
    /// How long a body may pause.
    pub(super) idle_timeout: Duration,
    /// Whether the upstream is told the host that the client asked for.
    pub(super) preserve_host: bool,
    /// What is taken off the path.
    pub(super) strip_prefix: Option<Box<str>>,
    /// The longest body of a request.
    pub(super) max_body_bytes: Option<u64>,
    retry: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// No upstream could be connected to.
    Unreachable,
    /// All upstreams have as many requests as they may have.
    Busy,
    /// The upstream did not answer in time.
    Late,
    /// The upstream closed, or what it sent is no answer.
    Broken(hyper::Error),
    /// The upstream agreed to something that nobody asked for.
    NotAsked,
    /// The client did not wait for the agreement.
    TooEarly,
}

impl Failure {
    /// What it is called in spans.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Busy => "busy",
            Self::Late => "late",
            Self::Broken(_) => "broken",
            Self::NotAsked => "not_asked",
            Self::TooEarly => "too_early",
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

/// An upstream whose turn it is, in the order in which they are tried.
type Turns<'r> = SmallVec<[&'r Arc<Upstream>; 8]>;

impl Route {
    /// The route of these settings. Opens no connection yet.
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
            retry: settings.retry,
        })
    }

    /// Sends a request on, and returns the answer as soon as its head is there.
    pub(super) async fn send(&self, outgoing: Outgoing) -> Result<Response<Body>, Failure> {
        let (upstream, permit, link) = self.linked().await?;
        let is_reused = match &link {
            Link::Http1(http1) => http1.is_reused(),
            Link::Http2(_) => true,
        };
        let spare = if self.retry && is_reused { outgoing.copy() } else { None };
        let (response, mover) = match (self.attempt(upstream, link, outgoing).await, spare) {
            (Err(Failure::Broken(error)), Some(spare)) if !error.is_parse() => {
                let link = upstream.new_link().await?;
                Box::pin(self.attempt(upstream, link, spare)).await?
            }
            (attempt, _) => attempt?,
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::NotAsked);
        }
        let hold = Hold { upstream: Arc::clone(upstream), mover, _permit: permit };
        Ok(response.map(|incoming| download::body(incoming, hold, self.idle_timeout)))
    }

    /// The first upstream that a request can be sent to, and the way there.
    async fn linked(&self) -> Result<(&Arc<Upstream>, Permit, Link), Failure> {
        let mut failure = Failure::Unreachable;
        for upstream in self.turns() {
            let linked = async { Ok::<_, NoLink>((upstream, upstream.permit().await?, upstream.link().await?)) };
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
        link: Link,
        outgoing: Outgoing,
    ) -> Result<(Response<Incoming>, Mover), Failure> {
        let watch = outgoing.watch.clone();
        let watch = watch.as_ref();
        match link {
            Link::Http1(mut http1) => {
                let response = {
                    let answer = pin!(http1.exchange(outgoing.into_http1(upstream)));
                    self.in_time(answer, watch).await?
                };
                let is_sent = watch.is_none_or(BodyWatch::is_gone);
                let mover = if is_sent { Mover::Own(http1) } else { Mover::Task(http1.onto_task()) };
                Ok((response, mover))
            }
            Link::Http2(mut sender) => {
                let request = outgoing.into_http2(upstream).ok_or(Failure::Unreachable)?;
                let answer = pin!(sender.send_request(request));
                Ok((self.in_time(answer, watch).await?, Mover::Shared))
            }
        }
    }

    /// Sends a request to go on with WebSocket. If the upstream agrees, the connection of the client becomes a tunnel
    /// to it as soon as the answer has been sent.
    pub(super) async fn tunnel(
        &self,
        outgoing: Outgoing,
        (client, handover): (hyper::upgrade::OnUpgrade, Handover),
    ) -> Result<Response<Body>, Failure> {
        let mut failure = Failure::Unreachable;
        for upstream in self.turns() {
            let opened = async { Ok::<_, NoLink>((upstream.permit().await?, upstream.tunnel().await?)) };
            let (permit, (mut sender, task)) = match opened.await {
                Ok(opened) => opened,
                Err(none) => {
                    failure = none.into();
                    continue;
                }
            };
            let watch = outgoing.watch.clone();
            let request = outgoing.into_upgrade(upstream);
            let answer = pin!(sender.send_request(request));
            let mut response = self.in_time(answer, watch.as_ref()).await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                let hold = Hold { upstream: Arc::clone(upstream), mover: Mover::Task(task), _permit: permit };
                return Ok(response.map(|incoming| download::body(incoming, hold, self.idle_timeout)));
            }
            if !super::names::agrees_to_websocket(response.headers()) {
                return Err(Failure::NotAsked);
            }
            if !handover.agree() {
                return Err(Failure::TooEarly);
            }
            let agreed = hyper::upgrade::on(&mut response);
            tunnel::spawn(client, agreed, self.idle_timeout, (permit, task));
            return Ok(response.map(|_| Body::empty()));
        }
        Err(failure)
    }

    /// Whether the upstreams can become the other end of a tunnel.
    pub(super) fn may_tunnel(&self) -> bool {
        self.upstreams.iter().all(|upstream| upstream.may_speak_http1())
    }

    /// All upstreams, beginning with the one whose turn it is, those that seem to be down at the end.
    fn turns(&self) -> Turns<'_> {
        if let [only] = &*self.upstreams {
            return Turns::from_slice(&[only]);
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed) % self.upstreams.len();
        let (before, after) = self.upstreams.split_at(first);
        let mut turns: Turns<'_> = after.iter().chain(before).collect();
        turns.sort_by_key(|upstream| upstream.is_down());
        turns
    }

    /// Waits for the head of an answer. The time counts from the last piece of the request's body, and not while
    /// the client is the one who is waited for.
    async fn in_time<T>(
        &self,
        mut answer: Pin<&mut impl Future<Output = hyper::Result<T>>>,
        watch: Option<&BodyWatch>,
    ) -> Result<T, Failure> {
        loop {
            let pieces = watch.map(BodyWatch::pieces);
            if let Ok(answer) = timeout(self.timeout, answer.as_mut()).await {
                return answer.map_err(Failure::Broken);
            }
            let is_sending = watch.is_some_and(|watch| watch.is_waiting() && !watch.is_gone());
            if !is_sending && watch.map(BodyWatch::pieces) == pieces {
                return Err(Failure::Late);
            }
        }
    }
}
