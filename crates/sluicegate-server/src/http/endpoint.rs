//! One listener's endpoint: the path of every request from hyper to its response.
//!
//! The steps are in this order: the bounds of the head, the [`gateway`](super::gateway) if the endpoint has one, the bound
//! of the body, access control, the [hot endpoints](HotEndpoint), and at last the router. Every request gets exactly one
//! response, also if its handler panics or its body exceeds a bound. The endpoint needs no socket, so tests call
//! [`HttpHandler::respond`] directly.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, Request, StatusCode, Version};
use axum::response::{IntoResponse as _, Response};
use opentelemetry::trace::FutureExt as _;
use sluicegate::clock::Clock as _;
use sluicegate::problem::is_grpc;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service as _;

use super::api::access::Access;
use super::check;
use super::gateway::Gateway;
use super::http1_fast_check::FastCheck;
use super::panics::catch_panic;
use crate::body::{self, LimitedBody, RequestBody, RequestLimits};
use crate::engine::Engine;
use crate::grpc;
use crate::metrics::CallError;
use crate::net::{Activity, FastPathEnd, HttpHandler, IsTls};
use crate::problem::{self, Problem};
use crate::traces::FrontDoor;

/// What one listener serves.
#[derive(Clone, Debug)]
pub(crate) struct HttpEndpoint {
    pub(super) router: Router,
    /// The engine of the hot endpoints, if the listener has them.
    pub(super) hot: Option<Engine>,
    /// The gateway. If it is there, it responds to every request.
    pub(super) gateway: Option<Gateway>,
    pub(super) limits: RequestLimits,
    /// The access control of the listener, if it has any.
    pub(super) access: Option<Access>,
    /// The engine whose traces record the listener's requests, if tracing is on.
    pub(super) traced: Option<(Engine, FrontDoor)>,
}

impl HttpEndpoint {
    /// Adds traces, if the engine exports any.
    pub(super) fn traced(self, engine: &Engine, door: FrontDoor) -> Self {
        Self { traced: engine.traces().map(|_| (engine.clone(), door)), ..self }
    }

    /// Adds access control.
    pub(super) fn with_access(self, access: Access) -> Self {
        Self { access: Some(access), ..self }
    }

    /// Adds the hot endpoints.
    pub(super) fn with_hot_endpoints(self, engine: &Engine) -> Self {
        Self { hot: Some(engine.clone()), ..self }
    }

    /// The engine for the HTTP/1 fast path. There is no fast path if another step comes before the check: a gateway, access
    /// control, or a span, which begins with the request.
    fn fast_check_engine(&self) -> Option<&Engine> {
        let is_open = self.access.as_ref().is_none_or(Access::is_open);
        let is_first = self.gateway.is_none() && self.traced.is_none() && is_open;
        self.hot.as_ref().filter(|_| is_first)
    }
}

impl From<Router> for HttpEndpoint {
    fn from(router: Router) -> Self {
        Self { router, hot: None, gateway: None, limits: RequestLimits::default(), access: None, traced: None }
    }
}

impl HttpHandler for HttpEndpoint {
    /// A gateway forwards bodies as they arrive.
    fn buffers_bodies(&self) -> bool {
        self.gateway.is_none()
    }

    async fn respond<B: RequestBody>(&self, request: Request<B>, peer: SocketAddr) -> Response {
        match &self.traced {
            None => respond_untraced(self, request, peer).await,
            Some((engine, door)) => Box::pin(respond_traced(self, engine, *door, request, peer)).await,
        }
    }

    fn fast_path<'c, I>(
        &'c self,
        activity: &'c Arc<Activity>,
        io: &'c mut I,
    ) -> Option<impl Future<Output = io::Result<FastPathEnd>> + Send + 'c>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let engine = self.fast_check_engine()?;
        Some(FastCheck::new(engine, activity).serve(io))
    }
}

/// An endpoint that receives most of a listener's requests. It is matched before the router and is not a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HotEndpoint {
    /// `POST /v1/check`.
    Check,
    /// Envoy's `ShouldRateLimit` over gRPC.
    RateLimit,
}

impl HotEndpoint {
    pub(super) const ALL: [Self; 2] = [Self::Check, Self::RateLimit];

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Check => check::PATH,
            Self::RateLimit => grpc::PATH,
        }
    }

    /// The hot endpoint at this path.
    fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hot| hot.path() == path)
    }

    /// The bounds of its requests. The service over gRPC has its own bound on messages and an error for longer ones, which must
    /// apply first.
    const fn limits(self, limits: &RequestLimits) -> RequestLimits {
        match self {
            Self::Check => *limits,
            Self::RateLimit => RequestLimits { body_bytes_max: 2 * limits.body_bytes_max, ..*limits },
        }
    }

    /// The gRPC handler is boxed, so that its future does not enlarge that of every check: hyper moves the future of each
    /// request.
    async fn respond<B: RequestBody>(
        self,
        engine: &Engine,
        head: &Parts,
        body: &mut LimitedBody<B>,
        peer: SocketAddr,
    ) -> Result<Response, Infallible> {
        Ok(match self {
            Self::Check => check::decide(engine, &head.headers, body).await.into_response(),
            Self::RateLimit => Box::pin(rate_limit(engine, head, body, peer)).await,
        })
    }
}

