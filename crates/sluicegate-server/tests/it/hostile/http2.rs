//! HTTP/2 frame by frame, as no good client sends it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::Instant;

use super::decisions;
use crate::client::ask;
use crate::server::{PATIENCE, Server};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET path` as a header block: indexed method and scheme, then path and authority as they are.
fn get(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("a short path");
    [&[0x82, 0x86, 0x04, length], path.as_bytes(), &[0x01, 1, b't']].concat()
}

struct Http2 {
    stream: TcpStream,
    /// Everything the server sent, read as it comes, so that nothing is lost when it closes.
    received: JoinHandle<Vec<u8>>,
}

impl Http2 {
    fn open(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).expect("the listener accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let preface = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        stream.write_all(&preface).expect("the server reads");
        let mut reader = stream.try_clone().expect("a second handle");
        let received = std::thread::spawn(move || {
            let (mut bytes, mut buffer) = (Vec::new(), [0; 16_384]);
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                bytes.extend_from_slice(&buffer[..count]);
            }
            bytes
        });
        Self { stream, received }
    }

    /// Sends these bytes again and again until the server has had enough, then says what kinds of frames it sent.
    fn flood(mut self, mut bytes: impl FnMut(u32) -> Vec<u8>) -> Vec<u8> {
        let started = Instant::now();
        let mut round = 0;
        while self.stream.write_all(&bytes(round)).is_ok() {
            round += 1;
            assert!(started.elapsed() < PATIENCE, "never cut off");
        }
        kinds(&self.received.join().expect("the reader ends"))
    }
}

fn kinds(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let Some(([high, middle, low, kind, ..], rest)) = bytes.split_first_chunk::<9>() {
        kinds.push(*kind);
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        bytes = rest.get(length..).unwrap_or_default();
    }
    kinds
}

/// The streams that a round of requests uses: odd, and never again.
fn streams(round: u32) -> impl Iterator<Item = u32> {
    (0..100).map(move |index| 2 * (round * 100 + index) + 1)
}

#[test]
fn rapid_reset_is_told_to_go_away_and_others_are_served() {
    let server = Server::start(&[]);
    let gateway = server.address("gateway");
    let attack = Http2::open(gateway);
    let kinds = attack.flood(|round| {
        let pair = |stream| {
            let request = frame(HEADERS, END_STREAM | END_HEADERS, stream, &get("/api/ping"));
            [request, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
        };
        assert_eq!(ask(gateway, "GET", "/").status, 200, "round {round}");
        streams(round).flat_map(pair).collect()
    });
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    assert_eq!(ask(gateway, "GET", "/").status, 200);
}

#[test]
fn a_head_that_never_ends_is_told_to_go_away() {
    let server = Server::start(&[]);
    let gateway = server.address("gateway");
    let kinds = Http2::open(gateway).flood(|round| match round {
        0 => frame(HEADERS, END_STREAM, 1, &get("/api/ping")),
        // A header field of eight bytes each time, or none at all.
        _ => [frame(CONTINUATION, 0, 1, b"\0\x02xy\x03abc"), frame(CONTINUATION, 0, 1, b"")].concat(),
    });
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    assert_eq!(ask(gateway, "GET", "/").status, 200);
}

#[test]
fn floods_of_pings_settings_and_unknown_frames_are_told_to_go_away() {
    let server = Server::start(&[]);
    let gateway = server.address("gateway");
    for flood in [frame(PING, 0, 0, &[7; 8]), frame(SETTINGS, 0, 0, &[]), frame(200, 0, 0, b"x")] {
        let kinds = Http2::open(gateway).flood(|_| flood.repeat(100));
        assert!(kinds.contains(&GOAWAY), "{kinds:?}");
        assert_eq!(ask(gateway, "GET", "/").status, 200);
    }
}

/// Given up right away or a little later, before its answer or after it: what was decided stays charged.
#[test]
fn a_request_that_is_given_up_was_charged() {
    const REQUESTS: u32 = 50;
    let server = Server::start(&[]);
    let (gateway, admin) = (server.address("gateway"), server.address("admin"));
    let before = decisions(admin);
    let mut client = Http2::open(gateway);
    for index in 0..REQUESTS {
        let stream = 2 * index + 1;
        let request = frame(HEADERS, END_STREAM | END_HEADERS, stream, &get("/api/ping"));
        client.stream.write_all(&request).expect("the server reads");
        // It is decided before it is given up: a reset that overtakes a request leaves nothing to charge.
        let started = Instant::now();
        while decisions(admin) <= before + u64::from(index) {
            assert!(started.elapsed() < PATIENCE, "request {index} was not decided");
        }
        client.stream.write_all(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])).expect("the server reads");
    }
    drop(client.stream);
    assert_eq!(decisions(admin), before + u64::from(REQUESTS));
}

/// A field of a header block, written out: name and value as they are.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("short");
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// The pseudo-headers of a good request, but for one that is replaced, left out, or there twice.
fn pseudo(path: Option<&str>, authority: &str, method: &str) -> Vec<u8> {
    let path = path.map(|path| field(":path", path)).unwrap_or_default();
    [field(":method", method), field(":scheme", "http"), path, field(":authority", authority)].concat()
}

/// What would be two things at once, or nothing, once it is written as HTTP/1.1 for an upstream.
#[test]
fn a_head_that_cannot_be_told_on_is_refused() {
    let server = Server::start(&[]);
    let (gateway, admin) = (server.address("gateway"), server.address("admin"));
    let good = pseudo(Some("/api/ping"), "t", "GET");
    let with = |name, value| [good.clone(), field(name, value)].concat();
    let bad = [
        pseudo(None, "t", "GET"),
        pseudo(Some(""), "t", "GET"),
        pseudo(Some("api/ping"), "t", "GET"),
        pseudo(Some("*"), "t", "GET"),
        pseudo(Some("/api/ping HTTP/1.1"), "t", "GET"),
        pseudo(Some("/api/ping\r\nx: y"), "t", "GET"),
        pseudo(Some("/api/ping\n"), "t", "GET"),
        pseudo(Some("/api/ping\0"), "t", "GET"),
        pseudo(Some("/api/ping"), "", "GET"),
        pseudo(Some("/api/ping"), "t u", "GET"),
        pseudo(Some("/api/ping"), "t\r\nx: y", "GET"),
        pseudo(Some("/api/ping"), "u@t", "GET"),
        pseudo(Some("/api/ping"), "t", "GET /x HTTP/1.1\r\n"),
        pseudo(Some("/api/ping"), "t", "G ET"),
        pseudo(Some("/api/ping"), "t", ""),
        pseudo(Some("/api/ping"), "t", "CONNECT"),
        [good.clone(), field(":path", "/api/ping")].concat(),
        [field("x", "y"), good.clone()].concat(),
        with(":unknown", "x"),
        with("host", "other"),
        with("Upper", "x"),
        with("a b", "x"),
        with("a:b", "x"),
        with("", "x"),
        with("x", "a\r\nb: c"),
        with("x", "a\nb"),
        with("x", "a\0b"),
        with("connection", "x"),
        with("keep-alive", "x"),
        with("proxy-connection", "x"),
        with("transfer-encoding", "chunked"),
        with("upgrade", "h2c"),
        with("te", "gzip"),
        with("content-length", "5"),
        with("content-length", "x"),
    ];
    assert_eq!(verdict(gateway, &good), (HEADERS, OK), "the good one is answered");
    let before = decisions(admin);
    for block in bad {
        let refused = verdict(gateway, &block);
        let is_refused = [(HEADERS, BAD_REQUEST), (RST_STREAM, 0), (GOAWAY, 0)].contains(&refused);
        assert!(is_refused, "{}: {refused:?}", block.escape_ascii());
        assert_eq!(decisions(admin), before, "{}", block.escape_ascii());
    }
}

/// The statuses 200 and 400, as a header block begins with them.
const OK: u8 = 0x88;
const BAD_REQUEST: u8 = 0x8c;

/// What a request with this header block comes to: the kind of the frame that says so, and an answer's status.
fn verdict(gateway: SocketAddr, block: &[u8]) -> (u8, u8) {
    let mut stream = TcpStream::connect(gateway).expect("the listener accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, block);
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &request].concat()).expect("the server reads");
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("a frame that says so");
        let [high, middle, low, kind, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]) as usize];
        stream.read_exact(&mut payload).expect("the whole frame");
        match kind {
            HEADERS => return (kind, payload[0]),
            RST_STREAM | GOAWAY => return (kind, 0),
            _ => {}
        }
    }
}
