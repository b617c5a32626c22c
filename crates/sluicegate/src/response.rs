//! The response table: from a decision or an error to status, headers and body.
//!
//! [`ResponseClass`] has the HTTP status, the gRPC code and the wait of each outcome, for every front door, and
//! [`ResponseClass::of_error`] the class and the message of each error. The functions below render the rows for HTTP, as
//! gateway, forward-auth and middleware send them:
//!
//! | outcome | HTTP response |
//! |---|---|
//! | allowed | the application's own response; the rate-limit headers replace headers of the same name |
//! | denied, or too many credentials tried | 429, the rate-limit headers, `Retry-After` |
//! | the client is not identified | 401, a challenge |
//! | the keys for its token are unavailable | 503, `Retry-After` |
//! | malformed | 400, the field |
//! | the store failed and a rule fails closed | 503, `Retry-After` |
//!
//! Every response that is not the application's is a [`Problem`] with `Cache-Control: no-store`.

use std::borrow::Cow;

use bytes::BytesMut;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use crate::decision::Decision;
use crate::error::CheckError;
use crate::gate::Refusal;
use crate::headers::{DEGRADED, Field, HeaderOptions, retry_after_secs, write_headers};
use crate::identify::{Reason, Unauthorized};
use crate::problem::{Problem, grpc_code};
use crate::rules::Mode;

/// `Retry-After` in seconds of every 503: long enough to reduce the load on the failed part, short enough that clients
/// return soon after its recovery.
pub const UNAVAILABLE_RETRY_AFTER_SECS: u64 = 1;

/// The usual size of the rate-limit header values: one limit with a name of ordinary length.
const VALUES_BYTES_USUAL: usize = 192;

/// The message when the store cannot decide.
pub const UNAVAILABLE: &str = "Service temporarily unavailable (rate limiter backend error)";

/// The header that forbids caches to store a response.
pub const NO_STORE: (HeaderName, HeaderValue) = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));

/// An outcome as all front doors distinguish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseClass {
    /// The request passes.
    Allowed,
    /// A limit denies the request.
    Denied,
    /// The request is malformed.
    Malformed,
    /// The client is not identified.
    Unauthenticated,
    /// The client lacks a right, such as the admin token.
    Forbidden,
    /// The server has no capacity, or could not decide because the store failed.
    Unavailable,
    /// The application behind the gateway is unreachable, or sent an invalid response.
    UpstreamFailed,
    /// The application behind the gateway did not respond in time.
    UpstreamTimeout,
}

impl ResponseClass {
    /// The class of a decision.
    ///
    /// ```
    /// use sluicegate::response::ResponseClass;
    ///
    /// assert_eq!(ResponseClass::Denied.status(), 429);
    /// assert_eq!(ResponseClass::Denied.grpc_code(), 8);
    /// ```
    #[must_use]
    pub fn of(decision: &Decision) -> Self {
        if decision.is_allowed() { Self::Allowed } else { Self::Denied }
    }

    /// The class of an error and its message for clients. The message of a failed store omits the cause, which may name
    /// hosts; the limiter's observer receives it.
    #[must_use]
    pub fn of_error(error: &CheckError) -> (Self, Cow<'static, str>) {
        match error {
            CheckError::InvalidText(_) | CheckError::UnknownTier(_) | CheckError::TooMuch => {
                (Self::Malformed, error.to_string().into())
            }
            CheckError::Store(_) => (Self::Unavailable, UNAVAILABLE.into()),
        }
    }

    /// The HTTP status.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Allowed => StatusCode::OK,
            Self::Denied => StatusCode::TOO_MANY_REQUESTS,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::UpstreamFailed => StatusCode::BAD_GATEWAY,
            Self::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The `Retry-After` of the class, in seconds. A denial has one of its own.
    #[must_use]
    pub const fn retry_after_secs(self) -> Option<u64> {
        match self {
            Self::Unavailable => Some(UNAVAILABLE_RETRY_AFTER_SECS),
            _ => None,
        }
    }

    /// A response of this class without a decision: its status and `Retry-After`.
    pub fn problem(self, detail: impl Into<Cow<'static, str>>) -> Problem {
        let problem = Problem::new(self.status(), detail);
        match self.retry_after_secs() {
            Some(seconds) => problem.header(header::RETRY_AFTER, seconds.into()),
            None => problem,
        }
    }

