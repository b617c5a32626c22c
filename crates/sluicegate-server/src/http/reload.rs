//! `POST /admin/v1/reload`: reads the configuration file now and says what came of it. `GET` of the same says how the last
//! reload went.
//!
//! A file that takes effect is 200 with what is different; one that does not is 400 with every mistake, and nothing has
//! changed then.

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;

use super::admin::access::Role;
use super::admin_token;
use crate::app::App;
use crate::problem::Problem;
use crate::reload::NoReload;
use crate::reload::status::Outcome;

/// The routes.
pub(super) fn router(app: App) -> Router {
    Router::new().route("/admin/v1/reload", get(status).post(reload)).with_state(app)
}

async fn reload(State(app): State<App>, head: Parts) -> Result<Response, Problem> {
    app.admin_token().writer(&head, Role::Operate)?;
    match app.reload().now().await {
        Ok(Outcome::Applied(changes)) => Ok(uncached(changes)),
        Ok(Outcome::Refused(refused)) => Err(Problem::new(StatusCode::BAD_REQUEST, refused.text())),
        Err(no_reload) => {
            let status = match no_reload {
                NoReload::NoFile => StatusCode::CONFLICT,
                NoReload::NotNow => StatusCode::SERVICE_UNAVAILABLE,
            };
            Err(Problem::new(status, no_reload.to_string()))
        }
    }
}

/// Mistakes are told with values of the file, so from afar this needs the token.
async fn status(State(app): State<App>, head: Parts) -> Result<Response, Problem> {
    admin_token::require_to_read(app.admin_token(), &head)?;
    Ok(uncached(app.reload().status()))
}

fn uncached(body: impl Serialize) -> Response {
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    ([no_store], Json(body)).into_response()
}
