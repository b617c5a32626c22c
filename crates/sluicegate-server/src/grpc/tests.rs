//! Decisions under a configuration of Envoy, limits in descriptors, and the JSON mapping.

use axum::response::IntoResponse as _;
use serde_json::{Value, json};
use sluicegate::CheckError;
use sluicegate::clock::Clock as _;
use sluicegate::response::ResponseClass;
use sluicegate::rules::envoy::{EnvoyConfig, EnvoyOptions};
use sluicegate::rules::file::Environment;
use sluicegate::rules::{RuleSet, Unmatched};
use sluicegate::store::{ErrorClass, StoreError};
use tonic::Status;

use super::call_options::CallOptions;
use super::decide::{self, RateLimitError};
use super::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::Code;
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::parsed_request::InvalidRequest;
use crate::engine::{Engine, EngineOptions};
use crate::health::{Health, Readiness};
use crate::http::HttpEndpoints;
use crate::problem::Problem;
use crate::secret::Secret;
use crate::testing::{self, TOKEN};

const OK: Code = Code::Ok;
const OVER: Code = Code::OverLimit;

const EDGE: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 2, name: per_user }
    metadata: { plan: basic, weight: 3 }
  - key: vip
    rate_limit: { unit: year, requests_per_unit: 9, replaces: [{ name: per_user }] }
    metadata: { plan: vip }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 0 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: other, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 2 } }
  - { key: watched, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 2 } }
  - { key: shared, value: a*, share_threshold: true, rate_limit: { unit: year, requests_per_unit: 2 } }
  - { key: bucket, rate_limit: { unit: year, requests_per_unit: 2, algorithm: token_bucket } }
";

fn engine(rules: RuleSet) -> Engine {
    let admin_token = Some(Secret::new(TOKEN.to_owned()));
    testing::embedded(EngineOptions { rules, admin_token, ..EngineOptions::default() })
}

fn edge() -> Engine {
    let config = EnvoyConfig::read([("edge.yaml", EDGE)], &EnvoyOptions::default()).expect("a configuration");
    engine(RuleSet::default().with_envoy(config).expect("rules"))
}

fn native(rules: &str) -> Engine {
    engine(RuleSet::from_yaml(rules, "rules.yaml", &Environment::new()).expect("rules"))
}

fn descriptor(key: &str, value: &str) -> RateLimitDescriptor {
    let entry = Entry { key: key.to_owned(), value: value.to_owned() };
    RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
}

fn with_limit(descriptor: RateLimitDescriptor, requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit, unit }), ..descriptor }
}

async fn ask(engine: &Engine, descriptors: &[RateLimitDescriptor]) -> RateLimitResponse {
    ask_in("edge", engine, descriptors).await
}

async fn ask_in(domain: &str, engine: &Engine, descriptors: &[RateLimitDescriptor]) -> RateLimitResponse {
    ask_as(false, 0, domain, engine, descriptors).await
}

/// A request with hits that its descriptors do not have of their own.
async fn ask_hits(engine: &Engine, hits: u32, descriptors: &[RateLimitDescriptor]) -> RateLimitResponse {
    ask_as(false, hits, "edge", engine, descriptors).await
}

async fn ask_as(
    may_change: bool,
    hits_addend: u32,
    domain: &str,
    engine: &Engine,
    descriptors: &[RateLimitDescriptor],
) -> RateLimitResponse {
    let message = RateLimitRequest { domain: domain.to_owned(), descriptors: descriptors.to_vec(), hits_addend };
    let answered = decide::respond(engine, &message, CallOptions::default(), || std::future::ready(may_change));
    answered.await.expect("an answer")
}

fn hits(descriptor: RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor }
}

fn codes(response: &RateLimitResponse) -> (Code, Vec<Code>) {
    (response.overall_code(), response.statuses.iter().map(|status| status.code()).collect())
}

fn remaining(response: &RateLimitResponse) -> Vec<u32> {
    response.statuses.iter().map(|status| status.limit_remaining).collect()
}

