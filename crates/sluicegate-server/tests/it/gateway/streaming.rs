//! Bodies are streamed: each side sees the first piece before the other has sent the second.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use super::Gateway;
use super::upstream::Upstream;
use crate::client::Connection;
use crate::server::PATIENCE;

#[test]
fn an_upstream_sees_a_piece_before_the_client_sends_the_next() {
    let (seen, pieces) = channel();
    let seen = Mutex::new(seen);
    let upstream = Upstream::start(move |caller, _| {
        caller.read_head();
        loop {
            let piece = caller.read_chunk();
            let is_last = piece.is_empty();
            seen.lock().expect("no panic").send(String::from_utf8(piece).expect("text")).expect("the test waits");
            if is_last {
                return caller.answer("connection: close\r\n", "thanks");
            }
        }
    });
    let gateway = Gateway::to("up", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send("POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n");
    for piece in ["one", "two", "six"] {
        connection.send(format!("3\r\n{piece}\r\n"));
        assert_eq!(pieces.recv_timeout(PATIENCE).expect("it arrives alone"), piece);
    }
    connection.send("0\r\n\r\n");
    assert_eq!(connection.answer().body, "thanks");
}

#[test]
fn a_client_sees_a_piece_before_the_upstream_sends_the_next() {
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let upstream = Upstream::start(move |caller, _| {
        caller.read_head();
        caller.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        for piece in ["one", "two", "six"] {
            caller.send(format!("3\r\n{piece}\r\n"));
            may_go_on.lock().expect("no panic").recv_timeout(PATIENCE).expect("the test has seen it");
        }
        caller.send("0\r\n\r\n");
        caller.read_head();
    });
    let gateway = Gateway::to("down", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send("GET /a HTTP/1.1\r\nhost: t\r\n\r\n");
    assert_eq!(connection.read_head(), "HTTP/1.1 200 OK");
    for piece in ["one", "two", "six"] {
        assert_eq!(connection.read(8), format!("3\r\n{piece}\r\n").as_bytes());
        go_on.send(()).expect("the upstream waits");
    }
    assert_eq!(connection.read(5), b"0\r\n\r\n");
}

/// Neither direction waits for the end of the other, as gRPC and other protocols need.
#[test]
fn both_ways_at_once() {
    let upstream = Upstream::start(|caller, _| {
        caller.read_head();
        caller.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        loop {
            let piece = caller.read_chunk();
            caller.send(format!("{:x}\r\n", piece.len()));
            caller.send(piece.as_slice());
            caller.send("\r\n");
            if piece.is_empty() {
                return;
            }
        }
    });
    let gateway = Gateway::to("both", upstream.address, "");
    let mut connection = Connection::open(gateway.address());
    connection.send("POST /a HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n");
    assert_eq!(connection.read_head(), "HTTP/1.1 200 OK");
    for piece in ["one", "two", "six"] {
        let chunk = format!("3\r\n{piece}\r\n");
        connection.send(&chunk);
        assert_eq!(connection.read(8), chunk.as_bytes());
    }
    connection.send("0\r\n\r\n");
    assert_eq!(connection.read(5), b"0\r\n\r\n");
}
