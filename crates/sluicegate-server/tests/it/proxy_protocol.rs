//! Clients behind a load balancer with the PROXY protocol, and clients that forge its header.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use crate::client::{Answer, Connection};
use crate::server::{ConfigFile, PATIENCE, Server};

/// Ten pings per address, on a gateway with its balancer in `networks`.
fn start(name: &str, networks: &str) -> (Server, ConfigFile) {
    let file = ConfigFile::new(
        name,
        format!(
            "demo: true
listen: {{ gateway: {{ proxy_protocol: {networks}, max_connections_per_address: 3 }} }}
rules:
  - {{ name: each, per: ip, limits: [{{ algorithm: fixed_window, limit: 10, window: 1d }}] }}
"
        ),
    );
    (Server::start(&["--config", file.path()]), file)
}

fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
    [&b"\r\n\r\n\0\r\nQUIT\n"[..], &[command, family], &length, rest].concat()
}

/// A header with this client address, followed by an optional field that the server ignores.
fn client(address: [u8; 4]) -> Vec<u8> {
    let rest = [&address[..], &Ipv4Addr::LOCALHOST.octets(), &[0x30, 0x39, 0, 80], &[4, 0, 1, 0]].concat();
    header(0x21, 0x11, &rest)
}

const PING: &[u8] = b"GET /api/ping HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n";

fn ping(gateway: SocketAddr, header: &[u8]) -> Answer {
    let mut connection = Connection::open(gateway);
    connection.send([header, PING].concat());
    connection.answer()
}

/// All bytes until the server closes.
fn rest(gateway: SocketAddr, bytes: &[u8]) -> String {
    let mut connection = Connection::open(gateway);
    connection.send(bytes);
    connection.read_to_end()
}

fn remaining(answer: &Answer) -> Option<&str> {
    answer.header("x-ratelimit-remaining")
}

#[test]
fn each_client_behind_the_balancer_has_its_own_limit() {
    let (server, _file) = start("proxy-clients", "[127.0.0.1]");
    let gateway = server.address("gateway");
    for expected in ["9", "8", "7"] {
        assert_eq!(remaining(&ping(gateway, &client([198, 51, 100, 7]))), Some(expected));
    }
    assert_eq!(remaining(&ping(gateway, &client([198, 51, 100, 8]))), Some("9"));

    let mut ipv6 = vec![0x20, 0x01, 0x0d, 0xb8];
    ipv6.resize(32, 0);
    ipv6.extend([0, 1, 0, 2]);
    assert_eq!(remaining(&ping(gateway, &header(0x21, 0x21, &ipv6))), Some("9"));

    // The balancer itself: a health check, and a header of an unspecified address family.
    assert_eq!(remaining(&ping(gateway, &header(0x20, 0x00, &[]))), Some("9"));
    assert_eq!(remaining(&ping(gateway, &header(0x21, 0x00, &[]))), Some("8"));
}

#[test]
fn the_balancer_must_send_a_good_header() {
    let (server, _file) = start("proxy-must", "[127.0.0.0/8]");
    let gateway = server.address("gateway");
    let version_1 = [b"PROXY TCP4 198.51.100.7 127.0.0.1 1 80\r\n", PING].concat();
    let ipv4 = [198, 51, 100, 7, 127, 0, 0, 1, 0, 1, 0, 80];
    let then_ping = |header: Vec<u8>| [&header, PING].concat();
    for bytes in [
        PING.to_vec(),
        version_1,
        then_ping(header(0x11, 0x11, &ipv4)),
        then_ping(header(0x22, 0x11, &ipv4)),
        then_ping(header(0x21, 0x12, &ipv4)),
        then_ping(header(0x21, 0x11, &ipv4[..11])),
        then_ping(header(0x21, 0x11, &[0; 600])),
        then_ping(vec![0; 16]),
    ] {
        assert_eq!(rest(gateway, &bytes), "", "{bytes:?}");
    }
    // A second header is a bad request.
    let twice = [client([198, 51, 100, 7]), client([198, 51, 100, 8])].concat();
    assert!(rest(gateway, &then_ping(twice)).starts_with("HTTP/1.1 400 "));
    // An unfinished header is closed after a timeout.
    assert_eq!(rest(gateway, &client([198, 51, 100, 7])[..20]), "");
    assert_eq!(remaining(&ping(gateway, &client([198, 51, 100, 7]))), Some("9"), "nobody was charged");
}

#[test]
fn only_the_load_balancer_may_name_a_client() {
    let (server, _file) = start("proxy-others", "[10.0.0.0/8]");
    let gateway = server.address("gateway");
    assert_eq!(remaining(&ping(gateway, b"")), Some("9"));
    let spoofed = [client([198, 51, 100, 7]), PING.to_vec()].concat();
    assert!(rest(gateway, &spoofed).starts_with("HTTP/1.1 400 "));
    assert_eq!(remaining(&ping(gateway, b"")), Some("8"));
}

#[test]
fn one_client_has_only_so_many_connections_and_the_next_has_its_own() {
    let (server, _file) = start("proxy-cap", "[127.0.0.1]");
    let gateway = server.address("gateway");
    let open = |address| {
        let mut connection = Connection::open(gateway);
        connection.send([&client(address)[..], b"GET / HTTP/1.1\r\nhost: t\r\n\r\n"].concat());
        connection
    };
    let mut kept: Vec<_> = (0..3).map(|_| open([198, 51, 100, 7])).collect();
    for connection in &mut kept {
        assert_eq!(connection.read_head(), "HTTP/1.1 200 OK");
    }
    assert_eq!(open([198, 51, 100, 7]).read_to_end(), "", "one too many");
    assert_eq!(open([198, 51, 100, 8]).read_head(), "HTTP/1.1 200 OK");
    // The cap on connections per address does not apply to the balancer, nor to its own health checks.
    let health: Vec<_> = (0..10).map(|_| ping(gateway, &header(0x20, 0x00, &[])).status).collect();
    assert_eq!(health, [200; 10]);

    // A closed connection makes room as soon as the server notices the close.
    drop(kept);
    let left = Instant::now();
    while open([198, 51, 100, 7]).try_read_head().is_none() {
        assert!(left.elapsed() < PATIENCE, "no room is made");
    }
}