#[tokio::test]
async fn a_configured_limit_is_shown_as_it_is_configured() {
    let engine = edge();
    let answer =
        ask(&engine, &[descriptor("user", "ann"), descriptor("free", "x"), descriptor("unknown", "x")]).await;
    assert_eq!(codes(&answer), (OK, vec![OK, OK, OK]));
    assert_eq!(remaining(&answer), [1, u32::MAX, 0]);
    let limit = answer.statuses[0].current_limit.as_ref().expect("a limit");
    assert_eq!((limit.requests_per_unit, limit.unit(), limit.name.as_str()), (2, Unit::Year, "per_user"));
    assert!(answer.statuses[1..].iter().all(|status| status.current_limit.is_none()));
    // Other domains have no limits, and neither have entries in another order.
    assert_eq!(codes(&ask_in("other", &engine, &[descriptor("user", "ann")]).await), (OK, vec![OK]));
}

#[tokio::test]
async fn a_limit_that_is_replaced_neither_denies_nor_is_charged() {
    let engine = edge();
    for _ in 0..4 {
        let both = ask(&engine, &[descriptor("user", "ann"), descriptor("vip", "ann")]).await;
        assert_eq!(codes(&both).0, OK);
        assert!(both.statuses[0].current_limit.is_none());
    }
    assert_eq!(remaining(&ask(&engine, &[descriptor("user", "ann")]).await), [1]);
}

#[tokio::test]
async fn metadata_is_returned_for_an_allowed_request() {
    let engine = edge();
    let told = |response: &RateLimitResponse| response.dynamic_metadata.as_ref().map(super::metadata::written);
    let passed = ask(&engine, &[descriptor("user", "ann")]).await;
    assert_eq!(
        told(&passed),
        Some(json!({ "plan": "basic", "weight": 3.0, "sluicegate": { "rule": "edge.user", "remaining": 1.0 } }))
    );
    let _ = ask(&engine, &[descriptor("user", "ann")]).await;
    let denied = ask(&engine, &[descriptor("user", "ann")]).await;
    let signals = json!({ "sluicegate": { "rule": "edge.user", "remaining": 0.0 } });
    assert_eq!((denied.overall_code(), told(&denied)), (OVER, Some(signals)));
}

#[tokio::test]
async fn a_shadow_limit_denies_nothing_and_is_charged_in_full() {
    let engine = edge();
    assert_eq!(codes(&ask(&engine, &[descriptor("tried", "x")]).await), (OK, vec![OK]));
    let watched = descriptor("watched", "x");
    assert_eq!(remaining(&ask(&engine, std::slice::from_ref(&watched)).await), [1]);
    // A request that another limit denies does not charge it.
    let denied = ask(&engine, &[watched.clone(), with_limit(descriptor("user", "ann"), 0, 6)]).await;
    assert_eq!((codes(&denied), remaining(&denied)[0]), ((OVER, vec![OK, OVER]), 1));
    for _ in 0..3 {
        let passed = ask_hits(&engine, 2, &[watched.clone(), descriptor("free", "x")]).await;
        assert_eq!((codes(&passed), remaining(&passed)[0]), ((OK, vec![OK, OK]), 0));
        let limit = passed.statuses[0].current_limit.as_ref().expect("a limit");
        assert_eq!((limit.requests_per_unit, limit.unit(), limit.name.as_str()), (2, Unit::Year, ""));
    }
    // Seven units are charged, so a larger limit shows what is left of it.
    let inline = with_limit(watched, 10, 6);
    assert_eq!(remaining(&ask(&engine, &[inline]).await), [2]);
}

