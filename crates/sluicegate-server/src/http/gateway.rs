//! The gateway listener, a reverse proxy: it identifies the client, decides on the limits, and forwards the request
//! to an upstream.
//!
//! ```text
//! target.rs    host and normalised path, or 400
//! admit.rs     identity and decision: 401, 429, 503
//! routes.rs    route by host and path: 404
//! hop_headers.rs, forwarded.rs, request_id.rs, loop_detection.rs    header fields for the upstream: 508
//! upload.rs    beginning of the body: 400, 408, 413
//! route.rs ──> upstream.rs    rotation, connections: 502, 503, 504
//! download.rs, stalled_client.rs, tunnel.rs    the response, piece by piece
//! ```
//!
//! Every request with a host and a path is decided, even if no route matches: a request for an unknown path costs as
//! much as any other. Exempt paths are the exception, and preflights if the configuration exempts them. Without
//! routes the listener serves a [`demo`] instead.

mod cors;
pub(super) mod demo;
mod download;
mod forwarded;
mod hop_headers;
mod loop_detection;
mod outgoing;
mod request_id;
mod route;
mod routes;
mod stalled_client;
mod target;
mod tunnel;
mod upload;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{HeaderMap, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Request, StatusCode, Version};
use axum::response::Response;
use hyper::upgrade::OnUpgrade;
use sluicegate::clock::Clock as _;
use sluicegate::gate::{Admission, Head};
use sluicegate::identify::Client;
use sluicegate::path::Path;
use sluicegate::problem::is_grpc;
use sluicegate::response::remove_rate_limit_headers;

use crate::admit;
use crate::api_response;
use crate::body::{self, BodyFault, BodyWatch, RequestBody, RequestLimits};
use crate::config::gateway::{Cors, GatewaySettings};
use crate::engine::Engine;
use crate::net::{IsTls, UpgradePermission};
use crate::problem::{Problem, echo};
use forwarded::Hop;
use hop_headers::{ConnectionOptions, Sender};
use loop_detection::LoopMarker;
use outgoing::Outgoing;
use request_id::REQUEST_ID;
use route::{Failure, Route};
use routes::{Ambiguous, RouteTable};
use target::Target;
use upload::Pace;
pub(crate) use upstream::TlsFault;

/// A gateway with routes. Clones share its state.
#[derive(Clone, Debug)]
pub(crate) struct Gateway(Arc<GatewayState>);

#[derive(Debug)]
struct GatewayState {
    engine: Engine,
    routes: RouteTable<Route>,
    cors: Option<Cors>,
    identity_headers: bool,
    mark: LoopMarker,
}

