//! What the listeners serve: one [`Site`] per listener, and the one way a request goes through any of
//! them.
//!
//! [`answer`] is that way: bounds first, then the [`gateway`] if the site has one, else the router, then the last word
//! on the answer. What nearly all requests of a listener ask for goes past the router, to the very handler that the
//! router would find: see [`Shortcut`]. It promises that every request that reaches it gets exactly one answer, also
//! when its handler panics or its body breaks a bound, and it needs no socket, so tests can call it directly.
//!
//! Handlers live in the modules below this one; each builds a [`Router`] from its state.

pub(crate) mod admin;
pub(crate) mod admin_token;
mod api;
mod auth;
mod check;
mod dashboard;
mod docs;
pub(crate) mod gateway;
pub(crate) mod health;
mod json_body;
mod metrics;
mod reload;
mod top;

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
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
use tower::Service as _;

use crate::app::App;
use crate::body::{self, LimitedBody, RequestBody, RequestLimits};
use crate::grpc;
use crate::problem::{self, Problem};
use crate::traces::Door;
pub(crate) use check::Plain;
use gateway::{Gateway, demo};
use health::Health;

/// What each listener serves.
#[derive(Debug)]
pub(crate) struct Routers {
    /// The reverse proxy, or the demo application.
    pub(crate) gateway: Site,
    /// The decision API.
    pub(crate) api: Site,
    /// Health, metrics, the busiest identities, the admin API and the dashboard.
    pub(crate) admin: Site,
}

impl Routers {
    /// The routers of this build.
    pub(crate) fn new(app: &App, health: &Health) -> Self {
        Self {
            gateway: Site::from(problem::with_fallbacks(demo::router(app.clone())))
                .with_shortcuts(app, &[Shortcut::Ping])
                .traced(app, Door::Gateway),
            api: Site::from(problem::with_fallbacks(api::router(app.clone()).merge(grpc::router(app, health))))
                .with_shortcuts(app, Shortcut::OF_API)
                .traced(app, Door::Api),
            admin: problem::with_fallbacks(
                Router::new()
                    .merge(health::router(health.clone(), app.clone()))
                    .merge(metrics::router(app.clone()))
                    .merge(reload::router(app.clone()))
                    .merge(admin::router(app.clone()))
                    .merge(top::router(app.clone()))
                    .merge(dashboard::router(app.clone(), health.clone())),
            )
            .into(),
        }
    }

    /// The same with this gateway in place of the demo application, if there is one.
    pub(crate) fn with_gateway(mut self, gateway: Option<Gateway>) -> Self {
        self.gateway.gateway = gateway;
        self
    }

    /// The same with the decision API and its health in place of the demo application: what `envoyproxy/ratelimit` has on its
    /// HTTP port. A gateway stays what it is.
    pub(crate) fn with_healthcheck(mut self, app: &App, health: &Health) -> Self {
        let api = api::router(app.clone()).merge(grpc::router(app, health));
        let router = api.merge(health::healthcheck(health.clone()));
        self.gateway.router = problem::with_fallbacks(router);
        self.gateway.shortcuts = Some((app.clone(), Shortcut::OF_API));
        self
    }
}

/// Among the extensions of a request that came over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverTls;

/// Among the extensions of a request that asks for another protocol: whether its connection can be handed over.
#[derive(Clone)]
pub(crate) struct Handover(Arc<dyn Fn() -> bool + Send + Sync>);

impl Handover {
    pub(crate) fn new(agree: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(agree))
    }

    /// Hands the connection over, and must be asked before anybody takes it: hyper gives it away even if the answer is
    /// not 101. False if the client did not wait for the answer; what it sent by then is nobody's.
    pub(crate) fn agree(&self) -> bool {
        (self.0)()
    }
}

