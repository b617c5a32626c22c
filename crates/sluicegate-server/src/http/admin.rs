//! The admin listener's own endpoints: rules, tenants, overrides and API keys; explanations; the audit; reloads; statistics
//! and the dashboard.
//!
//! Reads return the state in force on this server, so they work without a database and while it is down. Changes need a
//! database and a token with the required role ([`crate::admin_tokens`]), and are rejected if they come from a page of
//! another site. `/admin/v1/openapi.json` describes the endpoints that read and change the rules.

mod audit;
mod body;
mod dashboard;
mod description;
mod entries;
mod errors;
pub(crate) mod events;
mod explain;
mod history;
mod overview;
mod reload;
mod rlconfig;
#[cfg(test)]
mod tests;
mod top;

use axum::Router;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};

use crate::engine::Engine;
use crate::health::Health;
use events::EventFeed;
use overview::OverviewSampler;

/// The router of the admin endpoints and the dashboard.
pub(super) fn router(engine: Engine, health: Health) -> Router {
    let feed = EventFeed::new(OverviewSampler::new(engine.clone(), health));
    let events = Router::new().route("/admin/v1/events", get(events::events)).with_state((engine.clone(), feed));
    routes()
        .into_iter()
        .fold(Router::new(), |router, (path, methods)| router.route(path, methods))
        .route("/admin/v1/history", get(history::history))
        .route("/admin/v1/reload", get(reload::status).post(reload::reload))
        .route("/admin/v1/top", get(top::top))
        .route("/rlconfig", get(rlconfig::rlconfig))
        .with_state(engine)
        .merge(events)
        .merge(dashboard::router())
}

/// Every path that the OpenAPI description covers, as a list, so that a test compares the two.
fn routes() -> Vec<(&'static str, MethodRouter<Engine>)> {
    let others = [
        ("/admin/v1/audit", get(audit::list)),
        ("/admin/v1/explain", post(explain::explain)),
        ("/admin/v1/openapi.json", get(async || openapi())),
    ];
    entries::routes().into_iter().chain(others).collect()
}

fn openapi() -> Response {
    let fields = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        // The file changes with the version of the server, and revalidation is cheap.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (fields, description::OPENAPI.as_str()).into_response()
}

/// The header field of every response that caches must not store.
fn no_store() -> (HeaderName, HeaderValue) {
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
}
