//! The requests that reach an upstream, and the responses that come back.

use super::upstream::{Upstream, header, headers};
use super::{AMPLE, Gateway, get};
use crate::client::Connection;

#[test]
fn a_request_arrives_unchanged_with_the_fields_of_the_gateway() {
    let upstream = Upstream::echo("");
    let gateway = Gateway::to("arrives", upstream.address, "");
    let answer = gateway.get("/a/b?x=%2F..&y", &["accept: text/plain", "cookie: a=1", "x-mine: 1", "x-mine: 2"]);
    assert_eq!(answer.status, 200);
    let head = &answer.body;
    assert!(head.starts_with("GET /a/b?x=%2F..&y HTTP/1.1\r\n"), "{head}");
    for (name, value) in [
        ("host", "t"),
        ("accept", "text/plain"),
        ("cookie", "a=1"),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "t"),
        ("forwarded", "for=127.0.0.1;host=\"t\";proto=http"),
    ] {
        assert_eq!(header(head, name), Some(value), "{head}");
    }
    assert_eq!(headers(head, "x-mine").collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(header(head, "connection"), None);
    let id = header(head, "x-request-id").expect("an id");
    assert_eq!((id.len(), answer.header("x-request-id")), (36, Some(id)));
}

#[test]
fn a_body_of_any_length_arrives() {
    let upstream = Upstream::echo("");
    let gateway = Gateway::to("body", upstream.address, "");
    for length in [0, 1, 100_000, 3_000_000] {
        let body = "x".repeat(length);
        let lines = format!("content-length: {length}\r\nconnection: close");
        let answer = gateway.send(&format!("POST /a HTTP/1.1\r\nhost: t\r\n{lines}\r\n\r\n{body}"));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body.split_once("\r\n\r\n").expect("a head").1.len(), length);
    }
}

/// A `GET` rarely has a body, and some programs ignore the possibility.
#[test]
fn a_chunked_body_of_any_method_arrives() {
    let upstream = Upstream::start(|caller, _| {
        let head = caller.read_head().expect("a request");
        assert_eq!((header(&head, "transfer-encoding"), header(&head, "content-length")), (Some("chunked"), None));
        // An upstream that ignores the body of a GET would parse it as another request.
        let is_last = !head.starts_with("POST");
        assert_eq!(header(&head, "connection"), is_last.then_some("close"));
        let pieces = std::iter::from_fn(|| Some(caller.read_chunk()).filter(|piece| !piece.is_empty()));
        let body = pieces.flatten().collect();
        caller.answer("", &String::from_utf8(body).expect("text"));
    });
    let gateway = Gateway::to("pieces", upstream.address, "");
    for method in ["GET", "DELETE", "POST"] {
        let lines = "transfer-encoding: chunked\r\nconnection: close";
        let body = "5\r\nhello\r\n0\r\n\r\n";
        let answer = gateway.send(&format!("{method} /a HTTP/1.1\r\nhost: t\r\n{lines}\r\n\r\n{body}"));
        assert_eq!((answer.status, &*answer.body), (200, "hello"), "{method}");
    }
}

/// The client causes this error, not the upstream.
#[test]
fn a_body_in_malformed_pieces_is_400() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        caller.read_to_end();
    });
    let gateway = Gateway::to("malformed-pieces", upstream.address, "");
    for body in ["g\r\nhello\r\n0\r\n\r\n", "5\r\nhelloXX0\r\n\r\n", "-1\r\nhello\r\n0\r\n\r\n"] {
        let head = "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n";
        let answer = gateway.send(&format!("{head}{body}"));
        assert_eq!(answer.status, 400, "{body:?}: {answer:?}");
        assert!(answer.body.contains("malformed"), "{answer:?}");
    }
}

