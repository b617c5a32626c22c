//! Which bytes are a plain check, and which take the slow path.

use super::*;

const BODY: &str = r#"{"resource":"r","identifier":"alice"}"#;

fn request(fields: &[&str]) -> String {
    let fields: String = fields.iter().flat_map(|field| [*field, "\r\n"]).collect();
    format!("POST /v1/check HTTP/1.1\r\n{fields}\r\n{BODY}")
}

fn length() -> String {
    format!("content-length: {}", BODY.len())
}

const HOST: &str = "host: t:8080";
const JSON: &str = "content-type: application/json";

#[test]
fn requests_of_usual_clients_are_plain_and_end_with_their_body() {
    let length = length();
    for fields in [
        &[HOST, JSON, length.as_str()][..],
        &["Host: [::1]:80", "Content-Type: Application/JSON; charset=utf-8", "Content-Length:37"],
        &[
            "user-agent: x/1",
            "accept: */*",
            HOST,
            "authorization: Bearer x",
            JSON,
            "accept-encoding: gzip",
            &length,
        ],
    ] {
        let request = request(fields);
        let plain = PlainCheck::parse(request.as_bytes()).expect("plain");
        assert_eq!(plain.bytes(), request.len(), "{request}");
        assert_eq!(plain.check, wire::request::check(BODY.as_bytes()).expect("a check"));
        // The bytes after it belong to the next request.
        let two = request.repeat(2);
        assert_eq!(PlainCheck::parse(two.as_bytes()).expect("plain").bytes(), request.len());
        // An incomplete request is not plain.
        for end in 0..request.len() {
            assert!(PlainCheck::parse(&request.as_bytes()[..end]).is_none(), "{end} bytes of {request}");
        }
    }
}

#[test]
fn repeated_headers_and_connection_headers_are_not_plain() {
    let length = length();
    let usual = [HOST, JSON, length.as_str()];
    for field in [
        HOST,
        JSON,
        length.as_str(),
        "connection: keep-alive",
        "Connection: close",
        "expect: 100-continue",
        "transfer-encoding: chunked",
        "Transfer-Encoding: identity",
        "upgrade: websocket",
        "bad name: x",
        "x : y",
        " folded",
        "x: \0",
    ] {
        let fields = [&usual[..], &[field]].concat();
        assert!(PlainCheck::parse(request(&fields).as_bytes()).is_none(), "{field}");
    }
    for left_out in 0..usual.len() {
        let fields: Vec<_> =
            usual.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, field)| *field).collect();
        assert!(PlainCheck::parse(request(&fields).as_bytes()).is_none(), "without {}", usual[left_out]);
    }
    let many = vec!["x: y"; HEADERS_MAX - usual.len()];
    assert!(PlainCheck::parse(request(&[&usual[..], &many].concat()).as_bytes()).is_some());
    assert!(PlainCheck::parse(request(&[&usual[..], &many, &["x: y"]].concat()).as_bytes()).is_none());
}

#[test]
fn requests_that_the_slow_path_rejects_are_not_plain() {
    let length = length();
    for fields in [
        ["host: a b", JSON, length.as_str()],
        ["host: u@t", JSON, &length],
        ["host:", JSON, &length],
        [HOST, "content-type: text/plain", &length],
        [HOST, JSON, "content-length: +37"],
        [HOST, JSON, "content-length: 37, 37"],
        [HOST, JSON, "content-length: 99999999999999999999999"],
        [HOST, JSON, "content-length: 36"],
    ] {
        assert!(PlainCheck::parse(request(&fields).as_bytes()).is_none(), "{fields:?}");
    }
    let good = request(&[HOST, JSON, &length]);
    for (from, to) in [
        ("POST", "post"),
        ("POST ", "POST  "),
        ("/v1/check", "/v1/check?x"),
        ("/v1/check", "/v1/peek"),
        ("/v1/check", "http://t/v1/check"),
        ("HTTP/1.1", "HTTP/1.0"),
        (" HTTP/1.1\r\n", " HTTP/1.1\n"),
        ("POST", "\r\nPOST"),
        ("alice", "al\u{1}ce"),
        ("identifier", "identifiers"),
    ] {
        assert!(PlainCheck::parse(good.replacen(from, to, 1).as_bytes()).is_none(), "{from} as {to}");
    }
}