impl Gateway {
    /// Builds the gateway if the settings have routes. It reads certificates and opens no connection yet.
    pub(crate) fn open(settings: &GatewaySettings, engine: Engine) -> Result<Option<Self>, TlsFault> {
        if settings.routes.is_empty() {
            return Ok(None);
        }
        let routes = settings.routes.iter().map(|route| {
            let (host, path) = (route.host.clone(), route.path.clone());
            Ok((host, path, Route::new(route)?))
        });
        let shared = GatewayState {
            engine,
            routes: RouteTable::new(routes.collect::<Result<Vec<_>, TlsFault>>()?),
            cors: settings.cors.clone(),
            identity_headers: settings.identity_headers,
            mark: LoopMarker::new(),
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
        let is_trusted = shared.engine.gate().identify().proxies().contains(peer.ip());
        let sender = if is_trusted { Sender::TrustedProxy } else { Sender::Untrusted };
        let id = shared.request_id(&head.headers, sender);
        let mut client = ClientRequest { peer, sender, id, identified: None };
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

/// The client of one request, and the request's identifier.
struct ClientRequest {
    peer: SocketAddr,
    sender: Sender,
    id: HeaderValue,
    /// The identity for the upstream, if the configuration forwards it.
    identified: Option<Client>,
}

impl GatewayState {
    /// The identifier of the request: the one of a trusted proxy, or a new one.
    fn request_id(&self, headers: &HeaderMap, sender: Sender) -> HeaderValue {
        let now = self.engine.limiter().clock().time_of_day();
        match sender {
            Sender::TrustedProxy => request_id::of(headers, now),
            Sender::Untrusted => request_id::of(&HeaderMap::new(), now),
        }
    }

    /// Decides on a request and forwards it.
    async fn pass<B: RequestBody>(
        &self,
        head: &mut Parts,
        body: B,
        client: &mut ClientRequest,
        limits: &RequestLimits,
    ) -> Result<Response, Problem> {
        self.mark.check(&head.headers)?;
        let target = Target::of(head)?;
        let path = target.path(self.engine.slashes())?;
        let (method, authority) = (head.method.as_str(), target.host());
        let asked = Head { method, path: &path, authority, headers: &head.headers };
        let admitted = self.engine.admit(&asked, client.peer.ip()).await?;
        let Some(Admission { client: identified, decision }) = admitted else {
            return self.forward(head, body, &target, &path, client, limits).await;
        };
        client.identified = self.identity_headers.then_some(identified);
        let options = self.engine.headers();
        match self.forward(head, body, &target, &path, client, limits).await {
            Ok(mut response) => {
                remove_rate_limit_headers(response.headers_mut());
                api_response::rate_limit_headers(&decision, options, response.headers_mut());
                Ok(response)
            }
            Err(problem) => {
                let mut headers = HeaderMap::new();
                api_response::rate_limit_headers(&decision, options, &mut headers);
                Err(problem.headers(headers))
            }
        }
    }

    /// Forwards a request, and returns the upstream's response, ready to be sent to the client.
    async fn forward<B: RequestBody>(
        &self,
        head: &mut Parts,
        body: B,
        target: &Target,
        path: &Path<'_>,
        client: &ClientRequest,
        limits: &RequestLimits,
    ) -> Result<Response, Problem> {
        let route = self.routes.find_same(target.host(), path.readings())?;
        let route = route.ok_or_else(|| not_found(path.sent()))?;
        let limits = limits_of(route, limits);
        body::check_length(&head.headers, &limits)?;
        let (body, watch) = body::watch_body(body, &limits);
        if watch.is_some() && is_upgrade(hop_headers::connection_options(&head.headers), head.version) {
            return Err(super::endpoint::closing(upgrade_with_body(), head.version));
        }
        let (body, pace) = match &watch {
            // Boxed, because most requests have no body.
            Some(watch) if limits.body_rate_min > 0 => Box::pin(read_ahead(body, watch, head.version)).await?,
            _ => (body, Pace::Steady),
        };
        let options = hop_headers::clean_request(&mut head.headers, client.sender);
        add_gateway_fields(&mut head.headers, target, client, head.extensions.get::<IsTls>().is_some());
        self.mark.put(&mut head.headers);

        let clock = self.engine.limiter().clock();
        let proxying = self.engine.traces().map(|traces| {
            traces.routed(&head.method, &route.path);
            traces.proxying(&head.method, &route.path, &mut head.headers, clock.time_of_day())
        });

        let upgrade = head.extensions.remove::<OnUpgrade>().zip(head.extensions.remove::<UpgradePermission>());
        let outgoing = Outgoing {
            method: head.method.clone(),
            headers: std::mem::take(&mut head.headers),
            path_and_query: target.sent(path, route.strip_prefix.as_deref())?,
            host: route.preserve_host.then(|| target.host.clone()),
            wants_trailers: options.trailers,
            body,
            pace,
            watch: watch.clone(),
        };
        let sent = match upgrade {
            Some(client) if is_upgrade(options, head.version) && route.may_tunnel() => {
                Box::pin(route.tunnel(outgoing, client)).await
            }
            _ => route.send(outgoing).await,
        };
        if let Some(proxying) = proxying {
            let outcome = sent.as_ref().map(Response::status).map_err(Failure::name);
            proxying.end(outcome, clock.time_of_day());
        }
        if let Some(watch) = &watch {
            if let Some(fault) = watch.fault() {
                return Err(super::endpoint::closing(fault.into(), head.version));
            }
            watch.answered();
        }
        let sent = sent.map_err(Problem::from)?;
        if head.version >= Version::HTTP_2 {
            return Ok(returned(sent).map(|body| stalled_client::abort_if_stalled(body, route.idle_timeout)));
        }
        Ok(returned(sent))
    }
}

/// The bounds of this route for a request's body.
fn limits_of(route: &Route, listener: &RequestLimits) -> RequestLimits {
    RequestLimits {
        body_bytes_max: route.max_body_bytes.unwrap_or(u64::MAX),
        body_idle: listener.body_idle,
        body_idle_answered: route.idle_timeout,
        body_rate_min: route.body_rate_min,
        // A body that is forwarded has no total time limit, as long as it progresses.
        whole_request: Duration::MAX,
    }
}

/// A body of which enough has been read to forward the request, and its pace.
async fn read_ahead(body: Body, watch: &BodyWatch, version: Version) -> Result<(Body, Pace), Problem> {
    upload::begin(body).await.map_err(|_| {
        let fault = watch.fault().unwrap_or(BodyFault::Malformed);
        super::endpoint::closing(fault.into(), version)
    })
}

/// Only HTTP/1.1 can change the protocol this way.
fn is_upgrade(options: ConnectionOptions, version: Version) -> bool {
    options.websocket && version == Version::HTTP_11
}

/// Adds the fields that only the gateway may set. The client's own fields of these names are already removed.
fn add_gateway_fields(headers: &mut HeaderMap, target: &Target, client: &ClientRequest, is_tls: bool) {
    let scheme = if is_tls { "https" } else { "http" };
    forwarded::add(headers, Hop { peer: client.peer.ip(), host: Some(&target.host), scheme });
    headers.insert(REQUEST_ID, client.id.clone());
    if client.identified.is_some() {
        headers.extend(
            admit::identity_headers(client.identified.as_ref()).into_iter().filter(|(_, value)| !value.is_empty()),
        );
    }
}

/// The upstream's response in the form for the client.
fn returned(response: Response) -> Response {
    let (head, body) = response.into_parts();
    let mut headers = head.headers;
    hop_headers::clean_response(&mut headers);
    let is_tunnel = head.status == StatusCode::SWITCHING_PROTOCOLS;
    if is_tunnel {
        hop_headers::set_websocket(&mut headers);
    }
    let mut response = Response::new(body);
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    response
}

/// An upstream that ignores the body of an upgrade request parses it as the next request on the connection (request
/// smuggling), and `Connection: close` cannot be combined with `Connection: upgrade`.
fn upgrade_with_body() -> Problem {
    let detail = "a WebSocket upgrade request has a body; send it without Content-Length and Transfer-Encoding";
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

fn not_found(path: &str) -> Problem {
    let detail = format!("no route is for {} at this host; check both", echo(path));
    Problem::new(StatusCode::NOT_FOUND, detail)
}

impl From<Ambiguous> for Problem {
    fn from(_: Ambiguous) -> Self {
        let detail = "the path is for one route if %2F is a slash and for another if not; send a slash as it is";
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}