    /// The gRPC status code.
    #[must_use]
    pub fn grpc_code(self) -> u16 {
        grpc_code(self.status())
    }
}

/// The response to a denied request.
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
    let problem = Problem::new(ResponseClass::Denied.status(), detail).headers(headers);
    if labels.is_empty() { problem } else { problem.quota_exceeded(labels, wait) }
}

/// The response to a request that the gate rejected without a decision of the rules.
pub fn refused(refusal: Refusal, options: HeaderOptions) -> Problem {
    match refusal {
        Refusal::Unauthorized(error) => unauthorized(&error),
        Refusal::Guarded(decision) => denied(&decision, options),
        Refusal::Undecided(error) => undecided(&error, options),
    }
}

/// The response to a request that the limiter could not decide.
pub fn undecided(error: &CheckError, options: HeaderOptions) -> Problem {
    match error {
        CheckError::Store(_) => Problem::from(error).headers(degraded_header(options)),
        CheckError::InvalidText(_) | CheckError::UnknownTier(_) | CheckError::TooMuch => Problem::from(error),
    }
}

impl From<&CheckError> for Problem {
    fn from(error: &CheckError) -> Self {
        let (class, message) = ResponseClass::of_error(error);
        let problem = class.problem(message);
        match error.field() {
            Some(field) => problem.field(field),
            None => problem,
        }
    }
}

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Self {
        Self::from(&error)
    }
}

/// RFC 9110 requires a challenge with every 401. API keys in a header of their own have no registered scheme.
fn unauthorized(error: &Unauthorized) -> Problem {
    let challenge = match error.reason() {
        Reason::NoKeys => return ResponseClass::Unavailable.problem(error.to_string()),
        Reason::Token | Reason::Expired => "Bearer realm=\"sluicegate\", error=\"invalid_token\"",
        _ if error.header() == Some(&header::AUTHORIZATION) => "Bearer realm=\"sluicegate\"",
        _ => "ApiKey realm=\"sluicegate\"",
    };
    let problem = ResponseClass::Unauthenticated.problem(error.to_string());
    problem.header(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
}

/// The header of a response that was decided without the store, if `options` include it.
#[must_use]
pub fn degraded_header(options: HeaderOptions) -> HeaderMap {
    let (name, value) = DEGRADED;
    let header = (HeaderName::from_static(name), HeaderValue::from_static(value));
    if options.degraded { HeaderMap::from_iter([header]) } else { HeaderMap::new() }
}

/// Sets the rate-limit headers of a decision; they replace headers of the same name.
pub fn rate_limit_headers(decision: &Decision, options: HeaderOptions, headers: &mut HeaderMap) {
    // All values share one allocation.
    let mut values = BytesMut::with_capacity(VALUES_BYTES_USUAL);
    write_headers(decision, options, |field, value| {
        values.extend_from_slice(value.as_bytes());
        // The values are visible ASCII; the check only avoids a panic.
        if let Ok(value) = HeaderValue::from_maybe_shared(values.split().freeze()) {
            headers.insert(header_name(field), value);
        }
    });
}

/// Removes all rate-limit headers of an application, including older dialects, so that clients see only Sluicegate's.
/// `Retry-After` stays: an application may have its own reason to make clients wait.
///
/// ```
/// use http::HeaderMap;
///
/// let mut headers = HeaderMap::new();
/// for name in ["ratelimit", "ratelimit-reset", "x-ratelimit-limit", "x_ratelimit_used", "retry-after", "etag"] {
///     headers.insert(name, "7".parse()?);
/// }
/// sluicegate::response::remove_rate_limit_headers(&mut headers);
/// assert!(headers.len() == 2 && headers.contains_key("retry-after") && headers.contains_key("etag"));
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn remove_rate_limit_headers(headers: &mut HeaderMap) {
    let about_limits = headers.keys().filter(|name| is_about_limits(name.as_str()));
    // Room for the headers of the usual dialects without an allocation.
    let names: SmallVec<[HeaderName; 8]> = about_limits.cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Some clients treat `_` and `-` alike.
fn is_about_limits(name: &str) -> bool {
    let same = |(one, other): (u8, u8)| one == other || (one == b'_' && other == b'-');
    let starts = |known: &str| name.len() >= known.len() && name.bytes().zip(known.bytes()).all(same);
    starts("x-ratelimit-") || starts("ratelimit-") || name == Field::RateLimit.name()
}

/// The names are constants: at run time each would be validated byte by byte.
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
