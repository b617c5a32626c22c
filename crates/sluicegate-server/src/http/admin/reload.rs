//! `POST /admin/v1/reload` reads the configuration file now and returns the outcome. `GET` returns the outcome of the last
//! reload.
//!
//! If the file takes effect, the response is 200 and lists the differences. If it does not, the response is 400 with every
//! error, and the old configuration stays in force.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::no_store;
use crate::admin_tokens;
use crate::config::admin::Role;
use crate::engine::Engine;
use crate::problem::Problem;
use crate::reload::NoReload;
use crate::reload::status::Outcome;

/// Reloads the configuration file.
pub(super) async fn reload(State(engine): State<Engine>, head: Parts) -> Result<Response, Problem> {
    engine.admin_tokens().writer(&head, Role::Operate).await?;
    match engine.reload().now().await {
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

/// Returns the outcome of the last reload. Its errors contain values of the file, so remote reads need a token.
pub(super) async fn status(State(engine): State<Engine>, head: Parts) -> Result<Response, Problem> {
    admin_tokens::require_to_read(engine.admin_tokens(), &head).await?;
    Ok(uncached(engine.reload().status()))
}

fn uncached(body: impl Serialize) -> Response {
    ([no_store()], Json(body)).into_response()
}
