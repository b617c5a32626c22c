//! The decision API: check, batch, peek, refund, report and reset.
//!
//! Every handler has the same steps: authorisation, parsing, the call to the limiter, the response. A client without the
//! right to make changes gets its response before a byte of the body is read.

mod work;

use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::{MethodRouter, post};
use bytes::Bytes;

use super::json_body;
use crate::admin_tokens;
use crate::engine::Engine;
use crate::problem::Problem;
use crate::{api_response, wire};
use work::BatchYield;

/// The path of a check, which is a [hot endpoint](super::endpoint::HotEndpoint).
pub(super) const PATH: &str = "/v1/check";

/// The other routes of the decision API, all of them POST.
pub(super) fn routes() -> [(&'static str, MethodRouter<Engine>); 5] {
    [
        ("/v1/check/batch", post(batch)),
        ("/v1/peek", post(peek)),
        ("/v1/refund", post(refund)),
        ("/v1/report", post(report)),
        ("/v1/reset", post(reset)),
    ]
}

/// Responds to a check.
pub(super) async fn decide<B>(engine: &Engine, headers: &HeaderMap, body: B) -> Result<Response, Problem>
where
    B: HttpBody<Data = Bytes, Error = axum::Error> + Unpin,
{
    let body = json_body::read_parts(headers, body).await?;
    let check = wire::request::check(&body)?;
    api_response::decided(engine.limiter().check(&check.request()).await, engine.headers())
}

async fn batch(State(engine): State<Engine>, request: Request) -> Result<Response, Problem> {
    let body = json_body::read(request).await?;
    let checks = wire::request::batch(&body)?;
    // All checks are validated first, by the same rules, so a batch is rejected as a whole or not at all.
    let rules = engine.limiter().rules();
    let batch_yield = BatchYield::of(&rules);
    for (index, check) in checks.iter().enumerate() {
        engine
            .limiter()
            .validate(&rules, &check.request())
            .map_err(|error| api_response::invalid_item(error, index))?;
    }
    work::bound_answer(&engine, &rules, &checks, batch_yield).await?;
    let mut results = Vec::with_capacity(checks.len());
    for check in &checks {
        batch_yield.next().await;
        results.push(api_response::checked(engine.limiter().check_by(&rules, &check.request()).await)?);
    }
    Ok(api_response::results(&results))
}

async fn peek(State(engine): State<Engine>, request: Request) -> Result<Response, Problem> {
    let body = json_body::read(request).await?;
    let check = wire::request::check(&body)?;
    api_response::decided(engine.limiter().peek(&check.request()).await, engine.headers())
}

async fn refund(State(engine): State<Engine>, request: Request) -> Result<Response, Problem> {
    may_change(&engine, &request).await?;
    let body = json_body::read(request).await?;
    let check = wire::request::check(&body)?;
    let decision = engine.limiter().refund(&check.request()).await?;
    Ok(api_response::changed(&decision, engine.headers()))
}

/// Usage is reported by the same callers that check, so it needs no other right.
async fn report(State(engine): State<Engine>, request: Request) -> Result<Response, Problem> {
    let body = json_body::read(request).await?;
    let check = wire::request::check(&body)?;
    let decision = engine.limiter().report(&check.request()).await?;
    Ok(api_response::changed(&decision, engine.headers()))
}

fn may_change<'e>(
    engine: &'e Engine,
    request: &Request,
) -> impl Future<Output = Result<(), Problem>> + Send + use<'e> {
    admin_tokens::require(engine.admin_tokens(), request.headers(), admin_tokens::peer(request.extensions()))
}

async fn reset(State(engine): State<Engine>, request: Request) -> Result<Response, Problem> {
    may_change(&engine, &request).await?;
    let body = json_body::read(request).await?;
    let check = wire::request::check(&body)?;
    let decision = engine.limiter().reset(&check.request()).await?;
    Ok(api_response::changed(&decision, engine.headers()))
}

#[cfg(test)]
mod tests;
