//! `GET /admin/v1/top`: the identities with the most requests, and those with the most denials.
//!
//! Rates decay exponentially with the half-life [`HALF_LIFE`]. `requestsPerSecond` and `deniedPerSecond` are lower bounds.
//! `error` and `deniedError` are how much higher the rates may be.

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use sluicegate::Identity;
use sluicegate::clock::Clock as _;
use sluicegate::top_k::{HALF_LIFE, RequestRate, SAMPLE_ONE_IN, TOP_KEYS_MAX, TopClient};

use super::no_store;
use crate::admin_api::{BusyIdentity, Thousandths, Top};
use crate::admin_tokens;
use crate::engine::Engine;
use crate::problem::Problem;

/// The length of each list unless the request sets one.
const LIMIT_DEFAULT: usize = 20;

/// Lists the busiest identities.
pub(super) async fn top(State(engine): State<Engine>, head: Parts) -> Result<Response, Problem> {
    admin_tokens::require_to_read(engine.admin_tokens(), &head).await?;
    let limit = limit(&head.uri)?;
    let (top_clients, now) = (engine.hot(), engine.limiter().clock().now());
    let top = Top {
        heaviest: top_clients.heaviest(limit, now).iter().map(busy_identity).collect(),
        most_denied: top_clients.most_denied(limit, now).iter().map(busy_identity).collect(),
        half_life_seconds: HALF_LIFE.ceil_secs(),
        sampled_one_in: SAMPLE_ONE_IN,
        skipped: top_clients.skipped(),
    };
    Ok(([no_store()], Json(top)).into_response())
}

/// One identity of a list as JSON.
pub(super) fn busy_identity(client: &TopClient) -> BusyIdentity {
    let (kind, identifier) = match client.identity() {
        Identity::Named(name) => ("named", name.to_owned()),
        Identity::Claimed(name) => ("claimed", name.to_owned()),
        Identity::Address(address) => ("address", address.to_string()),
    };
    let (requests_per_second, error) = rate_and_error(client.requests);
    let (denied_per_second, denied_error) = rate_and_error(client.denials);
    BusyIdentity {
        tenant: client.tenant().to_owned(),
        identifier,
        kind: kind.into(),
        requests_per_second,
        error,
        denied_per_second,
        denied_error,
    }
}

fn rate_and_error(rate: RequestRate) -> (Thousandths, Thousandths) {
    (Thousandths(rate.millis_per_second), Thousandths(rate.error_millis))
}

/// The length of each list that the query requests.
fn limit(uri: &Uri) -> Result<usize, Problem> {
    let mut limit = None;
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let refused = |why: &'static str| Problem::new(StatusCode::BAD_REQUEST, why).field("limit");
        let number = match pair.split_once('=') {
            Some(("limit", number)) => number.parse().ok().filter(|limit| (1..=TOP_KEYS_MAX).contains(limit)),
            _ => {
                let detail = "the query holds something other than `limit`; leave it out";
                return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
            }
        };
        let number = number.ok_or_else(|| refused("`limit` is not a number from 1 to 1024; give one"))?;
        if limit.replace(number).is_some() {
            return Err(refused("`limit` is given twice; give it once"));
        }
    }
    Ok(limit.unwrap_or(LIMIT_DEFAULT))
}

#[cfg(test)]
mod tests;
