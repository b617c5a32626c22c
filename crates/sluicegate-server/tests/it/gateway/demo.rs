//! The demo application on the gateway listener.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Answer, send, send_with};
use crate::server::{PATIENCE, Server};

const DEMO_KEY: &str = "x-api-key: demo-key";

fn ping(server: &Server) -> Answer {
    send_with(server.address("gateway"), "GET", "/api/ping", DEMO_KEY)
}

/// Pings until denied. Returns the number of allowed pings, the longest possible duration, and the denial.
fn ping_until_denied(server: &Server) -> (u64, Duration, Answer) {
    let started = Instant::now();
    for passed in 0..10_000 {
        let answer = ping(server);
        match answer.status {
            200 => assert_eq!(answer.json(), json!({ "message": "pong" })),
            429 => return (passed, started.elapsed(), answer),
            status => panic!("{status}: {answer:?}"),
        }
    }
    panic!("never denied");
}

#[test]
fn ten_pings_pass_and_then_it_is_429() {
    let server = Server::start(&[]);
    let (passed, took, denied) = ping_until_denied(&server);
    assert!(passed >= 10 && passed <= 10 + took.as_secs(), "{passed} passed in {took:?}");

    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert_eq!(denied.header("retry-after"), Some("1"));
    assert_eq!(denied.header("x-ratelimit-limit"), Some("10"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(denied.header("ratelimit-policy"), Some("\"demo\";q=10;w=10"));
    assert_eq!(denied.header("ratelimit"), Some("\"demo\";r=0;t=1"));
    assert_eq!(
        denied.json(),
        json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Quota exceeded",
            "status": 429,
            "detail": "the quota is used up; try again in 1 second",
            "violated-policies": ["demo"],
            "retry_after": 1,
        })
    );
}

/// A client that waits for the time in `Retry-After` is allowed if no other client takes the unit. Denied requests
/// charge nothing, so the test sends requests in a loop and needs no sleep.
#[test]
fn retry_after_is_honest() {
    let server = Server::start(&[]);
    let (_, _, denied) = ping_until_denied(&server);
    let denied_at = Instant::now();
    let wait = denied.header("retry-after").and_then(|value| value.parse().ok()).expect("seconds");
    loop {
        let sent_after = denied_at.elapsed();
        match ping(&server).status {
            200 => return,
            429 => assert!(sent_after < Duration::from_secs(wait), "denied after {sent_after:?}"),
            status => panic!("{status}"),
        }
        assert!(sent_after < PATIENCE);
    }
}

#[test]
fn the_first_answer_has_exactly_the_promised_headers() {
    let server = Server::start(&[]);
    let answer = ping(&server);
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"message":"pong"}"#));
    for (name, value) in [
        ("content-type", "application/json"),
        ("x-ratelimit-limit", "10"),
        ("x-ratelimit-remaining", "9"),
        ("ratelimit-policy", "\"demo\";q=10;w=10"),
        ("ratelimit", "\"demo\";r=9;t=1"),
    ] {
        assert_eq!(answer.header(name), Some(value));
    }
    assert!(answer.header("x-ratelimit-reset").is_some_and(|reset| reset.len() == 10), "{answer:?}");
    assert_eq!(answer.header("retry-after"), None);
    assert_eq!(answer.header("x-ratelimit-degraded"), None);
}

/// Row 58: if unknown keys were identities, a new key with every request would get a full bucket each time.
#[test]
fn an_unknown_key_is_401_and_charges_no_client() {
    let server = Server::start(&[]);
    let gateway = server.address("gateway");
    for header in ["x-api-key: wrong", "x-api-key:", "x-api-key: demo-key\r\nx-api-key: demo-key"] {
        for _ in 0..5 {
            let answer = send_with(gateway, "GET", "/api/ping", header);
            assert_eq!(answer.status, 401, "{header}");
            assert_eq!(answer.header("content-type"), Some("application/problem+json"));
            assert!(answer.header("www-authenticate").is_some());
        }
    }
    assert_eq!(send(gateway, "GET", "/api/ping").header("x-ratelimit-remaining"), Some("9"), "by address");
    assert_eq!(ping(&server).header("x-ratelimit-remaining"), Some("9"), "by key");
}

#[test]
fn head_is_answered_as_get_without_a_body() {
    let server = Server::start(&[]);
    let head = send_with(server.address("gateway"), "HEAD", "/api/ping", DEMO_KEY);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), Some("18"));
    assert_eq!(head.header("x-ratelimit-remaining"), Some("9"));
}

#[test]
fn unknown_paths_are_404_and_not_charged() {
    let server = Server::start(&[]);
    let gateway = server.address("gateway");
    for _ in 0..20 {
        let missing = send_with(gateway, "GET", "/api/pong", DEMO_KEY);
        assert_eq!((missing.status, missing.header("x-ratelimit-limit")), (404, None));
        assert_eq!(missing.header("content-type"), Some("application/problem+json"));
    }
    assert!(send(gateway, "GET", "/").body.contains("/api/ping"));
    assert_eq!(ping(&server).header("x-ratelimit-remaining"), Some("9"));
}