#[tokio::test]
async fn a_descriptor_of_no_hits_is_over_its_limit_only_in_debt() {
    let engine = edge();
    for key in ["user", "bucket"] {
        let look = [hits(descriptor(key, "ann"), 0)];
        assert_eq!((remaining(&ask(&engine, &look).await)), [2], "{key}");
        assert_eq!(remaining(&ask(&engine, &[hits(descriptor(key, "ann"), 2)]).await), [0], "{key}");
        let exhausted = ask(&engine, &look).await;
        assert_eq!((codes(&exhausted), remaining(&exhausted)), ((OK, vec![OK]), vec![0]), "{key}");
        assert_eq!(codes(&ask(&engine, &[hits(descriptor(key, "ann"), 1)]).await), (OVER, vec![OVER]), "{key}");
        assert_eq!(codes(&ask(&engine, &look).await), (OVER, vec![OVER]), "{key}");
        // It denies the whole request.
        let both = [look[0].clone(), descriptor(key, "ben")];
        assert_eq!(codes(&ask(&engine, &both).await), (OVER, vec![OVER, OK]), "{key}");
        assert_eq!(remaining(&ask(&engine, &both[1..]).await), [1], "{key}");
    }
}

/// The time to the end of the aligned window, at some instant between two readings of the clock.
#[tokio::test]
async fn a_window_is_reset_at_its_end_even_if_it_is_untouched() {
    const YEAR: u64 = 365 * 86_400;
    let engine = edge();
    let seconds = || engine.limiter().clock().time_of_day().as_micros() / 1_000_000;
    let asked = [hits(descriptor("user", "ann"), 0), descriptor("user", "ben"), descriptor("watched", "x")];
    let (before, answer, after) = (seconds(), ask(&engine, &asked).await, seconds());
    let possible: Vec<u64> = (before..=after).map(|now| YEAR - now % YEAR).collect();
    for status in &answer.statuses {
        let reset = status.duration_until_reset.as_ref().expect("a reset");
        assert!(possible.contains(&reset.seconds.unsigned_abs()), "{reset:?} is none of {possible:?}");
    }
    // A bucket has no such end: it is full now, and later it is full when the charge is refilled.
    let reset =
        |answer: &RateLimitResponse| answer.statuses[0].duration_until_reset.as_ref().map(|reset| reset.seconds);
    assert_eq!(reset(&ask(&engine, &[hits(descriptor("bucket", "ann"), 0)]).await), Some(0));
    assert_eq!(reset(&ask(&engine, &[descriptor("bucket", "ann")]).await), Some(365 * 43_200));
    // Only what has a limit has a reset.
    assert_eq!(reset(&ask(&engine, &[descriptor("free", "x")]).await), None);
}

#[tokio::test]
async fn an_exceeded_limit_has_nothing_left_and_a_refund_is_always_allowed() {
    let engine = edge();
    assert_eq!(remaining(&ask(&engine, &[descriptor("user", "ann")]).await), [1]);
    let denied = ask_hits(&engine, 2, &[descriptor("user", "ann"), descriptor("user", "ben")]).await;
    assert_eq!((codes(&denied), remaining(&denied)), ((OVER, vec![OVER, OK]), vec![0, 2]));
    let back = RateLimitDescriptor { is_negative_hits: true, ..hits(descriptor("user", "ann"), 5) };
    let given = ask_as(true, 0, "edge", &engine, &[back]).await;
    assert_eq!((codes(&given), remaining(&given)), ((OK, vec![OK]), vec![2]));
}

#[tokio::test]
async fn usage_is_charged_to_all_quotas_and_denied_only_if_none_has_room() {
    let engine = edge();
    let both = |units| [hits(descriptor("quota", "x"), units), hits(descriptor("other", "x"), units)];
    // Two units exceed the first quota, of one, and fit the second, of two.
    let passed = ask(&engine, &both(2)).await;
    assert_eq!((codes(&passed), remaining(&passed)), ((OK, vec![OVER, OK]), vec![0, 0]));
    let look = ask(&engine, &both(0)).await;
    assert_eq!((codes(&look), remaining(&look)), ((OK, vec![OVER, OK]), vec![0, 0]));
    let over = ask(&engine, &both(1)).await;
    assert_eq!(codes(&over), (OVER, vec![OVER, OVER]));
    // All of it is charged: three units to each.
    let counted = |key| with_limit(descriptor(key, "x"), 10, 6);
    assert_eq!(remaining(&ask(&engine, &[counted("quota"), counted("other")]).await), [6, 6]);
}

