//! A [`tower::Layer`](tower_layer::Layer) that decides on every request before the service behind it: for axum,
//! hyper, tonic and any other service of HTTP requests.
//!
//! It uses [`Gate`] and the table of [`response`], so it decides as the gateway and forward-auth of the server do. An
//! allowed request carries its [`Client`](crate::identify::Client) among its extensions, and its response the
//! rate-limit fields. A denied request is answered here and never reaches the service. To gRPC a denial is
//! `RESOURCE_EXHAUSTED`.
//!
//! ```
//! use http::{Extensions, Request, Response};
//! use sluicegate::clock::SystemClock;
//! use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
//! use sluicegate::gate::Gate;
//! use sluicegate::identify::{Client, Identify, Source};
//! use sluicegate::middleware::RateLimitLayer;
//! use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
//! use sluicegate::{Limiter, MemoryStore};
//! use std::net::{IpAddr, SocketAddr};
//! use tower::{ServiceBuilder, ServiceExt as _, service_fn};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(async {
//! let one = Quota::from(TokenBucket::new(1, Rate::new(1, Micros::from_secs(60))?)?);
//! let rules = RuleSet::new(vec![Rule::new("one", Limits::all("one", [(None, one)]))], vec![], Unmatched::Allow)?;
//! let limiter = Limiter::new(rules, MemoryStore::default(), SystemClock::new());
//! let gate = Gate::new(limiter, Identify::new(vec![Source::Address]));
//!
//! // With axum this is `extensions.get::<ConnectInfo<SocketAddr>>()`.
//! let peer = |extensions: &Extensions| extensions.get::<SocketAddr>().map(SocketAddr::ip);
//! let service = ServiceBuilder::new().layer(RateLimitLayer::new(gate, peer)).service(service_fn(
//!     async |request: Request<()>| {
//!         let client = request.extensions().get::<Client>().map(Client::address);
//!         Ok::<_, std::convert::Infallible>(Response::new(format!("hello {client:?}")))
//!     },
//! ));
//!
//! let mut request = Request::new(());
//! request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 7], 5_000)));
//! assert_eq!(service.clone().oneshot(request.clone()).await?.headers()["x-ratelimit-remaining"], "0");
//! assert_eq!(service.oneshot(request).await?.status(), 429);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::future::Future;
use std::mem;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Extensions, HeaderMap, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use tower_layer::Layer;
use tower_service::Service;

use crate::clock::Clock;
use crate::gate::{Admission, Gate, Head};
use crate::headers::HeaderOptions;
use crate::observe::{NoObserver, Observer};
use crate::path::{EncodedSlashes, Path};
use crate::problem::{Problem, is_grpc};
use crate::response;
use crate::store::Store;

/// The body of a response: the layer's, or the service's.
pub type Body<B> = Either<Full<Bytes>, B>;

/// Finds the address of the connection among the extensions of a request.
type Peer = dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync;

/// Wraps services in [`RateLimit`].
pub struct RateLimitLayer<S, C, O = NoObserver>(Arc<LayerState<S, C, O>>);

/// A service with limits.
pub struct RateLimit<I, S, C, O = NoObserver> {
    inner: I,
    shared: Arc<LayerState<S, C, O>>,
}

struct LayerState<S, C, O> {
    gate: Gate<S, C, O>,
    peer: Box<Peer>,
    headers: HeaderOptions,
    slashes: EncodedSlashes,
}

impl<S: Store, C: Clock, O: Observer> RateLimitLayer<S, C, O> {
    /// A layer that decides by `gate`. `peer` finds the address of the connection among the extensions of a request;
    /// servers store it in different places. Without it clients cannot be distinguished, so a request without it is
    /// answered with 500.
    pub fn new(gate: Gate<S, C, O>, peer: impl Fn(&Extensions) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        let (headers, slashes) = (HeaderOptions::default(), EncodedSlashes::default());
        Self(Arc::new(LayerState { gate, peer: Box::new(peer), headers, slashes }))
    }

