//! A thousand clients that never finish what they begin, and one that does.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::{Session, ask};
use crate::server::{PATIENCE, Server};

const SLOW: usize = 1_000;

/// Room for the sockets of this process; the server sees to its own.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("the limit may be raised");
}

fn open(address: SocketAddr, beginning: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the listener accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(beginning).expect("the server reads");
    stream
}

/// Until the server closes, by an end or a reset.
fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_thousand_slow_clients_keep_nobody_waiting() {
    raise_open_files();
    let server = Server::start(&[]);
    let (gateway, api) = (server.address("gateway"), server.address("api"));
    // Nothing at all, half a head, half a body, half a preface of HTTP/2.
    let beginnings: [&[u8]; 4] = [
        b"",
        b"GET /api/ping HTTP/1.1\r\nhost: t\r\nx-slow: ",
        b"POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
        b"PRI * HTTP/2.0\r\n\r\nS",
    ];
    let mut slow: Vec<_> = (0..SLOW)
        .map(|index| open(if index % 2 == 0 { gateway } else { api }, beginnings[(index / 2) % beginnings.len()]))
        .collect();

    let mut healthy = Session::open(api);
    for round in 0..200 {
        let body = format!(r#"{{"resource":"demo","identifier":"healthy-{round}"}}"#);
        assert_eq!(healthy.post("/v1/check", &body).status, 200, "round {round}");
        // A new connection is served as well as an old one.
        assert_eq!(ask(gateway, "GET", "/").status, 200, "round {round}");
        for stream in slow.iter_mut().skip(round).step_by(200) {
            // One more byte from each; those that were cut by now cannot send it.
            let _ = stream.write_all(b"P");
        }
    }
    assert!(slow.into_iter().all(is_closed), "each is cut in the end");
    assert_eq!(ask(gateway, "GET", "/").status, 200);
}
