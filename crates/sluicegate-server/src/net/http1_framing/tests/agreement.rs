//! hyper and [`FramingGuard`] side by side: for any mutation of a stream of requests, hyper executes only requests that begin
//! where the guard saw a request begin.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::Uri;
use bytes::Bytes;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

use super::{FramingGuard, FramingState, NOTHING_ANSWERED};
use crate::http::HttpEndpoint;
use crate::net::connection::Connections;
use crate::net::{DrainSignals, ListenerOptions};

/// The targets of all requests in the stream, as far as nothing in it is spoiled.
fn seen(stream: &[u8]) -> Vec<String> {
    let (mut framing, mut targets) = (FramingGuard::new(), Vec::new());
    let (mut line_start, mut line) = (0, Vec::new());
    for (index, byte) in stream.iter().enumerate() {
        let (before, heads) = (framing.state, framing.heads);
        if before == FramingState::Start && framing.line.is_empty() {
            line_start = index;
        }
        framing.pass(&mut [*byte], NOTHING_ANSWERED);
        if before == FramingState::Start && matches!(framing.state, FramingState::Head(_)) {
            line = stream[line_start..index].to_vec();
        }
        if framing.heads > heads {
            let text = String::from_utf8_lossy(&line);
            targets.push(text.split(' ').nth(1).unwrap_or_default().to_owned());
        }
    }
    targets
}

/// The targets of all requests that were executed, body and all.
fn executed(stream: &[u8]) -> Vec<String> {
    let targets = Arc::new(Mutex::new(Vec::new()));
    let router = Router::new().fallback({
        let targets = Arc::clone(&targets);
        async move |uri: Uri, _body: Bytes| targets.lock().expect("whole").push(uri.to_string())
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let (client, server) = duplex(1 << 20);
        let connections =
            Connections::new(HttpEndpoint::from(router), ListenerOptions::default(), DrainSignals::default());
        let served = tokio::spawn(connections.serve_io(server, SocketAddr::from(([192, 0, 2, 1], 1)), ()));
        let (mut reader, mut writer) = tokio::io::split(client);
        writer.write_all(stream).await.expect("it fits");
        let mut answers = Vec::new();
        // The server closes by itself, at the latest when the connection has been idle for long enough. However it
        // ends, all executed requests are recorded.
        let _ = reader.read_to_end(&mut answers).await;
        served.await.expect("the task ends");
    });
    let targets = targets.lock().expect("whole");
    targets.clone()
}

/// Bodies look like requests, so a parser that ends one too early executes it.
const BODY: &str = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: t\r\n\r\n";

/// A request that nothing is wrong with; how its body comes depends on `kind`.
fn request(index: usize, kind: usize) -> String {
    let head = format!("POST /{index} HTTP/1.1\r\nhost: t\r\n");
    let length = BODY.len();
    match kind {
        0 => format!("{head}\r\n"),
        1 => format!("{head}content-length: {length}\r\n\r\n{BODY}"),
        2 => format!("{head}transfer-encoding: chunked\r\n\r\n{length:x}\r\n{BODY}\r\n0\r\n\r\n"),
        _ => format!("{head}transfer-encoding: chunked\r\n\r\n5\r\n{}\r\n0\r\nx: y\r\n\r\n", &BODY[..5]),
    }
}

/// What is put into a stream to make it mean two things.
const WEDGES: &[&str] = &[
    "",
    "\n",
    "\r",
    "\r\n",
    "\r\n\r\n",
    "\0",
    " ",
    "\t",
    "0",
    "5",
    ";",
    ":",
    "content-length: 5\r\n",
    "Content-Length:0\r\n",
    "transfer-encoding: chunked\r\n",
    "Transfer-Encoding : chunked\r\n",
    "transfer-encoding: identity\r\n",
    "0\r\n\r\n",
    "5\r\nhello\r\n",
    "GET /wedge HTTP/1.1\r\nhost: t\r\n\r\n",
    "connection: close\r\n",
];

#[test]
fn without_a_change_all_are_executed() {
    let stream: String = (0..4).map(|kind| request(kind, kind)).collect();
    assert_eq!(seen(stream.as_bytes()), ["/0", "/1", "/2", "/3"]);
    assert_eq!(executed(stream.as_bytes()), ["/0", "/1", "/2", "/3"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_is_executed_that_was_not_seen_to_begin(
        kinds in prop::collection::vec(0_usize..4, 1..5),
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..6, prop::sample::select(WEDGES)), 0..4),
    ) {
        let requests = kinds.iter().enumerate().map(|(index, kind)| request(index, *kind));
        let mut stream: Vec<u8> = requests.collect::<String>().into_bytes();
        for (place, removed, wedge) in changes {
            let start = place.index(stream.len());
            let end = (start + removed).min(stream.len());
            stream.splice(start..end, wedge.bytes());
        }
        let (seen, executed) = (seen(&stream), executed(&stream));
        prop_assert!(
            seen.starts_with(&executed), "{} executed {executed:?}, seen {seen:?}", stream.escape_ascii()
        );
    }
}
