//! The decision API through its router, without sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use serde_json::{Value, json};
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::Environment;

use crate::engine::{Engine, EngineOptions};
use crate::health::Health;
use crate::http::{HttpEndpoint, HttpEndpoints};
use crate::secret::Secret;
use crate::testing::{self, Reply, TOKEN, embedded, engine, hourly};

const JSON: (&str, &str) = ("content-type", "application/json");

fn api(engine: &Engine) -> HttpEndpoint {
    HttpEndpoints::new(engine, &Health::default()).api
}

/// The api of an engine with one rule of ten.
fn ten() -> HttpEndpoint {
    api(&engine(vec![hourly("api", 10)]))
}

async fn post(router: &HttpEndpoint, path: &str, body: impl Into<Body>) -> Reply {
    let bearer = format!("Bearer {TOKEN}");
    testing::ask(router, "POST", path, &[JSON, ("authorization", &bearer)], body).await
}

fn alice(cost: u32) -> String {
    json!({ "resource": "r", "identifier": "alice", "cost": cost }).to_string()
}

async fn remaining(router: &HttpEndpoint) -> Value {
    post(router, "/v1/peek", alice(0)).await.json()["remaining"].clone()
}

#[tokio::test]
async fn check_charges_until_nothing_is_left() {
    let router = ten();
    for left in (0..10).rev() {
        let allowed = post(&router, "/v1/check", r#"{"resource":"r","identifier":"alice"}"#).await;
        assert_eq!((allowed.status, &allowed.json()["remaining"]), (200, &json!(left)));
        assert_eq!(allowed.header("x-ratelimit-remaining"), left.to_string());
    }
    let denied = post(&router, "/v1/check", alice(1)).await;
    assert_eq!(denied.status, 429);
    let json = denied.json();
    assert_eq!(json["allowed"], false);
    assert_eq!(denied.header("retry-after"), json["retryAfter"].to_string());
    assert_eq!(post(&router, "/v1/check", alice(0)).await.status, 200, "nothing is always allowed");
    let other = json!({ "resource": "r", "identifier": "alice", "tenant": "other" }).to_string();
    assert_eq!(post(&router, "/v1/check", other).await.status, 200, "another tenant is another identity");
}

#[tokio::test]
async fn peek_answers_as_check_would_and_charges_nothing() {
    let router = ten();
    for (cost, status) in [(1, 200), (10, 200), (11, 429)] {
        let peeked = post(&router, "/v1/peek", alice(cost)).await;
        assert_eq!((peeked.status, &peeked.json()["remaining"]), (status, &json!(10)), "{cost}");
        assert_eq!(peeked.header("x-ratelimit-limit"), "10");
    }
    assert_eq!(remaining(&router).await, 10);
}

#[tokio::test]
async fn refund_gives_back_never_above_full_and_reset_forgets() {
    let router = ten();
    post(&router, "/v1/check", alice(10)).await;
    let refunded = post(&router, "/v1/refund", alice(4)).await;
    assert_eq!((refunded.status, &refunded.json()["remaining"]), (200, &json!(4)));
    assert_eq!(refunded.header("x-ratelimit-remaining"), "4");
    assert_eq!(post(&router, "/v1/refund", alice(100)).await.json()["remaining"], 10);

    post(&router, "/v1/check", alice(10)).await;
    let reset = post(&router, "/v1/reset", alice(1)).await;
    assert_eq!((reset.status, &reset.json()["remaining"]), (200, &json!(10)));
    // Still 200 if the cost does not fit the limit.
    let too_much = post(&router, "/v1/reset", alice(11)).await;
    assert_eq!((too_much.status, &too_much.json()["allowed"]), (200, &json!(false)));
    assert_eq!(too_much.headers.get("retry-after"), None);
}

#[tokio::test]
async fn report_charges_in_full_and_answers_as_a_peek() {
    let router = ten();
    post(&router, "/v1/check", alice(9)).await;
    for (cost, allowed, debt) in [(4, false, json!(3)), (0, true, json!(3)), (100, false, json!(100))] {
        let reported = post(&router, "/v1/report", alice(cost)).await;
        let json = reported.json();
        assert_eq!((reported.status, &json["allowed"], &json["remaining"]), (200, &json!(allowed), &json!(0)));
        assert_eq!(json["limits"][0]["debt"], debt, "{cost}");
        assert_eq!(reported.headers.get("retry-after"), None);
    }
    let denied = post(&router, "/v1/check", alice(1)).await;
    assert_eq!((denied.status, &denied.json()["limits"][0]["debt"]), (429, &json!(100)));
    let refunded = post(&router, "/v1/refund", alice(95)).await;
    assert_eq!(refunded.json()["limits"][0]["debt"], 5, "a refund pays the debt first");
    assert_eq!(post(&router, "/v1/reset", alice(1)).await.json()["limits"][0]["debt"], Value::Null);
}

#[tokio::test]
async fn changes_need_the_token_before_the_body_is_read() {
    let router = ten();
    let closed = api(&embedded(EngineOptions::default()));
    for path in ["/v1/refund", "/v1/reset"] {
        for headers in [&[][..], &[("authorization", "Bearer wrong")], &[JSON, ("authorization", "Basic x")]] {
            let refused = testing::ask(&router, "POST", path, headers, "not even JSON").await;
            assert_eq!(refused.status, 401, "{path} {headers:?}");
            assert_eq!(refused.header("www-authenticate"), "Bearer");
            assert_eq!(refused.header("content-type"), "application/problem+json");
        }
        let off = testing::ask(&closed, "POST", path, &[("authorization", "Bearer x")], "").await;
        assert_eq!(off.status, 403, "{path}");
        assert!(off.body.contains("set SLUICEGATE_ADMIN_TOKEN"), "{}", off.body);
    }
}

#[tokio::test]
async fn a_batch_answers_every_check_in_order() {
    let router = ten();
    let checks = json!({ "checks": [
        { "resource": "r", "identifier": "alice", "cost": 7 },
        { "resource": "r", "identifier": "alice", "cost": 7 },
        { "resource": "r", "identifier": "bob" },
    ] });
    let answered = post(&router, "/v1/check/batch", checks.to_string()).await;
    assert_eq!(answered.status, 200);
    assert_eq!(answered.header("cache-control"), "no-store");
    assert_eq!(answered.headers.get("x-ratelimit-limit"), None);
    assert_eq!(answered.headers.get("retry-after"), None);
    let results = answered.json()["results"].clone();
    let of = |index: usize| (&results[index]["allowed"], &results[index]["remaining"]);
    assert_eq!(of(0), (&json!(true), &json!(3)));
    assert_eq!(of(1), (&json!(false), &json!(3)));
    assert_eq!(of(2), (&json!(true), &json!(9)));
    assert_eq!(results.as_array().map(Vec::len), Some(3));

    let none = post(&router, "/v1/check/batch", r#"{"checks":[]}"#).await;
    assert_eq!((none.status, none.body.as_str()), (200, r#"{"results":[]}"#));
}

#[tokio::test]
async fn a_bad_item_refuses_the_batch_and_charges_nothing() {
    let router = ten();
    let good = json!({ "resource": "r", "identifier": "alice" });
    for (bad, field) in [
        (json!({ "resource": "r", "identifier": "alice", "foo": 1 }), "checks[2].foo"),
        (json!({ "resource": "r", "identifier": "" }), "checks[2].identifier"),
        (json!({ "resource": "", "identifier": "a" }), "checks[2].resource"),
        (json!({ "resource": "r", "identifier": "a", "tenant": "a\u{7}" }), "checks[2].tenant"),
        (json!({ "resource": "r", "identifier": "a", "tier": "gold" }), "checks[2].tier"),
        (json!({ "resource": "r", "identifier": "a", "cost": -1 }), "checks[2].cost"),
        (json!("text"), "checks[2]"),
    ] {
        let refused = post(&router, "/v1/check/batch", json!({ "checks": [good, good, bad] }).to_string()).await;
        assert_eq!((refused.status, &refused.json()["field"]), (400, &json!(field)), "{}", refused.body);
        assert_eq!(remaining(&router).await, 10, "{field}");
    }
    let many = json!({ "checks": vec![good; 1_001] }).to_string();
    let refused = post(&router, "/v1/check/batch", many).await;
    assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("checks")));
    assert_eq!(remaining(&router).await, 10);
}

#[tokio::test]
async fn bad_input_is_a_400_problem_that_names_the_field() {
    let router = ten();
    let long = "x".repeat(10_240);
    for (body, field) in [
        (json!({ "resource": "r" }), json!("identifier")),
        (json!({ "resource": "r", "identifier": "" }), json!("identifier")),
        (json!({ "resource": "r", "identifier": long }), json!("identifier")),
        (json!({ "resource": "r", "identifier": "a\nb" }), json!("identifier")),
        (json!({ "resource": "r", "identifier": "a\u{85}b" }), json!("identifier")),
        (json!({ "resource": "r\u{0}", "identifier": "a" }), json!("resource")),
        (json!({ "resource": "r", "identifier": "a", "tenant": "" }), json!("tenant")),
        (json!({ "resource": "r", "identifier": "a", "tier": "gold" }), json!("tier")),
        (json!({ "resource": "r", "identifier": "a", "tier": "" }), json!("tier")),
        (json!({ "resource": "r", "identifier": "a", "cost": 1.5 }), json!("cost")),
        (json!([]), Value::Null),
    ] {
        for path in ["/v1/check", "/v1/peek", "/v1/refund", "/v1/report", "/v1/reset"] {
            let refused = post(&router, path, body.to_string()).await;
            assert_eq!(refused.status, 400, "{path} {}", refused.body);
            assert_eq!(refused.header("content-type"), "application/problem+json");
            assert_eq!(refused.json()["field"], field, "{path} {}", refused.body);
            assert_eq!(refused.headers.get("x-ratelimit-limit"), None);
        }
    }
    let unknown = post(&router, "/v1/check", r#"{"resource":"r","identifier":"a","tier":"gold"}"#).await;
    assert_eq!(unknown.json()["detail"], "`tier` is \"gold\": use one of pro");
}

#[tokio::test]
async fn only_json_by_its_content_type_is_read() {
    let router = ten();
    for (headers, named) in [
        (&[][..], "is missing"),
        (&[("content-type", "text/plain")], "is `text/plain`"),
        (&[("content-type", "application/problem+json")], "is `application/problem+json`"),
    ] {
        let refused = testing::ask(&router, "POST", "/v1/check", headers, alice(1)).await;
        assert_eq!(refused.status, 415);
        let detail = refused.json()["detail"].to_string();
        assert!(detail.contains(named) && detail.contains("`content-type: application/json`"), "{detail}");
    }
    let charset = [("content-type", "application/json; charset=utf-8")];
    assert_eq!(testing::ask(&router, "POST", "/v1/check", &charset, alice(1)).await.status, 200);
}

#[tokio::test]
async fn other_methods_are_405() {
    let router = ten();
    for path in ["/v1/check", "/v1/check/batch", "/v1/peek", "/v1/refund", "/v1/report", "/v1/reset"] {
        for method in ["GET", "PUT", "OPTIONS"] {
            let refused = testing::ask(&router, method, path, &[], "").await;
            assert_eq!((refused.status, refused.header("allow")), (405, "POST"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn only_checks_are_tallied() {
    let engine = engine(vec![hourly("api", 1)]);
    let router = api(&engine);
    for path in ["/v1/check", "/v1/check", "/v1/peek", "/v1/refund", "/v1/report", "/v1/reset"] {
        post(&router, path, alice(1)).await;
    }
    let totals = engine.totals();
    assert_eq!((totals.allowed, totals.denied, totals.store_failures), (1, 1, 0));
}

/// Sixty-four tasks on real threads: under every interleaving exactly the limit passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn tasks_at_once_are_admitted_exactly_the_quota() {
    const CAPACITY: u64 = 1_000;
    let engine = engine(vec![hourly("api", CAPACITY)]);
    let router = api(&engine);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let router = router.clone();
        tasks.spawn(async move {
            let mut admitted = 0;
            for _ in 0..50 {
                admitted += u64::from(post(&router, "/v1/check", alice(1)).await.status == 200);
            }
            admitted
        });
    }
    assert_eq!(tasks.join_all().await.into_iter().sum::<u64>(), CAPACITY);
    assert_eq!((engine.totals().allowed, engine.totals().denied), (CAPACITY, 64 * 50 - CAPACITY));
}

/// An api with this many rules. Those that match by `resource` have two limits each.
fn many(rules: usize, resource: &str) -> HttpEndpoint {
    let limits = "[{ algorithm: fixed_window, limit: 100, window: 1h }, { algorithm: fixed_window, limit: 500, window: 1d }]";
    let rule =
        |number| format!("  - {{ name: r{number}, match: {{ resource: '{resource}' }}, limits: {limits} }}\n");
    let text = format!("rules:\n{}", (0..rules).map(rule).collect::<String>());
    let rules = RuleSet::from_yaml(&text, "t.yaml", &Environment::new()).expect("good rules");
    let admin_token = Some(Secret::new(TOKEN.to_owned()));
    api(&embedded(EngineOptions { rules, admin_token, ..EngineOptions::default() }))
}

fn batch_of(checks: usize) -> String {
    json!({ "checks": vec![json!({ "resource": "r", "identifier": "alice" }); checks] }).to_string()
}

#[tokio::test]
async fn a_batch_with_too_long_an_answer_is_413_and_charges_nothing() {
    // Two limits each.
    let router = many(100, "r*");
    let refused = post(&router, "/v1/check/batch", batch_of(101)).await;
    assert_eq!((refused.status, &refused.json()["field"]), (413, &json!("checks")));
    let detail = refused.json()["detail"].to_string();
    assert!(detail.contains("would list 20200 limits for 101 `checks`: send several batches"), "{detail}");
    assert_eq!(remaining(&router).await, 100, "nothing was charged");
    let largest = post(&router, "/v1/check/batch", batch_of(100)).await;
    assert_eq!(largest.status, 200);
    assert!(largest.body.len() < 7_000_000, "{} bytes", largest.body.len());
    assert_eq!(remaining(&router).await, 0);
    // Rules that do not match add no limits.
    let router = many(200, "other*");
    assert_eq!(post(&router, "/v1/check/batch", batch_of(1_000)).await.status, 200);
}

/// On a single thread, so that all other tasks wait for the batch unless it yields.
#[tokio::test]
async fn other_requests_are_answered_while_a_batch_looks_at_thousands_of_rules() {
    let router = many(2_000, "*other*");
    let other = router.clone();
    let answered = Arc::new(AtomicUsize::new(0));
    let others = tokio::spawn({
        let answered = Arc::clone(&answered);
        async move {
            loop {
                assert_eq!(post(&other, "/v1/check", alice(0)).await.status, 200);
                answered.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    assert_eq!(post(&router, "/v1/check/batch", batch_of(100)).await.status, 200);
    let count = answered.load(Ordering::Relaxed);
    others.abort();
    // It yields about every fourth check, both while it counts and while it decides.
    assert!(count >= 20, "{count} others were answered");
}
