//! The one table from a decision, or the failure to make one, to status, headers and body.
//!
//! | outcome | check, peek | batch | refund, reset | gateway |
//! |---|---|---|---|---|
//! | allowed | 200 and the decision | 200 and the decision | 200 and the decision | the upstream's answer |
//! | denied | 429 and the decision | 200 and the decision | 200 and the decision | 429, a problem |
//! | malformed | 400, a problem that names the field | the same | the same | the same |
//! | undecided | 503 and a refusal in the form of a decision | 200 and such a refusal | 503, a problem | the same |
//!
//! Undecided is what the store could not decide and a rule is closed to then. What the other rules decide without
//! the store is a decision like any other, and says that it is degraded. All but the last two rows carry the
//! rate-limit headers, and only 429 and 503 tell to wait. The last column is the library's
//! ([`answer`](sluicegate::answer)), which middleware goes by, too.

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::response::Response;
use sluicegate::answer::{NO_STORE, STORE_FAILED_RETRY_AFTER_SECS, degraded_header};
pub(crate) use sluicegate::answer::{denied, rate_limit_headers, refused};
use sluicegate::headers::{HeaderOptions, write_headers};
use sluicegate::{CheckError, Decision};

use crate::net::Outbox;
use crate::problem::Problem;
use crate::wire::answer::{Answer, Checked, Results};
use crate::wire::request::Malformed;

/// The media type of decisions.
const JSON: &str = "application/json";

/// Room for the headers of an answer, so that they are put where they stay.
const HEADERS_USUAL: usize = 10;

/// What came of a check or a peek. A client reads one shape whether or not the store could decide.
pub(crate) fn decided(outcome: Result<Decision, CheckError>, options: HeaderOptions) -> Result<Response, Problem> {
    match outcome {
        Ok(decision) => Ok(answer(status(&decision), &decision, options)),
        Err(CheckError::Store(_)) => {
            let refusal = Answer::undecided(STORE_FAILED_RETRY_AFTER_SECS);
            let mut response = json(StatusCode::SERVICE_UNAVAILABLE, refusal.to_json());
            response.headers_mut().insert(header::RETRY_AFTER, STORE_FAILED_RETRY_AFTER_SECS.into());
            response.headers_mut().extend(degraded_header(options));
            Ok(response)
        }
        Err(error) => Err(error.into()),
    }
}

/// What [`decided`] answers to a decision, written as it is sent.
pub(crate) fn write_decided(decision: &Decision, options: HeaderOptions, outbox: &mut Outbox) {
    outbox.begin(status(decision), decision.now());
    outbox.field(header::CONTENT_TYPE.as_str(), JSON);
    outbox.field(NO_STORE.0.as_str(), NO_STORE.1);
    write_headers(decision, options, |field, value| outbox.field(field.name(), value));
    Answer::from(decision).write_json(outbox.body());
}

/// How things stand after a refund or a reset. That they were done is not in doubt, so it is always 200.
pub(crate) fn standing(decision: &Decision, options: HeaderOptions) -> Response {
    answer(StatusCode::OK, decision, options)
}

/// One check of a batch: what the store could not decide keeps nobody from the decisions on the other checks,
/// which are charged.
pub(crate) fn checked(outcome: Result<Decision, CheckError>) -> Result<Checked, Problem> {
    match outcome {
        Ok(decision) => Ok(Ok(decision)),
        Err(CheckError::Store(_)) => Ok(Err(STORE_FAILED_RETRY_AFTER_SECS)),
        Err(error) => Err(error.into()),
    }
}

/// The answers of a batch. Headers speak for one decision, so there are none.
pub(crate) fn results(checks: &[Checked]) -> Response {
    json(StatusCode::OK, Results(checks).to_json())
}

/// The demo application's answer to an allowed request, with the headers of the decision. An upstream's answer gets only
/// those ([`rate_limit_headers`]): whether it may be kept is for the upstream to say.
pub(crate) fn allowed(mut response: Response, decision: &Decision, options: HeaderOptions) -> Response {
    let headers = response.headers_mut();
    headers.reserve(HEADERS_USUAL);
    rate_limit_headers(decision, options, headers);
    headers.extend([NO_STORE]);
    response
}

/// A check of a batch that is malformed, named by its place.
pub(crate) fn invalid_item(error: CheckError, index: usize) -> Problem {
    match error.field() {
        Some(field) => {
            let field = Some(format!("checks[{index}].{field}"));
            Malformed { field, detail: format!("in `checks[{index}]`, {error}") }.into()
        }
        None => error.into(),
    }
}

impl From<Malformed> for Problem {
    fn from(malformed: Malformed) -> Self {
        let Malformed { field, detail } = malformed;
        let problem = Self::new(StatusCode::BAD_REQUEST, detail);
        match field {
            Some(field) => problem.field(field),
            None => problem,
        }
    }
}

fn status(decision: &Decision) -> StatusCode {
    if decision.is_allowed() { StatusCode::OK } else { StatusCode::TOO_MANY_REQUESTS }
}

fn answer(status: StatusCode, decision: &Decision, options: HeaderOptions) -> Response {
    let mut response = json(status, Answer::from(decision).to_json());
    rate_limit_headers(decision, options, response.headers_mut());
    if status.is_success() && !decision.is_allowed() {
        response.headers_mut().remove(header::RETRY_AFTER);
    }
    response
}

/// An answer of this JSON that nobody may keep.
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
