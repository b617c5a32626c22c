//! The decision API of a server without a configuration: a burst of ten and a refill of one per second for every
//! identity.
//!
//! A test that needs an exhausted identity takes all ten units at once and then requests ten more. That request is
//! denied for ten seconds, so the load of the machine does not matter.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Answer, Connection, post, post_with, send, send_with};
use crate::server::{ConfigFile, Server};

const TOKEN: &str = "canary-token-of-tests";

fn check_of(identifier: &str, cost: u64) -> String {
    json!({ "resource": "demo", "identifier": identifier, "cost": cost }).to_string()
}

fn with_token(api: SocketAddr, path: &str, body: &str) -> Answer {
    post_with(api, path, &format!("authorization: Bearer {TOKEN}\r\n"), body)
}

fn names(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn allowed_is_200_with_exactly_the_promised_fields_and_headers() {
    let server = Server::start(&[]);
    let answer = post(server.address("api"), "/v1/check", r#"{"resource":"demo","identifier":"alice"}"#);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some("10"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("9"));
    assert_eq!(answer.header("ratelimit-policy"), Some("\"demo\";q=10;w=10"));
    assert_eq!(answer.header("ratelimit"), Some("\"demo\";r=9;t=1"));
    assert_eq!(answer.header("retry-after"), None);

    let json = answer.json();
    let reset_at = json["resetAt"].as_u64().expect("a time");
    assert_eq!(answer.header("x-ratelimit-reset"), Some(reset_at.div_ceil(1_000).to_string().as_str()));
    assert_eq!(
        json,
        json!({
            "allowed": true, "limit": 10, "remaining": 9, "resetAt": reset_at, "retryAfter": 0, "retryAfterMs": 0,
            "rule": "demo", "degraded": false,
            "limits": [{
                "rule": "demo", "algorithm": "token_bucket", "allowed": true, "limit": 10, "remaining": 9,
                "resetAt": reset_at, "retryAfterMs": 0, "shadow": false,
            }],
        })
    );
}

#[test]
fn denied_is_429_with_the_same_wait_everywhere() {
    let server = Server::start(&[]);
    let api = server.address("api");
    assert_eq!(post(api, "/v1/check", check_of("alice", 10)).status, 200);
    let answer = post(api, "/v1/check", check_of("alice", 10));
    assert_eq!(answer.status, 429);
    let json = answer.json();
    let (secs, millis) = (json["retryAfter"].as_u64().expect("s"), json["retryAfterMs"].as_u64().expect("ms"));
    assert!((1..=10).contains(&secs) && millis <= 10_000, "{json}");
    assert_eq!(secs, millis.div_ceil(1_000));
    assert_eq!(json["limits"][0]["retryAfterMs"], millis);
    assert_eq!(answer.header("retry-after"), Some(secs.to_string().as_str()));
    let t = answer.header("ratelimit").and_then(|value| value.rsplit_once(";t="));
    assert_eq!(t.map(|(_, t)| t), Some(secs.to_string().as_str()));
}

#[test]
fn a_cost_that_never_fits_has_null_waits_and_no_retry_after() {
    let server = Server::start(&[]);
    for cost in [11, 4_294_967_295] {
        let answer = post(server.address("api"), "/v1/check", check_of("alice", cost));
        assert_eq!(answer.status, 429);
        assert_eq!(answer.header("retry-after"), None);
        let json = answer.json();
        assert_eq!((&json["retryAfter"], &json["retryAfterMs"]), (&Value::Null, &Value::Null));
        assert_eq!(json["remaining"], 10, "nothing was charged");
    }
}

#[test]
fn a_cost_of_zero_charges_nothing_and_is_always_allowed() {
    let server = Server::start(&[]);
    let api = server.address("api");
    assert_eq!(post(api, "/v1/check", check_of("alice", 0)).json()["remaining"], 10);
    post(api, "/v1/check", check_of("alice", 10));
    assert_eq!(post(api, "/v1/check", check_of("alice", 0)).status, 200);
}

#[test]
fn peek_changes_nothing_and_has_the_statuses_of_check() {
    let server = Server::start(&[]);
    let api = server.address("api");
    for _ in 0..20 {
        let answer = post(api, "/v1/peek", check_of("alice", 10));
        assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!(10)));
    }
    post(api, "/v1/check", check_of("alice", 10));
    let denied = post(api, "/v1/peek", check_of("alice", 10));
    assert_eq!(denied.status, 429);
    assert_eq!(denied.header("retry-after"), Some(denied.json()["retryAfter"].to_string().as_str()));
    assert_eq!(names(&denied.json()), names(&post(api, "/v1/check", check_of("alice", 10)).json()));
}

