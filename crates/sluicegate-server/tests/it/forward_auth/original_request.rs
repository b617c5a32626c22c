//! The forward-auth check itself over a real socket, without a proxy in between.

use super::*;
use crate::client::send_with;

/// The rule of the page; `is_trusted` makes this machine a trusted proxy.
fn server(is_trusted: bool) -> (Server, ConfigFile) {
    let config = page::block("Sluicegate", "yaml", 0);
    let proxies = if is_trusted { "[127.0.0.1]" } else { "[]" };
    let config = page::at(config, &[("[127.0.0.1]", proxies)]);
    let config = ConfigFile::new(&format!("question-{}", fastrand::u64(..)), config);
    (Server::start(&["--config", config.path()]), config)
}

fn send(server: &Server, method: &str, query: &str, fields: &str) -> Answer {
    send_with(server.address("api"), method, &format!("/v1/auth{query}"), fields)
}

const QUESTION: &str = "x-forwarded-method: GET\r\nx-forwarded-uri: /api/orders\r\nx-forwarded-for: 192.0.2.1";

#[test]
fn every_method_and_both_families_give_the_same_decision() {
    let (server, _config) = server(true);
    let original =
        QUESTION.replace("x-forwarded-uri", "x-original-uri").replace("x-forwarded-method", "x-original-method");
    for (method, fields, left) in
        [("GET", QUESTION, "4"), ("HEAD", QUESTION, "3"), ("POST", QUESTION, "2"), ("GET", &original, "1")]
    {
        let allowed = send(&server, method, "", fields);
        assert_eq!((allowed.status, allowed.body.as_str()), (204, ""), "{method}");
        assert_eq!(allowed.header("x-ratelimit-remaining"), Some(left));
        assert_eq!(allowed.header("cache-control"), Some("no-store"));
        assert_eq!(allowed.header("retry-after"), None);
        // RFC 9110: a response that cannot have a body has no length.
        assert_eq!((allowed.header("content-length"), allowed.header("transfer-encoding")), (None, None));
    }
    // The key is the address that the last proxy reported, independent of the addresses before it.
    let spoofed = QUESTION.replace("192.0.2.1", "198.51.100.9, 192.0.2.1");
    assert_eq!(send(&server, "GET", "", &spoofed).header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(send(&server, "GET", "", QUESTION).status, 429);
}

#[test]
fn a_denial_takes_the_status_that_the_proxy_can_pass_on() {
    let (server, _config) = server(true);
    for _ in 0..CAPACITY {
        assert_eq!(send(&server, "GET", "?deny_status=403", QUESTION).status, 204);
    }
    for (query, status, told) in
        [("", 429, None), ("?deny_status=403", 403, Some("429")), ("?x=1&deny_status=401", 401, Some("429"))]
    {
        let denied = send(&server, "GET", query, QUESTION);
        assert_eq!((denied.status, denied.header("x-sluicegate-status")), (status, told), "{query}");
        assert!(denied.header("retry-after").is_some(), "{query}");
        assert!(LIMITS.iter().all(|name| denied.header(name).is_some()), "{query}");
        assert_eq!(denied.json()["status"], status);
        assert_eq!(denied.json()["violated-policies"], serde_json::json!(["api"]));
    }
    // A request with invalid credentials keeps its own status.
    let bad_key = format!("{QUESTION}\r\nx-api-key: wrong");
    let refused = send(&server, "GET", "?deny_status=403", &bad_key);
    assert_eq!((refused.status, refused.header("x-sluicegate-status")), (401, None));
}

#[test]
fn another_deny_status_is_400_and_charges_nothing() {
    let (server, _config) = server(true);
    for query in [
        "?deny_status=429",
        "?deny_status=200",
        "?deny_status=",
        "?deny_status",
        "?deny_status=403&deny_status=403",
    ] {
        let refused = send(&server, "GET", query, QUESTION);
        assert_eq!((refused.status, &refused.json()["field"]), (400, &"deny_status".into()), "{query}");
    }
    assert_eq!(send(&server, "GET", "", QUESTION).header("x-ratelimit-remaining"), Some("4"));
}

#[test]
fn an_untrusted_peer_is_403_with_the_remedy() {
    let (server, _config) = server(false);
    let refused = send(&server, "GET", "", QUESTION);
    assert_eq!(refused.status, 403);
    assert_eq!(
        refused.json()["detail"],
        "127.0.0.1 is not a trusted proxy: if it is yours, add 127.0.0.1 or its network to `trusted_proxies`"
    );
    assert!(LIMITS.iter().all(|name| refused.header(name).is_none()));
}

#[test]
fn fields_without_a_request_are_400_with_the_remedy() {
    let (server, _config) = server(true);
    let refused = send(&server, "GET", "", "x-forwarded-method: GET");
    assert_eq!((refused.status, &refused.json()["field"]), (400, &"x-forwarded-uri".into()));
    assert!(refused.json()["detail"].as_str().is_some_and(|detail| detail.contains("`X-Forwarded-Uri`")));
    for hostile in [
        "x-forwarded-uri: /api/orders\r\nx-original-uri: /about",
        "x-forwarded-uri: /api/orders\r\nx-forwarded-uri: /about",
        "x-forwarded-uri: http://shop.test/about",
        "x-forwarded-uri: /api%5corders",
        "x-forwarded-uri: /api/a%2Fb/../about",
        "x-forwarded-uri: /api/..;/about",
    ] {
        assert_eq!(send(&server, "GET", "", hostile).status, 400, "{hostile}");
    }
    assert_eq!(send(&server, "DELETE", "", QUESTION).status, 405);
}