    /// The same with these header fields.
    #[must_use]
    pub fn headers(self, headers: HeaderOptions) -> Self {
        self.changed(|shared| shared.headers = headers)
    }

    /// The same, with encoded slashes treated like this.
    #[must_use]
    pub fn encoded_slashes(self, slashes: EncodedSlashes) -> Self {
        self.changed(|shared| shared.slashes = slashes)
    }

    /// Exclusive until it is cloned; a clone made earlier keeps its settings.
    fn changed(mut self, change: impl FnOnce(&mut LayerState<S, C, O>)) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.0) {
            change(shared);
        }
        self
    }
}

impl<S, C, O, I> Layer<I> for RateLimitLayer<S, C, O> {
    type Service = RateLimit<I, S, C, O>;

    fn layer(&self, inner: I) -> Self::Service {
        RateLimit { inner, shared: Arc::clone(&self.0) }
    }
}

impl<S, C, O, I, Q, B> Service<Request<Q>> for RateLimit<I, S, C, O>
where
    S: Store + 'static,
    C: Clock + 'static,
    O: Observer + 'static,
    I: Service<Request<Q>, Response = Response<B>, Future: Send> + Clone + Send + 'static,
    Q: Send + 'static,
{
    type Response = Response<Body<B>>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, I::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Q>) -> Self::Future {
        // The instance that reported readiness is the one to call.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let admission = match shared.admitted(&request).await {
                Ok(admission) => admission,
                Err(problem) => return Ok(refused(problem, request.headers())),
            };
            let Admission { client, decision } = admission;
            request.extensions_mut().insert(client);
            let mut response = inner.call(request).await?;
            response::remove_rate_limit_headers(response.headers_mut());
            response::rate_limit_headers(&decision, shared.headers, response.headers_mut());
            Ok(response.map(Either::Right))
        })
    }
}

impl<S: Store, C: Clock, O: Observer> LayerState<S, C, O> {
    /// The admission of a request. The future holds no part of the request's body, which need not be shared between
    /// threads.
    fn admitted<'a, Q>(
        &'a self,
        request: &'a Request<Q>,
    ) -> impl Future<Output = Result<Admission, Problem>> + Send + use<'a, S, C, O, Q> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let peer = (self.peer)(request.extensions());
        async move {
            let peer = peer.ok_or_else(no_peer)?;
            let path = Path::parse(uri.path(), self.slashes)
                .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))?;
            let authority = uri.authority().map(http::uri::Authority::as_str);
            let head = Head { method: method.as_str(), path: &path, authority, headers };
            match self.gate.decide(&head, peer).await {
                Ok(admission) if admission.decision.is_allowed() => Ok(admission),
                Ok(admission) => Err(response::denied(&admission.decision, self.headers)),
                Err(refusal) => Err(response::refused(refusal, self.headers)),
            }
        }
    }
}

/// The error is in the setup of the layer, so the response describes it in full.
fn no_peer() -> Problem {
    let detail = "the rate limit layer does not find the address of the client among the request's extensions; \
                  correct the function that it was given";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

fn refused<B>(problem: Problem, headers: &HeaderMap) -> Response<Body<B>> {
    problem.answer::<Vec<u8>>(is_grpc(headers)).map(|body| Either::Left(Full::from(body)))
}

impl<S, C, O> Clone for RateLimitLayer<S, C, O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<I: Clone, S, C, O> Clone for RateLimit<I, S, C, O> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), shared: Arc::clone(&self.shared) }
    }
}

impl<S, C, O> fmt::Debug for RateLimitLayer<S, C, O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RateLimitLayer").field("headers", &self.0.headers).finish_non_exhaustive()
    }
}

impl<I: fmt::Debug, S, C, O> fmt::Debug for RateLimit<I, S, C, O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
