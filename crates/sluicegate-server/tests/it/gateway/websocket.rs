//! Connections that switch to another protocol.

use std::time::{Duration, Instant};

use super::Gateway;
use super::upstream::{Upstream, header};
use crate::client::Connection;

pub(super) const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: t\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
pub(super) const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Accepts the upgrade, and echoes the received bytes in capital letters.
fn agreeing() -> Upstream {
    Upstream::start(|caller, _| {
        caller.read_head();
        caller.send(AGREED);
        loop {
            let piece = String::from_utf8(caller.read(4)).expect("text");
            caller.send(piece.to_uppercase());
            if piece == "done" {
                return;
            }
        }
    })
}

#[test]
fn bytes_go_both_ways_once_the_upstream_has_agreed() {
    let upstream = agreeing();
    let gateway = Gateway::to("websocket", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send(UPGRADE);
    let head = connection.read_whole_head();
    assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
    assert_eq!(header(&head, "connection"), Some("upgrade"));
    assert_eq!(header(&head, "upgrade"), Some("websocket"));
    assert_eq!(header(&head, "sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert!(header(&head, "x-ratelimit-limit").is_some() && header(&head, "x-request-id").is_some());
    for _ in 0..3 {
        connection.send("pong");
        assert_eq!(connection.read(4), b"PONG");
    }
    connection.send("done");
    assert_eq!(connection.read_to_end(), "DONE");

    let [head] = &*upstream.heads() else { panic!("one request") };
    assert_eq!((header(head, "connection"), header(head, "upgrade")), (Some("upgrade"), Some("websocket")));
    assert_eq!(header(head, "sec-websocket-key"), Some("dGhlIHNhbXBsZSBub25jZQ=="));
}

/// Bytes after a rejected upgrade are the client's next request, which is processed like every request.
#[test]
fn without_agreement_there_is_no_tunnel() {
    let upstream = Upstream::start(|caller, _| {
        let Some(head) = caller.read_head() else { return };
        let is_upgrade = header(&head, "upgrade").is_some();
        let status = if is_upgrade { "403 Forbidden" } else { "200 OK" };
        caller.send(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nno"));
        assert!(!is_upgrade || caller.read_to_end().is_empty(), "nothing follows");
    });
    let gateway = Gateway::to("refused", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send(UPGRADE);
    let head = connection.read_whole_head();
    assert!(head.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{head}");
    assert_eq!(connection.read(2), b"no");
    connection
        .send("GET /secret HTTP/1.1\r\nhost: t\r\nx-sluicegate-identifier: root\r\nconnection: close\r\n\r\n");
    assert_eq!(connection.answer().status, 200);
    let heads = upstream.heads();
    assert_eq!(header(&heads[1], "x-sluicegate-identifier"), None, "it was looked at: {heads:?}");
    assert!(header(&heads[1], "x-forwarded-for").is_some());
}

#[test]
fn only_websocket_is_an_upgrade() {
    let upstream = Upstream::echo("");
    let gateway = Gateway::to("h2c", upstream.address, "");
    for lines in [
        &["connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABk"][..],
        &["connection: upgrade", "upgrade: tcp"],
        &["upgrade: websocket"],
    ] {
        let answer = gateway.get("/a", lines);
        assert_eq!(answer.status, 200);
        assert_eq!(
            (header(&answer.body, "upgrade"), header(&answer.body, "connection")),
            (None, None),
            "{lines:?}"
        );
    }
}

/// A tunnel has no end of its own, so it ends at the drain deadline of a stopping server.
#[test]
fn a_tunnel_goes_on_while_the_server_drains_and_does_not_hold_it_up() {
    let upstream = agreeing();
    let gateway = Gateway::to("draining-tunnel", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send(UPGRADE);
    assert!(connection.read_whole_head().contains(" 101 "));
    let signalled = Instant::now();
    gateway.server.signal("TERM");
    // The listening socket closes when the drain begins.
    while std::net::TcpStream::connect(gateway.address()).is_ok() {
        std::thread::yield_now();
    }
    connection.send("ping");
    assert_eq!(connection.read(4), b"PING");
    let ended = gateway.server.wait();
    assert_eq!(ended.status.code(), Some(0), "{:#?}", ended.lines);
    assert!(signalled.elapsed() < Duration::from_secs(10), "{:?}", signalled.elapsed());
    assert_eq!(connection.read_to_end(), "");
}

#[test]
fn an_answer_on_its_way_is_finished_while_the_server_drains() {
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let may_go_on = std::sync::Mutex::new(may_go_on);
    let upstream = Upstream::start(move |caller, _| {
        caller.read_head();
        caller.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n");
        may_go_on.lock().expect("no panic").recv().expect("the test goes on");
        caller.send("3\r\ntwo\r\n0\r\n\r\n");
    });
    let gateway = Gateway::to("draining-answer", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(connection.read_head(), "HTTP/1.1 200 OK");
    assert_eq!(connection.read(8), b"3\r\none\r\n");
    gateway.server.signal("TERM");
    while std::net::TcpStream::connect(gateway.address()).is_ok() {
        std::thread::yield_now();
    }
    go_on.send(()).expect("the upstream waits");
    assert_eq!(connection.read_to_end(), "3\r\ntwo\r\n0\r\n\r\n");
    assert_eq!(gateway.server.wait().status.code(), Some(0));
}

/// A proxy in front may parse early bytes as another request, so the gateway forwards them to no upstream.
#[test]
fn bytes_that_come_before_the_agreement_end_the_connection() {
    let upstream = agreeing();
    let gateway = Gateway::to("early", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send(format!("{UPGRADE}ping"));
    let answer = connection.answer();
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.body.contains("wait for the response 101"), "{answer:?}");
}

/// An upgrade has no body. An upstream that ignores one would execute it as the next request of the connection.
#[test]
fn an_upgrade_request_with_a_body_is_rejected_and_its_body_never_executed() {
    let upstream = Upstream::start(|caller, _| {
        // The upstream ignores bodies, like servers that expect none.
        while caller.read_head().is_some() {
            caller.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        }
    });
    let gateway = Gateway::to("upgrade-body", upstream.address, "");
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n";
    let length = format!("content-length: {}\r\n\r\n{smuggled}", smuggled.len());
    let chunked = format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{smuggled}\r\n0\r\n\r\n", smuggled.len());
    let empty_chunked = "transfer-encoding: chunked\r\n\r\n0\r\n\r\n".to_owned();
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY", "PROPFIND", "FOO"] {
        for body in [&length, &chunked, &empty_chunked] {
            let upgrade = UPGRADE.replacen("GET", method, 1);
            let head = upgrade.strip_suffix("\r\n").expect("the end of the head");
            let answer = gateway.send(&format!("{head}{body}"));
            assert_eq!(answer.status, 400, "{method}: {answer:?}");
            // Chunks are rejected before the request is read.
            let has_reason = answer.body.contains("a WebSocket upgrade request has a body");
            assert!(has_reason || method == "HEAD" || body != &length, "{method}: {answer:?}");
        }
    }
    assert!(upstream.heads().is_empty(), "{:#?}", upstream.heads());

    // Requests without `Upgrade`, and upgrades with a length of zero, are accepted as before.
    let empty = UPGRADE.replace("keep-alive", "close").replace("\r\n\r\n", "\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(gateway.send(&empty).status, 200);
    let plain = format!("GET /a HTTP/1.1\r\nhost: t\r\nconnection: close\r\n{length}");
    assert_eq!(gateway.send(&plain).status, 200);
    let heads = upstream.heads();
    assert_eq!(header(&heads[1], "connection"), Some("close"), "{heads:#?}");
}
