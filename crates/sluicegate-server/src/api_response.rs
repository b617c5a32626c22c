//! The responses of the decision API: the rows of the library's [response table](sluicegate::response) with a decision as
//! their body.
//!
//! | outcome | check, peek | batch | refund, report, reset | gateway |
//! |---|---|---|---|---|
//! | allowed | 200 and the decision | 200 and the decision | 200 and the decision | the upstream's response |
//! | denied | 429 and the decision | 200 and the decision | 200 and the decision | 429, a problem |
//! | malformed | 400, a problem that names the field | the same | the same | the same |
//! | undecided | 503 and a denial in the form of a decision | 200 and such a denial | 503, a problem | the same |
//!
//! A request is undecided if the store failed and a rule fails closed. Other rules decide without the store; their decisions
//! are normal ones with `degraded` set. All but the last two rows carry the rate-limit headers. Only 429 and 503 carry
//! `Retry-After`. The last column is the library's, which middleware uses too.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::response::Response;
use sluicegate::headers::HeaderOptions;
use sluicegate::response::{NO_STORE, ResponseClass, STORE_FAILED_RETRY_AFTER_SECS, degraded_header};
pub(crate) use sluicegate::response::{denied, rate_limit_headers, refused};
use sluicegate::{CheckError, Decision};

use crate::problem::Problem;
use crate::wire::decision::{BatchJson, BatchOutcome, DecisionJson};
use crate::wire::request::InvalidBody;

/// The media type of decisions.
pub(crate) const JSON: &str = "application/json";

/// The usual number of response headers, to avoid rehashing the map.
const HEADERS_USUAL: usize = 10;

/// The response to a check or a peek. The body has the same shape if the store could not decide.
pub(crate) fn decided(outcome: Result<Decision, CheckError>, options: HeaderOptions) -> Result<Response, Problem> {
    match outcome {
        Ok(decision) => Ok(decision_response(status(&decision), &decision, options)),
        Err(CheckError::Store(_)) => {
            let denial = DecisionJson::undecided(STORE_FAILED_RETRY_AFTER_SECS);
            let mut response = json(ResponseClass::Unavailable.status(), denial.to_json());
            response.headers_mut().insert(header::RETRY_AFTER, STORE_FAILED_RETRY_AFTER_SECS.into());
            response.headers_mut().extend(degraded_header(options));
            Ok(response)
        }
        Err(error) => Err(error.into()),
    }
}

/// The response to a refund, a report or a reset: the state afterwards. It is always 200, because the change has been made.
pub(crate) fn changed(decision: &Decision, options: HeaderOptions) -> Response {
    decision_response(StatusCode::OK, decision, options)
}

/// The outcome of one check of a batch. A check that the store could not decide does not hide the decisions on the other
/// checks, which have been charged.
pub(crate) fn checked(outcome: Result<Decision, CheckError>) -> Result<BatchOutcome, Problem> {
    match outcome {
        Ok(decision) => Ok(Ok(decision)),
        Err(CheckError::Store(_)) => Ok(Err(STORE_FAILED_RETRY_AFTER_SECS)),
        Err(error) => Err(error.into()),
    }
}

/// The response to a batch. It has no rate-limit headers, because they describe a single decision.
pub(crate) fn results(checks: &[BatchOutcome]) -> Response {
    json(StatusCode::OK, BatchJson(checks).to_json())
}

/// The demo application's response to an allowed request, with the headers of the decision. The response of an upstream
/// gets only [`rate_limit_headers`], because the upstream controls caching.
pub(crate) fn allowed(mut response: Response, decision: &Decision, options: HeaderOptions) -> Response {
    let headers = response.headers_mut();
    headers.reserve(HEADERS_USUAL);
    rate_limit_headers(decision, options, headers);
    headers.extend([NO_STORE]);
    response
}

/// The problem of a malformed check in a batch, with its index.
pub(crate) fn invalid_item(error: CheckError, index: usize) -> Problem {
    match error.field() {
        Some(field) => {
            let field = Some(format!("checks[{index}].{field}"));
            InvalidBody { field, detail: format!("in `checks[{index}]`, {error}") }.into()
        }
        None => error.into(),
    }
}

impl From<InvalidBody> for Problem {
    fn from(invalid: InvalidBody) -> Self {
        let InvalidBody { field, detail } = invalid;
        let problem = Self::new(ResponseClass::Malformed.status(), detail);
        match field {
            Some(field) => problem.field(field),
            None => problem,
        }
    }
}

/// The status of a decision.
pub(crate) fn status(decision: &Decision) -> StatusCode {
    ResponseClass::of(decision).status()
}

fn decision_response(status: StatusCode, decision: &Decision, options: HeaderOptions) -> Response {
    let mut response = json(status, DecisionJson::from(decision).to_json());
    rate_limit_headers(decision, options, response.headers_mut());
    if status.is_success() && !decision.is_allowed() {
        response.headers_mut().remove(header::RETRY_AFTER);
    }
    response
}

/// A JSON response that caches may not store.
fn json(status: StatusCode, body: Vec<u8>) -> Response {
    let mut headers = HeaderMap::with_capacity(HEADERS_USUAL);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    headers.insert(NO_STORE.0, NO_STORE.1);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests;
