//! A small application behind the limiter, to see limits at work: what the gateway serves without routes.
//!
//! A request is authenticated, decided and answered, in this order. Only paths that exist are charged. The
//! application is `GET /api/ping`; `GET /` says what to try and is free.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::HeaderMap;
use axum::http::Uri;
use axum::http::header::{self, HeaderValue};
use axum::http::uri::Authority;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sluicegate::gate::Head;

use crate::admit;
use crate::app::App;
use crate::problem::Problem;
use crate::respond;

const WELCOME: &str = "\
This is Sluicegate's demo application.

GET /api/ping answers {\"message\":\"pong\"} as long as the configured rules let it pass, and 429 when they do not:

  curl -i -H 'X-API-Key: demo-key' http://THIS-HOST/api/ping

Without a key you are known by your address. A key that does not exist is 401.
";

/// Where the application is.
pub(in crate::http) const PING: &str = "/api/ping";

const PONG: &str = r#"{"message":"pong"}"#;

/// The demo application.
pub(in crate::http) fn router(app: App) -> Router {
    Router::new().route("/", get(welcome)).route(PING, get(ping)).with_state(app)
}

async fn welcome() -> Response {
    ([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], WELCOME).into_response()
}

async fn ping(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    pong(&app, &uri, &headers, peer).await
}

/// Answers a request for the application.
pub(in crate::http) async fn pong(
    app: &App,
    uri: &Uri,
    headers: &HeaderMap,
    peer: SocketAddr,
) -> Result<Response, Problem> {
    let path = admit::path(uri.path())?;
    let authority = uri.authority().map(Authority::as_str);
    let admitted = admit::admit(app, &Head { method: "GET", path: &path, authority, headers }, peer.ip()).await?;
    let mut pong = Response::new(Body::from(PONG));
    pong.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(match admitted {
        Some(admission) => respond::allowed(pong, &admission.decision, app.headers()),
        None => pong,
    })
}

#[cfg(test)]
mod tests;
