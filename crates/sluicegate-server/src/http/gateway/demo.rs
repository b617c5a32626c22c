//! A small application behind the limiter, to try limits out. The gateway serves it without routes.
//!
//! A request is authenticated, decided and answered, in this order. Only paths that exist are charged. The
//! application is `GET /api/ping`. `GET /` describes requests to try and is free.

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
use crate::api_response;
use crate::engine::Engine;
use crate::problem::Problem;

const WELCOME: &str = "\
This is Sluicegate's demo application.

GET /api/ping answers {\"message\":\"pong\"} as long as the configured rules let it pass, and 429 when they do not:

  curl -i -H 'X-API-Key: demo-key' http://THIS-HOST/api/ping

Without a key you are known by your address. A key that does not exist is 401.
";

const PONG: &str = r#"{"message":"pong"}"#;

/// The demo application.
pub(in crate::http) fn router(engine: Engine) -> Router {
    Router::new().route("/", get(welcome)).route("/api/ping", get(ping)).with_state(engine)
}

async fn welcome() -> Response {
    ([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], WELCOME).into_response()
}

async fn ping(
    State(engine): State<Engine>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let path = admit::path(uri.path(), engine.slashes())?;
    let authority = uri.authority().map(Authority::as_str);
    let admitted =
        engine.admit(&Head { method: "GET", path: &path, authority, headers: &headers }, peer.ip()).await?;
    let mut pong = Response::new(Body::from(PONG));
    pong.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(match admitted {
        Some(admission) => api_response::allowed(pong, &admission.decision, engine.headers()),
        None => pong,
    })
}

#[cfg(test)]
mod tests;
