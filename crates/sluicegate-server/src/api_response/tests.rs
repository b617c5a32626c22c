//! The response table, cell by cell.

use serde_json::json;
use sluicegate::clock::ManualClock;
use sluicegate::core::{Cost, Timestamp};
use sluicegate::rules::{Mode, OnStoreFailure, Rule, RuleSet, Unmatched};
use sluicegate::store::{ErrorClass, StoreError};
use sluicegate::{Limiter, MemoryStore, Request};
use sluicegate_testkit::faulty_store::{FaultyStore, Trouble};

use axum::response::IntoResponse as _;

use super::*;
use crate::testing::{Reply, hourly, reply};

type TestLimiter = Limiter<MemoryStore, ManualClock>;

fn limiter(rules: Vec<Rule>, unmatched: Unmatched) -> TestLimiter {
    let rules = RuleSet::new(rules, Vec::new(), unmatched).expect("valid rules");
    let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
    Limiter::new(rules, MemoryStore::default(), clock)
}

async fn decide(limiter: &TestLimiter, cost: u32) -> Decision {
    limiter.check(&Request::new("r", "alice").cost(Cost::new(cost))).await.expect("valid")
}

async fn decided_reply(limiter: &TestLimiter, cost: u32, options: HeaderOptions) -> Reply {
    reply(decided(Ok(decide(limiter, cost).await), options).expect("a decision")).await
}

fn all() -> HeaderOptions {
    HeaderOptions::default()
}

/// All present rate-limit headers, in a fixed order.
fn limits_of(reply: &Reply) -> Vec<(&'static str, &str)> {
    let names = [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "ratelimit-policy",
        "ratelimit",
        "retry-after",
    ];
    names.into_iter().map(|name| (name, reply.header(name))).filter(|(_, value)| !value.is_empty()).collect()
}

#[tokio::test]
async fn allowed_is_200_with_headers_and_no_wait() {
    let limiter = limiter(vec![hourly("api", 2)], Unmatched::Allow);
    let allowed = decided_reply(&limiter, 1, all()).await;
    assert_eq!(allowed.status, 200);
    assert_eq!(allowed.header("content-type"), "application/json");
    assert_eq!(allowed.header("cache-control"), "no-store");
    assert_eq!(
        limits_of(&allowed),
        [
            ("x-ratelimit-limit", "2"),
            ("x-ratelimit-remaining", "1"),
            ("x-ratelimit-reset", "1705316400"),
            ("ratelimit-policy", "\"api\";q=2;w=7200"),
            ("ratelimit", "\"api\";r=1;t=3600"),
        ]
    );
}

#[tokio::test]
async fn denied_is_429_and_the_wait_is_the_same_everywhere() {
    let limiter = limiter(vec![hourly("api", 2)], Unmatched::Allow);
    decide(&limiter, 2).await;
    let denied = decided_reply(&limiter, 1, all()).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("retry-after"), "3600");
    assert_eq!(denied.header("ratelimit"), "\"api\";r=0;t=3600");
    assert_eq!(denied.json()["retryAfter"], 3_600);
}

#[tokio::test]
async fn a_cost_above_the_limit_is_429_without_a_wait() {
    let limiter = limiter(vec![hourly("api", 2)], Unmatched::Allow);
    let denied = decided_reply(&limiter, 3, all()).await;
    assert_eq!(denied.status, 429);
    assert_eq!(denied.headers.get("retry-after"), None);
    assert_eq!(denied.json()["retryAfter"], serde_json::Value::Null);
}

#[tokio::test]
async fn the_response_to_a_change_is_200_even_when_nothing_is_left() {
    let limiter = limiter(vec![hourly("api", 2)], Unmatched::Allow);
    decide(&limiter, 2).await;
    let left = reply(changed(&decide(&limiter, 1).await, all())).await;
    assert_eq!(left.status, 200);
    assert_eq!(left.json()["allowed"], false);
    assert_eq!(left.headers.get("retry-after"), None);
    assert_eq!(left.header("x-ratelimit-remaining"), "0");
}

#[tokio::test]
async fn where_nothing_limits_there_are_no_headers() {
    let free = limiter(Vec::new(), Unmatched::Allow);
    assert_eq!(limits_of(&decided_reply(&free, 1, all()).await), []);
}

#[tokio::test]
async fn styles_can_be_chosen() {
    let limiter = limiter(vec![hourly("api", 2)], Unmatched::Allow);
    let options = HeaderOptions { ietf: false, ..all() };
    let allowed = decided_reply(&limiter, 1, options).await;
    assert_eq!(limits_of(&allowed).len(), 3);
}

