//! The server's error responses: the library's [`Problem`], and the fallbacks for unknown paths and methods
//! ([`with_fallbacks`]).
//!
//! Two kinds of errors have another form: an undecided check or peek has the shape of a decision
//! ([`crate::api_response`]), and hyper sends 400 and 431 with an empty body for a head that it cannot parse or hold.
//!
//! The caller selects the status.

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
pub(crate) use sluicegate::problem::Problem;

/// Bytes of a client's text that a response repeats: enough to recognise the text, too few for amplification.
const ECHO_BYTES_MAX: usize = 128;

/// The response to a gRPC request for an unknown path; `None` if the request is not gRPC.
pub(crate) type UnknownGrpc = fn(&Request) -> Option<Response>;

/// Adds the fallbacks of a complete router: 404 for unknown paths, and 405 with `Allow` for unknown methods, both as
/// problems. An unknown path of a gRPC request is answered by `unknown_grpc`.
///
/// Call this last: axum applies the 405 fallback only to the routes that exist at the time.
pub(crate) fn with_fallbacks<S>(router: Router<S>, unknown_grpc: UnknownGrpc) -> Router<S>
where
    S: Clone + Send + Sync + 'static,
{
    router
        .fallback(move |request| async move { not_found(&request, unknown_grpc) })
        .method_not_allowed_fallback(unknown_method)
}

/// The router of a gateway without routes: every response explains how to add some.
pub(crate) fn without_routes() -> Router {
    let detail = "the gateway has no routes; set gateway.routes in the configuration, or demo: true";
    Router::new().fallback(move || async move { Problem::new(StatusCode::NOT_FOUND, detail) })
}

fn not_found(request: &Request, unknown_grpc: UnknownGrpc) -> Response {
    if let Some(unimplemented) = unknown_grpc(request) {
        return unimplemented;
    }
    let path = echo(request.uri().path());
    let detail = format!("nothing is served at {path}; check the path and the listener's port");
    Problem::new(StatusCode::NOT_FOUND, detail).into_response()
}

/// axum adds the `Allow` header itself.
async fn unknown_method(method: Method, uri: Uri) -> Problem {
    method_not_allowed(&method, uri.path())
}

/// The 405 for `method` at `path`. The caller adds `Allow`.
pub(crate) fn method_not_allowed(method: &Method, path: &str) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{} is not a method of {}; `Allow` lists those that are", echo(method.as_str()), echo(path)),
    )
}

/// The start of a client's text, for a response that repeats it.
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
    use axum::http::header::{self, HeaderMap, HeaderValue};
    use axum::response::{IntoResponse as _, Response};
    use axum::routing::get;
    use serde_json::{Value, json};
    use sluicegate::problem::PROBLEM_JSON;
    use tower::Service as _;

    use super::*;

    async fn parts(response: Response) -> (StatusCode, HeaderMap, Value) {
        let (head, body) = response.into_parts();
        let body = to_bytes(body, 65_536).await.expect("a buffered body");
        (head.status, head.headers, serde_json::from_slice(&body).expect("a JSON body"))
    }

    async fn ask(method: &str, path: &str) -> (StatusCode, HeaderMap, Value) {
        let mut router = with_fallbacks(Router::new().route("/livez", get(async || "alive")), |_| None);
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
