//! The fast path beside the slow path: the same bytes give the same responses.

use super::*;
use crate::health::Health;
use crate::http::{HttpEndpoint, HttpEndpoints};
use crate::testing::{engine, hourly};

const ALICE: &str = r#"{"resource":"r","identifier":"alice"}"#;

fn check(body: &str) -> String {
    check_with("", body)
}

fn check_with(fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/check HTTP/1.1\r\nhost: t\r\n{fields}content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// The api listener of a new engine that lets three pass.
fn api() -> HttpEndpoint {
    let engine = engine(vec![hourly("api", 3)]);
    HttpEndpoints::new(&engine, &Health::default()).api
}

fn connect() -> Client {
    connect_by(|connections| connections)
}

fn connect_by(way: fn(Connections<HttpEndpoint>) -> Connections<HttpEndpoint>) -> Client {
    let (io, server_io) = duplex(PIPE_BYTES);
    let signals = DrainSignals::default();
    let drain = signals.drain.clone();
    let connections = way(Connections::new(api(), ListenerOptions::default(), signals));
    let served = tokio::spawn(connections.serve_io(server_io, peer(), ()));
    Client { io, drain, served, opened: Instant::now() }
}

/// All responses to `pieces`, without times. Each piece is sent after the server has read the one before.
async fn answers(mut client: Client, pieces: &[&str]) -> String {
    for piece in pieces {
        // The server may have closed the connection after an earlier response.
        let _ = client.io.write_all(piece.as_bytes()).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (text, _) = client.read_to_end().await;
    without_times(&text)
}

/// Numbers of more than three digits are times, or lengths of equal bodies.
fn without_times(text: &str) -> String {
    let mut kept = Vec::new();
    for line in text.split("\r\n").filter(|line| !line.starts_with("date: ")) {
        let is_digit = |character: char| character.is_ascii_digit();
        let words = line.split_inclusive(|character| !is_digit(character));
        kept.push(
            words
                .map(|word| if word.trim_end_matches(|end| !is_digit(end)).len() > 3 { "# " } else { word })
                .collect(),
        );
    }
    let kept: Vec<String> = kept;
    kept.join("\r\n")
}

#[tokio::test(start_paused = true)]
async fn fast_path_and_slow_path_give_the_same_responses() {
    let alice = check(ALICE);
    let (head, body) = alice.split_at(alice.len() - 9);
    let last = check_with("connection: close\r\n", ALICE);
    let peek = alice.replace("/v1/check", "/v1/peek");
    let chunked = "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n\
                   25\r\n{\"resource\":\"r\",\"identifier\":\"alice\"}\r\n0\r\n\r\n";
    let cases: Vec<Vec<String>> = vec![
        vec![alice.clone()],
        vec![alice.repeat(5)],
        vec![alice.repeat(40), alice.clone()],
        vec![alice.clone(), alice.clone(), last.clone(), alice.clone()],
        vec![format!("{alice}{peek}{alice}")],
        vec![head.to_owned(), body.to_owned(), alice.clone()],
        vec![format!("{alice}{head}"), format!("{body}{alice}")],
        vec![format!("{alice}{chunked}{alice}")],
        vec![check(r#"{"resource":"r","identifier":"alice","cost":9}"#)],
        vec![check(r#"{"resource":"r","identifier":"alice","tier":"no"}"#), alice.clone()],
        vec![check(r#"{"resource":"r","identifier":""}"#), alice.clone()],
        vec![check(r#"{"resource":"r"}"#), alice.clone()],
        vec![check("{}x"), alice.clone()],
        vec![check_with("host: t\r\n", ALICE)],
        vec![check_with("content-length: 37\r\n", ALICE)],
        vec![check_with("x: y\n", ALICE)],
        vec![format!("\r\n{alice}"), alice.clone()],
        vec![alice.replace("/v1/check", "/v1/nothing"), alice.clone()],
        vec![alice.replace("application/json", "text/plain"), alice.clone()],
        vec![check(&" ".repeat(6_000)), alice],
    ];
    for case in cases {
        let pieces: Vec<&str> = case.iter().map(String::as_str).collect();
        let express = answers(connect(), &pieces).await;
        let long = answers(connect_by(Connections::without_fast_path), &pieces).await;
        assert_eq!(express, long, "{pieces:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fast_path_response_during_the_drain_is_the_last_one() {
    let mut client = connect();
    client.send(&check(ALICE)).await;
    assert!(!client.read_until("]}").await.contains("connection:"));
    client.drain.raise();
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.send(&check(ALICE).repeat(2)).await;
    let (answer, elapsed) = client.read_to_end().await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK\r\n").count(), 1, "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert_about(elapsed, 100);
}

#[tokio::test(start_paused = true)]
async fn an_idle_fast_path_connection_is_closed_during_the_drain() {
    let mut client = connect();
    client.send(&check(ALICE)).await;
    client.read_until("]}").await;
    client.drain.raise();
    let (rest, elapsed) = client.read_to_end().await;
    assert_eq!(rest, "");
    assert_about(elapsed, 500);
}

#[tokio::test(start_paused = true)]
async fn deadlines_apply_on_the_fast_path() {
    let mut silent = connect();
    assert_about(silent.read_to_end().await.1, 5_000);

    let mut idle = connect();
    idle.send(&check(ALICE)).await;
    idle.read_until("]}").await;
    assert_about(idle.read_to_end().await.1, 60_000);

    let mut half_a_head = connect();
    half_a_head.send(&check(ALICE)).await;
    half_a_head.read_until("]}").await;
    half_a_head.send("POST /v1/check HT").await;
    assert_about(half_a_head.read_to_end().await.1, 5_000);

    let mut half_a_head_behind_a_check = connect();
    half_a_head_behind_a_check.send(&format!("{}POST /v1/check HT", check(ALICE))).await;
    half_a_head_behind_a_check.read_until("]}").await;
    assert_about(half_a_head_behind_a_check.read_to_end().await.1, 5_000);

    let mut half_a_body = connect();
    let request = check(ALICE);
    half_a_body.send(&request[..request.len() - 1]).await;
    let (answer, elapsed) = half_a_body.read_to_end().await;
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
    assert_about(elapsed, 10_000);
}