#[test]
fn a_length_is_forwarded_once_in_plain_digits() {
    let upstream = Upstream::echo("");
    let gateway = Gateway::to("plain-length", upstream.address, "");
    for (said, told) in [("005", "5"), ("5", "5")] {
        let lines = format!("content-length: {said}\r\nconnection: close");
        let answer = gateway.send(&format!("POST /a HTTP/1.1\r\nhost: t\r\n{lines}\r\n\r\nhello"));
        assert_eq!(header(&answer.body, "content-length"), Some(told), "{}", answer.body);
    }
    let answer = gateway.send("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    assert_eq!(header(&answer.body, "content-length"), Some("0"), "an upstream may insist on one");
    assert_eq!(header(&gateway.get("/a", &[]).body, "content-length"), None);
}

#[test]
fn fields_of_the_gateway_are_removed_from_clients() {
    let upstream = Upstream::echo("");
    let section =
        format!("identity_headers: true, routes: [{{ path: /**, upstream: 'http://{}' }}]", upstream.address);
    let gateway = Gateway::start("spoofed", &section);
    let answer = gateway.send(
        "GET /a HTTP/1.1\r\nhost: t\r\nx-api-key: demo-key\r\n\
         Connection: close, X-Sluicegate-Identifier, X-Forwarded-For, X-Secret\r\n\
         X-Secret: 1\r\nX-Forwarded-For: 1.2.3.4\r\nX_Forwarded_For: 1.2.3.4\r\nForwarded: for=1.2.3.4\r\n\
         X-Real-IP: 1.2.3.4\r\nX-Forwarded-Proto: https\r\nX-Sluicegate-Identifier: root\r\n\
         X_Sluicegate_Identifier: root\r\nX-Sluicegate-Tier: admin\r\nX-RateLimit-Limit: 1\r\n\
         X-Request-Id: mine\r\nKeep-Alive: timeout=9\r\nProxy-Authorization: Basic x\r\nTE: gzip\r\n\
         Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
    );
    let head = &answer.body;
    assert_eq!(answer.status, 200, "{head}");
    assert_eq!(header(head, "x-sluicegate-identifier"), Some("demo"));
    assert_eq!(header(head, "x-sluicegate-tenant"), Some("default"));
    assert_eq!(header(head, "x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(header(head, "x-forwarded-proto"), Some("http"));
    assert_eq!(header(head, "forwarded"), Some("for=127.0.0.1;host=\"t\";proto=http"));
    assert_ne!(header(head, "x-request-id"), Some("mine"));
    for gone in [
        "x-secret",
        "x_forwarded_for",
        "x_sluicegate_identifier",
        "x-sluicegate-tier",
        "x-ratelimit-limit",
        "x-real-ip",
        "connection",
        "keep-alive",
        "proxy-authorization",
        "te",
        "upgrade",
        "http2-settings",
    ] {
        assert_eq!(header(head, gone), None, "{head}");
    }
}

#[test]
fn forwarding_fields_of_a_trusted_proxy_are_kept() {
    let upstream = Upstream::echo("");
    let section =
        format!("routes: [{{ path: /**, upstream: 'http://{}' }}], identity_headers: true", upstream.address);
    let rules = format!("trusted_proxies: [127.0.0.0/8]\n{AMPLE}");
    let gateway = Gateway::with_rules("trusted", &section, &rules);
    let lines = [
        "x-forwarded-for: 198.51.100.1, 203.0.113.2",
        "x-forwarded-proto: https",
        "x-forwarded-host: shop.example",
        "forwarded: for=198.51.100.1, for=203.0.113.2",
        "x-request-id: abc-1",
        "x-sluicegate-identifier: root",
        "x_forwarded_for: 1.2.3.4",
    ];
    let answer = gateway.get("/a", &lines);
    let head = &answer.body;
    for (name, value) in [
        ("x-forwarded-for", Some("198.51.100.1, 203.0.113.2, 127.0.0.1")),
        ("x-forwarded-proto", Some("https")),
        ("x-forwarded-host", Some("shop.example")),
        ("forwarded", Some("for=198.51.100.1, for=203.0.113.2, for=127.0.0.1;host=\"t\";proto=http")),
        ("x-request-id", Some("abc-1")),
        ("x-sluicegate-identifier", None),
        ("x_forwarded_for", None),
    ] {
        assert_eq!(header(head, name), value, "{head}");
    }
    assert_eq!(answer.header("x-request-id"), Some("abc-1"));
}

#[test]
fn identity_headers_are_sent_only_if_configured() {
    let upstream = Upstream::echo("");
    let gateway = Gateway::to("untold", upstream.address, "");
    let answer = gateway.get("/a", &["x-api-key: demo-key", "x-sluicegate-identifier: root"]);
    assert_eq!(header(&answer.body, "x-sluicegate-identifier"), None);
}

#[test]
fn an_answer_keeps_its_own_headers_and_gets_the_decisions() {
    let upstream = Upstream::echo(
        "cache-control: max-age=60\r\netag: \"x\"\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nretry-after: 7\r\n\
         x-ratelimit-limit: 1\r\nX-RateLimit-Limit: 2\r\nratelimit: old\r\nratelimit-reset: 9\r\n\
         connection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nproxy-authenticate: Basic\r\n",
    );
    let gateway = Gateway::to("decorated", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send(get("/a", &[]));
    let text = connection.read_to_end();
    let (head, _) = text.split_once("\r\n\r\n").expect("a head");
    for (name, values) in [
        ("cache-control", &["max-age=60"][..]),
        ("etag", &["\"x\""]),
        ("set-cookie", &["a=1", "b=2"]),
        ("retry-after", &["7"]),
        ("x-ratelimit-limit", &["1000000"]),
        ("ratelimit-policy", &["\"ample\";q=1000000;w=1"]),
        ("ratelimit-reset", &[]),
        ("x-hop", &[]),
        ("keep-alive", &[]),
        ("proxy-authenticate", &[]),
    ] {
        assert_eq!(headers(head, name).collect::<Vec<_>>(), values, "{name} in {head}");
    }
    assert_eq!(headers(head, "ratelimit").count(), 1);
}

/// A cache in front would send the error of one client to all others.
#[test]
fn responses_of_the_gateway_itself_are_not_cacheable() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("a port");
    let gateway = Gateway::start("kept", &format!("routes: [{{ path: /a, upstream: 'http://{gone}' }}]"));
    for (path, status) in [("/a", 502), ("/b", 404), ("/a%5cb", 400)] {
        let answer = gateway.get(path, &[]);
        assert_eq!((answer.status, answer.headers("cache-control")), (status, vec!["no-store"]), "{path}");
    }
}

/// Row 63: exempt requests pass in spite of the exhausted limit.
#[test]
fn a_denied_request_does_not_reach_the_upstream() {
    let upstream = Upstream::echo("");
    let section = format!(
        "routes: [{{ path: /**, upstream: 'http://{}' }}], exempt: [/healthz], preflights: exempt, \
         cors: {{ allow_origins: ['https://app.example.com'] }}",
        upstream.address
    );
    let rules = "rules: [{ name: two, limits: [{ algorithm: fixed_window, limit: 2, window: 3650d }] }]";
    let gateway = Gateway::with_rules("denied", &section, rules);
    let origin = "origin: https://app.example.com";
    assert_eq!(gateway.get("/a", &[]).status, 200);
    // A request for a missing resource counts, too.
    assert_eq!(gateway.get("/b", &[]).status, 200);
    let denied = gateway.get("/a", &[origin]);
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
    assert_eq!(denied.json()["violated-policies"][0], "two");
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert!(denied.header("retry-after").is_some() && denied.header("x-request-id").is_some());
    assert_eq!(denied.header("access-control-allow-origin"), Some("https://app.example.com"));
    assert!(denied.header("access-control-expose-headers").is_some_and(|names| names.contains("Retry-After")));
    assert_eq!(gateway.get("/a", &["origin: https://evil"]).header("access-control-allow-origin"), None);

    let unknown = gateway.get("/a", &["x-api-key: wrong", origin]);
    assert_eq!(
        (unknown.status, unknown.header("access-control-allow-origin")),
        (401, Some("https://app.example.com"))
    );
    assert_eq!(upstream.heads().len(), 2, "only what was allowed");

    let healthy = gateway.get("/healthz", &["x-api-key: wrong"]);
    assert_eq!((healthy.status, healthy.header("x-ratelimit-limit")), (200, None));
    let preflight = "OPTIONS /a HTTP/1.1\r\nhost: t\r\norigin: https://app.example.com\r\n\
                     access-control-request-method: PUT\r\nconnection: close\r\n\r\n";
    assert_eq!(gateway.send(preflight).status, 200);
    assert_eq!(gateway.send(&preflight.replace("access-control-request-method", "x-other")).status, 429);
    assert_eq!(upstream.heads().len(), 4);
}

#[test]
fn requests_without_a_route_are_charged_and_404() {
    let upstream = Upstream::echo("");
    let section = format!("routes: [{{ path: /api/**, upstream: 'http://{}' }}]", upstream.address);
    let rules = "rules: [{ name: two, limits: [{ algorithm: fixed_window, limit: 2, window: 3650d }] }]";
    let gateway = Gateway::with_rules("nowhere", &section, rules);
    let missing = gateway.get("/other", &[]);
    assert_eq!((missing.status, missing.header("x-ratelimit-remaining")), (404, Some("1")));
    assert_eq!(missing.header("content-type"), Some("application/problem+json"));
    assert_eq!(gateway.get("/other", &[]).status, 404);
    assert_eq!(gateway.get("/other", &[]).status, 429);
    assert!(upstream.heads().is_empty());
}

#[test]
fn a_store_that_is_gone_refuses_where_the_rule_is_closed() {
    let upstream = Upstream::echo("");
    let section = format!("routes: [{{ path: /**, upstream: 'http://{}' }}]", upstream.address);
    // No server listens on the port of a closed listener.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("a port").port();
    let rules = format!("store: redis://127.0.0.1:{port}\n{AMPLE}\n    on_store_failure: closed");
    let gateway = Gateway::with_rules("closed", &section, &rules);
    let refused = gateway.get("/a", &[]);
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.json()["detail"], "Service temporarily unavailable (rate limiter backend error)");
    assert!(upstream.heads().is_empty());
}

#[test]
fn a_body_over_its_bound_is_413_however_it_comes() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        caller.read_to_end();
    });
    let gateway = Gateway::to("bound", upstream.address, ", max_body_bytes: 10");
    let claimed = "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 11\r\n\r\nhello world";
    let chunked = "POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n";
    for request in [claimed, chunked] {
        let refused = gateway.send(request);
        assert_eq!((refused.status, refused.header("connection")), (413, Some("close")), "{request}");
    }
}

