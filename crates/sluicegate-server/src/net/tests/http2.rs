//! HTTP/2 with prior knowledge: deadlines, resets and draining.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode, Version};
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use super::*;
use crate::net::deadlines::Activity;
use crate::net::http2_abuse::FrameCounts;

struct Http2Client {
    requests: http2::SendRequest<Body>,
    /// Ends when the connection does.
    connection: JoinHandle<Result<(), hyper::Error>>,
    drain: DrainSignal,
    served: JoinHandle<()>,
    opened: Instant,
}

impl Http2Client {
    async fn connect_with(options: ListenerOptions) -> Self {
        Self::over(Client::connect_with(options)).await
    }

    async fn over(client: Client) -> Self {
        let Client { io, drain, served, opened } = client;
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

/// gRPC clients connect before their first request.
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
    // The ping after 20 s, and 10 s for its reply.
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
    drain.raise();
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
    client.drain.raise();
    client.served.await.expect("the task ends");
    assert_about(client.opened.elapsed(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn rapid_reset_is_cut_off() {
    let options = ListenerOptions { http2_control_frames_per_second_max: 50, ..ListenerOptions::default() };
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

/// Frames of one kind that a client repeats. Stream 1 is a request in flight.
struct Flood {
    name: &'static str,
    /// The frames of the nth repetition.
    frames: fn(u32) -> Vec<u8>,
    /// Frames that count, of those.
    counted: u32,
}

impl Flood {
    const fn new(name: &'static str, frames: fn(u32) -> Vec<u8>) -> Self {
        Self { name, frames, counted: 1 }
    }
}

/// Every type of frame except DATA with content.
const FLOODS: [Flood; 16] = [
    Flood::new("SETTINGS", |_| vec![0, 0, 0, 4, 0, 0, 0, 0, 0]),
    Flood::new("acknowledgements of SETTINGS", |_| vec![0, 0, 0, 4, 1, 0, 0, 0, 0]),
    Flood::new("PING", |_| vec![0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
    Flood::new("acknowledgements of PING", |_| vec![0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
    Flood::new("PRIORITY", |_| vec![0, 0, 5, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 7]),
    Flood::new("PRIORITY of idle streams", |_| vec![0, 0, 5, 2, 0, 0, 0, 0xff, 1, 0, 0, 0, 0, 7]),
    Flood::new("PRIORITY_UPDATE", |_| vec![0, 0, 4, 16, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    Flood::new("unknown types", |_| vec![0, 0, 1, 200, 0, 0, 0, 0, 0, 9]),
    Flood::new("empty unknown types", |_| vec![0, 0, 0, 200, 0, 0, 0, 0, 0]),
    Flood::new("WINDOW_UPDATE of the connection", |_| vec![0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    Flood::new("WINDOW_UPDATE of a stream", |_| vec![0, 0, 4, 8, 0, 0, 0, 0, 1, 0, 0, 0, 1]),
    Flood {
        counted: 2,
        ..Flood::new("requests that are reset", |round| [request(round, 4), reset(round)].concat())
    },
    Flood::new("RST_STREAM of a closed stream", |round| {
        if round == 0 { [request(0, 5), reset(0)].concat() } else { reset(0) }
    }),
    Flood::new("empty DATA", |round| if round == 0 { request(0, 4) } else { vec![0, 0, 0, 0, 0, 0, 0, 0, 3] }),
    Flood::new("DATA of padding alone", |round| match round {
        0 => request(0, 4),
        _ => vec![0, 0, 2, 0, 8, 0, 0, 0, 3, 1, 0],
    }),
    Flood::new("HEADERS of streams beyond the most", |round| request(round, 5)),
];

/// HEADERS of a request without a response; its stream is the nth after stream 1.
fn request(round: u32, flags: u8) -> Vec<u8> {
    let stream = (2 * round + 3).to_be_bytes();
    let block = send_for("/never");
    [&[0, 0, block.len() as u8, 1, flags][..], &stream, &block].concat()
}

fn reset(round: u32) -> Vec<u8> {
    [&[0, 0, 4, 3, 0][..], &(2 * round + 3).to_be_bytes(), &[0, 0, 0, 8]].concat()
}

/// A client that has sent its preface and one request, and reads the whole response.
async fn raw_client(path: &str) -> (Client, tokio::io::WriteHalf<DuplexStream>, JoinHandle<Vec<u8>>) {
    let mut client = Client::connect();
    let io = std::mem::replace(&mut client.io, duplex(1).0);
    let (mut reader, mut writer) = tokio::io::split(io);
    let received = tokio::spawn(async move {
        let mut bytes = Vec::new();
        // A peer that is cut while it sends may see the end as an error.
        let _ = reader.read_to_end(&mut bytes).await;
        bytes
    });
    writer.write_all(PREFACE_AND_SETTINGS).await.expect("the server reads");
    let first = head_frame(1, END_STREAM | END_HEADERS, 1, &send_for(path));
    writer.write_all(&first).await.expect("the server reads");
    (client, writer, received)
}

/// At any rate: nothing is read after the excess frame except bytes in transit.
#[tokio::test(start_paused = true)]
async fn floods_of_every_frame_type_get_goaway_and_are_cut() {
    const ON_THEIR_WAY: usize = 2 * PIPE_BYTES + 16_384;
    for flood in FLOODS {
        let Flood { name, frames, counted } = flood;
        let (client, mut writer, received) = raw_client("/never").await;
        let (mut sent, mut bytes) = (0, 0);
        loop {
            let frames = frames(sent);
            if writer.write_all(&frames).await.is_err() {
                break;
            }
            (sent, bytes) = (sent + 1, bytes + frames.len());
            let bytes_max = frames.len() * (1_100 / counted as usize) + ON_THEIR_WAY;
            assert!(bytes <= bytes_max, "{name}: {sent} times and not cut off");
        }
        client.served.await.expect("the task ends");
        assert!(client.opened.elapsed() < Duration::from_millis(1_050), "{name}: {:?}", client.opened.elapsed());
        let types = frame_types(&received.await.expect("the task ends"));
        assert!(types.contains(&7), "{name}: no GOAWAY: {types:?}");
    }
}

/// Nearly every frame is allowed, and occasional control frames are no flood over any time.
#[tokio::test(start_paused = true)]
async fn frames_of_every_type_at_a_low_rate_are_no_flood() {
    for Flood { name, frames, .. } in FLOODS {
        // An acknowledgement without its frame violates the protocol; one suffices.
        if name == "acknowledgements of SETTINGS" {
            continue;
        }
        // hyper accepts a hundred DATA frames without content per connection, and no streams beyond the maximum.
        let pause_ms = match name {
            "empty DATA" | "DATA of padding alone" | "HEADERS of streams beyond the most" => 200,
            _ => 3,
        };
        let (client, mut writer, received) = raw_client("/never").await;
        while client.opened.elapsed() < Duration::from_secs(10) {
            let round = client.opened.elapsed().as_millis() / pause_ms;
            let sent = writer.write_all(&frames(u32::try_from(round).expect("few"))).await;
            assert!(sent.is_ok(), "{name}: cut off in round {round}");
            tokio::time::sleep(Duration::from_millis(u64::try_from(pause_ms).expect("short"))).await;
        }
        let last = head_frame(1, END_STREAM | END_HEADERS, 1, &send_for("/ok"));
        let stream = 99_999_u32.to_be_bytes();
        writer.write_all(&[&last[..5], &stream, &last[9..]].concat()).await.expect("the server reads");
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(!client.served.is_finished(), "{name}: cut off");
        drop(writer);
        client.served.await.expect("the task ends");
        let types = frame_types(&received.await.expect("the task ends"));
        assert!(types.contains(&1), "{name}: not answered: {types:?}");
    }
}

/// Every request has a HEADERS frame, and an upload has any number of DATA frames.
#[tokio::test(start_paused = true)]
async fn requests_and_small_pieces_of_bodies_are_no_flood() {
    let mut client = Http2Client::connect_with(ListenerOptions::default()).await;
    for _ in 0..3_000 {
        assert_eq!(client.get("/ok").await.0, StatusCode::OK);
    }
    for (bytes, count) in [(1, 50_000), (50, 20_000), (255, 4_000), (256, 4_000), (16_384, 60)] {
        let piece = vec![b'x'; bytes];
        let pieces = repeat(piece).map(Ok::<_, std::io::Error>).take(count);
        let upload = Request::post("http://t/count").body(Body::from_stream(pieces)).expect("valid");
        let answer = client.requests.send_request(upload).await.expect("answered");
        let text = answer.into_body().collect().await.expect("whole").to_bytes();
        assert_eq!(text, (bytes * count).to_string(), "in pieces of {bytes}");
    }
    assert!(client.opened.elapsed() < Duration::from_secs(1), "all within one second");
}

/// A head may consist of many frames, each of which counts.
#[tokio::test(start_paused = true)]
async fn continuations_count_and_requests_pay_for_heads() {
    let frames =
        |control_frames, head_frames| FrameCounts { control_frames, head_frames, ..FrameCounts::default() };
    let options = ListenerOptions { http2_control_frames_per_second_max: 10, ..ListenerOptions::default() };
    let activity = Activity::new(Arc::new(options));
    let requests: Vec<_> = (0..20).map(|_| activity.request_began()).collect();
    assert!(!activity.frames_arrived(frames(0, 140)), "a head and trailers each, and the first hundred");
    assert!(!activity.frames_arrived(frames(5, 5)));
    assert!(activity.frames_arrived(frames(0, 1)), "one that no request pays for, and ten of others");
    drop(requests);

    let activity = Activity::new(Arc::new(ListenerOptions::default()));
    (0..10_000).for_each(|_| drop(activity.request_began()));
    assert!(activity.frames_arrived(frames(0, 1_024 + 1_001)), "what can be saved up is bounded");
}

/// Pings and window updates in reply to sent data are no flood, in any number.
#[tokio::test(start_paused = true)]
async fn a_client_may_answer_all_that_it_is_sent() {
    let frames =
        |control_frames, flow_frames| FrameCounts { control_frames, flow_frames, ..FrameCounts::default() };
    let options = ListenerOptions { http2_control_frames_per_second_max: 10, ..ListenerOptions::default() };
    let activity = Activity::new(Arc::new(options));
    activity.bytes_sent(10_000, 0);
    assert!(
        !activity.frames_arrived(frames(0, 3_000)),
        "two updates and a ping for each byte in a frame of its own"
    );
    assert!(!activity.frames_arrived(frames(10, 333)));
    assert!(activity.frames_arrived(frames(0, 1)), "one more than was earned, and ten of others");

    let activity = Activity::new(Arc::new(ListenerOptions::default()));
    activity.bytes_sent(usize::MAX, 0);
    assert!(activity.frames_arrived(frames(0, 65_536 + 1_001)), "what can be saved up is bounded");

    // Acknowledgements of pings earn no allowance for further pings.
    let activity = Activity::new(Arc::new(ListenerOptions::default()));
    let pings = FrameCounts { flow_frames: 500, acknowledgement_bytes: 500 * 17, ..FrameCounts::default() };
    assert!(!activity.frames_arrived(pings));
    activity.bytes_sent(500 * 17, 0);
    assert!(!activity.frames_arrived(pings));
    activity.bytes_sent(500 * 17, 0);
    assert!(activity.frames_arrived(pings));
}

/// A client that acknowledges pings, and reads this many bytes of each response.
async fn client_with_window(bytes: u32) -> Http2Client {
    let Client { io, drain, served, opened } = Client::connect();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).initial_stream_window_size(bytes);
    let (requests, connection) = builder.handshake(TokioIo::new(io)).await.expect("HTTP/2");
    Http2Client { requests, connection: tokio::spawn(connection), drain, served, opened }
}

async fn send(client: &mut Http2Client, path: &str) -> axum::http::Response<hyper::body::Incoming> {
    let request = Request::builder().uri(format!("http://t{path}")).body(Body::empty()).expect("valid");
    client.requests.send_request(request).await.expect("answered")
}

/// A peer can block a response by flow control while its connection looks alive.
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_byte_of_its_answers_is_cut_off() {
    for (window, answers) in [(0, 1), (0, 100), (1, 1), (1_000, 50)] {
        let mut client = client_with_window(window).await;
        let mut untaken = Vec::new();
        for _ in 0..answers {
            // Chunks as they arrive, so that part of the response is available.
            untaken.push(send(&mut client, "/pieces").await);
        }
        client.served.await.expect("the task ends");
        assert_about(client.opened.elapsed(), 30_000);
    }
}

/// After a complete response the connection has the deadline of an idle one.
#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_reading_after_the_response_is_treated_as_idle() {
    let mut client = client_with_window(1).await;
    let _untaken = send(&mut client, "/ok").await;
    client.served.await.expect("the task ends");
    assert_about(client.opened.elapsed(), 65_000);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_or_waits_for_the_answer_is_served() {
    let mut client = client_with_window(8_000).await;
    let mut slow = send(&mut client, "/pieces").await.into_body();
    for _ in 0..10 {
        // 276 bytes per second.
        tokio::time::sleep(Duration::from_secs(29)).await;
        for _ in 0..8 {
            slow.frame().await.expect("a piece").expect("whole");
        }
    }
    drop(slow);
    let mut events = send(&mut client, "/events").await.into_body();
    for _ in 0..3 {
        let began = Instant::now();
        assert_eq!(events.frame().await.expect("a piece").expect("whole").into_data().expect("data"), "event");
        assert_about(began.elapsed(), 100_000);
    }
    assert_eq!(client.get("/slow").await.1, "slow!");
}

/// A byte now and then, or many, each far below the least rate in all. The responses of a peer may have any number of chunks.
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_its_answers_below_the_least_rate_is_cut_off() {
    for (window, streams, seconds_max) in [(1, 100, 40), (100, 1, 40), (1_000, 3, 120)] {
        let mut client = client_with_window(window).await;
        let mut responses = Vec::new();
        for _ in 0..streams {
            responses.push(send(&mut client, "/pieces").await.into_body());
        }
        let dripping = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(18)).await;
                for response in &mut responses {
                    if response.frame().await.is_none_or(|chunk| chunk.is_err()) {
                        return;
                    }
                }
            }
        });
        client.served.await.expect("the task ends");
        let elapsed = client.opened.elapsed();
        assert!(elapsed < Duration::from_secs(seconds_max), "{streams} with a window of {window}: {elapsed:?}");
        dripping.await.expect("no panic");
    }
}

/// hyper holds the rest of a response of one chunk, and the peer reads its bytes as slowly.
#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_a_whole_answer_byte_by_byte_is_no_longer_served_than_an_idle_one() {
    let mut client = client_with_window(1).await;
    let mut slow = send(&mut client, "/big").await.into_body();
    let dripping = tokio::spawn(async move {
        while slow.frame().await.is_some_and(|chunk| chunk.is_ok()) {
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
    });
    client.served.await.expect("the task ends");
    let elapsed = client.opened.elapsed();
    assert!(elapsed < Duration::from_secs(70), "{elapsed:?}");
    dripping.await.expect("no panic");
}

/// The last chunk of a response may be in transit for long.

#[tokio::test(start_paused = true)]
async fn an_answer_that_moves_is_not_cut_off_with_the_idle() {
    let mut client = client_with_window(50_000).await;
    let mut body = send(&mut client, "/big").await.into_body();
    let mut bytes = 0;
    while bytes < 1_000_000 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        bytes += body.frame().await.expect("a piece").expect("whole").into_data().expect("data").len();
    }
    assert!(client.opened.elapsed() > Duration::from_secs(300), "{:?}", client.opened.elapsed());
}

/// A request whose body begins with this many bytes and never ends.
fn unfinished(client: &Http2Client, bytes: usize) -> JoinHandle<(StatusCode, String)> {
    let mut requests = client.requests.clone();
    tokio::spawn(async move {
        let begun = futures_util::stream::once(async move { Ok::<_, std::io::Error>(vec![b'x'; bytes]) });
        let body = Body::from_stream(begun.chain(futures_util::stream::pending()));
        let request = Request::post("http://t/echo").body(body).expect("valid");
        let answer = requests.send_request(request).await.expect("answered");
        let status = answer.status();
        let retry_after = answer.headers().get("retry-after").is_some();
        let text = answer.into_body().collect().await.expect("whole").to_bytes();
        (status, format!("{retry_after} {}", String::from_utf8_lossy(&text)))
    })
}

/// The responses that have arrived so far.
async fn refusals(
    sent: Vec<JoinHandle<(StatusCode, String)>>,
) -> (Vec<String>, Vec<JoinHandle<(StatusCode, String)>>) {
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (answered, waiting): (Vec<_>, Vec<_>) = sent.into_iter().partition(|task| task.is_finished());
    let mut texts = Vec::new();
    for task in answered {
        let (status, text) = task.await.expect("no panic");
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
        texts.push(text);
    }
    (texts, waiting)
}

#[tokio::test(start_paused = true)]
async fn unfinished_bodies_are_bounded_per_connection_and_per_address_and_release_their_budget() {
    // An address may hold 2,000 bytes of the 8,000 for small bodies, and 14,000 of the 56,000 for all others.
    let (body_bytes_per_connection_max, body_bytes_max) = (10_000, 64_000);
    let options = ListenerOptions { body_bytes_per_connection_max, body_bytes_max, ..ListenerOptions::default() };
    let (signals, router) = (DrainSignals::default(), endpoint());
    let drain = signals.drain.clone();
    let connections = Connections::new(router, options, signals);
    let connect = |address: [u8; 4]| {
        Client::connect_from(connections.clone(), drain.clone(), SocketAddr::from((address, 4242)))
    };
    let mut one = Http2Client::over(connect([192, 0, 2, 1])).await;
    let other = Http2Client::over(connect([192, 0, 2, 1])).await;
    let elsewhere = Http2Client::over(connect([192, 0, 2, 2])).await;

    let (refused, waiting) = refusals((0..12).map(|_| unfinished(&one, 1_000)).collect()).await;
    assert_eq!((refused.len(), waiting.len()), (3, 9), "9 of 1,032 bytes fit");
    assert!(
        refused.iter().all(|text| text.starts_with("true ") && text.contains("of this connection")),
        "{refused:?}"
    );
    let (refused, others) = refusals((0..6).map(|_| unfinished(&other, 1_000)).collect()).await;
    assert_eq!((refused.len(), others.len()), (1, 5), "the other connection has what is left of the address");
    assert!(refused.iter().all(|text| text.contains("of this address")), "{refused:?}");
    let (refused, waiting_elsewhere) = refusals((0..9).map(|_| unfinished(&elsewhere, 1_000)).collect()).await;
    assert_eq!((refused.len(), waiting_elsewhere.len()), (0, 9), "another address has its own share");
    // A body that is whole holds nothing, so it needs no room.
    let upload = Request::post("http://t/echo").body(Body::from(vec![b'x'; 2_000])).expect("valid");
    assert_eq!(one.requests.send_request(upload).await.expect("answered").status(), StatusCode::OK);

    waiting.into_iter().chain(waiting_elsewhere).for_each(|task| task.abort());
    tokio::time::sleep(Duration::from_millis(100)).await;
    for _ in 0..20 {
        let upload = Request::post("http://t/echo").body(Body::from(vec![b'x'; 8_000])).expect("valid");
        let answer = one.requests.send_request(upload).await.expect("answered");
        assert_eq!(answer.status(), StatusCode::OK);
    }
    // The bodies that continue get a response in time, or a 408.
    for task in others {
        assert_eq!(task.await.expect("no panic").0, StatusCode::REQUEST_TIMEOUT);
    }
}

/// The status of the response; `None` if the server reset the stream.
async fn status_of(request: axum::http::request::Builder) -> Option<StatusCode> {
    let mut client = Http2Client::connect_with(ListenerOptions::default()).await;
    let request = request.body(Body::empty()).expect("valid");
    client.requests.send_request(request).await.ok().map(|response| response.status())
}

#[tokio::test(start_paused = true)]
async fn oversized_and_ambiguous_http2_heads_are_rejected() {
    let send = || Request::builder().uri("http://t/ok");
    assert_eq!(status_of(send()).await, Some(StatusCode::OK));
    assert_eq!(status_of(send().header("host", "T")).await, Some(StatusCode::OK));
    assert_eq!(status_of(send().header("host", "other")).await, Some(StatusCode::BAD_REQUEST));

    let long = format!("http://t/{}", "x".repeat(9_000));
    assert_eq!(status_of(Request::builder().uri(long)).await, Some(StatusCode::URI_TOO_LONG));
    let many = (0..65).fold(send(), |request, index| request.header(format!("x-{index}"), "y"));
    assert_eq!(status_of(many).await, Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    let large = send().header("x", "y".repeat(17_000));
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
fn send_for(path: &str) -> Vec<u8> {
    [b"\x82\x86\x41\x01t\x04", &[path.len() as u8][..], path.as_bytes()].concat()
}

/// A head has the same deadline as on HTTP/1. It has few frames, but the bytes of a frame may arrive one by one.
#[tokio::test(start_paused = true)]
async fn an_endless_head_is_cut_off_at_any_rate_and_beside_other_streams() {
    for in_flight in [false, true] {
        let mut client = Client::connect();
        client.io.write_all(PREFACE_AND_SETTINGS).await.expect("the server reads");
        if in_flight {
            let sent = head_frame(1, END_STREAM | END_HEADERS, 1, &send_for("/never"));
            client.io.write_all(&sent).await.expect("the server reads");
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
    // The end of each head arrives together with the start of the next.
    let block = send_for("/ok");
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
