//! Upstreams with incorrect behaviour.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::upstream::Upstream;
use super::{Gateway, get};
use crate::client::Connection;
use crate::server::PATIENCE;

const POST: &str = "POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";

#[test]
fn an_invalid_response_is_502() {
    for (test, answer) in [
        ("nothing", ""),
        ("garbage", "\u{1}\u{2}\u{3} hello\r\n\r\n"),
        ("half-a-head", "HTTP/1.1 200 OK\r\ncontent-le"),
        ("two-lengths", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab"),
        ("bad-length", "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nab"),
        ("not-requested", "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"),
    ] {
        let upstream = Upstream::start(move |caller, _| {
            caller.read_head();
            caller.send(answer);
        });
        let gateway = Gateway::to(test, upstream.address, "");
        let failed = gateway.get("/a", &[]);
        assert_eq!(
            (failed.status, failed.header("content-type")),
            (502, Some("application/problem+json")),
            "{test}"
        );
        assert!(failed.header("x-ratelimit-limit").is_some(), "it was charged: {failed:?}");
        assert_eq!(upstream.heads().len(), 1, "{test}: a new connection that breaks is not tried again");
    }
}

#[test]
fn a_head_beyond_all_bounds_is_502() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        caller.send(format!("HTTP/1.1 200 OK\r\nx-long: {}\r\n\r\n", "x".repeat(200_000)));
    });
    let gateway = Gateway::to("long-head", upstream.address, "");
    assert_eq!(gateway.get("/a", &[]).status, 502);
}

#[test]
fn an_upstream_that_cannot_be_reached_is_502() {
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr()).expect("a port");
    let gateway = Gateway::to("unreachable", gone, "");
    for _ in 0..3 {
        let failed = gateway.get("/a", &[]);
        assert_eq!(failed.status, 502);
        assert_eq!(failed.json()["detail"], "the upstream cannot be reached; try again later");
    }
}

#[test]
fn an_upstream_that_is_too_slow_is_504() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        // The upstream sends nothing until the gateway gives up.
        assert!(caller.read_to_end().is_empty());
    });
    let gateway = Gateway::to("late", upstream.address, ", timeout: 100ms");
    let late = gateway.get("/a", &[]);
    assert_eq!((late.status, late.header("content-type")), (504, Some("application/problem+json")));
}

/// Only the connection shows the client that a response is truncated, so the gateway must not close it cleanly.
#[test]
fn a_truncated_response_is_recognised() {
    let by_length = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhello";
    let by_chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    for (test, first, then) in [
        ("short", by_length, ""),
        ("shorter", by_length, " world"),
        ("no-last-chunk", by_chunks, ""),
        ("half-a-chunk", by_chunks, "ff\r\nmore"),
        ("bad-chunk", by_chunks, "zz\r\n"),
        ("half-an-end", by_chunks, "0\r\n"),
    ] {
        let (go_on, may_go_on) = channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let upstream = Upstream::start(move |caller, _| {
            caller.read_head();
            caller.send(first);
            may_go_on.lock().expect("no panic").recv_timeout(PATIENCE).expect("the client has seen it");
            caller.send(then);
        });
        let gateway = Gateway::to(test, upstream.address, "");
        let mut connection = Connection::open(gateway.address());
        connection.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
        assert_eq!(connection.read_head(), "HTTP/1.1 200 OK");
        let expected = first.split_once("\r\n\r\n").expect("a head").1;
        assert_eq!(connection.read(expected.len()), expected.as_bytes());
        go_on.send(()).expect("the upstream waits");
        let rest = connection.read_to_end();
        assert!(rest.len() < 20 && !rest.ends_with("0\r\n\r\n"), "{test}: {rest}");
    }
}

#[test]
fn an_answer_that_pauses_for_too_long_is_broken_off() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        caller.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
        caller.read_to_end();
    });
    let gateway = Gateway::to("pausing", upstream.address, ", idle_timeout: 100ms");
    let mut connection = Connection::open(gateway.address());
    connection.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
    let text = connection.read_to_end();
    assert!(text.contains("hello") && !text.ends_with("0\r\n\r\n"), "{text}");
}

#[test]
fn answers_before_the_answer_are_not_the_answer() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        caller.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
        caller.answer("", "whole");
    });
    let gateway = Gateway::to("interim", upstream.address, "");
    let answer = gateway.get("/a", &[]);
    assert_eq!((answer.status, answer.body.as_str()), (200, "whole"));
}

