//! The error answers of the server: problem documents as RFC 9457 describes them.
//!
//! One builder, [`Problem`], makes `{"type","title","status","detail"}` with an optional `field`, so
//! that a client parses one shape whatever went wrong; a denial of the gateway adds which policies
//! it is for and the wait. It also provides the answers for unknown paths and methods
//! ([`with_fallbacks`]).
//!
//! Two kinds of errors do not come from here: what check and peek answer in the form of a decision
//! ([`crate::respond`]), and the 400 and 431 with an empty body that hyper itself gives to a head
//! it cannot parse or hold.
//!
//! It does not decide which status fits; the caller does.

use std::borrow::Cow;

use axum::Router;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// The media type of every error body.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// The registered problem type of a request over its quota.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";

/// Bytes of a caller's own text that an answer repeats; enough to recognise it, too little to
/// amplify.
const ECHO_BYTES_MAX: usize = 128;

/// One error answer in the making.
#[derive(Clone, Debug)]
#[must_use = "a problem is an answer; return it"]
pub(crate) struct Problem(Box<Parts>);

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
    /// A problem whose title is the status's own phrase and whose `detail` says what happened, the
    /// value at fault and the remedy.
    pub(crate) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let (detail, headers) = (detail.into(), HeaderMap::new());
        Self(Box::new(Parts { status, detail, field: None, quota_exceeded: None, headers }))
    }

    /// Names the input field at fault, such as `checks[3].cost`.
    pub(crate) fn field(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.0.field = Some(name.into());
        self
    }

    /// Adds a response header, such as `Retry-After`.
    pub(crate) fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.insert(name, value);
        self
    }

    /// Adds response headers.
    pub(crate) fn headers(mut self, headers: HeaderMap) -> Self {
        self.0.headers.extend(headers);
        self
    }

    /// Says that these policies, by their names in `RateLimit-Policy`, deny the request, and for how many
    /// seconds; `None` if waiting does not help.
    pub(crate) fn quota_exceeded(mut self, violated_policies: Vec<String>, retry_after: Option<u64>) -> Self {
        self.0.quota_exceeded = Some(QuotaExceeded { violated_policies, retry_after });
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
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

        let Parts { status, detail, field, quota_exceeded, headers } = *self.0;
        let (r#type, title) = match &quota_exceeded {
            Some(_) => (QUOTA_EXCEEDED, "Quota exceeded"),
            // RFC 9457 §4.2.1: `about:blank` says that the status tells the whole type.
            None => ("about:blank", status.canonical_reason().unwrap_or("Error")),
        };
        let document = Document {
            r#type,
            title,
            status: status.as_u16(),
            detail: &detail,
            field: field.as_deref(),
            quota_exceeded: quota_exceeded.as_ref(),
        };
        // Strings and one number always serialise; the default only keeps this total.
        let body = serde_json::to_vec(&document).unwrap_or_default();

        let mut response = (status, body).into_response();
        response.headers_mut().extend(headers);
        let media_type = HeaderValue::from_static(PROBLEM_JSON);
        response.headers_mut().insert(header::CONTENT_TYPE, media_type);
        response
    }
}

/// Makes a finished router answer unknown paths with 404 and unknown methods with 405 and `Allow`,
/// both as problems.
///
/// Call it last: axum gives the 405 answer only to routes that exist when it is set.
pub(crate) fn with_fallbacks<S>(router: Router<S>) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    router.fallback(not_found).method_not_allowed_fallback(method_not_allowed)
}

async fn not_found(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("nothing is served at {}; check the path and the listener's port", echo(uri.path())),
    )
}

/// axum adds the `Allow` header itself.
async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{} is not a method of {}; `Allow` lists those that are", echo(method.as_str()), echo(uri.path())),
    )
}

/// The start of a caller's text, for repeating it in an answer.
pub(crate) fn echo(text: &str) -> &str {
    let mut end = text.len().min(ECHO_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use axum::routing::get;
    use serde_json::{Value, json};
    use tower::Service as _;

    use super::*;

    async fn parts(response: Response) -> (StatusCode, HeaderMap, Value) {
        let (head, body) = response.into_parts();
        let body = to_bytes(body, 65_536).await.expect("a buffered body");
        (head.status, head.headers, serde_json::from_slice(&body).expect("a JSON body"))
    }

    async fn ask(method: &str, path: &str) -> (StatusCode, HeaderMap, Value) {
        let mut router = with_fallbacks(Router::new().route("/livez", get(async || "alive")));
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        let response = router.call(request.expect("a valid request")).await;
        parts(response.expect("routers are infallible")).await
    }

    #[tokio::test]
    async fn a_problem_has_the_members_of_rfc_9457_and_the_field() {
        let problem = Problem::new(StatusCode::BAD_REQUEST, "cost is -1; give 0 to 4294967295")
            .field("cost")
            .header(header::RETRY_AFTER, HeaderValue::from_static("3"));

        let (status, headers, body) = parts(problem.into_response()).await;

        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(headers[header::CONTENT_TYPE], PROBLEM_JSON);
        assert_eq!(headers[header::RETRY_AFTER], "3");
        assert_eq!(
            body,
            json!({
                "type": "about:blank",
                "title": "Bad Request",
                "status": 400,
                "detail": "cost is -1; give 0 to 4294967295",
                "field": "cost",
            })
        );
    }

    #[tokio::test]
    async fn without_a_field_the_member_is_absent() {
        let (_, _, body) = parts(Problem::new(StatusCode::CONFLICT, "taken").into_response()).await;
        assert_eq!(body.get("field"), None);
    }

    #[tokio::test]
    async fn an_unknown_path_is_a_404_problem() {
        let (status, headers, body) = ask("GET", "/nowhere").await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert_eq!(headers[header::CONTENT_TYPE], PROBLEM_JSON);
        assert_eq!(body["detail"], "nothing is served at /nowhere; check the path and the listener's port");
    }

    #[tokio::test]
    async fn an_unknown_method_is_a_405_problem_with_allow() {
        let (status, headers, body) = ask("POST", "/livez").await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(headers[header::ALLOW], "GET,HEAD");
        assert_eq!(body["status"], 405);
    }

    #[tokio::test]
    async fn a_long_path_is_not_repeated_in_full() {
        let (_, _, body) = ask("GET", &format!("/{}", "x".repeat(5_000))).await;
        let detail = body["detail"].as_str().expect("detail is text");
        assert!(detail.len() < 300, "{} bytes", detail.len());
    }

    #[test]
    fn echo_cuts_at_a_character() {
        let text = format!("{}é", "a".repeat(ECHO_BYTES_MAX - 1));
        assert_eq!(echo(&text), "a".repeat(ECHO_BYTES_MAX - 1));
    }
}
