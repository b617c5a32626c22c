//! Forward-auth through its router, without sockets. The proxy is 192.0.2.7.

use axum::http::header::HeaderValue;
use serde_json::json;
use sluicegate::identify::address::TrustedHeader;
use sluicegate::identify::api_key::{ApiKeys, KeyHash};
use sluicegate::identify::{Identify, Principal, Source};
use sluicegate::rules::{Rule, RuleSet, Unmatched};

use super::*;
use crate::engine::EngineOptions;
use crate::health::Health;
use crate::http::{HttpEndpoint, HttpEndpoints};
use crate::testing::{self, Reply, hourly};

const URI: (&str, &str) = ("x-forwarded-uri", "/orders?page=1");
const CLIENT: (&str, &str) = ("x-forwarded-for", "198.51.100.1");

fn identify(owners: &[(&str, &str)]) -> Identify {
    let keys = owners.iter().map(|(key, identifier)| {
        let owner =
            Principal { identifier: (*identifier).into(), tier: Some("pro".into()), tenant: Some("acme".into()) };
        (KeyHash::of(key.as_bytes()), owner)
    });
    let keys = ApiKeys::new(HeaderName::from_static("x-api-key"), keys);
    Identify::new(vec![Source::ApiKeys(keys), Source::Address])
}

fn site_with(rules: Vec<Rule>, proxies: TrustedProxies) -> HttpEndpoint {
    let rules = RuleSet::new(rules, vec!["pro".into()], Unmatched::Allow).expect("valid rules");
    let identify = identify(&[("key", "alice"), ("blank", " alice"), ("umlaut", "jürgen")]).behind(proxies);
    let engine = testing::embedded(EngineOptions { rules, identify, ..EngineOptions::default() });
    HttpEndpoints::new(&engine, &Health::default()).api
}

fn site(capacity: u64) -> HttpEndpoint {
    site_with(vec![hourly("api", capacity)], TrustedProxies::parse(["192.0.2.0/24"]).expect("valid"))
}

async fn send(site: &HttpEndpoint, path: &str, fields: &[(&str, &str)]) -> Reply {
    testing::ask(site, "GET", path, fields, "").await
}

#[tokio::test]
async fn an_allowed_request_is_204_with_the_limits_and_nothing_else() {
    let site = site(2);
    let allowed = send(&site, "/v1/auth", &[URI, CLIENT]).await;
    assert_eq!((allowed.status, allowed.body.as_str()), (204, ""));
    assert_eq!(allowed.header("x-ratelimit-remaining"), "1");
    assert_eq!(allowed.header("ratelimit-policy"), "\"api\";q=2;w=7200");
    assert_eq!(allowed.header("cache-control"), "no-store");
    assert_eq!((allowed.headers.get("content-type"), allowed.headers.get("content-length")), (None, None));
    assert_eq!(allowed.headers.get("x-sluicegate-status"), None);
}

#[tokio::test]
async fn identity_headers_are_set_if_verified_and_emptied_if_not() {
    let site = site(9);
    for (key, [identifier, tenant, tier]) in [
        (Some("key"), ["alice", "acme", "pro"]),
        (Some("umlaut"), ["jürgen", "acme", "pro"]),
        // Unescaped it would become another identifier.
        (Some("blank"), ["", "acme", "pro"]),
        (None, ["", "default", ""]),
    ] {
        let key = key.map(|key| ("x-api-key", key));
        let fields: Vec<_> = [URI, CLIENT].into_iter().chain(key).collect();
        let allowed = send(&site, "/v1/auth", &fields).await;
        assert_eq!(allowed.status, 204, "{allowed:?}");
        for (name, expected) in
            [("x-sluicegate-identifier", identifier), ("x-sluicegate-tenant", tenant), ("x-sluicegate-tier", tier)]
        {
            assert_eq!(
                allowed.headers[name],
                HeaderValue::from_bytes(expected.as_bytes()).unwrap(),
                "{key:?} {name}"
            );
        }
    }
}

#[tokio::test]
async fn a_denial_keeps_everything_but_its_status() {
    let site = site(1);
    assert_eq!(send(&site, "/v1/auth", &[URI, CLIENT]).await.status, 204);
    let plain = send(&site, "/v1/auth", &[URI, CLIENT]).await;
    assert_eq!(plain.status, 429);
    for (query, status) in [("deny_status=401", 401), ("deny_status=403", 403), ("a=b&deny_status=403&c", 403)] {
        let denied = send(&site, &format!("/v1/auth?{query}"), &[URI, CLIENT]).await;
        assert_eq!((denied.status, denied.header("x-sluicegate-status")), (status, "429"));
        for name in ["retry-after", "ratelimit-policy", "x-ratelimit-limit", "content-type", "cache-control"] {
            assert_eq!(denied.header(name), plain.header(name), "{name}");
        }
        assert_eq!(denied.json()["status"], status);
        assert_eq!(denied.json()["violated-policies"], json!(["api"]));
    }
    for name in ["x-sluicegate-identifier", "x-sluicegate-tenant", "x-sluicegate-tier", "x-sluicegate-status"] {
        assert_eq!(plain.headers.get(name), None);
    }
}