#[tokio::test]
async fn signals_tell_which_limits_are_exceeded_and_deny_nothing() {
    let engine = edge();
    let told = |response: &RateLimitResponse| {
        response.dynamic_metadata.as_ref().map(|fields| super::metadata::written(fields)["sluicegate"].clone())
    };
    let asked = [descriptor("tried", "x"), hits(descriptor("quota", "x"), 2), descriptor("other", "x")];
    let passed = ask(&engine, &asked).await;
    assert_eq!(passed.overall_code(), OK);
    let expected =
        json!({ "rule": "edge.other", "remaining": 1.0, "shadow": ["edge.tried"], "quota": ["edge.quota"] });
    assert_eq!(told(&passed), Some(expected));
    assert!(passed.request_headers_to_add.is_empty());
    assert_eq!(told(&ask(&engine, &[descriptor("free", "x")]).await), None);

    let body = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"tried","value":"x"}]}]}"#;
    let (_, answer) = post(&engine, &[("x-sluicegate-signals", "request_headers")], body).await;
    assert_eq!(answer["requestHeadersToAdd"], json!([{ "key": "x-sluicegate-shadow", "value": "edge.tried" }]));
    assert_eq!(post(&engine, &[], body).await.1.get("requestHeadersToAdd"), None);
    assert_eq!(post(&engine, &[("x-sluicegate-signals", "all")], body).await.0, 400);
}

#[tokio::test]
async fn quotas_deny_only_together_and_one_alone_is_a_limit() {
    let engine = edge();
    let (quota, other) = (descriptor("quota", "x"), descriptor("other", "x"));
    let alone = [quota.clone()];
    assert_eq!(codes(&ask(&engine, &alone).await), (OK, vec![OK]));
    assert_eq!(codes(&ask(&engine, &alone).await), (OVER, vec![OVER]));
    let both = [quota, other, descriptor("user", "ann")];
    // One is over its limit and the other is not, so the request is allowed and the one with room is charged.
    for left in [1, 0] {
        let passed = ask(&engine, &both).await;
        assert_eq!(codes(&passed), (OK, vec![OVER, OK, OK]));
        assert_eq!(remaining(&passed)[..2], [0, left]);
    }
    // Now both are over, and nothing is charged.
    let fresh = [both[0].clone(), both[1].clone(), descriptor("user", "ben")];
    let denied = ask(&engine, &fresh).await;
    assert_eq!(codes(&denied), (OVER, vec![OVER, OVER, OK]));
    assert_eq!(remaining(&denied), [0, 0, 2]);
    // A limit that is not in `quota_mode` denies alone.
    let engine = edge();
    let used = [descriptor("user", "ann"), descriptor("user", "ann")];
    assert_eq!(ask(&engine, &used).await.overall_code(), OK);
    let denied = ask(&engine, &both).await;
    assert_eq!(codes(&denied), (OVER, vec![OK, OK, OVER]));
    assert_eq!(remaining(&denied), [1, 2, 0]);
}

