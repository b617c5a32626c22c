//! Clients that send too much, too little or too slowly.

use std::process::Command;

use crate::client::{Connection, send};
use crate::server::{Server, sluicegate};

#[test]
fn a_body_of_two_megabytes_is_413() {
    let server = Server::start(&[]);
    let mut connection = Connection::open(server.address("api"));
    connection.send("POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-length: 2000000\r\n\r\n");
    connection.send(vec![b'x'; 2_000_000]);
    let answer = connection.answer();
    assert_eq!(answer.status, 413);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(answer.json()["title"], "Payload Too Large");
}

#[test]
fn a_connection_that_sends_nothing_is_closed() {
    let server = Server::start(&[]);
    let listeners = server.listeners();
    let connections: Vec<_> =
        listeners.iter().map(|listener| Connection::open(server.address(listener))).collect();
    for mut silent in connections {
        assert_eq!(silent.read_to_end(), "");
    }
}

#[test]
fn half_a_head_is_closed() {
    let server = Server::start(&[]);
    let mut half = Connection::open(server.address("api"));
    half.send("GET /readyz HTTP/1.1\r\nhost: ");
    assert_eq!(half.read_to_end(), "");
}

#[test]
fn a_long_uri_is_414_and_too_many_headers_are_431() {
    let server = Server::start(&[]);
    let api = server.address("api");
    let answer = send(api, "GET", &format!("/{}", "x".repeat(10_000)));
    assert_eq!(answer.status, 414);
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));

    let mut connection = Connection::open(api);
    let headers = "x-many: 1\r\n".repeat(70);
    connection.send(format!("GET / HTTP/1.1\r\nhost: t\r\n{headers}\r\n"));
    assert_eq!(connection.answer().status, 431);
}

#[test]
fn garbage_is_400_and_the_server_goes_on() {
    let server = Server::start(&[]);
    let api = server.address("api");
    for garbage in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/1.1\r\nbad header\r\n\r\n"] {
        let mut connection = Connection::open(api);
        connection.send(garbage);
        assert_eq!(connection.answer().status, 400, "{garbage:?}");
    }
    assert_eq!(send(api, "GET", "/").status, 404);
}

/// With 228 open files the server reserves 128 for itself and gives each listener a fifth of the rest.
#[test]
fn the_connection_cap_holds_and_leaves_the_admin_listener_alone() {
    const CAP: usize = (228 - 128) / 5;
    let server = Server::start_command(with_open_files(
        228,
        &["--gateway", "off", "--api", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
    ));
    let api = server.address("api");
    let idle_files = server.open_files();
    let keep_alive = "GET / HTTP/1.1\r\nhost: t\r\n\r\n";

    let mut served: Vec<_> = (0..CAP).map(|_| Connection::open(api)).collect();
    for connection in &mut served {
        connection.send(keep_alive);
        assert_eq!(connection.read_head(), "HTTP/1.1 404 Not Found");
    }
    let mut waiting: Vec<_> = (0..3 * CAP).map(|_| Connection::open(api)).collect();
    for connection in &mut waiting {
        connection.send(keep_alive);
    }
    assert_eq!(send(server.address("admin"), "GET", "/livez").status, 200);
    // The server may not have closed the admin connection yet.
    let files = server.open_files();
    assert!(files <= idle_files + CAP + 1, "{files} open files, {idle_files} without clients");

    // Each closed connection makes room for a waiting one.
    served.clear();
    for connection in &mut waiting[..CAP] {
        assert_eq!(connection.read_head(), "HTTP/1.1 404 Not Found");
    }
}

/// Starts the server under a limit on open files, which it cannot raise.
fn with_open_files(limit: u32, arguments: &[&str]) -> Command {
    let server = sluicegate(arguments);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("ulimit -n {limit} && exec \"$0\" \"$@\""));
    shell.arg(server.get_program()).args(server.get_args());
    for (name, value) in server.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}