#[tokio::test]
async fn deny_status_is_for_denials_only() {
    let site = site(1);
    let bad_key = [URI, CLIENT, ("x-api-key", "wrong")];
    let refused = send(&site, "/v1/auth?deny_status=403", &bad_key).await;
    assert_eq!((refused.status, refused.header("x-sluicegate-status")), (401, ""));
    assert_eq!(refused.header("www-authenticate"), "ApiKey realm=\"sluicegate\"");
    for query in
        ["deny_status=429", "deny_status=", "deny_status", "deny_status=401&deny_status=403", "deny_status=%34"]
    {
        let refused = send(&site, &format!("/v1/auth?{query}"), &[URI, CLIENT]).await;
        assert_eq!((refused.status, &refused.json()["field"]), (400, &json!("deny_status")), "{query}");
    }
    assert_eq!(send(&site, "/v1/auth?deny_statuses=7&Deny_Status=7", &[URI, CLIENT]).await.status, 204);
}

#[tokio::test]
async fn only_trusted_proxies_may_request_decisions() {
    for networks in [&[][..], &["192.0.2.8", "198.51.100.0/24"]] {
        let site =
            site_with(vec![hourly("api", 1)], TrustedProxies::parse(networks.iter().copied()).expect("valid"));
        let refused = send(&site, "/v1/auth", &[URI, CLIENT]).await;
        assert_eq!(refused.status, 403);
        assert_eq!(
            refused.json()["detail"],
            "192.0.2.7 is not a trusted proxy: if it is yours, add 192.0.2.7 or its network to `trusted_proxies`"
        );
    }
}

#[tokio::test]
async fn each_client_has_its_own_quota_by_the_field_that_is_trusted() {
    let by_x_forwarded_for = site(1);
    let forwarded = ("forwarded", "for=198.51.100.9");
    for (fields, status) in [
        (&[URI, ("x-forwarded-for", "198.51.100.1")][..], 204),
        (&[URI, ("x-forwarded-for", "198.51.100.2"), forwarded], 204),
        (&[URI, ("x-forwarded-for", "198.51.100.9, 198.51.100.1")], 429),
        (&[URI, ("x-forwarded-for", "198.51.100.2"), ("forwarded", "for=198.51.100.3")], 429),
        // Without an address the proxy's own quota counts, and `Forwarded` is not an address here.
        (&[URI, forwarded], 204),
        (&[URI], 429),
    ] {
        assert_eq!(send(&by_x_forwarded_for, "/v1/auth", fields).await.status, status, "{fields:?}");
    }
    let proxies = TrustedProxies::parse(["192.0.2.7"]).expect("valid").header(TrustedHeader::Forwarded);
    let by_forwarded = site_with(vec![hourly("api", 1)], proxies);
    for (address, status) in [("198.51.100.1", 204), ("198.51.100.2", 429)] {
        let fields = [URI, forwarded, ("x-forwarded-for", address)];
        assert_eq!(send(&by_forwarded, "/v1/auth", &fields).await.status, status);
    }
}

#[tokio::test]
async fn rules_see_the_request_that_the_client_sent() {
    let mut rule = hourly("writes", 1);
    rule.selector.path = Some(sluicegate::path::PathPattern::parse("/orders/**").expect("valid"));
    rule.selector.methods = vec!["POST".into(), "OPTIONS".into()];
    let site = site_with(vec![rule], TrustedProxies::parse(["192.0.2.7"]).expect("valid"));
    for (method, uri, status) in [
        ("GET", "/orders", 204),
        ("OPTIONS", "//orders/./1?a=b", 204),
        ("POST", "/orders/1", 429),
        ("POST", "/ORDERS;x/%31", 429),
        ("POST", "/free", 204),
        ("POST", "/orders%2f1", 429),
        ("POST", "/free%2F..%2Forders", 429),
        ("POST", "/free%2f1", 204),
        ("POST", "/orders%5c1", 400),
    ] {
        let fields = [("x-original-method", method), ("x-original-uri", uri), CLIENT];
        let reply = send(&site, "/v1/auth", &fields).await;
        assert_eq!(reply.status, status, "{method} {uri}: {reply:?}");
    }
}

#[tokio::test]
async fn the_body_of_a_subrequest_is_ignored() {
    let site = site(3);
    for (method, body) in [("GET", ""), ("HEAD", ""), ("POST", "a body of any kind")] {
        let reply = testing::ask(&site, method, "/v1/auth", &[URI, CLIENT], body).await;
        assert_eq!((reply.status, reply.body.as_str()), (204, ""), "{method}");
    }
    assert_eq!(testing::ask(&site, "PUT", "/v1/auth", &[URI, CLIENT], "").await.status, 405);
}
