//! The rate limit service as JSON: `POST /json`, in protobuf's JSON mapping.
//!
//! | result | response |
//! |---|---|
//! | allowed | 200 with the message |
//! | denied | 429 with the message |
//! | no decision: invalid, forbidden, or the store failed and a rule is closed | a problem of the library's [response table](sluicegate::response) |
//!
//! Names are accepted in camel case and in snake case; zero values are omitted.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures_util::FutureExt as _;
use serde_json::{Map, Value, json};
use sluicegate::response::{NO_STORE, ResponseClass};

use super::call_options::CallOptions;
use super::decide::{self, RateLimitError};
use super::messages::envoy::service::ratelimit::v3::RateLimitResponse;
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::admin_tokens;
use crate::body;
use crate::engine::Engine;
use crate::problem::Problem;

mod request;

/// The router of the service as JSON.
pub(super) fn router(engine: Engine) -> Router {
    Router::new().route("/json", post(respond)).with_state(engine)
}

async fn respond(State(engine): State<Engine>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let bytes = body::read(body).await?;
    let message = request::read(&bytes).map_err(|error| {
        ResponseClass::Malformed.problem(format!("the body is no rate limit request: {error}"))
    })?;
    let peer = admin_tokens::peer(&head.extensions);
    let may_change =
        || admin_tokens::require(engine.admin_tokens(), &head.headers, peer).map(|required| required.is_ok());
    let options = CallOptions::read(&head.headers).map_err(RateLimitError::from)?;
    let answered = decide::respond(&engine, &message, options, may_change).await?;
    let is_allowed = answered.overall_code() == Code::Ok;
    let class = if is_allowed { ResponseClass::Allowed } else { ResponseClass::Denied };
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok((class.status(), [json, NO_STORE], written(&answered).to_string()).into_response())
}

impl From<RateLimitError> for Problem {
    fn from(error: RateLimitError) -> Self {
        error.class.problem(error.message)
    }
}

/// A message in protobuf's JSON mapping, without zero and empty values.
fn object(members: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let present = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect::<Map<_, _>>())
}

fn number(number: u32) -> Option<Value> {
    (number > 0).then(|| json!(number))
}

fn list(items: Vec<Value>) -> Option<Value> {
    (!items.is_empty()).then_some(Value::Array(items))
}

fn text(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| json!(text))
}

fn written(response: &RateLimitResponse) -> Value {
    let header = |header: &super::messages::envoy::config::core::v3::HeaderValue| {
        object([("key", text(&header.key)), ("value", text(&header.value))])
    };
    object([
        ("overallCode", text(response.overall_code().as_str_name())),
        ("statuses", list(response.statuses.iter().map(status).collect())),
        ("responseHeadersToAdd", list(response.response_headers_to_add.iter().map(header).collect())),
        ("requestHeadersToAdd", list(response.request_headers_to_add.iter().map(header).collect())),
        ("dynamicMetadata", response.dynamic_metadata.as_ref().map(super::metadata::written)),
    ])
}

fn status(status: &DescriptorStatus) -> Value {
    let duration = status.duration_until_reset.as_ref().map(|duration| json!(format!("{}s", duration.seconds)));
    object([
        ("code", text(status.code().as_str_name())),
        ("currentLimit", status.current_limit.as_ref().map(current_limit)),
        ("limitRemaining", number(status.limit_remaining)),
        ("durationUntilReset", duration),
    ])
}

fn current_limit(limit: &RateLimit) -> Value {
    let unit = Some(limit.unit()).filter(|unit| *unit != Unit::Unknown);
    object([
        ("requestsPerUnit", number(limit.requests_per_unit)),
        ("unit", unit.and_then(|unit| text(unit.as_str_name()))),
        ("name", text(&limit.name)),
    ])
}
