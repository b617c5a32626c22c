//! Requests through an endpoint, without a socket.

use axum::body::{Body, to_bytes};
use axum::routing::{get, post};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use super::*;
use crate::health::Health;
use crate::http::HttpEndpoints;
use crate::testing;
use sluicegate::problem::PROBLEM_JSON;

fn router() -> Router {
    problem::with_fallbacks(
        Router::new()
            .route("/ok", get(async || "fine"))
            .route("/panic", get(panicking))
            .route("/panic-later", get(panicking_later))
            .route("/echo", post(async |body: bytes::Bytes| body))
            .route("/ignore", post(async || "unread")),
        |_| None,
    )
}

async fn panicking() -> &'static str {
    panic!("canary-payload")
}

async fn panicking_later() -> &'static str {
    tokio::task::yield_now().await;
    panic!("canary-payload")
}

async fn ask(request: Request<Body>) -> (StatusCode, Response) {
    let limits = RequestLimits { body_bytes_max: 10, ..RequestLimits::default() };
    let peer = SocketAddr::from(([192, 0, 2, 1], 4242));
    let response = HttpEndpoint { limits, ..HttpEndpoint::from(router()) }.respond(request, peer).await;
    (response.status(), response)
}

fn get_request(path: &str) -> Request<Body> {
    Request::builder().uri(path).body(Body::empty()).expect("valid")
}

fn post_request(path: &str, body: Body) -> Request<Body> {
    Request::builder().method("POST").uri(path).body(body).expect("valid")
}

/// A body without a known length, as with chunked encoding.
fn unsized_body(text: &'static str) -> Body {
    Body::new(Full::from(text).with_trailers(async { None }))
}

async fn problem_of(response: Response) -> Value {
    assert_eq!(response.headers()[header::CONTENT_TYPE], PROBLEM_JSON);
    let body = to_bytes(response.into_body(), 65_536).await.expect("buffered");
    serde_json::from_slice(&body).expect("JSON")
}

#[tokio::test]
async fn an_ordinary_request_reaches_its_handler() {
    let (status, response) = ask(get_request("/ok")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(response.headers().get(header::CONNECTION), None);
}

#[tokio::test]
async fn a_panic_is_a_500_problem_without_its_message() {
    for path in ["/panic", "/panic-later"] {
        let (status, response) = ask(get_request(path)).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        let problem = problem_of(response).await;
        assert_eq!(problem["status"], 500);
        assert!(!problem.to_string().contains("canary"), "{problem}");
    }
}

#[tokio::test]
async fn a_body_over_the_bound_is_413_for_every_handler() {
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

#[tokio::test]
async fn hot_endpoints_answer_405_to_other_methods() {
    let endpoints = HttpEndpoints::new(&testing::engine(vec![testing::hourly("api", 1)]), &Health::default());
    for hot in HotEndpoint::ALL {
        assert!(
            !format!("{:?}", endpoints.api.router).contains(&format!("{:?}", hot.path())),
            "{hot:?} is a route"
        );
        for method in ["GET", "PUT", "OPTIONS"] {
            let reply = testing::ask(&endpoints.api, method, hot.path(), &[], "").await;
            assert_eq!((reply.status, reply.header("allow")), (405, "POST"), "{method} {}", hot.path());
            let detail = format!("{method} is not a method of {}; `Allow` lists those that are", hot.path());
            assert_eq!(reply.json()["detail"], detail);
        }
    }
}

/// hyper moves the whole future of every request, so rarely used parts are boxed.
#[test]
fn the_futures_of_requests_are_small() {
    fn of_gateway<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }
    fn of_hot<A, B, C, D, E, F>(_: fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }
    let gateway: fn(&'static Gateway, Request<Body>, SocketAddr, &'static RequestLimits) -> _ = forwarded;
    let check: fn(&'static Engine, HotEndpoint, Request<Body>, SocketAddr, &'static RequestLimits) -> _ =
        respond_hot;
    for (what, bytes, bytes_max) in [("gateway", of_gateway(gateway), 5_248), ("hot", of_hot(check), 3_072)] {
        assert!(bytes <= bytes_max, "{what}: {bytes} bytes");
    }
}
