//! Problem documents as RFC 9457 describes them: the body of every answer that is no success.
//!
//! `{"type","title","status","detail"}`, with an optional `field` that is at fault, and for a denial which policies it
//! is for and the wait. A caller reads one shape whatever went wrong. Which status fits is not decided here.

use std::borrow::Cow;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

/// The media type.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The registered problem type of a request over its quota.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// One answer in the making.
///
/// ```
/// use http::StatusCode;
/// use sluicegate::problem::Problem;
///
/// let problem = Problem::new(StatusCode::BAD_REQUEST, "`cost` is -1: use at least 0").field("cost");
/// assert_eq!(
///     String::from_utf8(problem.body())?,
///     r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"`cost` is -1: use at least 0","field":"cost"}"#,
/// );
/// # Ok::<(), std::string::FromUtf8Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a problem is an answer; return it"]
pub struct Problem(Box<Parts>);

/// Boxed, because a problem is mostly the rare side of a `Result`.
#[derive(Clone, Debug)]
struct Parts {
    status: StatusCode,
    detail: Cow<'static, str>,
    field: Option<Cow<'static, str>>,
    quota_exceeded: Option<QuotaExceeded>,
    headers: HeaderMap,
}

/// The members that only a denial has.
#[derive(Clone, Debug, Serialize)]
struct QuotaExceeded {
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl Problem {
    /// A problem whose title is the status's own phrase and whose `detail` says what happened, the value at fault and
    /// the remedy.
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let (detail, headers) = (detail.into(), HeaderMap::new());
        Self(Box::new(Parts { status, detail, field: None, quota_exceeded: None, headers }))
    }

    /// Names the input field at fault, such as `checks[3].cost`.
    pub fn field(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.0.field = Some(name.into());
        self
    }

    /// Adds a header field, such as `Retry-After`.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// Adds header fields.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        self.0.headers.extend(headers);
        self
    }

    /// Says that these policies, by their names in `RateLimit-Policy`, deny the request, and for how many
    /// seconds; `None` if waiting does not help.
    pub fn quota_exceeded(mut self, violated_policies: Vec<String>, retry_after: Option<u64>) -> Self {
        self.0.quota_exceeded = Some(QuotaExceeded { violated_policies, retry_after });
        self
    }

    /// The same with another status, for those who cannot pass the right one on.
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// What happened, in words.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The document.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        #[derive(Serialize)]
        struct Document<'a> {
            r#type: &'static str,
            title: &'static str,
            status: u16,
            detail: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            field: Option<&'a str>,
            #[serde(flatten)]
            quota_exceeded: Option<&'a QuotaExceeded>,
        }

        let Parts { status, detail, field, quota_exceeded, .. } = &*self.0;
        let (r#type, title) = match quota_exceeded {
            Some(_) => (QUOTA_EXCEEDED, "Quota exceeded"),
            // RFC 9457 §4.2.1: `about:blank` says that the status tells the whole type.
            None => ("about:blank", status.canonical_reason().unwrap_or("Error")),
        };
        let document = Document {
            r#type,
            title,
            status: status.as_u16(),
            detail,
            field: field.as_deref(),
            quota_exceeded: quota_exceeded.as_ref(),
        };
        // Strings and one number always serialise; the default only keeps this total.
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// The answer: status, header fields and the document. To a caller that speaks gRPC it is an answer of that
    /// protocol, whose status is in a header field and which has no body. Nobody may keep it.
    #[must_use]
    pub fn answer<B: From<Vec<u8>>>(self, is_grpc: bool) -> http::Response<B> {
        let body = if is_grpc { Vec::new() } else { self.body() };
        let Parts { status, detail, headers, .. } = *self.0;
        let mut response = http::Response::new(B::from(body));
        *response.headers_mut() = headers;
        // A cache that keeps the answer to one bad request would give it to everybody who asks for the same path.
        response.headers_mut().entry(http::header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        if is_grpc {
            let message = HeaderValue::from_str(&escaped(&detail)).unwrap_or(HeaderValue::from_static(""));
            response
                .headers_mut()
                .insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            response.headers_mut().insert("grpc-status", HeaderValue::from(grpc_code(status)));
            response.headers_mut().insert("grpc-message", message);
        } else {
            *response.status_mut() = status;
            response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        }
        response
    }
}

/// True if whoever sends these header fields speaks gRPC.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(http::header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// gRPC's word for a status.
fn grpc_code(status: StatusCode) -> u16 {
    match status {
        StatusCode::BAD_REQUEST => 3,
        StatusCode::NOT_FOUND => 12,
        StatusCode::FORBIDDEN => 7,
        StatusCode::TOO_MANY_REQUESTS => 8,
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY => 14,
        StatusCode::GATEWAY_TIMEOUT => 4,
        _ => 13,
    }
}

/// A text as gRPC wants it: visible ASCII, anything else percent-encoded.
fn escaped(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b' '..=b'$' | b'&'..=b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_grpc_a_problem_is_a_status_in_a_header_field() {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "100 % used; naïve\n");
        let response: http::Response<Vec<u8>> = problem.answer(true);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert_eq!(response.headers()["grpc-status"], "8");
        assert_eq!(response.headers()["grpc-message"], "100 %25 used; na%C3%AFve%0A");
        assert!(response.body().is_empty());
    }

    #[test]
    fn only_grpc_is_grpc() {
        let with = |value| HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static(value))]);
        for value in ["application/grpc", "application/grpc+proto", "application/grpc;x"] {
            assert!(is_grpc(&with(value)), "{value}");
        }
        for value in ["application/grpc-web", "application/json", ""] {
            assert!(!is_grpc(&with(value)), "{value}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