/// What one listener serves.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    router: Router,
    /// Which ways past the router there are, and to whom.
    shortcuts: Option<(App, &'static [Shortcut])>,
    /// Answers everything, if it is there.
    gateway: Option<Gateway>,
    limits: RequestLimits,
    /// Whose traces its requests are in, and as what, if they are traced.
    traced: Option<(App, Door)>,
}

impl Site {
    /// The same with traces, if the app has any.
    fn traced(self, app: &App, door: Door) -> Self {
        Self { traced: app.traces().map(|_| (app.clone(), door)), ..self }
    }

    /// The same with these ways past its router.
    fn with_shortcuts(self, app: &App, shortcuts: &'static [Shortcut]) -> Self {
        Self { shortcuts: Some((app.clone(), shortcuts)), ..self }
    }

    /// The way past the router that `request` takes, if any.
    fn shortcut<B>(&self, request: &Request<B>) -> Option<(&App, Shortcut)> {
        let (app, shortcuts) = self.shortcuts.as_ref()?;
        shortcuts.iter().find(|shortcut| shortcut.takes(request)).map(|shortcut| (app, *shortcut))
    }

    /// Who answers plain checks, if they may be answered before anybody else looks at them: a gateway answers everything,
    /// and spans begin with the request.
    pub(crate) fn express(&self) -> Option<&App> {
        let (app, shortcuts) = self.shortcuts.as_ref()?;
        let is_first = self.gateway.is_none() && self.traced.is_none();
        (is_first && shortcuts.contains(&Shortcut::Check)).then_some(app)
    }
}

impl From<Router> for Site {
    fn from(router: Router) -> Self {
        Self { router, shortcuts: None, gateway: None, limits: RequestLimits::default(), traced: None }
    }
}

/// A request that is answered without asking the router who answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shortcut {
    Check,
    RateLimit,
    Ping,
}

impl Shortcut {
    const OF_API: &[Self] = &[Self::Check, Self::RateLimit];

    fn takes<B>(self, request: &Request<B>) -> bool {
        let (method, path) = match self {
            Self::Check => (Method::POST, check::PATH),
            Self::RateLimit => (Method::POST, grpc::PATH),
            Self::Ping => (Method::GET, demo::PING),
        };
        *request.method() == method && request.uri().path() == path
    }

    /// All but the commonest are boxed, so that its future is not as large as theirs: hyper moves that of every request.
    async fn answer<B: RequestBody>(
        self,
        app: &App,
        head: &Parts,
        body: &mut LimitedBody<B>,
        peer: SocketAddr,
    ) -> Result<Response, Infallible> {
        Ok(match self {
            Self::Check => check::decide(app, &head.headers, body).await.into_response(),
            Self::RateLimit => Box::pin(grpc::should_rate_limit(app, &head.headers, body)).await,
            Self::Ping => Box::pin(demo::pong(app, &head.uri, &head.headers, peer)).await.into_response(),
        })
    }
}

/// Answers one request of a client at `peer`.
pub(crate) async fn answer<B: RequestBody>(site: &Site, request: Request<B>, peer: SocketAddr) -> Response {
    match &site.traced {
        None => answer_untraced(site, request, peer).await,
        Some((app, door)) => Box::pin(answer_traced(site, app, *door, request, peer)).await,
    }
}

/// Answers one request within a span of its own.
async fn answer_traced<B: RequestBody>(
    site: &Site,
    app: &App,
    door: Door,
    request: Request<B>,
    peer: SocketAddr,
) -> Response {
    let Some(traces) = app.traces() else { return answer_untraced(site, request, peer).await };
    let clock = app.limiter().clock();
    let context = traces.begin(door, &request, peer.ip(), clock.now());
    let response = answer_untraced(site, request, peer).with_context(context.clone()).await;
    traces.end(&context, &response, clock.now());
    response
}

