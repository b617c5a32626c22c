//! The one table from what was decided about an HTTP request to its answer: status, header fields, document.
//!
//! | what happened | answer |
//! |---|---|
//! | allowed | the application's own, with the rate-limit fields in place of its own of that name |
//! | denied, or too many credentials tried | 429, the rate-limit fields, `Retry-After` |
//! | the sender is not known | 401, a challenge |
//! | its keys could not be had | 503, `Retry-After` |
//! | malformed | 400, the field |
//! | the store failed and a rule is closed | 503, `Retry-After` |
//!
//! Everything that is not the application's is a [`Problem`] that nobody may keep. Gateway, forward-auth and middleware
//! all answer by this.

use std::borrow::Cow;

use bytes::BytesMut;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::decision::Decision;
use crate::gate::Refusal;
use crate::headers::{DEGRADED, Field, HeaderOptions, retry_after_secs, write_headers};
use crate::identify::{Reason, Unauthorized};
use crate::limiter::CheckError;
use crate::problem::Problem;
use crate::rules::Mode;

/// What a client is told to wait when the store cannot decide: long enough to take the pressure off, short
/// enough not to be noticed once it is back.
pub const STORE_FAILED_RETRY_AFTER_SECS: u64 = 1;

/// Room for the values of the rate-limit fields of one limit with an ordinary name.
const VALUES_BYTES_USUAL: usize = 192;

/// An answer that nobody may keep.
pub const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// What a denied request is answered.
pub fn denied(decision: &Decision, options: HeaderOptions) -> Problem {
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
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, detail).headers(headers);
    if labels.is_empty() { problem } else { problem.quota_exceeded(labels, wait) }
}

/// What a request is answered about which there is no decision.
pub fn refused(refusal: Refusal, options: HeaderOptions) -> Problem {
    match refusal {
        Refusal::Unauthorized(error) => unauthorized(&error),
        Refusal::Guarded(decision) => denied(&decision, options),
        Refusal::Undecided(error) => undecided(&error, options),
    }
}

/// What a request is answered that could not be decided.
pub fn undecided(error: &CheckError, options: HeaderOptions) -> Problem {
    match error {
        CheckError::Store(_) => store_failed().headers(degraded_header(options)),
        CheckError::InvalidText(_) | CheckError::UnknownTier(_) | CheckError::TooMuch => Problem::from(error),
    }
}

impl From<&CheckError> for Problem {
    fn from(error: &CheckError) -> Self {
        match error.field() {
            Some(field) => Self::new(StatusCode::BAD_REQUEST, error.to_string()).field(field),
            None => store_failed(),
        }
    }
}

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Self {
        Self::from(&error)
    }
}

/// RFC 9110 wants a challenge with every 401. Keys in a field of their own have no registered scheme.
fn unauthorized(error: &Unauthorized) -> Problem {
    let (status, name, value) = match error.reason() {
        Reason::NoKeys => {
            (StatusCode::SERVICE_UNAVAILABLE, header::RETRY_AFTER, STORE_FAILED_RETRY_AFTER_SECS.into())
        }
        reason => {
            let challenge = match reason {
                Reason::Token | Reason::Expired => "Bearer realm=\"sluicegate\", error=\"invalid_token\"",
                _ if error.header() == Some(&header::AUTHORIZATION) => "Bearer realm=\"sluicegate\"",
                _ => "ApiKey realm=\"sluicegate\"",
            };
            (StatusCode::UNAUTHORIZED, header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
        }
    };
    Problem::new(status, error.to_string()).header(name, value)
}

/// Nothing of the reason is told: it may name hosts. The limiter's observer hears of every one.
fn store_failed() -> Problem {
    let detail = "Service temporarily unavailable (rate limiter backend error)";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
        .header(header::RETRY_AFTER, STORE_FAILED_RETRY_AFTER_SECS.into())
}

/// The field of an answer that the store had no part in, if clients are to be told.
#[must_use]
pub fn degraded_header(options: HeaderOptions) -> HeaderMap {
    let (name, value) = DEGRADED;
    let header = (HeaderName::from_static(name), HeaderValue::from_static(value));
    if options.degraded { HeaderMap::from_iter([header]) } else { HeaderMap::new() }
}

/// Sets the rate-limit fields of a decision, in place of any of the same name.
pub fn rate_limit_headers(decision: &Decision, options: HeaderOptions, headers: &mut HeaderMap) {
    // All values are parts of one piece of memory.
    let mut values = BytesMut::with_capacity(VALUES_BYTES_USUAL);
    write_headers(decision, options, |field, value| {
        values.extend_from_slice(value.as_bytes());
        // Only visible ASCII is written; the check keeps this total.
        if let Ok(value) = HeaderValue::from_maybe_shared(values.split().freeze()) {
            headers.insert(header_name(field), value);
        }
    });
}

/// Takes out all that an application says about limits, also in older dialects, so that nobody else's fields are seen
/// beside or instead of ours. `Retry-After` stays: an application may have a reason of its own to let clients wait.
///
/// ```
/// use http::HeaderMap;
///
/// let mut headers = HeaderMap::new();
/// for name in ["ratelimit", "ratelimit-reset", "x-ratelimit-limit", "x_ratelimit_used", "retry-after", "etag"] {
///     headers.insert(name, "7".parse()?);
/// }
/// sluicegate::answer::remove_rate_limit_headers(&mut headers);
/// assert!(headers.len() == 2 && headers.contains_key("retry-after") && headers.contains_key("etag"));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn remove_rate_limit_headers(headers: &mut HeaderMap) {
    let about_limits = headers.keys().filter(|name| is_about_limits(name.as_str()));
    // All of them, in the usual dialects, without an allocation.
    let names: SmallVec<[HeaderName; 8]> = about_limits.cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Some clients cannot tell `_` from `-`.
fn is_about_limits(name: &str) -> bool {
    let same = |(one, other): (u8, u8)| one == other || (one == b'_' && other == b'-');
    let starts = |known: &str| name.len() >= known.len() && name.bytes().zip(known.bytes()).all(same);
    starts("x-ratelimit-") || starts("ratelimit-") || name == Field::RateLimit.name()
}

/// The names are made while this is compiled: at run time each would be looked at letter by letter.
fn header_name(field: Field) -> HeaderName {
    const DEGRADED: HeaderName = HeaderName::from_static(Field::Degraded.name());
    const LIMIT: HeaderName = HeaderName::from_static(Field::Limit.name());
    const REMAINING: HeaderName = HeaderName::from_static(Field::Remaining.name());
    const RESET: HeaderName = HeaderName::from_static(Field::Reset.name());
    const POLICY: HeaderName = HeaderName::from_static(Field::Policy.name());
    const RATE_LIMIT: HeaderName = HeaderName::from_static(Field::RateLimit.name());
    match field {
        Field::RetryAfter => header::RETRY_AFTER,
        Field::Degraded => DEGRADED,
        Field::Limit => LIMIT,
        Field::Remaining => REMAINING,
        Field::Reset => RESET,
        Field::Policy => POLICY,
        Field::RateLimit => RATE_LIMIT,
    }
}
