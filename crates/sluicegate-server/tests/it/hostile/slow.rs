//! A thousand clients that never finish their requests, and one that does.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::client::{Session, send};
use crate::server::{PATIENCE, Server};

const SLOW: usize = 1_000;

/// Raises the file limit of this process for its sockets; the server raises its own.
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

/// Reads until the server closes, by FIN or reset.
fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_thousand_slow_clients_delay_no_other() {
    raise_open_files();
    let server = Server::start(&[]);
    let (gateway, api) = (server.address("gateway"), server.address("api"));
    // Nothing, half a head, half a body, half an HTTP/2 preface.
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
        // A new connection gets a response as well as an old one.
        assert_eq!(send(gateway, "GET", "/").status, 200, "round {round}");
        for stream in slow.iter_mut().skip(round).step_by(200) {
            // One more byte from each. Connections that the server has closed cannot send it.
            let _ = stream.write_all(b"P");
        }
    }
    assert!(slow.into_iter().all(is_closed), "each is cut in the end");
    assert_eq!(send(gateway, "GET", "/").status, 200);
}
