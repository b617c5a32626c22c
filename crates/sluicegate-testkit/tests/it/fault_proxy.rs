//! Tests each mode of the proxy in front of a real server.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sluicegate_testkit::fault_proxy::{FaultProxy, Mode};
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;

const PATIENCE: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(50);
const PING: &[u8] = b"PING\r\n";
const PONG: &[u8] = b"+PONG\r\n";

fn proxied() -> (RedisServer, FaultProxy) {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(server.address());
    (server, proxy)
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn send(stream: &mut TcpStream) {
    stream.write_all(PING).unwrap();
}

fn expect(stream: &mut TcpStream, expected: &[u8]) {
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), String::from_utf8_lossy(expected));
}

fn expect_silence(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(SHORT)).unwrap();
    let error = stream.read(&mut [0; 1]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
}

fn expect_end(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0, "{rest:?}");
}

fn answered(proxy: &FaultProxy) -> TcpStream {
    let mut stream = connect(proxy);
    send(&mut stream);
    expect(&mut stream, PONG);
    stream
}

#[test]
fn bytes_pass_and_connections_are_counted() {
    let (_server, proxy) = proxied();
    let _streams = [answered(&proxy), answered(&proxy)];
    assert_eq!(proxy.accepted(), 2);
}

#[test]
fn a_cut_resets_connections_rejects_new_ones_and_heals() {
    let (_server, proxy) = proxied();
    let mut stream = answered(&proxy);
    proxy.set(Mode::Cut);
    assert_eq!(stream.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    proxy.set(Mode::Pass);
    answered(&proxy);
    assert_eq!(proxy.accepted(), 2);
}

#[test]
fn half_open_connections_are_silent_and_lose_nothing() {
    let (_server, proxy) = proxied();
    let mut old = answered(&proxy);
    proxy.set(Mode::HalfOpen);
    let mut new = connect(&proxy);
    send(&mut old);
    send(&mut new);
    expect_silence(&mut old);
    expect_silence(&mut new);
    proxy.set(Mode::Pass);
    expect(&mut old, PONG);
    expect(&mut new, PONG);
}

#[test]
fn a_delay_holds_in_both_directions_and_ends_with_its_mode() {
    let (_server, proxy) = proxied();
    let mut stream = answered(&proxy);
    proxy.set(Mode::Delay(Duration::from_millis(30)));
    let (_, took) = timed(|| {
        send(&mut stream);
        expect(&mut stream, PONG);
    });
    assert!(took >= Duration::from_millis(60), "{took:?}");
    proxy.set(Mode::Delay(Duration::from_secs(3600)));
    send(&mut stream);
    expect_silence(&mut stream);
    proxy.set(Mode::Pass);
    expect(&mut stream, PONG);
}

#[expect(clippy::disallowed_methods, reason = "how long a delay takes is what is measured")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

#[test]
fn a_truncated_reply_stops_after_its_first_bytes() {
    let (_server, proxy) = proxied();
    let mut old = answered(&proxy);
    proxy.set(Mode::Truncate(3));
    let mut new = connect(&proxy);
    for stream in [&mut old, &mut new] {
        send(stream);
        expect(stream, b"+PO");
        expect_end(stream);
    }
}

#[test]
fn nothing_of_a_reply_passes_when_it_is_truncated_to_nothing() {
    let (_server, proxy) = proxied();
    let mut stream = answered(&proxy);
    proxy.set(Mode::Truncate(0));
    send(&mut stream);
    expect_end(&mut stream);
}

#[test]
fn one_byte_at_a_time_still_adds_up() {
    let (server, proxy) = proxied();
    let mut stream = answered(&proxy);
    let before = received(&server);
    proxy.set(Mode::OneByte);
    stream.write_all(&PING.repeat(50)).unwrap();
    expect(&mut stream, &PONG.repeat(50));
    assert!(received(&server) - before > 20, "the server read the requests in few pieces");
}

/// The number of reads from sockets by the server.
fn received(server: &RedisServer) -> u64 {
    server.info("total_reads_processed").unwrap().parse().unwrap()
}

#[test]
fn bytes_are_injected_once_before_the_next_reply() {
    let (_server, proxy) = proxied();
    let mut stream = answered(&proxy);
    proxy.set(Mode::Inject(b"+EXTRA\r\n".to_vec()));
    send(&mut stream);
    expect(&mut stream, b"+EXTRA\r\n+PONG\r\n");
    send(&mut stream);
    expect(&mut stream, PONG);
}

#[test]
fn with_lost_replies_requests_are_done_and_the_connection_never_goes_on() {
    let (server, proxy) = proxied();
    let mut stream = answered(&proxy);
    let mut other = answered(&proxy);
    proxy.set(Mode::DropReplies);
    stream.write_all(b"INCR a\r\n").unwrap();
    let counted = || server.command::<Option<u32>>(&["GET", "a"]) == Some(1);
    poll::until_true("the request without a reply", PATIENCE, counted);
    expect_silence(&mut stream);
    proxy.set(Mode::Pass);
    expect_end(&mut stream);
    send(&mut other);
    expect(&mut other, PONG);
}

#[test]
fn a_server_that_goes_away_is_seen_through_the_proxy() {
    let (server, proxy) = proxied();
    let mut stream = answered(&proxy);
    server.kill();
    expect_end(&mut stream);
    expect_end(&mut connect(&proxy));
    server.restart();
    answered(&proxy);
}

#[test]
fn a_dropped_proxy_closes_everything() {
    let (_server, proxy) = proxied();
    let (mut stream, address) = (answered(&proxy), proxy.address());
    drop(proxy);
    assert!(stream.read(&mut [0; 1]).is_err());
    assert!(TcpStream::connect(address).is_err());
}