#[test]
fn a_client_that_waits_for_leave_to_send_gets_it_only_if_it_is_allowed() {
    let upstream = Upstream::echo("");
    let section = format!("routes: [{{ path: /**, upstream: 'http://{}' }}]", upstream.address);
    let rules = "rules: [{ name: one, limits: [{ algorithm: fixed_window, limit: 1, window: 3650d }] }]";
    let gateway = Gateway::with_rules("expect", &section, rules);
    let head =
        "POST /a HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 5\r\nconnection: close\r\n\r\n";
    let mut connection = Connection::open(gateway.address());
    connection.send(head);
    assert_eq!(connection.read_head(), "HTTP/1.1 100 Continue");
    connection.send("hello");
    let answer = connection.answer();
    assert!(answer.status == 200 && answer.body.ends_with("\r\n\r\nhello"), "{answer:?}");
    let mut connection = Connection::open(gateway.address());
    connection.send(head);
    assert_eq!(connection.answer().status, 429);
}

#[test]
fn a_continue_response_is_sent_for_every_method() {
    let upstream = Upstream::echo("");
    let gateway = Gateway::to("expect-any", upstream.address, "");
    for method in ["GET", "DELETE", "OPTIONS", "PATCH"] {
        let lines = "host: t\r\nexpect: 100-continue\r\ncontent-length: 5\r\nconnection: close";
        let mut connection = Connection::open(gateway.address());
        connection.send(format!("{method} /a HTTP/1.1\r\n{lines}\r\n\r\n"));
        assert_eq!(connection.read_head(), "HTTP/1.1 100 Continue", "{method}");
        connection.send("hello");
        let answer = connection.answer();
        assert!(answer.status == 200 && answer.body.ends_with("\r\n\r\nhello"), "{answer:?}");
        let is_last = method != "PATCH";
        assert_eq!(header(&answer.body, "connection"), is_last.then_some("close"), "{answer:?}");
        assert_eq!(header(&answer.body, "expect"), None, "{answer:?}");
    }
}

#[test]
fn an_answer_without_a_body_has_none() {
    let upstream = Upstream::start(|caller, _| {
        while let Some(head) = caller.read_head() {
            let answer = match head.split(' ').nth(1).expect("a path") {
                "/none" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/same" => "HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\netag: \"x\"\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n",
            };
            caller.send(answer);
        }
    });
    let gateway = Gateway::to("bodiless", upstream.address, "");
    let head = gateway.send("HEAD /long HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n");
    assert_eq!((head.status, head.header("content-length"), head.body.as_str()), (200, Some("1234"), ""));
    let none = gateway.get("/none", &[]);
    assert_eq!((none.status, none.header("content-length"), none.body.as_str()), (204, None, ""));
    let same = gateway.get("/same", &[]);
    assert_eq!((same.status, same.header("etag"), same.body.as_str()), (304, Some("\"x\""), ""));
}
