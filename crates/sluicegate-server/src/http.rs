//! What the listeners serve: one router per listener, and the one way a request goes through any of
//! them.
//!
//! [`answer`] is that way: bounds first, then the router, then the last word on the answer. It
//! promises that every request that reaches it gets exactly one answer, also when its handler
//! panics or its body breaks a bound, and it needs no socket, so tests can call it directly.
//!
//! Handlers live in the modules below this one; each builds a [`Router`] from its state.

pub(crate) mod admin_token;
mod api;
mod check;
mod docs;
mod gateway;
pub(crate) mod health;
mod json_body;
mod metrics;
mod top;

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{self, HeaderValue};
use axum::http::{StatusCode, Version};
use axum::response::{IntoResponse as _, Response};
use tower::Service as _;

use crate::app::App;
use crate::body::{self, RequestLimits};
use crate::problem::{self, Problem};
use health::Health;

/// What each listener serves.
#[derive(Debug)]
pub(crate) struct Routers {
    /// The demo application.
    pub(crate) gateway: Router,
    /// The decision API.
    pub(crate) api: Router,
    /// Health, metrics and the busiest identities.
    pub(crate) admin: Router,
}

impl Routers {
    /// The routers of this build.
    pub(crate) fn new(app: &App, health: &Health) -> Self {
        Self {
            gateway: problem::with_fallbacks(gateway::router(app.clone())),
            api: problem::with_fallbacks(api::router(app.clone())),
            admin: problem::with_fallbacks(
                Router::new()
                    .merge(health::router(health.clone(), app.clone()))
                    .merge(metrics::router(app.clone()))
                    .merge(top::router(app.clone())),
            ),
        }
    }
}

/// Takes one request through a router.
pub(crate) async fn answer(mut router: Router, request: Request, limits: &RequestLimits) -> Response {
    let version = request.version();
    let path = request.uri().path_and_query().cloned();
    let (request, watch) = match body::limit(request, limits) {
        Ok(limited) => limited,
        Err(problem) => return closing(problem, version),
    };
    let answered = catch_panic(async move { router.call(request).await }).await;
    if let Some(fault) = watch.fault() {
        return closing(fault.into(), version);
    }
    match answered {
        Ok(Ok(response)) => response,
        Err(Panicked) => {
            // The panic hook has logged the place and the message; the client learns neither. The
            // query may hold credentials, so only the path is logged.
            let path = path.as_ref().map_or("", |path| path.path());
            tracing::error!(path, "a handler panicked; its request was answered 500");
            let detail = "the server met a fault of its own while answering; its log says where";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response()
        }
    }
}

/// A handler panicked. The payload may hold anything, so it is dropped.
struct Panicked;

impl From<Box<dyn Any + Send>> for Panicked {
    fn from(_payload: Box<dyn Any + Send>) -> Self {
        Self
    }
}

/// Turns a panic while `future` runs into an error, so that one bad request costs only its own
/// answer.
async fn catch_panic<F>(future: F) -> Result<Result<Response, Infallible>, Panicked>
where
    F: Future<Output = Result<Response, Infallible>>,
{
    let mut future = pin!(future);
    poll_fn(|cx| {
        // Unwind safety: after a panic the future is only dropped, never polled again.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => std::task::Poll::Ready(Err(payload.into())),
        }
    })
    .await
}

/// An answer after which the connection is of no use, because the rest of the request is still on
/// it.
fn closing(problem: Problem, version: Version) -> Response {
    // HTTP/2 has no such header: there only the stream ends.
    if version >= Version::HTTP_2 {
        return problem.into_response();
    }
    problem.header(header::CONNECTION, HeaderValue::from_static("close")).into_response()
}

#[cfg(test)]
mod tests;
