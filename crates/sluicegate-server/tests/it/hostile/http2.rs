//! HTTP/2 frames that no correct client sends.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use futures_util::StreamExt as _;

use super::decisions;
use crate::client::{post, send};
use crate::gateway::http2::connect;
use crate::server::{PATIENCE, Server};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET path` as a header block: indexed method and scheme, then path and authority as literals.
fn get(path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("a short path");
    [&[0x82, 0x86, 0x04, length], path.as_bytes(), &[0x01, 1, b't']].concat()
}

struct Http2 {
    stream: TcpStream,
    /// All frames of the server. A thread reads them as they arrive, so none is lost when the server closes.
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

    /// Sends these bytes repeatedly until the server closes, then returns the types of the frames that it sent.
    fn flood(mut self, mut bytes: impl FnMut(u32) -> Vec<u8>) -> Vec<u8> {
        let started = Instant::now();
        let mut round = 0;
        while self.stream.write_all(&bytes(round)).is_ok() {
            round += 1;
            assert!(started.elapsed() < PATIENCE, "never cut off");
        }
        kinds(&self.received.join().expect("the reader ends"))
    }

    /// Sends a frame `per_second` times per second for `seconds`, or until the server closes. Returns the types of the
    /// server's frames. Only with `is_exact`, the client catches up on late frames.
    fn drip(mut self, frame: &[u8], per_second: u32, seconds: u32, is_exact: bool) -> Vec<u8> {
        const PER_SECOND: u32 = 100;
        let (started, pause) = (Instant::now(), Duration::from_secs(1) / PER_SECOND);
        for tick in 1..=PER_SECOND * seconds {
            if self.stream.write_all(&frame.repeat((per_second / PER_SECOND) as usize)).is_err() {
                break;
            }
            std::thread::sleep(if is_exact { (pause * tick).saturating_sub(started.elapsed()) } else { pause });
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
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

/// The stream ids of a round of requests: odd, and never reused.
fn streams(round: u32) -> impl Iterator<Item = u32> {
    (0..100).map(move |index| 2 * (round * 100 + index) + 1)
}

#[test]
fn rapid_reset_gets_goaway_and_others_are_served() {
    let server = Server::start(&[]);
    let gateway = server.address("gateway");
    let attack = Http2::open(gateway);
    let kinds = attack.flood(|round| {
        let pair = |stream| {
            let request = frame(HEADERS, END_STREAM | END_HEADERS, stream, &get("/api/ping"));
            [request, frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
        };
        assert_eq!(send(gateway, "GET", "/").status, 200, "round {round}");
        streams(round).flat_map(pair).collect()
    });
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    assert_eq!(send(gateway, "GET", "/").status, 200);
}

#[test]
fn an_endless_head_gets_goaway() {
    let server = Server::start(&[]);
    let gateway = server.address("gateway");
    let kinds = Http2::open(gateway).flood(|round| match round {
        0 => frame(HEADERS, END_STREAM, 1, &get("/api/ping")),
        // A header field of eight bytes each time, or an empty frame.
        _ => [frame(CONTINUATION, 0, 1, b"\0\x02xy\x03abc"), frame(CONTINUATION, 0, 1, b"")].concat(),
    });
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    assert_eq!(send(gateway, "GET", "/").status, 200);
}

/// A connection with stream 1 already closed.
fn open_with_a_request(gateway: SocketAddr) -> Http2 {
    let mut client = Http2::open(gateway);
    let request = frame(HEADERS, END_HEADERS, 1, &get("/api/ping"));
    client.stream.write_all(&request).expect("the server reads");
    client
}

/// A frame of every type that a client can repeat, except CONTINUATION.
fn floods() -> [Vec<u8>; 13] {
    [
        frame(DATA, 0, 1, &[]),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, &get("/api/ping")),
        frame(RST_STREAM, 0, 1, &[0, 0, 0, 8]),
        frame(SETTINGS, ACK, 0, &[]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(PING, 0, 0, &[7; 8]),
        frame(PING, ACK, 0, &[7; 8]),
        frame(SETTINGS, 0, 0, &[]),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(PUSH_PROMISE, END_HEADERS, 1, &[&[0, 0, 0, 2][..], &get("/api/ping")].concat()),
        frame(GOAWAY, 0, 0, &[0; 8]),
        frame(200, 0, 0, b"x"),
    ]
}

/// Every frame type that costs work and is not part of a body. Each flood ends its own connection, does not affect other
/// clients, and causes no log line, no lasting memory and little processor time.
#[test]
fn floods_of_every_frame_type_get_goaway_and_do_not_fill_the_log() {
    let server = Server::start(&[]);
    let listeners = ["gateway", "api", "admin"].map(|name| server.address(name));
    let before = server.resident_kilobytes();
    let (started, cpu_before) = (Instant::now(), server.cpu_time());
    for flood in floods() {
        for connections in [1, 3] {
            let attacks: Vec<_> = listeners
                .into_iter()
                .flat_map(|listener| (0..connections).map(move |_| listener))
                .map(|listener| (open_with_a_request(listener), flood.repeat(100)))
                .map(|(attack, frames)| std::thread::spawn(move || attack.flood(|_| frames.clone())))
                .collect();
            for attack in attacks {
                let kinds = attack.join().expect("it is cut off");
                // A client that has sent GOAWAY itself need not receive one.
                assert!(kinds.contains(&GOAWAY) || flood[3] == GOAWAY, "{flood:?}: {kinds:?}");
            }
            assert_eq!(send(listeners[0], "GET", "/").status, 200);
        }
    }
    let (took, used) = (started.elapsed(), server.cpu_time().saturating_sub(cpu_before));
    assert!(used < took.mul_f64(0.6), "{used:?} of processor time in {took:?}");
    let held = server.resident_kilobytes().saturating_sub(before);
    assert!(held < 64 * 1_024, "{held} kB more than before");
    server.signal("TERM");
    let lines = server.wait().lines;
    assert!(lines.len() < 40, "{} lines: {lines:?}", lines.len());
}

/// The bound is 1,000 frames per second: every listener serves clients below it and closes connections above it.
#[test]
fn frames_at_a_low_rate_are_served_below_the_limit_and_cut_above_it() {
    let server = Server::start(&[]);
    let kinds_at = |frame: &[u8], per_second: u32, is_exact: bool| {
        let drips: Vec<_> = ["gateway", "api", "admin"]
            .map(|name| open_with_a_request(server.address(name)))
            .into_iter()
            .map(|client| (client, frame.to_owned()))
            .map(|(client, frame)| std::thread::spawn(move || client.drip(&frame, per_second, 4, is_exact)))
            .collect();
        drips.into_iter().map(|drip| drip.join().expect("no panic")).collect::<Vec<_>>()
    };
    for frame in [frame(PING, 0, 0, &[7; 8]), frame(200, 0, 0, b"x"), frame(PRIORITY, 0, 3, &[0, 0, 0, 5, 9])] {
        for kinds in kinds_at(&frame, 800, false) {
            assert!(!kinds.contains(&GOAWAY), "{frame:?}: {kinds:?}");
        }
        for kinds in kinds_at(&frame, 1_300, true) {
            assert!(kinds.contains(&GOAWAY), "{frame:?}: {kinds:?}");
        }
    }
}

/// A hundred unfinished bodies of nearly 1 MiB each. The server rejects most of them and holds only the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unfinished_bodies_hold_little_memory_and_others_are_served() {
    const BYTES: usize = 1_000_000;
    let server = Server::start(&[]);
    let api = server.address("api");
    let before = server.resident_kilobytes();
    let requests = connect(api).await;
    let mut sent = tokio::task::JoinSet::new();
    let (ended, end) = tokio::sync::watch::channel(false);
    for _ in 0..100 {
        let (mut requests, mut end) = (requests.clone(), end.clone());
        sent.spawn(async move {
            let pieces =
                futures_util::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![b' '; BYTES / 100])));
            let never = futures_util::stream::pending();
            let request = Request::post(format!("http://{api}/v1/check"));
            let request = request.header("content-type", "application/json");
            let request = request.body(Body::from_stream(pieces.chain(never))).expect("a request");
            tokio::select! {
                answer = requests.send_request(request) => Some(answer.expect("an answer").status().as_u16()),
                _ = end.changed() => None,
            }
        });
    }
    // At most eight of them fit in the memory bound.
    for refused in 0..92 {
        let answer = tokio::time::timeout(PATIENCE, sent.join_next()).await;
        let answer = answer.unwrap_or_else(|_| panic!("only {refused} were refused")).expect("a task");
        assert_eq!(answer.expect("no panic"), Some(503));
    }
    let held = server.resident_kilobytes().saturating_sub(before);
    assert!(held < 48 * 1_024, "{held} kB more than before");
    let check = r#"{"resource":"demo","identifier":"alice"}"#;
    let others = tokio::task::spawn_blocking(move || post(api, "/v1/check", check).status);
    assert_eq!(others.await.expect("no panic"), 200);
    drop((ended, sent));
}

/// The client resets each request after its decision. The charge stays.
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
        // The test waits for the decision before the reset, because a reset that overtakes a request leaves nothing to
        // charge.
        let started = Instant::now();
        while decisions(admin) <= before + u64::from(index) {
            assert!(started.elapsed() < PATIENCE, "request {index} was not decided");
        }
        client.stream.write_all(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])).expect("the server reads");
    }
    drop(client.stream);
    assert_eq!(decisions(admin), before + u64::from(REQUESTS));
}

/// A field of a header block as literals: name and value unchanged.
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("short");
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// The pseudo-headers of a valid request, with arguments to replace or omit them.
fn pseudo(path: Option<&str>, authority: &str, method: &str) -> Vec<u8> {
    let path = path.map(|path| field(":path", path)).unwrap_or_default();
    [field(":method", method), field(":scheme", "http"), path, field(":authority", authority)].concat()
}

/// Heads with no meaning, or an ambiguous one, as HTTP/1.1 for an upstream.
#[test]
fn a_head_that_http1_cannot_express_is_rejected() {
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

/// The statuses 200 and 400 as the first byte of a header block.
const OK: u8 = 0x88;
const BAD_REQUEST: u8 = 0x8c;

/// The result of a request with this header block: the type of the deciding frame, and its status.
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
