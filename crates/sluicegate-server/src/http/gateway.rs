//! The gateway listener: who asks is established, the limits are decided, and the request goes on to an upstream.
//!
//! ```text
//! target.rs    host and normalised path, or 400
//! admit.rs     who asks, and may they: 401, 429, 503
//! routes.rs    which upstreams: 404
//! names.rs, forwarded.rs, request_id.rs, loops.rs    what the upstream is told, and by whom
//! route.rs ──> upstream.rs    whose turn it is, connections: 502, 503, 504
//! download.rs, reader.rs, tunnel.rs    the way back, piece by piece
//! ```
//!
//! Whatever has a host and a path is decided, also if no route is for it: looking for what is not there costs as much
//! as finding something. Only paths that are exempt are not, and preflights if they are told to be.
//! Without routes the listener serves a [`demo`] instead.

mod cors;
pub(super) mod demo;
mod download;
mod forwarded;
pub(crate) mod host;
mod loops;
mod names;
mod outgoing;
mod reader;
mod request_id;
mod route;
mod routes;
mod target;
mod tunnel;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode, Version};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use sluicegate::answer::remove_rate_limit_headers;
use sluicegate::clock::Clock as _;
use sluicegate::gate::{Admission, Head};
use sluicegate::identify::Caller;
use sluicegate::path::Path;
use sluicegate::problem::is_grpc;

use crate::admit;
use crate::app::App;
use crate::body::{self, RequestBody, RequestLimits};
use crate::config::gateway::GatewaySettings;
use crate::http::{Handover, OverTls};
use crate::problem::{Problem, echo};
use crate::respond;
pub(crate) use cors::{Cors, Origins};
use forwarded::Hop;
use loops::Mark;
use names::{Sender, Wishes};
use outgoing::Outgoing;
use request_id::REQUEST_ID;
use route::{Failure, Route};
use routes::RouteTable;
use target::Target;
pub(crate) use upstream::TlsFault;

/// What a client is told to wait when all upstreams are busy: long enough to take the pressure off.
const BUSY_RETRY_AFTER_SECS: u64 = 1;

/// A gateway with routes. Clones are the same gateway.
#[derive(Clone, Debug)]
pub(crate) struct Gateway(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    app: App,
    routes: RouteTable<Route>,
    cors: Option<Cors>,
    identity_headers: bool,
    mark: Mark,
}

impl Gateway {
    /// The gateway of these settings, if they have routes. Reads certificates, and opens no connection yet.
    pub(crate) fn open(settings: &GatewaySettings, app: App) -> Result<Option<Self>, TlsFault> {
        if settings.routes.is_empty() {
            return Ok(None);
        }
        let routes = settings.routes.iter().map(|route| {
            let (host, path) = (route.host.clone(), route.path.clone());
            Ok((host, path, Route::new(route)?))
        });
        let shared = Shared {
            app,
            routes: RouteTable::new(routes.collect::<Result<Vec<_>, TlsFault>>()?),
            cors: settings.cors.clone(),
            identity_headers: settings.identity_headers,
            mark: Mark::new(),
        };
        Ok(Some(Self(Arc::new(shared))))
    }

    /// Answers one request of a client at `peer`.
    pub(super) async fn answer<B: RequestBody>(
        &self,
        request: Request<B>,
        peer: SocketAddr,
        limits: &RequestLimits,
    ) -> Response {
        let shared = &*self.0;
        let (mut head, body) = request.into_parts();
        let is_grpc = is_grpc(&head.headers);
        let origin = shared.cors.as_ref().and_then(|cors| cors.origin(&head.headers));
        let is_trusted = shared.app.gate().identify().proxies().contains(peer.ip());
        let sender = if is_trusted { Sender::TrustedProxy } else { Sender::Anybody };
        let id = shared.request_id(&head.headers, sender);
        let mut client = Client { peer, sender, id, caller: None };
        let mut response = match shared.pass(&mut head, body, &mut client, limits).await {
            Ok(response) => response,
            Err(problem) => {
                let mut response = problem.answer(is_grpc);
                if let Some(cors) = &shared.cors {
                    cors.show(&mut response, origin);
                }
                response
            }
        };
        response.headers_mut().insert(REQUEST_ID, client.id);
        response
    }
}

/// Who sent a request, and what it is called.
struct Client {
    peer: SocketAddr,
    sender: Sender,
    id: HeaderValue,
    /// As whom the upstream is told of them, if it is.
    caller: Option<Caller>,
}

impl Shared {
    /// The name of a request: what a trusted proxy calls it, or a new one.
    fn request_id(&self, headers: &HeaderMap, sender: Sender) -> HeaderValue {
        let now = self.app.limiter().clock().now();
        match sender {
            Sender::TrustedProxy => request_id::of(headers, now),
            Sender::Anybody => request_id::of(&HeaderMap::new(), now),
        }
    }

    /// Decides on a request and sends it on.
    async fn pass<B: RequestBody>(
        &self,
        head: &mut Parts,
        body: B,
        client: &mut Client,
        limits: &RequestLimits,
    ) -> Result<Response, Problem> {
        self.mark.check(&head.headers)?;
        let target = Target::of(head)?;
        let path = target.path()?;
        let (method, authority) = (head.method.as_str(), target.host());
        let asked = Head { method, path: &path, authority, headers: &head.headers };
        let admitted = admit::admit(&self.app, &asked, client.peer.ip()).await?;
        let Some(Admission { caller, decision }) = admitted else {
            return self.forward(head, body, &target, &path, client, limits).await;
        };
        client.caller = self.identity_headers.then_some(caller);
        let options = self.app.headers();
        match self.forward(head, body, &target, &path, client, limits).await {
            Ok(mut response) => {
                remove_rate_limit_headers(response.headers_mut());
                respond::rate_limit_headers(&decision, options, response.headers_mut());
                Ok(response)
            }
            Err(problem) => {
                let mut headers = HeaderMap::new();
                respond::rate_limit_headers(&decision, options, &mut headers);
                Err(problem.headers(headers))
            }
        }
    }

