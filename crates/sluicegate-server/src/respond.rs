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
//! rate-limit headers, and only 429 and 503 tell to wait.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use bytes::BytesMut;
use sluicegate::headers::{DEGRADED, Field, HeaderOptions, retry_after_secs, write_headers};
use sluicegate::rules::Mode;
use sluicegate::{CheckError, Decision};

use crate::problem::Problem;
use crate::wire::answer::{Answer, Checked, Results};
use crate::wire::request::Malformed;

/// What a client is told to wait when the store cannot decide: long enough to take the pressure off, short
/// enough not to be noticed once it is back.
const STORE_FAILED_RETRY_AFTER_SECS: u64 = 1;

/// Room for the headers of an answer, so that they are put where they stay.
const HEADERS_USUAL: usize = 10;
/// Room for the values of the rate-limit headers of one limit with an ordinary name.
const VALUES_BYTES_USUAL: usize = 192;

const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

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

/// What the gateway answers to a denied request instead of the application.
pub(crate) fn denied(decision: &Decision, options: HeaderOptions) -> Problem {
    let denying =
        decision.limits().filter(|report| report.mode == Mode::Enforce && !report.verdict.outcome.is_allowed());
    let labels: Vec<String> = denying.map(|report| report.label.to_owned()).collect();
    let wait = retry_after_secs(decision);
    let detail = match (labels.as_slice(), wait) {
        ([], _) => Cow::Borrowed("no rule covers this request, and what no rule covers is denied"),
        (_, Some(1)) => Cow::Borrowed("the quota is used up; try again in 1 second"),
        (_, Some(seconds)) => format!("the quota is used up; try again in {seconds} seconds").into(),
        (_, None) => Cow::Borrowed("the request asks for more than its quota ever holds; ask for less"),
    };
    let mut headers = HeaderMap::new();
    rate_limit_headers(decision, options, &mut headers);
    headers.extend([NO_STORE]);
    let problem = Problem::new(status(decision), detail).headers(headers);
    if labels.is_empty() { problem } else { problem.quota_exceeded(labels, wait) }
}

/// What the gateway answers to a request that was not decided.
pub(crate) fn undecided(error: CheckError, options: HeaderOptions) -> Problem {
    let is_degraded = matches!(error, CheckError::Store(_));
    let problem = Problem::from(error);
    if is_degraded { problem.headers(degraded_header(options)) } else { problem }
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

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Self {
        match error.field() {
            Some(field) => Self::new(StatusCode::BAD_REQUEST, error.to_string()).field(field),
            None => store_failed(),
        }
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

/// Nothing of the reason is told: it may name hosts. The limiter's observer hears of every one.
fn store_failed() -> Problem {
    let detail = "Service temporarily unavailable (rate limiter backend error)";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        .header(header::RETRY_AFTER, STORE_FAILED_RETRY_AFTER_SECS.into())
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
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(NO_STORE.0, NO_STORE.1);
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The header of an answer that the store had no part in, if clients are to be told.
fn degraded_header(options: HeaderOptions) -> HeaderMap {
    let (name, value) = DEGRADED;
    let header = (HeaderName::from_static(name), HeaderValue::from_static(value));
    if options.degraded { HeaderMap::from_iter([header]) } else { HeaderMap::new() }
}

/// Sets the headers, in place of any of the same name.
pub(crate) fn rate_limit_headers(decision: &Decision, options: HeaderOptions, headers: &mut HeaderMap) {
    // All values are parts of one piece of memory.
    let mut values = BytesMut::with_capacity(VALUES_BYTES_USUAL);
    write_headers(decision, options, |field, value| {
        values.extend_from_slice(value.as_bytes());
        // The library writes only visible ASCII; the check keeps this total.
        if let Ok(value) = HeaderValue::from_maybe_shared(values.split().freeze()) {
            headers.insert(header_name(field), value);
        }
    });
}

/// The names are made while this is compiled: at run time each would be looked at letter by letter.
fn header_name(field: Field) -> HeaderName {
    const LIMIT: HeaderName = HeaderName::from_static(Field::Limit.name());
    const REMAINING: HeaderName = HeaderName::from_static(Field::Remaining.name());
    const RESET: HeaderName = HeaderName::from_static(Field::Reset.name());
    const POLICY: HeaderName = HeaderName::from_static(Field::Policy.name());
    const RATE_LIMIT: HeaderName = HeaderName::from_static(Field::RateLimit.name());
    match field {
        Field::RetryAfter => header::RETRY_AFTER,
        Field::Limit => LIMIT,
        Field::Remaining => REMAINING,
        Field::Reset => RESET,
        Field::Policy => POLICY,
        Field::RateLimit => RATE_LIMIT,
        rare => HeaderName::from_static(rare.name()),
    }
}

#[cfg(test)]
mod tests;
