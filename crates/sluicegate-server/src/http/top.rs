//! `GET /admin/v1/top`: the identities that ask most, and those that are denied most.
//!
//! Rates are of now: what happened [`HALF_LIFE`] ago counts half. `requestsPerSecond` and `deniedPerSecond` are what is
//! sure to have happened, `error` and `deniedError` how much more it may be.

use axum::extract::State;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::value::RawValue;
use sluicegate::Identity;
use sluicegate::clock::Clock as _;
use sluicegate::hot::{Frequency, HALF_LIFE, HOT_KEYS_MAX, HotIdentity, ONE_IN};

use super::admin_token;
use crate::app::App;
use crate::problem::Problem;

/// How many identities are listed unless the request says otherwise.
const LIMIT_DEFAULT: usize = 20;

/// The route.
pub(super) fn router(app: App) -> Router {
    Router::new().route("/admin/v1/top", get(top)).with_state(app)
}

async fn top(State(app): State<App>, head: Parts) -> Result<Response, Problem> {
    admin_token::require_to_read(app.admin_token(), &head)?;
    let limit = limit(&head.uri)?;
    let (hot, now) = (app.hot(), app.limiter().clock().now());
    let listed = |identities: Vec<HotIdentity>| identities.iter().map(Entry::of).collect();
    let top = Top {
        heaviest: listed(hot.heaviest(limit, now)),
        most_denied: listed(hot.most_denied(limit, now)),
        half_life_seconds: HALF_LIFE.ceil_secs(),
        sampled_one_in: ONE_IN,
        skipped: hot.skipped(),
    };
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(([no_store], Json(top)).into_response())
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Top {
    heaviest: Vec<Entry>,
    most_denied: Vec<Entry>,
    half_life_seconds: u64,
    sampled_one_in: u64,
    skipped: u64,
}

/// One identity of a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    tenant: String,
    identifier: String,
    kind: &'static str,
    requests_per_second: Box<RawValue>,
    error: Box<RawValue>,
    denied_per_second: Box<RawValue>,
    denied_error: Box<RawValue>,
}

impl Entry {
    pub(super) fn of(hot: &HotIdentity) -> Self {
        let (kind, identifier) = match hot.identity() {
            Identity::Named(name) => ("named", name.to_owned()),
            Identity::Claimed(name) => ("claimed", name.to_owned()),
            Identity::Address(address) => ("address", address.to_string()),
        };
        let (requests_per_second, error) = numbers(hot.requests);
        let (denied_per_second, denied_error) = numbers(hot.denials);
        let tenant = hot.tenant().to_owned();
        Self { tenant, identifier, kind, requests_per_second, error, denied_per_second, denied_error }
    }
}

fn numbers(frequency: Frequency) -> (Box<RawValue>, Box<RawValue>) {
    (thousandths(frequency.millis_per_second), thousandths(frequency.error_millis))
}

/// `12.345`. Digits with a point among them are always JSON.
fn thousandths(millis: u64) -> Box<RawValue> {
    let digits = format!("{}.{:03}", millis / 1_000, millis % 1_000);
    RawValue::from_string(digits).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// How many identities the query asks for.
fn limit(uri: &Uri) -> Result<usize, Problem> {
    let mut limit = None;
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let refused = |why: &'static str| Problem::new(StatusCode::BAD_REQUEST, why).field("limit");
        let number = match pair.split_once('=') {
            Some(("limit", number)) => number.parse().ok().filter(|limit| (1..=HOT_KEYS_MAX).contains(limit)),
            _ => {
                let detail = "the query holds something other than `limit`; leave it out";
                return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
            }
        };
        let number = number.ok_or_else(|| refused("`limit` is not a number from 1 to 1024; give one"))?;
        if limit.replace(number).is_some() {
            return Err(refused("`limit` stands twice; give it once"));
        }
    }
    Ok(limit.unwrap_or(LIMIT_DEFAULT))
}

#[cfg(test)]
mod tests;