    /// Sends a request on, and returns the upstream's answer as it may be passed on.
    async fn forward<B: RequestBody>(
        &self,
        head: &mut Parts,
        body: B,
        target: &Target,
        path: &Path<'_>,
        client: &Client,
        limits: &RequestLimits,
    ) -> Result<Response, Problem> {
        let route = self.routes.find(target.host(), path.matched()).ok_or_else(|| not_found(path.sent()))?;
        let limits = limits_of(route, limits);
        body::check_length(&head.headers, &limits)?;
        let wishes = names::clean_request(&mut head.headers, client.sender);
        tell(&mut head.headers, target, client, head.extensions.get::<OverTls>().is_some());
        self.mark.put(&mut head.headers);

        let clock = self.app.limiter().clock();
        let proxying = self.app.traces().map(|traces| {
            traces.routed(&head.method, &route.path);
            traces.proxying(&head.method, &route.path, &mut head.headers, clock.now())
        });

        let (body, watch) = body::watch_body(body, &limits);
        let upgrade = head.extensions.remove::<OnUpgrade>().zip(head.extensions.remove::<Handover>());
        let outgoing = Outgoing {
            method: head.method.clone(),
            headers: std::mem::take(&mut head.headers),
            path_and_query: target.sent(path, route.strip_prefix.as_deref())?,
            host: target.host.clone().filter(|_| route.preserve_host),
            wants_trailers: wishes.trailers,
            body,
            watch: watch.clone(),
        };
        let sent = match upgrade {
            Some(client) if is_upgrade(wishes, head.version) && route.may_tunnel() => {
                Box::pin(route.tunnel(outgoing, client)).await
            }
            _ => route.send(outgoing).await,
        };
        if let Some(proxying) = proxying {
            let outcome = sent.as_ref().map(Response::status).map_err(Failure::name);
            proxying.end(outcome, clock.now());
        }
        if let Some(watch) = &watch {
            if let Some(fault) = watch.fault() {
                return Err(super::closing(fault.into(), head.version));
            }
            watch.answered();
        }
        let sent = sent.map_err(Problem::from)?;
        if head.version >= Version::HTTP_2 {
            return Ok(returned(sent).map(|body| reader::watched(body, route.idle_timeout)));
        }
        Ok(returned(sent))
    }
}

/// What is asked of a request's body by this route.
fn limits_of(route: &Route, listener: &RequestLimits) -> RequestLimits {
    RequestLimits {
        body_bytes_max: route.max_body_bytes.unwrap_or(u64::MAX),
        body_idle: listener.body_idle,
        body_idle_answered: route.idle_timeout,
        // A body that is passed on may take as long as it likes, as long as it moves.
        whole_request: Duration::MAX,
    }
}

/// Only HTTP/1.1 has this way to change the protocol.
fn is_upgrade(wishes: Wishes, version: Version) -> bool {
    wishes.websocket && version == Version::HTTP_11
}

/// Adds what only the gateway says to the upstream. What the client sent under these names is gone already.
fn tell(headers: &mut HeaderMap, target: &Target, client: &Client, is_tls: bool) {
    let scheme = if is_tls { "https" } else { "http" };
    forwarded::add(headers, Hop { peer: client.peer.ip(), host: target.host.as_ref(), scheme });
    headers.insert(REQUEST_ID, client.id.clone());
    if client.caller.is_some() {
        headers.extend(admit::told(client.caller.as_ref()).into_iter().filter(|(_, value)| !value.is_empty()));
    }
}

/// An upstream's answer as it is passed on.
fn returned(response: Response) -> Response {
    let (head, body) = response.into_parts();
    let mut headers = head.headers;
    names::clean_answer(&mut headers);
    let is_tunnel = head.status == StatusCode::SWITCHING_PROTOCOLS;
    if is_tunnel {
        names::say_websocket(&mut headers);
    }
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    response
}

fn not_found(path: &str) -> Problem {
    let detail = format!("no route is for {} at this host; check both", echo(path));
    Problem::new(StatusCode::NOT_FOUND, detail)
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable => {
                Self::new(StatusCode::BAD_GATEWAY, "the upstream cannot be reached; try again later")
            }
            Failure::Broken(error) => {
                tracing::debug!(%error, "an upstream broke off");
                let detail = "the upstream closed the connection or sent something that is no answer";
                Self::new(StatusCode::BAD_GATEWAY, detail)
            }
            Failure::NotAsked => {
                Self::new(StatusCode::BAD_GATEWAY, "the upstream agreed to an upgrade that nobody asked for")
            }
            Failure::TooEarly => {
                let detail = "bytes of the new protocol came before it was agreed on; wait for the answer 101";
                Self::new(StatusCode::BAD_REQUEST, detail)
                    .header(header::CONNECTION, HeaderValue::from_static("close"))
            }
            Failure::Late => Self::new(StatusCode::GATEWAY_TIMEOUT, "the upstream did not answer in time"),
            Failure::Busy => {
                let detail = "the upstream has as many requests as it may have; try again later";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                    .header(header::RETRY_AFTER, BUSY_RETRY_AFTER_SECS.into())
            }
        }
    }
}
