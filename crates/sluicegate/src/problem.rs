//! Problem documents (RFC 9457): the body of every error response.
//!
//! A document has the members `type`, `title`, `status` and `detail`. It names the invalid `field` if there is one, and a
//! denial has its policies and the wait. So every error has one shape. The code that creates the problem selects the status.

use std::borrow::Cow;

use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

/// The media type.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// The registered problem type of a request that exceeds its quota.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// An error response.
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
#[must_use = "a problem is a response; return it"]
pub struct Problem(Box<Parts>);

/// Boxed, because a problem is usually the rare side of a `Result`.
#[derive(Clone, Debug)]
struct Parts {
    status: StatusCode,
    detail: Cow<'static, str>,
    field: Option<Cow<'static, str>>,
    quota_exceeded: Option<QuotaExceeded>,
    headers: HeaderMap,
}

/// The members of a denial.
#[derive(Clone, Debug, Serialize)]
struct QuotaExceeded {
    #[serde(rename = "violated-policies")]
    violated_policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

impl Problem {
    /// A problem with the reason phrase of `status` as its title. `detail` states the error, the invalid value and the
    /// remedy.
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let (detail, headers) = (detail.into(), HeaderMap::new());
        Self(Box::new(Parts { status, detail, field: None, quota_exceeded: None, headers }))
    }

    /// Names the invalid input field, such as `checks[3].cost`.
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

    /// Names the policies that deny the request, as `RateLimit-Policy` does, and the wait in seconds. The wait is `None` if
    /// waiting does not help.
    pub fn quota_exceeded(mut self, violated_policies: Vec<String>, retry_after: Option<u64>) -> Self {
        self.0.quota_exceeded = Some(QuotaExceeded { violated_policies, retry_after });
        self
    }

    /// Replaces the status, for proxies that cannot forward the right one.
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.0.status = status;
        self
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.0.status
    }

    /// The error, the invalid value and the remedy as text.
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
            // RFC 9457 §4.2.1: `about:blank` means that the status is the whole type.
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
        // Strings and numbers always serialise; the default only avoids a panic.
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// The response: status, headers and document. A gRPC client receives a gRPC response instead, with its code in a
    /// header and without a body. Caches may not store either.
    #[must_use]
    pub fn answer<B: From<Vec<u8>>>(self, is_grpc: bool) -> http::Response<B> {
        let body = if is_grpc { Vec::new() } else { self.body() };
        let Parts { status, detail, headers, .. } = *self.0;
        let mut response = http::Response::new(B::from(body));
        *response.headers_mut() = headers;
        // A cache that stored the response to one bad request would send it to all clients that request the same path.
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

/// Whether these are the headers of a gRPC request.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let content_type = headers.get(http::header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// The gRPC status code for an HTTP status.
pub(crate) fn grpc_code(status: StatusCode) -> u16 {
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

/// The text of a `grpc-message`: visible ASCII, with all other bytes percent-encoded.
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
    fn the_response_to_a_grpc_client_has_its_code_in_a_header() {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "100 % used; naïve\n");
        let response: http::Response<Vec<u8>> = problem.answer(true);
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/grpc");
        assert_eq!(response.headers()["grpc-status"], "8");
        assert_eq!(response.headers()["grpc-message"], "100 %25 used; na%C3%AFve%0A");
        assert!(response.body().is_empty());
    }

    #[test]
    fn is_grpc_accepts_grpc_media_types_and_not_grpc_web() {
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