#[tokio::test]
async fn a_limit_in_a_descriptor_wins_over_the_configured_one() {
    let engine = edge();
    for key in ["user", "unknown"] {
        let inline = [with_limit(descriptor(key, "ann"), 3, 5)];
        for left in [2, 1, 0] {
            let answer = ask(&engine, &inline).await;
            assert_eq!((codes(&answer), remaining(&answer)), ((OK, vec![OK]), vec![left]), "{key}");
            let limit = answer.statuses[0].current_limit.as_ref().expect("a limit");
            assert_eq!((limit.requests_per_unit, limit.unit(), limit.name.as_str()), (3, Unit::Month, ""));
        }
        assert_eq!(codes(&ask(&engine, &inline).await), (OVER, vec![OVER]), "{key}");
        // Another unit, another key and another value have separate states; a larger limit in the same unit has not.
        let longer = [with_limit(descriptor(key, "ann"), 3, 4), with_limit(descriptor(key, "ben"), 1, 5)];
        assert_eq!(ask(&engine, &longer).await.overall_code(), OK, "{key}");
        assert_eq!(ask(&engine, &[with_limit(descriptor(key, "ann"), 4, 5)]).await.overall_code(), OK, "{key}");
    }
    // The configured limit, of another unit, is unchanged.
    assert_eq!(remaining(&ask(&engine, &[descriptor("user", "ann")]).await), [1]);
    // An unknown domain has no limits to override.
    let elsewhere = ask_in("other", &engine, &[with_limit(descriptor("user", "ann"), 0, 6)]).await;
    assert_eq!(codes(&elsewhere), (OK, vec![OK]));
}

/// Envoy may send the limit with some requests and not with others.
#[tokio::test]
async fn a_limit_in_a_descriptor_counts_with_the_configured_one_of_the_same_unit() {
    let engine = edge();
    let inline = |limit| with_limit(descriptor("user", "ann"), limit, 6);
    assert_eq!(remaining(&ask(&engine, &[inline(5)]).await), [4]);
    assert_eq!(remaining(&ask(&engine, &[descriptor("user", "ann")]).await), [0]);
    // Both in one request are one decision, with a status for each as if they were charged one after the other.
    assert_eq!(remaining(&ask(&engine, &[inline(6), inline(7)]).await), [3, 3]);
    let denied = ask(&engine, &[inline(9), descriptor("user", "ann"), inline(5)]).await;
    assert_eq!((codes(&denied), remaining(&denied)), ((OVER, vec![OK, OVER, OVER]), vec![5, 0, 0]));
    assert_eq!(remaining(&ask(&engine, &[inline(5)]).await), [0]);
    // The configured limit applies to another client in the same request.
    let others = [with_limit(descriptor("user", "ben"), 9, 6), descriptor("user", "cid"), inline(9)];
    assert_eq!(remaining(&ask(&engine, &others).await), [8, 1, 3]);
    // A limit in the descriptor is enforced even if the configured one is in shadow mode, whatever their order is.
    let (watched, enforced) = (descriptor("tried", "x"), with_limit(descriptor("tried", "x"), 0, 6));
    for both in [[watched.clone(), enforced.clone()], [enforced.clone(), watched.clone()]] {
        assert_eq!(ask(&engine, &both).await.overall_code(), OVER);
    }
    // Values that share a counter share it only under the configured limit.
    let shared = |value: &str| with_limit(descriptor("shared", value), 1, 6);
    assert_eq!(remaining(&ask(&engine, &[descriptor("shared", "a1")]).await), [1]);
    assert_eq!(codes(&ask(&engine, &[shared("a1"), shared("a2")]).await), (OK, vec![OK, OK]));
    assert_eq!(remaining(&ask(&engine, &[descriptor("shared", "a2")]).await), [0]);
}

#[tokio::test]
async fn a_limit_in_a_descriptor_counts_beside_native_rules() {
    let engine = native(
        "rules: [{ name: all, match: { tenant: shop }, per: global, limits: [{ algorithm: fixed_window, limit: 2, window: 365d }] }]",
    );
    let inline_limit = |value| with_limit(descriptor("user", value), 1, 6);
    for value in ["ann", "ben", "cid"] {
        assert_eq!(ask_in("shop", &engine, &[inline_limit(value)]).await.overall_code(), OK, "{value}");
        assert_eq!(ask_in("shop", &engine, &[inline_limit(value)]).await.overall_code(), OVER, "{value}");
    }
    let mixed = ask_in("shop", &engine, &[descriptor("user", "dan"), inline_limit("dan")]).await;
    assert_eq!((codes(&mixed), remaining(&mixed)), ((OK, vec![OK, OK]), vec![1, 0]));
    assert_eq!(
        codes(&ask_in("elsewhere", &engine, &[with_limit(descriptor("user", "ann"), 0, 6)]).await),
        (OK, vec![OK])
    );
}

