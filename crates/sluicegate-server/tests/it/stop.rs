//! The stop of the server: readiness off, in-flight responses finished, exit code.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Connection, send};
use crate::server::{Ended, Server};

#[track_caller]
fn assert_exit(ended: &Ended, code: i32) {
    assert_eq!(ended.status.code(), Some(code), "{:#?}", ended.lines);
}

/// Requests readiness until it is off, because the signal takes effect asynchronously.
fn wait_until_not_ready(server: &Server) {
    loop {
        let answer = send(server.address("admin"), "GET", "/readyz");
        if answer.status == 503 {
            assert_eq!(answer.json(), json!({ "status": "stopping", "degraded": false }));
            return;
        }
    }
}

#[test]
fn both_signals_end_an_idle_server_with_0() {
    for signal in ["TERM", "INT"] {
        let server = Server::start(&[]);
        server.signal(signal);
        assert_exit(&server.wait(), 0);
    }
}

/// `SIGHUP` means a reload. A server that dies from it would lose all its counts.
#[test]
fn a_hangup_without_a_file_is_logged_and_the_server_goes_on() {
    let mut server = Server::start(&[]);
    server.signal("HUP");
    let warning = server.wait_for_line("to have one to reload");
    assert!(warning.contains("WARN") && warning.contains("built-in configuration"), "{warning}");
    assert_eq!(send(server.address("admin"), "GET", "/readyz").status, 200);
    assert_eq!(send(server.address("gateway"), "GET", "/api/ping").status, 200);
    server.signal("TERM");
    assert_exit(&server.wait(), 0);
}

#[test]
fn a_request_in_flight_is_answered_while_readiness_is_off() {
    let server = Server::start(&[]);
    let mut in_flight = Connection::open(server.address("api"));
    in_flight.send("GET /v1/in-flight HTTP/1.1\r\n");
    // The response on a later connection proves that the server has accepted the first one.
    assert_eq!(send(server.address("api"), "GET", "/").status, 404);
    let signalled = Instant::now();
    server.signal("TERM");
    wait_until_not_ready(&server);

    in_flight.send("host: t\r\n\r\n");
    // The client gets the whole response. Then the server closes the connection, although the client would keep it
    // open.
    let answer = in_flight.answer();
    assert_eq!(answer.status, 404);
    assert_eq!(answer.json()["detail"].as_str().map(|detail| detail.contains("in-flight")), Some(true));

    assert_exit(&server.wait(), 0);
    assert!(signalled.elapsed() < Duration::from_secs(10), "{:?}", signalled.elapsed());
}

/// Clients that never finish must not delay the stop.
#[test]
fn stopping_takes_less_than_ten_seconds_with_any_clients() {
    let server = Server::start(&[]);
    let mut stuck: Vec<_> =
        ["gateway", "api", "admin"].iter().map(|listener| Connection::open(server.address(listener))).collect();
    for connection in &mut stuck {
        connection.send("GET / HTTP/1.1\r\n");
    }
    let signalled = Instant::now();
    server.signal("TERM");
    assert_exit(&server.wait(), 0);
    assert!(signalled.elapsed() < Duration::from_secs(10), "{:?}", signalled.elapsed());
}

#[test]
fn a_second_signal_does_not_wait() {
    let server = Server::start(&[]);
    let mut in_flight = Connection::open(server.address("api"));
    in_flight.send("GET / HTTP/1.1\r\n");
    assert_eq!(send(server.address("api"), "GET", "/").status, 404);
    server.signal("TERM");
    wait_until_not_ready(&server);
    server.signal("TERM");
    let ended = server.wait();
    assert_exit(&ended, 1);
    assert!(ended.lines.iter().any(|line| line.contains("second signal")), "{:#?}", ended.lines);
}