async fn answer_untraced<B: RequestBody>(site: &Site, request: Request<B>, peer: SocketAddr) -> Response {
    let limits = &site.limits;
    if let Err(problem) = body::check_head(&request) {
        return closing(problem, request.version()).into_response();
    }
    if let Some(gateway) = &site.gateway {
        // Boxed, because this is a large future, and hyper moves that of every request.
        return Box::pin(passed_on(gateway, request, peer, limits)).await;
    }
    if let Err(problem) = body::check_length(request.headers(), limits) {
        return closing(problem, request.version()).into_response();
    }
    match site.shortcut(&request) {
        Some((app, shortcut)) => cut_short(app, shortcut, request, peer, limits).await,
        // Boxed, because this is a large future, and hyper moves that of every request.
        None => Box::pin(routed(site.router.clone(), request, peer, limits)).await,
    }
}

async fn passed_on<B: RequestBody>(
    gateway: &Gateway,
    request: Request<B>,
    peer: SocketAddr,
    limits: &RequestLimits,
) -> Response {
    let path = request.uri().path_and_query().cloned();
    let answered = catch_panic(pin!(async { Ok(gateway.answer(request, peer, limits).await) })).await;
    answered.unwrap_or_else(|panicked| panicked.answer(path.as_ref()))
}

async fn cut_short<B: RequestBody>(
    app: &App,
    shortcut: Shortcut,
    request: Request<B>,
    peer: SocketAddr,
    limits: &RequestLimits,
) -> Response {
    let (head, body) = request.into_parts();
    let mut body = LimitedBody::new(body, limits);
    let answered = catch_panic(pin!(shortcut.answer(app, &head, &mut body, peer))).await;
    match body.fault() {
        Some(fault) => closing(fault.into(), head.version).into_response(),
        None => answered.unwrap_or_else(|panicked| panicked.problem(head.uri.path()).into_response()),
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
    let answering = pin!(async move { router.call(request).await.map(without_impossible_length) });
    let answered = catch_panic(answering).await;
    match watch.fault() {
        Some(fault) => closing(fault.into(), version).into_response(),
        None => answered.unwrap_or_else(|panicked| panicked.answer(path.as_ref())),
    }
}

/// The router tells the length of every answer, also of those that RFC 9110 §8.6 forbids to have one.
fn without_impossible_length(mut response: Response) -> Response {
    if response.status() == StatusCode::NO_CONTENT || response.status().is_informational() {
        response.headers_mut().remove(header::CONTENT_LENGTH);
    }
    response
}

/// A handler panicked. The payload may hold anything, so it is dropped.
struct Panicked;

impl Panicked {
    /// The panic hook has logged the place and the message; the client learns neither. The query may hold
    /// credentials, so only the path is logged.
    fn problem(self, path: &str) -> Problem {
        tracing::error!(path, "a handler panicked; its request was answered 500");
        let detail = "the server met a fault of its own while answering; its log says where";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    fn answer(self, path: Option<&PathAndQuery>) -> Response {
        self.problem(path.map_or("", PathAndQuery::path)).into_response()
    }
}

impl From<Box<dyn Any + Send>> for Panicked {
    fn from(_payload: Box<dyn Any + Send>) -> Self {
        Self
    }
}

/// Turns a panic while `future` runs into an error, so that one bad request costs only its own
/// answer. It takes the future where it is: in a future of its own it would be held twice.
fn catch_panic<T, F>(mut future: Pin<&mut F>) -> impl Future<Output = Result<T, Panicked>>
where
    F: Future<Output = Result<T, Infallible>>,
{
    poll_fn(move |cx| {
        // Unwind safety: after a panic the future is only dropped, never polled again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(|Ok(done)| Ok(done)),
            Err(payload) => std::task::Poll::Ready(Err(payload.into())),
        }
    })
}

/// An answer after which the connection is of no use, because the rest of the request is still on
/// it.
fn closing(problem: Problem, version: Version) -> Problem {
    // HTTP/2 has no such header: there only the stream ends.
    if version >= Version::HTTP_2 {
        return problem;
    }
    problem.header(header::CONNECTION, HeaderValue::from_static("close"))
}

#[cfg(test)]
mod tests;
