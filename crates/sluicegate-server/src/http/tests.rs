//! Requests straight through `answer`, without a socket.

use axum::body::{Body, to_bytes};
use axum::routing::{get, post};
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use super::*;
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
    let response = answer(&Site { limits, ..Site::from(router()) }, request, peer).await;
    (response.status(), response)
}

fn get_request(path: &str) -> Request<Body> {
    Request::builder().uri(path).body(Body::empty()).expect("valid")
}

fn post_request(path: &str, body: Body) -> Request<Body> {
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

/// Status, names of the headers and body of what each way answers to the same requests.
async fn answers_to(site: &Site, requests: &[(&str, &str, &str, &str)]) -> Vec<(u16, Vec<String>, Value)> {
    let mut answers = Vec::new();
    for (method, path, content_type, body) in requests {
        let headers = [("content-type", *content_type), ("x-api-key", "demo-key")];
        let reply = testing::ask(site, method, path, &headers, (*body).to_owned()).await;
        // hyper adds the length where the router has not.
        let names = reply.headers.keys().filter(|name| *name != header::CONTENT_LENGTH);
        let mut names: Vec<String> = names.map(ToString::to_string).collect();
        names.sort();
        let mut body: Value = serde_json::from_str(&reply.body).unwrap_or_default();
        // Times differ between two runs.
        for volatile in ["resetAt", "retryAfterMs", "limits"] {
            body.as_object_mut().map(|body| body.remove(volatile));
        }
        answers.push((reply.status, names, body));
    }
    answers
}

#[tokio::test]
async fn a_shortcut_answers_as_the_router_does() {
    let site = |shortcut_is_on: bool, of: fn(Routers) -> Site| {
        let site = of(Routers::new(&testing::app(vec![testing::hourly("api", 1)]), &Health::default()));
        if shortcut_is_on { site } else { Site::from(site.router) }
    };
    let check = r#"{"resource":"r","identifier":"a"}"#;
    // Domain `a`, one descriptor of one entry: `k`, `v`.
    let question = "\0\0\0\0\x0d\n\x01a\x12\x08\n\x06\n\x01k\x12\x01v";
    let requests = [
        ("POST", "/v1/check", "application/json", check),
        ("POST", "/v1/check", "application/json", check),
        ("POST", "/v1/check?query", "application/json", check),
        ("POST", "/v1/check", "application/json", "{"),
        ("POST", "/v1/check", "text/plain", check),
        ("GET", "/v1/check", "application/json", ""),
        ("POST", "/v1/check/", "application/json", check),
        ("POST", grpc::PATH, "application/grpc", question),
        ("POST", grpc::PATH, "application/grpc", ""),
        ("GET", grpc::PATH, "application/grpc", ""),
        ("GET", "/api/ping", "", ""),
        ("GET", "/api/ping", "", ""),
        ("HEAD", "/api/ping", "", ""),
        ("POST", "/api/ping", "", ""),
    ];
    let listeners: [fn(Routers) -> Site; 2] = [|routers| routers.api, |routers| routers.gateway];
    for of in listeners {
        let (short, long) = (site(true, of), site(false, of));
        assert!(short.shortcuts.is_some());
        assert_eq!(answers_to(&short, &requests).await, answers_to(&long, &requests).await);
    }
}

/// Every request carries its whole future along, from where it is made to where it is kept; what is rarely needed is
/// boxed.
#[test]
fn the_futures_of_requests_are_small() {
    fn of_gateway<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }
    fn of_shortcut<A, B, C, D, E, F>(_: fn(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }
    let gateway: fn(&'static Gateway, Request<Body>, SocketAddr, &'static RequestLimits) -> _ = passed_on;
    let check: fn(&'static App, Shortcut, Request<Body>, SocketAddr, &'static RequestLimits) -> _ = cut_short;
    for (what, bytes, bytes_max) in
        [("gateway", of_gateway(gateway), 5_120), ("shortcut", of_shortcut(check), 3_072)]
    {
        assert!(bytes <= bytes_max, "{what}: {bytes} bytes");
    }
}