/// Closes the first connection instead of responding to its second request.
fn closing_at_the_second() -> Upstream {
    Upstream::start(|caller, count| {
        let answers = if count == 0 { 1 } else { usize::MAX };
        for _ in 0..answers {
            let Some(head) = caller.read_head() else { return };
            if head.starts_with("POST") {
                caller.read(2);
            }
            caller.answer("", "fine");
        }
        caller.read_head();
    })
}

#[test]
fn a_safe_request_is_sent_again_when_a_kept_connection_breaks() {
    let upstream = closing_at_the_second();
    let gateway = Gateway::to("again", upstream.address, "");
    for _ in 0..2 {
        let answer = gateway.get("/a", &[]);
        assert_eq!((answer.status, answer.body.as_str()), (200, "fine"));
    }
    assert_eq!(upstream.heads().len(), 3, "the second was sent twice");
}

#[test]
fn a_request_that_may_have_done_something_is_never_sent_again() {
    let upstream = closing_at_the_second();
    let gateway = Gateway::to("never-again", upstream.address, "");
    assert_eq!(gateway.send(POST).status, 200);
    assert_eq!(gateway.send(POST).status, 502);
    let bodiless = "DELETE /a HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";
    assert_eq!(gateway.send(bodiless).status, 200);
    assert_eq!(upstream.heads().len(), 3, "each was sent once");

    let upstream = closing_at_the_second();
    let gateway = Gateway::to("no-retry", upstream.address, ", retry: false");
    assert_eq!(gateway.get("/a", &[]).status, 200);
    assert_eq!(gateway.get("/a", &[]).status, 502);
    assert_eq!(upstream.heads().len(), 2);
}

/// Bytes that an upstream sends after its response must not become the response of another request.
#[test]
fn bytes_after_a_response_reach_no_client() {
    let upstream = Upstream::start(|caller, count| {
        while caller.read_head().is_some() {
            let body = format!("own {count}");
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            caller.send(answer + "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nstolen");
        }
    });
    let gateway = Gateway::to("stolen", upstream.address, "");
    for count in 0..5 {
        let answer = gateway.get("/a", &[]);
        assert_eq!((answer.status, answer.body), (200, format!("own {count}")));
    }
}

#[test]
fn an_upstream_may_answer_before_it_has_read_everything() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        caller.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbig");
        caller.read_to_end();
    });
    let gateway = Gateway::to("early", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 1000000\r\nconnection: close\r\n\r\npart");
    let answer = connection.answer();
    assert_eq!((answer.status, answer.body.as_str()), (413, "big"));
}

#[test]
fn more_than_may_be_under_way_is_503() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        caller.read_to_end();
    });
    let gateway = Gateway::to("busy", upstream.address, ", concurrency: 1, connect_timeout: 100ms");
    let mut first = Connection::open(gateway.address());
    first.send(get("/first", &[]));
    while upstream.heads().is_empty() {
        std::thread::yield_now();
    }
    let busy = gateway.get("/second", &[]);
    assert_eq!((busy.status, busy.header("retry-after")), (503, Some("1")));
    assert_eq!(upstream.heads().len(), 1);
}

/// A client that sends a byte now and then is treated like a silent one.
#[test]
fn a_client_that_stops_sending_or_trickles_is_408() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        caller.read_to_end();
    });
    // The timeout of the upstream does not run while the gateway waits for the client.
    let gateway = Gateway::to("stops", upstream.address, ", timeout: 100ms");
    let mut connection = Connection::open(gateway.address());
    connection.send("POST /a HTTP/1.1\r\nhost: t\r\ncontent-length: 10\r\n\r\npart");
    let mut trickle = TcpStream::connect(gateway.address()).expect("the gateway accepts");
    trickle.write_all(b"POST /b HTTP/1.1\r\nhost: t\r\ncontent-length: 1000\r\n\r\n").expect("the gateway reads");
    trickle.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let mut told = [0; 12];
    let mut bytes = 0;
    while trickle.read(&mut told).is_err() {
        // The gateway may have just closed the connection.
        let _ = trickle.write_all(b"x");
        bytes += 1;
        assert!(bytes < 1_000, "a byte every half second is enough");
    }
    assert_eq!(&told, b"HTTP/1.1 408");
    let answer = connection.answer();
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
}
