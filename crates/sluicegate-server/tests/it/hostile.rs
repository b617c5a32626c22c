//! Requests that no correct client sends. Each gets the right error, and the server keeps working. This file has the
//! bodies.

mod framing;
mod http2;
mod slow;

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::client::{Answer, Connection, post, send};
use crate::server::Server;

/// The number of decisions so far.
fn decisions(admin: SocketAddr) -> u64 {
    let metrics = send(admin, "GET", "/metrics").body;
    let counts = metrics.lines().filter(|line| line.starts_with("sluicegate_decisions_total{"));
    counts.map(|line| line.rsplit_once(' ').expect("a value").1.parse::<u64>().expect("a count")).sum()
}

#[track_caller]
fn assert_refused(answer: &Answer, field: Value, body: &str) {
    let start: String = body.chars().take(80).collect();
    assert_eq!(answer.status, 400, "{start}: {answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("x-ratelimit-limit"), None);
    let problem = answer.json();
    assert_eq!(problem.get("field").cloned().unwrap_or(Value::Null), field, "{start}: {problem}");
    assert!(answer.body.len() < 2_000, "{start}: {} bytes", answer.body.len());
}

fn assert_untouched(api: SocketAddr, identifier: &str) {
    let peek = json!({ "resource": "demo", "identifier": identifier }).to_string();
    assert_eq!(post(api, "/v1/peek", peek).json()["remaining"], 10);
}

#[test]
fn bad_costs_are_400_and_name_the_cost() {
    let server = Server::start(&[]);
    let api = server.address("api");
    for cost in [
        "-1",
        "1.0",
        "1.5",
        "1e3",
        "\"5\"",
        "true",
        "null",
        "NaN",
        "Infinity",
        "4294967296",
        "1e400",
        "99999999999999999999",
        "[]",
        "{}",
    ] {
        let body = format!(r#"{{"resource":"demo","identifier":"alice","cost":{cost}}}"#);
        for path in ["/v1/check", "/v1/peek"] {
            assert_refused(&post(api, path, &body), json!("cost"), &body);
        }
    }
    assert_untouched(api, "alice");
}

#[test]
fn bad_names_are_400_and_name_the_field() {
    let server = Server::start(&[]);
    let api = server.address("api");
    let long = "x".repeat(10_240);
    for (field, text) in [
        ("identifier", ""),
        ("identifier", long.as_str()),
        ("identifier", "a\u{0}b"),
        ("identifier", "a\r\nx-evil: 1"),
        ("identifier", "\u{1b}[2J"),
        ("resource", ""),
        ("resource", long.as_str()),
        ("resource", "\u{9b}"),
        ("tenant", ""),
        ("tenant", long.as_str()),
        ("tier", long.as_str()),
        ("tier", "\u{7}"),
    ] {
        let mut body = json!({ "resource": "demo", "identifier": "alice" });
        body[field] = json!(text);
        let body = body.to_string();
        assert_refused(&post(api, "/v1/check", &body), json!(field), &body);
    }
    assert_untouched(api, "alice");
}

#[test]
fn bad_shapes_are_400() {
    let server = Server::start(&[]);
    let api = server.address("api");
    let deep = "[".repeat(10_000);
    let deep_objects = r#"{"a":"#.repeat(10_000);
    let long_key = format!(r#"{{"{}":1}}"#, "k".repeat(100_000));
    for (body, field) in [
        ("", Value::Null),
        (" ", Value::Null),
        ("\u{feff}{}", Value::Null),
        ("null", Value::Null),
        ("[]", Value::Null),
        ("{", Value::Null),
        (r#"{"resource":"demo","identifier":"alice"}{}"#, Value::Null),
        (r#"{"resource":"demo","identifier":"alice"} trailing"#, Value::Null),
        ("resource=demo&identifier=alice", Value::Null),
        (deep.as_str(), Value::Null),
        (deep_objects.as_str(), json!("a")),
        (long_key.as_str(), json!(format!("{}…", "k".repeat(64)))),
        ("{}", json!("resource")),
        (r#"{"resource":"demo"}"#, json!("identifier")),
        (r#"{"resource":"demo","identifier":7}"#, json!("identifier")),
        (r#"{"resource":"demo","identifier":"alice","extra":1}"#, json!("extra")),
        (r#"{"resource":"demo","identifier":"alice","__proto__":{}}"#, json!("__proto__")),
        (r#"{"resource":"demo","identifier":"alice","identifier":"bob"}"#, json!("identifier")),
        (r#"{"resource":"demo","identifier":"\ud800"}"#, json!("identifier")),
    ] {
        assert_refused(&post(api, "/v1/check", body), field, body);
    }
    let not_text = [&br#"{"resource":"demo","identifier":""#[..], b"\xff\xfe", b"\"}"].concat();
    assert_eq!(post(api, "/v1/check", not_text).status, 400);
    assert_untouched(api, "alice");
}

#[test]
fn a_content_type_other_than_json_is_415() {
    let server = Server::start(&[]);
    let body = r#"{"resource":"demo","identifier":"alice"}"#;
    for content_type in ["", "content-type: text/plain\r\n", "content-type: application/problem+json\r\n"] {
        let mut connection = Connection::open(server.address("api"));
        connection.send(format!(
            "POST /v1/check HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{content_type}content-length: {}\r\n\r\n{body}",
            body.len()
        ));
        let answer = connection.answer();
        assert_eq!(answer.status, 415, "{content_type}");
        assert!(answer.body.contains("`content-type: application/json`"), "{}", answer.body);
    }
    assert_untouched(server.address("api"), "alice");
}

#[test]
fn two_megabytes_are_413_with_and_without_a_length() {
    let server = Server::start(&[]);
    let api = server.address("api");
    let large = json!({ "resource": "demo", "identifier": "x".repeat(2_000_000) }).to_string();
    assert_eq!(post(api, "/v1/check", &large).status, 413);

    let mut chunked = Connection::open(api);
    chunked.send(
        "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
    );
    chunked.send(format!("{:x}\r\n{large}\r\n0\r\n\r\n", large.len()));
    assert_eq!(chunked.answer().status, 413);
    assert_untouched(api, "alice");
}

#[test]
fn half_a_body_charges_nothing_and_the_server_goes_on() {
    let server = Server::start(&[]);
    let api = server.address("api");
    for _ in 0..20 {
        let mut half = Connection::open(api);
        // The first half of the body is a complete check, but shorter than the announced length.
        half.send(
            "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n\
             {\"resource\":\"demo\",\"identifier\":\"alice\"}",
        );
        drop(half);
    }
    assert_untouched(api, "alice");
    assert_eq!(post(api, "/v1/check", r#"{"resource":"demo","identifier":"bob"}"#).status, 200);
}
