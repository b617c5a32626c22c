//! Requests straight through `answer`, without a socket.

use axum::body::{Body, to_bytes};
use axum::routing::{get, post};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use super::*;
use crate::problem::PROBLEM_JSON;

fn router() -> Router {
    problem::with_fallbacks(
        Router::new()
            .route("/ok", get(async || "fine"))
            .route("/panic", get(panicking))
            .route("/panic-later", get(panicking_later))
            .route("/echo", post(async |body: bytes::Bytes| body))
            .route("/ignore", post(async || "unread")),
    )
}

async fn panicking() -> &'static str {
    panic!("canary-payload")
}

async fn panicking_later() -> &'static str {
    tokio::task::yield_now().await;
    panic!("canary-payload")
}

async fn ask(request: Request) -> (StatusCode, Response) {
    let limits = RequestLimits { body_bytes_max: 10, ..RequestLimits::default() };
    let response = answer(router(), request, &limits).await;
    (response.status(), response)
}

fn get_request(path: &str) -> Request {
    Request::builder().uri(path).body(Body::empty()).expect("valid")
}

fn post_request(path: &str, body: Body) -> Request {
    Request::builder().method("POST").uri(path).body(body).expect("valid")
}

/// A body whose length is not known beforehand, as with chunked encoding.
fn unsized_body(text: &'static str) -> Body {
    Body::new(Full::from(text).with_trailers(async { None }))
}

async fn problem_of(response: Response) -> Value {
    assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM_JSON);
    let body = to_bytes(response.into_body(), 65_536).await.expect("buffered");
    serde_json::from_slice(&body).expect("JSON")
}

#[tokio::test]
async fn an_ordinary_request_is_passed_through() {
    let (status, response) = ask(get_request("/ok")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(response.headers().get(header::CONNECTION), None);
}

#[tokio::test]
async fn a_panic_is_a_500_problem_that_tells_nothing() {
    for path in ["/panic", "/panic-later"] {
        let (status, response) = ask(get_request(path)).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        let problem = problem_of(response).await;
        assert_eq!(problem["status"], 500);
        assert!(!problem.to_string().contains("canary"), "{problem}");
    }
}

#[tokio::test]
async fn a_body_over_the_bound_is_413_whatever_the_handler_says() {
    let (status, response) = ask(post_request("/echo", unsized_body("0123456789x"))).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(response.headers()[header::CONNECTION], "close");
    assert_eq!(problem_of(response).await["title"], "Payload Too Large");
}

#[tokio::test]
async fn a_claimed_length_over_the_bound_never_reaches_the_handler() {
    let mut request = post_request("/ignore", unsized_body("x"));
    request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("11"));
    let (status, _) = ask(request).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn http2_answers_carry_no_connection_header() {
    let mut request = post_request("/echo", unsized_body("0123456789x"));
    *request.version_mut() = Version::HTTP_2;
    let (status, response) = ask(request).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(response.headers().get(header::CONNECTION), None);
}