#[test]
fn refund_and_reset_need_the_token_and_give_back() {
    let server = Server::start_with_token(TOKEN);
    let api = server.address("api");
    post(api, "/v1/check", check_of("alice", 10));
    for path in ["/v1/refund", "/v1/reset"] {
        let missing = post(api, path, check_of("alice", 10));
        assert_eq!((missing.status, missing.header("www-authenticate")), (401, Some("Bearer")));
        assert_eq!(post_with(api, path, "authorization: Bearer wrong\r\n", "{}").status, 401);
    }
    assert_eq!(post(api, "/v1/check", check_of("alice", 10)).status, 429, "nothing was given back");

    let refunded = with_token(api, "/v1/refund", &check_of("alice", 10));
    assert_eq!((refunded.status, &refunded.json()["remaining"]), (200, &json!(10)));
    assert_eq!(refunded.header("x-ratelimit-remaining"), Some("10"));
    assert_eq!(with_token(api, "/v1/refund", &check_of("alice", 4_294_967_295)).json()["remaining"], 10);

    post(api, "/v1/check", check_of("alice", 10));
    let reset = with_token(api, "/v1/reset", &check_of("alice", 1));
    assert_eq!((reset.status, &reset.json()["remaining"]), (200, &json!(10)));
    assert_eq!(post(api, "/v1/check", check_of("alice", 10)).status, 200);
}

/// All places that compare a secret share one guard.
#[test]
fn guesses_at_the_api_listener_are_429_and_lock_no_client_out() {
    let server = Server::start_with(&[("SLUICEGATE_ADMIN_TOKEN", TOKEN)], &[]);
    let api = server.address("api");
    let guess = |path: &str| post_with(api, path, "authorization: Bearer wrong\r\n", check_of("alice", 1)).status;
    let statuses: Vec<u16> = (0..10).map(|_| guess("/v1/reset")).collect();
    assert_eq!(statuses, [401; 10]);
    let is_late = |send: &dyn Fn() -> u16, status: u16| {
        let started = Instant::now();
        assert_eq!(send(), status);
        started.elapsed() >= Duration::from_secs(1)
    };
    assert!(is_late(&|| guess("/v1/reset"), 429), "the answer to a wrong token beyond the limit is delayed");
    let refund =
        r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"alice"}],"is_negative_hits":true}]}"#;
    let refund_as =
        |token: &str| post_with(api, "/json", &format!("authorization: Bearer {token}\r\n"), refund).status;
    assert!(is_late(&|| refund_as("wrong"), 403), "also in the form of Envoy's service");
    assert!(!is_late(&|| refund_as(TOKEN), 200));
    assert_eq!(with_token(api, "/v1/reset", &check_of("alice", 1)).status, 200);
    assert_eq!(
        send_with(server.address("admin"), "GET", "/admin/v1/rules", "authorization: Bearer wrong").status,
        429
    );
}

#[test]
fn with_an_api_token_other_clients_are_rejected() {
    let text = "api: { token: token-of-the-api, origins: ['https://app.example'], hosts: [limits.example] }\n\
                rules: [{ name: all, limits: [{ algorithm: fixed_window, limit: 5, window: 1d }] }]";
    let file = ConfigFile::new("api-access", text);
    let server = Server::start(&["--config", file.path()]);
    let api = server.address("api");
    let send = |path: &str, host: &str, fields: &str| {
        let mut connection = Connection::open(api);
        let body = check_of("alice", 0);
        let length = body.len();
        connection.send(format!(
            "POST {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n{fields}\r\n{body}"
        ));
        connection.answer().status
    };
    let token = "authorization: Bearer token-of-the-api\r\n";
    let origin = |origin: &str| format!("{token}origin: {origin}\r\n");
    assert_eq!(send("/v1/check", "limits.example", token), 200);
    assert_eq!(send("/v1/check", "limits.example", ""), 401);
    assert_eq!(send("/v1/check", "rebound.example", token), 421);
    assert_eq!(send("/v1/check", "limits.example", &origin("https://app.example")), 200);
    assert_eq!(send("/v1/check", "limits.example", &origin("https://evil.example")), 403);
    assert_eq!(send("/json", "limits.example", &origin("https://evil.example")), 403);
}

