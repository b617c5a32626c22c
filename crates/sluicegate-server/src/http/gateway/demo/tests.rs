//! The demo application through its router, without sockets.

use serde_json::json;
use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
use sluicegate::pattern::Pattern;
use sluicegate::rules::{Limits, Per, Rule};

use crate::health::Health;
use crate::http::{HttpEndpoint, HttpEndpoints};
use crate::testing::{Reply, engine, hourly};

const DEMO_KEY: (&str, &str) = ("x-api-key", "demo-key");

fn gateway(rules: Vec<Rule>) -> HttpEndpoint {
    HttpEndpoints::new(&engine(rules), &Health::default()).gateway
}

async fn send(router: &HttpEndpoint, method: &str, path: &str, headers: &[(&str, &str)]) -> Reply {
    crate::testing::ask(router, method, path, headers, "").await
}

#[tokio::test]
async fn pings_are_answered_until_the_quota_is_used_up() {
    let router = gateway(vec![hourly("demo", 10)]);
    for left in (0..10).rev() {
        let pong = send(&router, "GET", "/api/ping", &[DEMO_KEY]).await;
        assert_eq!((pong.status, pong.body.as_str()), (200, r#"{"message":"pong"}"#));
        assert_eq!(pong.header("x-ratelimit-limit"), "10");
        assert_eq!(pong.header("x-ratelimit-remaining"), left.to_string());
        assert_eq!(pong.header("ratelimit-policy"), "\"demo\";q=10;w=36000");
        assert!(pong.header("ratelimit").starts_with(&format!("\"demo\";r={left};t=")));
        assert_eq!(pong.headers.get("retry-after"), None);
    }
    let denied = send(&router, "GET", "/api/ping", &[DEMO_KEY]).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("content-type"), "application/problem+json");
    let problem = denied.json();
    assert_eq!(problem["violated-policies"], json!(["demo"]));
    assert_eq!(denied.header("retry-after"), problem["retry_after"].to_string());
    assert!(denied.header("ratelimit").ends_with(&format!(";t={}", problem["retry_after"])));
}

#[tokio::test]
async fn a_key_and_an_address_have_quotas_of_their_own() {
    let router = gateway(vec![hourly("demo", 1)]);
    assert_eq!(send(&router, "GET", "/api/ping", &[DEMO_KEY]).await.status, 200);
    assert_eq!(send(&router, "GET", "/api/ping", &[]).await.status, 200);
    assert_eq!(send(&router, "GET", "/api/ping", &[DEMO_KEY]).await.status, 429);
    assert_eq!(send(&router, "GET", "/api/ping", &[]).await.status, 429);
}

#[tokio::test]
async fn an_unknown_key_is_401_and_charges_nothing() {
    let router = gateway(vec![hourly("demo", 1)]);
    for headers in [&[("x-api-key", "wrong")][..], &[("x-api-key", "")], &[DEMO_KEY, DEMO_KEY]] {
        let refused = send(&router, "GET", "/api/ping", headers).await;
        assert_eq!(refused.status, 401, "{headers:?}");
        assert_eq!(refused.header("content-type"), "application/problem+json");
        assert_eq!(refused.header("www-authenticate"), "ApiKey realm=\"sluicegate\"");
        assert_eq!(refused.headers.get("x-ratelimit-limit"), None);
    }
    assert_eq!(send(&router, "GET", "/api/ping", &[]).await.status, 200);
    assert_eq!(send(&router, "GET", "/api/ping", &[DEMO_KEY]).await.status, 200);
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let router = gateway(vec![hourly("demo", 1)]);
    let head = send(&router, "HEAD", "/api/ping", &[DEMO_KEY]).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), "18");
    assert_eq!(head.header("x-ratelimit-remaining"), "0");
    let denied = send(&router, "HEAD", "/api/ping", &[DEMO_KEY]).await;
    assert_eq!((denied.status, denied.body.as_str()), (429, ""));
    assert!(!denied.header("retry-after").is_empty());
}

#[tokio::test]
async fn unknown_paths_are_not_charged() {
    let router = gateway(vec![hourly("demo", 1)]);
    for (method, path, status) in [
        ("GET", "/api/pong", 404),
        ("GET", "/api/ping/", 404),
        ("GET", "/api//ping", 404),
        ("GET", "/api/%70ing", 404),
        ("GET", "/API/PING", 404),
        ("POST", "/api/ping", 405),
        ("GET", "/", 200),
    ] {
        assert_eq!(send(&router, method, path, &[DEMO_KEY]).await.status, status, "{method} {path}");
    }
    assert_eq!(send(&router, "GET", "/api/ping?x=1", &[DEMO_KEY]).await.status, 200);
}

#[tokio::test]
async fn the_welcome_page_lists_requests_to_try() {
    let welcome = send(&gateway(Vec::new()), "GET", "/", &[]).await;
    assert_eq!(welcome.header("content-type"), "text/plain; charset=utf-8");
    assert!(welcome.body.contains("/api/ping"));
    assert!(!welcome.body.contains("ten"), "the rules may be others than the demo's: {}", welcome.body);
}

#[tokio::test]
async fn rules_see_the_resource_and_the_address() {
    let mut by_resource = hourly("pings", 5);
    by_resource.selector.resource = Some(Pattern::new("api.ping"));
    let mut by_address = Rule::new("address", Limits::all("address", [(None, bucket(2))]));
    by_address.per = Per::ADDRESS;
    let router = gateway(vec![by_resource, by_address]);
    let first = send(&router, "GET", "/api/ping", &[DEMO_KEY]).await;
    assert!(first.header("ratelimit-policy").starts_with("\"pings\";q=5;w=18000, \"address\";q=2;"));
    assert_eq!(send(&router, "GET", "/api/ping", &[]).await.status, 200);
    // Requests with and without a name have used up the two of the address.
    let denied = send(&router, "GET", "/api/ping", &[DEMO_KEY]).await;
    assert_eq!((denied.status, &denied.json()["violated-policies"]), (429, &json!(["address"])));
}

fn bucket(capacity: u64) -> Quota {
    let rate = Rate::new(1, Micros::from_secs(3_600)).expect("valid");
    TokenBucket::new(capacity, rate).expect("valid").into()
}
