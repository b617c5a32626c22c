//! The rate limit service as JSON: `POST /json`, in the form that protobuf has for its messages.
//!
//! | what happened | answer |
//! |---|---|
//! | allowed | 200 and the answer |
//! | denied | 429 and the answer |
//! | malformed | 400, a problem |
//! | a refund without the admin token | 403, a problem |
//! | the store failed and a rule is closed | 503, a problem, `Retry-After` |
//!
//! Names are read in camel case and in snake case, and nothing that is zero is written.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use serde_json::{Map, Value, json};
use sluicegate::answer::{NO_STORE, STORE_FAILED_RETRY_AFTER_SECS};

use super::decide::{self, Refused};
use super::messages::envoy::service::ratelimit::v3::RateLimitResponse;
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::app::App;
use crate::body;
use crate::http::admin_token;
use crate::problem::Problem;

mod request;

/// The router of the service as JSON.
pub(super) fn router(app: App) -> Router {
    Router::new().route("/json", post(answer)).with_state(app)
}

async fn answer(State(app): State<App>, request: Request) -> Result<Response, Problem> {
    let (head, body) = request.into_parts();
    let bytes = body::read(body).await?;
    let message = request::read(&bytes).map_err(|error| {
        Problem::new(StatusCode::BAD_REQUEST, format!("the body is no rate limit request: {error}"))
    })?;
    let may_change = || admin_token::require(app.admin_token(), &head.headers).is_ok();
    let answered = decide::answer(&app, &message, may_change).await?;
    let is_allowed = answered.overall_code() == Code::Ok;
    let status = if is_allowed { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS };
    let json = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok((status, [json, NO_STORE], written(&answered).to_string()).into_response())
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Malformed(malformed) => Self::new(StatusCode::BAD_REQUEST, malformed.to_string()),
            Refused::Forbidden => Self::new(StatusCode::FORBIDDEN, super::REFUND_REMEDY),
            Refused::Undecided => {
                let detail = "Service temporarily unavailable (rate limiter backend error)";
                Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                    .header(header::RETRY_AFTER, STORE_FAILED_RETRY_AFTER_SECS.into())
            }
        }
    }
}

/// A message as protobuf writes it: what is zero or empty is left out.
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
