//! The decision API: check, batch, peek, refund and reset.
//!
//! Every handler goes the same way: may the caller do this, what does the body say, what does the limiter say,
//! how is that answered. Who may not change things is told so before a byte of the body is read.

mod plain;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use bytes::Bytes;

use super::{admin_token, json_body};
use crate::app::App;
use crate::problem::Problem;
use crate::{respond, wire};
pub(crate) use plain::Plain;

/// Where a check is asked for.
pub(super) const PATH: &str = "/v1/check";

/// The routes of the decision API, all of them POST.
pub(super) fn routes() -> [(&'static str, MethodRouter<App>); 5] {
    [
        (PATH, post(check)),
        ("/v1/check/batch", post(batch)),
        ("/v1/peek", post(peek)),
        ("/v1/refund", post(refund)),
        ("/v1/reset", post(reset)),
    ]
}

async fn check(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    decide(&app, &head.headers, body).await
}

/// Answers a check.
pub(super) async fn decide<B>(app: &App, headers: &HeaderMap, body: B) -> Result<Response, Problem>
where
    B: HttpBody<Data = Bytes, Error = axum::Error> + Unpin,
{
    let body = json_body::read_parts(headers, body).await?;
    let check = wire::request::check(&body)?;
    respond::decided(app.limiter().check(&check.request()).await, app.headers())
}

async fn batch(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let body = json_body::read(request).await?;
    let checks = wire::request::batch(&body)?;
    // All of them first, and by the same rules: a batch is refused whole or not at all.
    let rules = app.limiter().rules();
    for (index, check) in checks.iter().enumerate() {
        app.limiter().validate(&rules, &check.request()).map_err(|error| respond::invalid_item(error, index))?;
    }
    let mut results = Vec::with_capacity(checks.len());
    for check in &checks {
        results.push(respond::checked(app.limiter().check_by(&rules, &check.request()).await)?);
    }
    Ok(respond::results(&results))
}

async fn peek(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let body = json_body::read(request).await?;
    let check = wire::request::check(&body)?;
    respond::decided(app.limiter().peek(&check.request()).await, app.headers())
}

async fn refund(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    admin_token::require(app.admin_token(), request.headers())?;
    let body = json_body::read(request).await?;
    let check = wire::request::check(&body)?;
    let decision = app.limiter().refund(&check.request()).await?;
    Ok(respond::standing(&decision, app.headers()))
}

async fn reset(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    admin_token::require(app.admin_token(), request.headers())?;
    let body = json_body::read(request).await?;
    let check = wire::request::check(&body)?;
    let decision = app.limiter().reset(&check.request()).await?;
    Ok(respond::standing(&decision, app.headers()))
}

#[cfg(test)]
mod tests;
