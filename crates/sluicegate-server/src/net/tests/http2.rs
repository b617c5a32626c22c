//! HTTP/2 with prior knowledge: deadlines, resets and draining.

use axum::body::Body;
use axum::http::{Request, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::*;

struct Http2Client {
    requests: http2::SendRequest<Body>,
    /// Ends when the connection does.
    connection: JoinHandle<Result<(), hyper::Error>>,
    drain: Notice,
    served: JoinHandle<()>,
    opened: Instant,
}

impl Http2Client {
    async fn connect_with(options: ListenerOptions) -> Self {
        let Client { io, drain, served, opened } = Client::connect_with(options);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new());
        let (requests, connection) = builder.handshake(TokioIo::new(io)).await.expect("HTTP/2");
        Self { requests, connection: tokio::spawn(connection), drain, served, opened }
    }

    async fn get(&mut self, path: &str) -> (StatusCode, String) {
        let request = Request::builder().uri(format!("http://t{path}")).body(Body::empty());
        let response = self.requests.send_request(request.expect("valid")).await.expect("answered");
        assert_eq!(response.version(), Version::HTTP_2);
        let status = response.status();
        let body = response.into_body().collect().await.expect("whole").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }
}

#[tokio::test(start_paused = true)]
async fn prior_knowledge_is_understood() {
    let mut client = Http2Client::connect_with(ListenerOptions::default()).await;
    assert_eq!(client.get("/ok").await, (StatusCode::OK, "fine!".to_owned()));
    assert_eq!(client.get("/peer").await.1, "192.0.2.1:4242");
    assert_eq!(client.get("/nowhere").await.0, StatusCode::NOT_FOUND);
}

/// gRPC clients connect before they have anything to ask.
#[tokio::test(start_paused = true)]
async fn a_connection_without_requests_is_idle_and_not_slow() {
    let mut client = Http2Client::connect_with(ListenerOptions::default()).await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert_eq!(client.get("/ok").await.0, StatusCode::OK);
    assert!(client.connection.await.expect("the task ends").is_ok(), "told to go away");
    client.served.await.expect("the task ends");
    assert_about(client.opened.elapsed(), 55_000 + 60_000);
}

#[tokio::test(start_paused = true)]
async fn half_a_preface_is_not_waited_for() {
    let mut client = Client::connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM").await;
    let (_, elapsed) = client.read_to_end().await;
    assert_about(elapsed, 5_000);
}