#[tokio::test]
async fn a_denial_of_the_gateway_is_a_problem_that_names_the_policies() {
    let mut shadow = hourly("tried", 1);
    shadow.mode = Mode::Shadow;
    let limiter = limiter(vec![hourly("burst", 2), hourly("roomy", 9), shadow], Unmatched::Allow);
    decide(&limiter, 2).await;
    let problem = reply(denied(&decide(&limiter, 1).await, all()).into_response()).await;
    assert_eq!(problem.status, 429);
    assert_eq!(problem.header("content-type"), "application/problem+json");
    assert_eq!(problem.header("retry-after"), "3600");
    assert_eq!(problem.header("x-ratelimit-remaining"), "0");
    assert_eq!(
        problem.json(),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
            "detail": "the quota is used up; try again in 3600 seconds",
            "violated-policies": ["burst"],
            "retry_after": 3_600,
        })
    );

    let never = reply(denied(&decide(&limiter, 5).await, all()).into_response()).await;
    assert_eq!(never.json().get("retry_after"), None);
    assert_eq!(never.headers.get("retry-after"), None);
    assert_eq!(never.json()["detail"], "the request asks for more than its quota ever holds; ask for less");
}

#[tokio::test]
async fn a_request_that_no_rule_covers_is_denied_without_a_quota() {
    let closed = limiter(Vec::new(), Unmatched::Deny);
    let problem = reply(denied(&decide(&closed, 1).await, all()).into_response()).await;
    assert_eq!(problem.status, 429);
    assert_eq!(problem.json()["type"], "about:blank");
    assert_eq!(problem.json().get("violated-policies"), None);
}

fn store_error() -> CheckError {
    StoreError::new(ErrorClass::Connection, "canary-host refused the connection").into()
}

#[tokio::test]
async fn a_check_that_the_store_could_not_decide_is_503_in_the_form_of_a_decision() {
    let undecided = reply(decided(Err(store_error()), all()).expect("an answer")).await;
    assert_eq!(undecided.status, 503);
    assert_eq!(undecided.header("content-type"), "application/json");
    assert_eq!(undecided.header("cache-control"), "no-store");
    assert_eq!(limits_of(&undecided), [("retry-after", "1")]);
    assert_eq!(
        undecided.json(),
        json!({
            "allowed": false, "limit": null, "remaining": null, "resetAt": null, "retryAfter": 1,
            "retryAfterMs": 1_000, "rule": null, "degraded": true, "limits": [],
        })
    );
}

#[tokio::test]
async fn other_endpoints_answer_503_with_retry_after_if_the_store_fails() {
    let problem = reply(Problem::from(store_error()).into_response()).await;
    assert_eq!(problem.status, 503);
    assert_eq!(problem.header("content-type"), "application/problem+json");
    assert_eq!(problem.header("retry-after"), "1");
    assert_eq!(problem.json()["detail"], "Service temporarily unavailable (rate limiter backend error)");
    assert!(!problem.body.contains("canary"), "{}", problem.body);
}

#[tokio::test]
async fn a_malformed_request_is_400_with_its_field_and_its_place_in_a_batch() {
    let limiter = limiter(Vec::new(), Unmatched::Allow);
    let invalid = || limiter.validate(&limiter.rules(), &Request::new("r", "")).expect_err("empty");
    let single = reply(Problem::from(invalid()).into_response()).await;
    assert_eq!((single.status, &single.json()["field"]), (400, &json!("identifier")));
    assert_eq!(single.json()["detail"], "`identifier` is empty: give it at least one character");

    let item = reply(invalid_item(invalid(), 3).into_response()).await;
    assert_eq!((item.status, &item.json()["field"]), (400, &json!("checks[3].identifier")));
    assert_eq!(item.json()["detail"], "in `checks[3]`, `identifier` is empty: give it at least one character");
}

/// The outcome of a check of `cost` with a failed store and these rules with their policies.
async fn without_store(rules: &[(&str, OnStoreFailure)], cost: u32) -> Result<Decision, CheckError> {
    let named = |(name, policy): &(&str, OnStoreFailure)| Rule { on_store_failure: *policy, ..hourly(name, 2) };
    let rules = RuleSet::new(rules.iter().map(named).collect(), Vec::new(), Unmatched::Allow);
    let store = FaultyStore::new(MemoryStore::default());
    store.set(Some(Trouble::Fails(ErrorClass::Timeout)));
    let clock = ManualClock::at(Timestamp::now(1_705_312_800_000_000));
    let limiter = Limiter::new(rules.expect("valid rules"), store, clock);
    limiter.check(&Request::new("r", "alice").cost(Cost::new(cost))).await
}

