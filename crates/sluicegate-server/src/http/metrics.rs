//! `GET /metrics`: all counters in the Prometheus text format, on the admin listener and on a listener for metrics alone.

use axum::Router;
use axum::extract::State;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use crate::admin_tokens;
use crate::engine::Engine;
use crate::metrics::CONTENT_TYPE;
use crate::problem::Problem;

/// The router of `GET /metrics`.
pub(super) fn router(engine: Engine) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(engine)
}

/// The router of a listener for metrics alone, at `path`. It needs no token: the network decides which clients reach it.
pub(super) fn open_router(engine: Engine, path: &str) -> Router {
    Router::new().route(path, get(async |State(engine): State<Engine>| text(&engine))).with_state(engine)
}

async fn metrics(State(engine): State<Engine>, head: Parts) -> Result<Response, Problem> {
    admin_tokens::require_to_read(engine.admin_tokens(), &head).await?;
    Ok(text(&engine))
}

fn text(engine: &Engine) -> Response {
    let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    ([content_type, no_store], engine.metrics()).into_response()
}

#[cfg(test)]
mod tests;