/// Responds to a call of Envoy, and counts it.
async fn rate_limit<B: RequestBody>(
    engine: &Engine,
    head: &Parts,
    body: &mut LimitedBody<B>,
    peer: SocketAddr,
) -> Response {
    let clock = engine.limiter().clock();
    let began = clock.now();
    let response = grpc::should_rate_limit(engine, &head.headers, body, peer.ip()).await;
    // A response with a message has its status in the trailers.
    let error = response.headers().get("grpc-status").map(|status| match status.as_bytes() {
        b"14" => CallError::Store,
        _ => CallError::Request,
    });
    engine.envoy_limits().called(clock.now().since(began), error);
    response
}

/// Responds to one request within its own span.
async fn respond_traced<B: RequestBody>(
    endpoint: &HttpEndpoint,
    engine: &Engine,
    door: FrontDoor,
    request: Request<B>,
    peer: SocketAddr,
) -> Response {
    let Some(traces) = engine.traces() else { return respond_untraced(endpoint, request, peer).await };
    let clock = engine.limiter().clock();
    let is_tls = request.extensions().get::<IsTls>().is_some();
    let context = traces.begin(door, is_tls, &request, peer.ip(), clock.time_of_day());
    let response = respond_untraced(endpoint, request, peer).with_context(context.clone()).await;
    traces.end(&context, &response, clock.time_of_day());
    response
}

async fn respond_untraced<B: RequestBody>(
    endpoint: &HttpEndpoint,
    request: Request<B>,
    peer: SocketAddr,
) -> Response {
    let limits = &endpoint.limits;
    if let Err(problem) = body::check_head(&request) {
        return closing(problem, request.version()).into_response();
    }
    if let Some(gateway) = &endpoint.gateway {
        // Boxed, because this future is large, and hyper moves the future of every request.
        return Box::pin(forwarded(gateway, request, peer, limits)).await;
    }
    let hot = endpoint.hot.as_ref().and_then(|engine| Some((engine, HotEndpoint::at(request.uri().path())?)));
    let limits = &hot.map_or(*limits, |(_, hot)| hot.limits(limits));
    if let Err(problem) = body::check_length(request.headers(), limits) {
        return closing(problem, request.version()).into_response();
    }
    if let Some(access) = &endpoint.access
        && let Err(rejection) = access.check(&request, peer.ip())
    {
        let problem = Box::pin(access.delayed(rejection)).await;
        let is_grpc = is_grpc(request.headers());
        return closing(problem, request.version()).answer(is_grpc);
    }
    match hot {
        Some((engine, hot)) if request.method() == Method::POST => {
            respond_hot(engine, hot, request, peer, limits).await
        }
        Some((_, hot)) => {
            let problem = problem::method_not_allowed(request.method(), hot.path());
            problem.header(header::ALLOW, HeaderValue::from_static("POST")).into_response()
        }
        // Boxed, because this future is large, and hyper moves the future of every request.
        None => Box::pin(routed(endpoint.router.clone(), request, peer, limits)).await,
    }
}

pub(super) async fn forwarded<B: RequestBody>(
    gateway: &Gateway,
    request: Request<B>,
    peer: SocketAddr,
    limits: &RequestLimits,
) -> Response {
    let path = request.uri().path_and_query().cloned();
    let responded = catch_panic(pin!(async { Ok(gateway.answer(request, peer, limits).await) })).await;
    responded.unwrap_or_else(|panic| panic.problem(path_of(path.as_ref())).into_response())
}

pub(super) async fn respond_hot<B: RequestBody>(
    engine: &Engine,
    hot: HotEndpoint,
    request: Request<B>,
    peer: SocketAddr,
    limits: &RequestLimits,
) -> Response {
    let (head, body) = request.into_parts();
    let mut body = LimitedBody::new(body, limits);
    let responded = catch_panic(pin!(hot.respond(engine, &head, &mut body, peer))).await;
    match body.fault() {
        Some(fault) => closing(fault.into(), head.version).into_response(),
        None => responded.unwrap_or_else(|panic| panic.problem(head.uri.path()).into_response()),
    }
}

async fn routed<B: RequestBody>(
    mut router: Router,
    mut request: Request<B>,
    peer: SocketAddr,
    limits: &RequestLimits,
) -> Response {
    let version = request.version();
    let path = request.uri().path_and_query().cloned();
    request.extensions_mut().insert(ConnectInfo(peer));
    let (request, watch) = body::watch(request, limits);
    let responding = pin!(async move { router.call(request).await.map(without_impossible_length) });
    let responded = catch_panic(responding).await;
    match watch.fault() {
        Some(fault) => closing(fault.into(), version).into_response(),
        None => responded.unwrap_or_else(|panic| panic.problem(path_of(path.as_ref())).into_response()),
    }
}

fn path_of(target: Option<&PathAndQuery>) -> &str {
    target.map_or("", PathAndQuery::path)
}

/// The router sends the length of every response, including those that may have none (RFC 9110 §8.6).
fn without_impossible_length(mut response: Response) -> Response {
    if response.status() == StatusCode::NO_CONTENT || response.status().is_informational() {
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    response
}

/// Closes the connection after the response, because the rest of the request is still on it.
pub(super) fn closing(problem: Problem, version: Version) -> Problem {
    // HTTP/2 has no such header; only the stream ends there.
    if version >= Version::HTTP_2 {
        return problem;
    }
    problem.header(header::CONNECTION, HeaderValue::from_static("close"))
}

#[cfg(test)]
mod tests;