fn told() -> HeaderOptions {
    HeaderOptions { degraded: true, ..all() }
}

#[tokio::test]
async fn open_rules_without_the_store_are_200_with_only_the_degraded_header() {
    let outcome = || without_store(&[("api", OnStoreFailure::Open)], 1);
    let answer = reply(decided(outcome().await, all()).expect("a decision")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(limits_of(&answer), []);
    assert_eq!(answer.headers.get("x-ratelimit-degraded"), None);
    assert_eq!(
        answer.json(),
        json!({
            "allowed": true, "limit": null, "remaining": null, "resetAt": null, "retryAfter": 0,
            "retryAfterMs": 0, "rule": null, "degraded": true, "limits": [],
        })
    );
    let answer = reply(decided(outcome().await, told()).expect("a decision")).await;
    assert_eq!(answer.header("x-ratelimit-degraded"), "true");
}

#[tokio::test]
async fn decisions_by_local_shares_are_marked_degraded() {
    let rules = [("own", OnStoreFailure::Local), ("free", OnStoreFailure::Open)];
    let answer = reply(decided(without_store(&rules, 1).await, told()).expect("a decision")).await;
    assert_eq!((answer.status, answer.header("x-ratelimit-degraded")), (200, "true"));
    assert_eq!(answer.header("x-ratelimit-remaining"), "1");
    assert_eq!((&answer.json()["rule"], &answer.json()["degraded"]), (&json!("own"), &json!(true)));
    assert_eq!(answer.json()["limits"].as_array().map(Vec::len), Some(1));

    let answer = reply(decided(without_store(&rules, 3).await, all()).expect("a decision")).await;
    assert_eq!((answer.status, &answer.json()["degraded"]), (429, &json!(true)));
    assert_eq!(answer.headers.get("x-ratelimit-degraded"), None);
    let decision = without_store(&rules, 3).await.expect("a decision");
    let problem = reply(denied(&decision, told()).into_response()).await;
    assert_eq!((problem.status, problem.header("x-ratelimit-degraded")), (429, "true"));
}

#[tokio::test]
async fn a_closed_rule_without_the_store_is_503_everywhere() {
    let rules = [("own", OnStoreFailure::Local), ("strict", OnStoreFailure::Closed)];
    for (options, degraded) in [(all(), ""), (told(), "true")] {
        let api = reply(decided(without_store(&rules, 1).await, options).expect("an answer")).await;
        assert_eq!((api.status, api.header("retry-after")), (503, "1"));
        assert_eq!(api.header("x-ratelimit-degraded"), degraded);
        assert_eq!(api.json()["degraded"], true);

        let error = without_store(&rules, 1).await.expect_err("a closed rule");
        let gateway = reply(sluicegate::response::undecided(&error, options).into_response()).await;
        assert_eq!((gateway.status, gateway.header("retry-after")), (503, "1"));
        assert_eq!(gateway.header("x-ratelimit-degraded"), degraded);
        assert_eq!(gateway.json()["detail"], "Service temporarily unavailable (rate limiter backend error)");
    }
    let limiter = limiter(Vec::new(), Unmatched::Allow);
    let malformed = limiter.validate(&limiter.rules(), &Request::new("r", "")).expect_err("empty");
    let malformed = reply(sluicegate::response::undecided(&malformed, told()).into_response()).await;
    assert_eq!((malformed.status, malformed.header("x-ratelimit-degraded")), (400, ""));
}

#[tokio::test]
async fn a_check_that_could_not_be_decided_does_not_spoil_the_rest_of_its_batch() {
    let (open, closed) = ([("api", OnStoreFailure::Open)], [("api", OnStoreFailure::Closed)]);
    let mut checks = Vec::new();
    for rules in [&open, &closed, &open] {
        checks.push(checked(without_store(rules, 1).await).expect("well-formed"));
    }
    let batch = reply(results(&checks)).await;
    assert_eq!(batch.status, 200);
    let results = batch.json()["results"].clone();
    let allowed: Vec<_> = results.as_array().expect("a list").iter().map(|each| &each["allowed"]).collect();
    assert_eq!(allowed, [true, false, true]);
    assert_eq!((&results[1]["degraded"], &results[1]["retryAfter"]), (&json!(true), &json!(1)));
}
