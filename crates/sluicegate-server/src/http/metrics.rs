//! `GET /metrics`: what was counted, for Prometheus.

use axum::Router;
use axum::extract::State;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use super::admin_token;
use crate::app::App;
use crate::metrics::CONTENT_TYPE;
use crate::problem::Problem;

/// The route.
pub(super) fn router(app: App) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(app)
}

async fn metrics(State(app): State<App>, head: Parts) -> Result<Response, Problem> {
    admin_token::require_to_read(app.admin_token(), &head)?;
    let content_type = (header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(([content_type, no_store], app.metrics()).into_response())
}

#[cfg(test)]
mod tests;