#[tokio::test]
async fn descriptors_with_too_many_limits_together_are_refused_and_charge_nothing() {
    // Each descriptor has 80 limits, so 250 of them have the most that a request may have.
    let limit = "{ algorithm: fixed_window, limit: 1000, window: 365d }";
    let rule = |name: usize| format!("{{ name: r{name}, limits: [{}] }}", [limit; 16].join(", "));
    let rules: Vec<String> = (0..5).map(rule).collect();
    let engine = native(&format!("rules: [{}]", rules.join(", ")));
    let many: Vec<RateLimitDescriptor> = (0..251).map(|_| descriptor("user", "ann")).collect();
    let ask = async |descriptors: &[RateLimitDescriptor]| {
        let (domain, descriptors) = ("edge".to_owned(), descriptors.to_vec());
        let message = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        decide::respond(&engine, &message, CallOptions::default(), || std::future::ready(false)).await
    };
    let refused = ask(&many).await.expect_err("too many");
    let message = "`descriptors` have 20080 limits together: send fewer at once, with at most 20000 limits, or use fewer rules \
                   that match the same descriptors";
    assert_eq!((refused.class, refused.message.as_ref()), (ResponseClass::Malformed, message));
    assert_eq!(remaining(&ask(&many[..250]).await.expect("an answer")), [750; 250]);
}

#[tokio::test]
async fn errors_have_the_row_of_the_response_table_over_grpc_and_as_json() {
    use tonic::Code::{InvalidArgument, PermissionDenied, Unavailable};

    let (domain, refund) =
        ("`domain` is empty", "refunds need the admin token; send it as `authorization: Bearer …`");
    let sum = "`hits_addend` adds up to more than 4294967295: ask for less at once";
    let (over_grpc, as_json) =
        ("the store could not decide; try again", "Service temporarily unavailable (rate limiter backend error)");
    let invalid = || InvalidRequest(domain.to_owned()).into();
    let store_failed = || CheckError::Store(StoreError::new(ErrorClass::Connection, "10.0.0.7 is down")).into();
    type Make<'a> = &'a dyn Fn() -> RateLimitError;
    let rows: [(Make<'_>, _, _); 4] = [
        (&invalid, (InvalidArgument, domain), (400, domain, "")),
        (&|| CheckError::TooMuch.into(), (InvalidArgument, sum), (400, sum, "")),
        (&RateLimitError::forbidden_refund, (PermissionDenied, refund), (403, refund, "")),
        (&store_failed, (Unavailable, over_grpc), (503, as_json, "1")),
    ];
    for (error, grpc, json) in rows {
        let status = Status::from(error());
        assert_eq!((status.code(), status.message()), grpc);
        let reply = testing::reply(Problem::from(error()).into_response()).await;
        let body = reply.json();
        let detail = body["detail"].as_str().expect("a detail");
        assert_eq!((reply.status, detail, reply.header("retry-after")), json);
    }
}

#[tokio::test]
async fn unmatched_requests_are_denied_if_configured() {
    let engine = engine(RuleSet::new(Vec::new(), Vec::new(), Unmatched::Deny).expect("rules"));
    assert_eq!(codes(&ask(&engine, &[descriptor("user", "ann")]).await), (OVER, vec![OVER]));
}

async fn post(engine: &Engine, headers: &[(&str, &str)], body: impl Into<axum::body::Body>) -> (u16, Value) {
    let api = HttpEndpoints::new(engine, &Health::default()).api;
    let reply = testing::ask(&api, "POST", "/json", headers, body).await;
    (reply.status, reply.json())
}

#[tokio::test]
async fn the_same_service_speaks_json() {
    let engine = edge();
    let body = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"ann"}],"hitsAddend":"2"}]}"#;
    let (status, mut answer) = post(&engine, &[("content-type", "text/plain")], body).await;
    let reset = answer["statuses"][0].as_object_mut().and_then(|status| status.remove("durationUntilReset"));
    assert!(reset.and_then(|reset| reset.as_str().map(|text| text.ends_with('s'))).unwrap_or_default());
    assert_eq!(status, 200);
    let limit = json!({ "requestsPerUnit": 2, "unit": "YEAR", "name": "per_user" });
    // Zero values are omitted.
    assert_eq!(answer["statuses"], json!([{ "code": "OK", "currentLimit": limit }]));
    assert_eq!(answer["overallCode"], "OK");
    assert_eq!(answer["dynamicMetadata"]["plan"], "basic");

    let snake = r#"{"domain":"edge","hits_addend":1,"descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let (status, answer) = post(&engine, &[], snake).await;
    assert_eq!((status, &answer["overallCode"]), (429, &json!("OVER_LIMIT")));
    let inline = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user"}],
        "limit":{"requests_per_unit":5,"unit":"YEAR"},"hits_addend":null}]}"#;
    assert_eq!(post(&engine, &[], inline).await.1["statuses"][0]["limitRemaining"], 4);
}

