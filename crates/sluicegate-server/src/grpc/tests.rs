//! Decisions under a configuration of Envoy, limits in descriptors, and the JSON mapping.

use serde_json::{Value, json};
use sluicegate::rules::envoy::{EnvoyConfig, EnvoyOptions};
use sluicegate::rules::file::Environment;
use sluicegate::rules::{RuleSet, Unmatched};

use super::decide;
use super::messages::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::messages::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{Entry, RateLimitOverride};
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::Code;
use super::messages::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::messages::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::engine::{Engine, EngineOptions};
use crate::health::{Health, Readiness};
use crate::http::HttpEndpoints;
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
    let message =
        RateLimitRequest { domain: domain.to_owned(), descriptors: descriptors.to_vec(), hits_addend: 0 };
    decide::respond(engine, &message, || std::future::ready(false)).await.expect("an answer")
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
    assert_eq!(told(&passed), Some(json!({ "plan": "basic", "weight": 3.0 })));
    let _ = ask(&engine, &[descriptor("user", "ann")]).await;
    let denied = ask(&engine, &[descriptor("user", "ann")]).await;
    assert_eq!((denied.overall_code(), told(&denied)), (OVER, None));
}

#[tokio::test]
async fn a_shadow_limit_denies_nothing() {
    let answer = ask(&edge(), &[descriptor("tried", "x")]).await;
    assert_eq!(codes(&answer), (OK, vec![OK]));
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
        let inline = [with_limit(descriptor(key, "ann"), 3, 6)];
        for left in [2, 1, 0] {
            let answer = ask(&engine, &inline).await;
            assert_eq!((codes(&answer), remaining(&answer)), ((OK, vec![OK]), vec![left]), "{key}");
            let limit = answer.statuses[0].current_limit.as_ref().expect("a limit");
            assert_eq!((limit.requests_per_unit, limit.unit()), (3, Unit::Year));
        }
        assert_eq!(codes(&ask(&engine, &inline).await), (OVER, vec![OVER]), "{key}");
        // Another unit, another key and another value have separate states; a larger limit in the same unit has not.
        let longer = [with_limit(descriptor(key, "ann"), 3, 5), with_limit(descriptor(key, "ben"), 1, 6)];
        assert_eq!(ask(&engine, &longer).await.overall_code(), OK, "{key}");
        assert_eq!(ask(&engine, &[with_limit(descriptor(key, "ann"), 4, 6)]).await.overall_code(), OK, "{key}");
    }
    // The configured limit is unchanged, and both are one decision.
    assert_eq!(remaining(&ask(&engine, &[descriptor("user", "ann")]).await), [1]);
    let both = [descriptor("user", "ann"), with_limit(descriptor("user", "ann"), 0, 6)];
    assert_eq!(codes(&ask(&engine, &both).await), (OVER, vec![OK, OVER]));
    assert_eq!(remaining(&ask(&engine, &[descriptor("user", "ann")]).await), [0]);
    // An unknown domain has no limits to override.
    let elsewhere = ask_in("other", &engine, &[with_limit(descriptor("user", "ann"), 0, 6)]).await;
    assert_eq!(codes(&elsewhere), (OK, vec![OK]));
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