#[tokio::test(start_paused = true)]
async fn a_preface_in_pieces_is_understood() {
    let mut client = Client::connect();
    for piece in ["P", "RI * HTTP", "/2.0\r\n\r\nSM\r\n", "\r\n"] {
        client.send(piece).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // An empty SETTINGS frame completes the handshake; the server's own begins with the same type.
    client.io.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("the server reads");
    let mut head = [0; 9];
    client.io.read_exact(&mut head).await.expect("a frame");
    assert_eq!(head[3], 4, "a SETTINGS frame: {head:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_answer_pings_is_dropped() {
    let mut client = Client::connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.io.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("the server reads");
    let mut bytes = Vec::new();
    client.io.read_to_end(&mut bytes).await.expect("a clean end");
    // The ping after 20 s, 10 s to answer it.
    assert_about(client.opened.elapsed(), 30_000);
}

#[tokio::test(start_paused = true)]
async fn draining_finishes_streams_and_refuses_new_ones() {
    let mut client = Http2Client::connect_with(ListenerOptions::default()).await;
    let (drain, mut late) = (client.drain.clone(), client.requests.clone());
    let in_flight = tokio::spawn(async move {
        let answer = client.get("/slow").await;
        (answer, client)
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    drain.give();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let request = Request::builder().uri("http://t/ok").body(Body::empty()).expect("valid");
    assert!(late.send_request(request).await.is_err(), "the peer was told to go away");

    let (answer, client) = in_flight.await.expect("the task ends");
    assert_eq!(answer, (StatusCode::OK, "slow!".to_owned()));
    client.served.await.expect("the task ends");
    assert_about(client.opened.elapsed(), 100_000);
}

#[tokio::test(start_paused = true)]
async fn draining_closes_idle_connections_at_once() {
    let client = Http2Client::connect_with(ListenerOptions::default()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    client.drain.give();
    client.served.await.expect("the task ends");
    assert_about(client.opened.elapsed(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn rapid_reset_is_cut_off() {
    let options = ListenerOptions { http2_idle_frames_per_second_max: 50, ..ListenerOptions::default() };
    let client = Http2Client::connect_with(options).await;
    let mut resets = 0;
    while !client.served.is_finished() {
        let mut requests = client.requests.clone();
        let request = Request::builder().uri("http://t/never").body(Body::empty()).expect("valid");
        if requests.ready().await.is_err() {
            break;
        }
        let answer = tokio::spawn(async move { requests.send_request(request).await.map(drop) });
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        answer.abort();
        resets += 1;
        assert!(resets < 1_000, "never cut off");
    }
    client.served.await.expect("the task ends");
    assert!(resets > 50, "cut off after {resets}");
}

/// An empty SETTINGS frame, a PING, a PRIORITY of stream 1, a frame of a type that nobody knows.
const IDLE_FRAMES: [&[u8]; 4] = [
    &[0, 0, 0, 4, 0, 0, 0, 0, 0],
    &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
    &[0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 7],
    &[0, 0, 1, 200, 0, 0, 0, 0, 0, 9],
];

/// The types of all frames in `bytes`.
fn frame_types(mut bytes: &[u8]) -> Vec<u8> {
    let mut types = Vec::new();
    while let Some(([high, middle, low, kind, ..], rest)) = bytes.split_first_chunk::<9>() {
        types.push(*kind);
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        bytes = rest.get(length..).unwrap_or_default();
    }
    types
}

#[tokio::test(start_paused = true)]
async fn floods_of_frames_that_bring_nothing_are_told_to_go_away_and_cut() {
    for flood in IDLE_FRAMES {
        let client = Client::connect();
        let (mut reader, mut writer) = tokio::io::split(client.io);
        let received = tokio::spawn(async move {
            let mut bytes = Vec::new();
            // Cut in the middle of what it sends, a peer may see the end as an error.
            let _ = reader.read_to_end(&mut bytes).await;
            bytes
        });
        writer.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("the server reads");
        writer.write_all(IDLE_FRAMES[0]).await.expect("the server reads");
        let mut sent = 0;
        while writer.write_all(flood).await.is_ok() {
            sent += 1;
            // Not so many in no time that the time never comes.
            if sent % 1_000 == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(sent < 1_000_000, "never cut off: {flood:?}");
        }
        client.served.await.expect("the task ends");
        assert!(sent >= 1_000, "cut off after {sent}: {flood:?}");
        assert_about(client.opened.elapsed(), 1_010);
        let types = frame_types(&received.await.expect("the task ends"));
        assert!(types.contains(&7), "no GOAWAY: {types:?}");
    }
}

/// The status of a request as it is, or nothing if the server gave the stream up.
async fn status_of(request: axum::http::request::Builder) -> Option<StatusCode> {
    let mut client = Http2Client::connect_with(ListenerOptions::default()).await;
    let request = request.body(Body::empty()).expect("valid");
    client.requests.send_request(request).await.ok().map(|response| response.status())
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_or_two_things_at_once_is_refused() {
    let ask = || Request::builder().uri("http://t/ok");
    assert_eq!(status_of(ask()).await, Some(StatusCode::OK));
    assert_eq!(status_of(ask().header("host", "T")).await, Some(StatusCode::OK));
    assert_eq!(status_of(ask().header("host", "other")).await, Some(StatusCode::BAD_REQUEST));

    let long = format!("http://t/{}", "x".repeat(9_000));
    assert_eq!(status_of(Request::builder().uri(long)).await, Some(StatusCode::URI_TOO_LONG));
    let many = (0..65).fold(ask(), |request, index| request.header(format!("x-{index}"), "y"));
    assert_eq!(status_of(many).await, Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    let large = ask().header("x", "y".repeat(17_000));
    assert_eq!(status_of(large).await, Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
}

const PREFACE_AND_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame of HEADERS (1) or CONTINUATION (9).
fn head_frame(kind: u8, flags: u8, stream: u8, block: &[u8]) -> Vec<u8> {
    [&[0, 0, block.len() as u8, kind, flags, 0, 0, 0, stream], block].concat()
}

/// The head of GET http://t{path}, packed for HTTP/2.
fn ask_for(path: &str) -> Vec<u8> {
    [b"\x82\x86\x41\x01t\x04", &[path.len() as u8][..], path.as_bytes()].concat()
}

/// A head has as long as on HTTP/1. Frames of it are few, but the bytes of one may come one by one.
#[tokio::test(start_paused = true)]
async fn a_head_that_never_ends_is_cut_off_however_it_drips_and_whatever_else_is_in_flight() {
    for in_flight in [false, true] {
        let mut client = Client::connect();
        client.io.write_all(PREFACE_AND_SETTINGS).await.expect("the server reads");
        if in_flight {
            let asked = head_frame(1, END_STREAM | END_HEADERS, 1, &ask_for("/never"));
            client.io.write_all(&asked).await.expect("the server reads");
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let (mut reader, mut writer) = tokio::io::split(client.io);
        tokio::spawn(async move { while matches!(reader.read(&mut [0; 1_024]).await, Ok(1..)) {} });
        let began = Instant::now();
        let frame = head_frame(1, END_STREAM | END_HEADERS, 3, &[0; 200]);
        writer.write_all(&frame[..9]).await.expect("the server reads");
        let mut drops = frame[9..].chunks(1);
        while writer.write_all(drops.next().expect("enough")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(700)).await;
            assert!(began.elapsed() < Duration::from_secs(60), "never cut off");
        }
        client.served.await.expect("the task ends");
        let elapsed = began.elapsed();
        assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&elapsed), "{elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_head_has_its_own_time() {
    let client = Client::connect();
    let (mut reader, mut writer) = tokio::io::split(client.io);
    let received = tokio::spawn(async move {
        let mut bytes = Vec::new();
        let _ = reader.read_to_end(&mut bytes).await;
        bytes
    });
    writer.write_all(PREFACE_AND_SETTINGS).await.expect("the server reads");
    // The end of each head comes in one piece with the beginning of the next.
    let block = ask_for("/ok");
    writer.write_all(&head_frame(1, END_STREAM, 1, &block[..3])).await.expect("the server reads");
    for stream in [1, 3, 5] {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let end = head_frame(9, END_HEADERS, stream, &block[3..]);
        let next = head_frame(1, END_STREAM, stream + 2, &block[..3]);
        writer.write_all(&[end, next].concat()).await.expect("the server reads");
    }
    client.served.await.expect("the task ends");
    assert_about(client.opened.elapsed(), 4_000 * 3 + 5_000);
    let types = frame_types(&received.await.expect("the task ends"));
    assert_eq!(types.iter().filter(|kind| **kind == 1).count(), 3, "three answers: {types:?}");
}