/// This also holds without a configuration and for every content type: a page needs no preflight for `text/plain`.
#[test]
fn pages_of_other_sites_charge_no_limit() {
    let server = Server::start(&[]);
    let api = server.address("api");
    for (path, body) in [
        ("/v1/check", check_of("alice", 10)),
        ("/json", r#"{"domain":"d","descriptors":[{"entries":[{"key":"user","value":"alice"}]}]}"#.to_owned()),
    ] {
        let answer = post_with(api, path, "origin: https://evil.example\r\n", body);
        assert_eq!((answer.status, &answer.json()["field"]), (403, &json!("origin")), "{path}");
    }
    assert_eq!(post(api, "/v1/peek", check_of("alice", 1)).json()["remaining"], 10);
    assert_eq!(send_with(api, "GET", "/openapi.json", "origin: https://evil.example").status, 200);
}

#[test]
fn without_a_configured_token_changes_are_403_with_the_remedy() {
    let server = Server::start(&[]);
    for path in ["/v1/refund", "/v1/reset"] {
        let answer = with_token(server.address("api"), path, &check_of("alice", 1));
        assert_eq!(answer.status, 403);
        assert!(answer.body.contains("set SLUICEGATE_ADMIN_TOKEN"), "{}", answer.body);
    }
}

#[test]
fn a_batch_is_answered_in_order() {
    let server = Server::start(&[]);
    let checks: Vec<_> = (0..1_000)
        .map(|index| json!({ "resource": "demo", "identifier": format!("user-{}", index % 2), "cost": index / 2 }))
        .collect();
    let answer = post(server.address("api"), "/v1/check/batch", json!({ "checks": checks }).to_string());
    assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, None));
    let json = answer.json();
    let results = json["results"].as_array().expect("a list");
    assert_eq!(results.len(), 1_000);
    // Costs of 0, 1, 2, 3 and 4 add up to ten for each of the two. A cost above the refilled amount is denied.
    let allowed: Vec<_> = results.iter().map(|result| result["allowed"] == true).collect();
    assert!(allowed[..10].iter().all(|allowed| *allowed));
    assert!(!allowed[22..].iter().any(|allowed| *allowed), "more than ten never fits");
    assert_eq!(names(&json), BTreeSet::from(["results"]));
}

#[test]
fn a_bad_item_refuses_the_whole_batch_and_charges_nothing() {
    let server = Server::start(&[]);
    let api = server.address("api");
    let good = json!({ "resource": "demo", "identifier": "alice" });
    let bad = json!({ "resource": "demo", "identifier": "alice", "foo": 1 });
    let answer = post(api, "/v1/check/batch", json!({ "checks": [good, good, good, bad] }).to_string());
    assert_eq!((answer.status, &answer.json()["field"]), (400, &json!("checks[3].foo")));
    let many = json!({ "checks": vec![good; 1_001] }).to_string();
    assert_eq!(post(api, "/v1/check/batch", many).status, 400);
    assert_eq!(post(api, "/v1/peek", check_of("alice", 1)).json()["remaining"], 10);
}

#[test]
fn the_description_and_its_page_are_served() {
    let server = Server::start(&[]);
    let api = server.address("api");
    assert_eq!(send(api, "GET", "/openapi.json").json()["openapi"], "3.1.0");
    let page = send(api, "GET", "/docs");
    assert_eq!((page.status, page.header("x-content-type-options")), (200, Some("nosniff")));
    assert!(
        page.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none';"))
    );
    assert_eq!(send(api, "HEAD", "/docs").body, "");
    assert_eq!(send(api, "GET", "/v1/check").header("allow"), Some("POST"));
}

/// In every interleaving, the bucket admits no more than its capacity and its refill.
#[test]
fn clients_at_once_are_admitted_the_quota_and_no_more() {
    const CLIENTS: usize = 64;
    const CHECKS: usize = 25;
    let server = Server::start(&[]);
    let api = server.address("api");
    let started = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            std::thread::spawn(move || {
                let allowed = |_| post(api, "/v1/check", check_of("shared", 1)).status == 200;
                (0..CHECKS).map(allowed).filter(|allowed| *allowed).count() as u64
            })
        })
        .collect();
    let admitted: u64 = clients.into_iter().map(|client| client.join().expect("a client")).sum();
    let most = 10 + started.elapsed().as_secs() + 1;
    assert!((10..=most).contains(&admitted), "{admitted} admitted, at most {most}");
}

#[test]
fn decisions_are_logged_at_the_end() {
    let server = Server::start(&[]);
    for cost in [10, 10, 11] {
        post(server.address("api"), "/v1/check", check_of("alice", cost));
    }
    server.signal("TERM");
    let ended = server.wait();
    let stopped = ended.lines.iter().find(|line| line.contains("\"stopped\"")).expect("a last word");
    assert!(stopped.contains("\"allowed\":1") && stopped.contains("\"denied\":2"), "{stopped}");
}

/// The server rejects these requests by their head, so it never reads the body.
#[test]
fn an_error_before_the_body_is_read_announces_the_close() {
    let (closed, open) = (Server::start(&[]), Server::start_with_token(TOKEN));
    for (server, path, content_type, status) in [
        (&closed, "/v1/reset", "application/json", 403),
        (&open, "/v1/reset", "application/json", 401),
        (&open, "/v1/check", "text/plain", 415),
    ] {
        let mut connection = Connection::open(server.address("api"));
        let head = format!("POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: {content_type}\r\n");
        connection.send(format!("{head}content-length: 10\r\n\r\n0123"));
        let answer = connection.answer();
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")), "{path}");
    }
}