#[tokio::test]
async fn json_that_makes_no_sense_is_refused() {
    let engine = edge();
    let bad = [
        ("", "EOF"),
        ("[]", "invalid type"),
        (r#"{"domain":5}"#, "invalid type"),
        (r#"{"domain":"edge","descriptors":[{"elements":[]}]}"#, "unknown field `elements`"),
        (r#"{"domain":"edge","hitsAddend":4294967296}"#, "4294967296"),
        (r#"{"domain":"edge","descriptors":[{"limit":{"unit":"EON"}}]}"#, "EON"),
        (r#"{"domain":"","descriptors":[{"entries":[{"key":"user"}]}]}"#, "`domain` is empty"),
        (r#"{"domain":"edge"}"#, "`descriptors` is empty"),
    ];
    for (body, words) in bad {
        let (status, problem) = post(&engine, &[], body).await;
        assert_eq!(status, 400, "{body}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(words)), "{body}: {problem}");
    }
    assert_eq!(post(&engine, &[], &b"{\"domain\":\"\xff\"}"[..]).await.0, 400);
}

#[tokio::test]
async fn a_refund_as_json_needs_the_admin_token() {
    let engine = edge();
    let charge = r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}"#;
    let refund =
        r#"{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"ann"}],"isNegativeHits":true}]}"#;
    assert_eq!(post(&engine, &[], charge).await.1["statuses"][0]["limitRemaining"], 1);
    for headers in [&[][..], &[("authorization", "Bearer guess")]] {
        assert_eq!(post(&engine, headers, refund).await.0, 403);
    }
    let bearer = format!("Bearer {TOKEN}");
    let (status, answer) = post(&engine, &[("authorization", bearer.as_str())], refund).await;
    assert_eq!((status, &answer["statuses"][0]["limitRemaining"]), (200, &json!(2)));
}

#[tokio::test]
async fn unknown_services_get_a_grpc_error() {
    let health = Health::default();
    health.set(Readiness::Ready);
    let api = HttpEndpoints::new(&edge(), &health).api;
    let grpc = ("content-type", "application/grpc");
    let unknown = testing::ask(&api, "POST", "/some.Service/Method", &[grpc], "").await;
    assert_eq!((unknown.status, unknown.header("grpc-status")), (200, "12"));
    let method = "/envoy.service.ratelimit.v3.RateLimitService/Other";
    let unknown = testing::ask(&api, "POST", method, &[grpc], "").await;
    assert_eq!((unknown.status, unknown.header("grpc-status")), (200, "12"));
    assert_eq!(testing::ask(&api, "POST", "/some.Service/Method", &[], "").await.status, 404);
}
