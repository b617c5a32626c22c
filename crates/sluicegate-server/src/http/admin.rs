//! The admin API: rules, tenants, overrides and API keys are read and changed, requests explained, and changes told.
//!
//! Reading is answered from what is in force on this server, and works without a database and without one that answers.
//! Changing needs a database, a token and its role ([`access`]), and is refused to pages of other sites ([`guard`]).
//! What it does is described at `/admin/v1/openapi.json`.

pub(crate) mod access;
mod audit;
mod body;
mod description;
mod entries;
mod explain;
mod guard;
mod refused;
#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};

use crate::app::App;

/// The router of the admin API.
pub(super) fn router(app: App) -> Router {
    routes().into_iter().fold(Router::new(), |router, (path, methods)| router.route(path, methods)).with_state(app)
}

/// Every path that is served, as a list, so that a test can hold the description against it.
fn routes() -> Vec<(&'static str, MethodRouter<App>)> {
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
        // The file changes with the server, and asking again costs nothing.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (fields, description::OPENAPI.as_str()).into_response()
}
