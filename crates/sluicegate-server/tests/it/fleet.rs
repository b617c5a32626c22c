//! A fleet: several servers with different clocks share one Redis and one limit.
//!
//! The test measures admissions from outside: each admitted request has the instant before it was sent and the instant
//! after its response. A request with both instants within an interval was admitted in that interval. So the test
//! can check the promise of a limit for every interval without the exact instants.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use sluicegate_testkit::redis_server::RedisServer;

use crate::client::Session;
use crate::server::{ConfigFile, Server};

/// The clock offset of each server, in the syntax of `faketime`.
const SKEWS: [&str; 4] = ["+0s", "+1h", "-1d", "+370d"];
/// The duration of the load, which exceeds the limits of the fleet.
const RUN: Duration = Duration::from_secs(3);
const CLIENTS_PER_SERVER: usize = 2;
/// The limits of `CONFIG`.
const LIMIT: usize = 40;
const REFILL_PER_SECOND: u64 = 100;
const WINDOW_MICROS: u64 = 1_000_000;
const RESOURCES: [&str; 4] = ["bucket", "log", "counter", "fixed"];

/// The deadline is long enough for a busy machine. Without the store, the rules admit nothing.
const CONFIG: &str = "
rules:
  - { name: bucket,  match: { resource: bucket },  per: identifier, deadline: 10s, on_store_failure: closed,
      limits: [ { algorithm: token_bucket, capacity: 40, refill: 100/s } ] }
  - { name: log,     match: { resource: log },     per: identifier, deadline: 10s, on_store_failure: closed,
      limits: [ { algorithm: sliding_window, limit: 40, window: 1s } ] }
  - { name: counter, match: { resource: counter }, per: identifier, deadline: 10s, on_store_failure: closed,
      limits: [ { algorithm: sliding_counter, limit: 40, window: 1s } ] }
  - { name: fixed,   match: { resource: fixed },   per: identifier, deadline: 10s, on_store_failure: closed,
      limits: [ { algorithm: fixed_window, limit: 40, window: 1s } ] }
";

/// One admitted request: the instants just before it was sent and just after its response, in microseconds of the
/// machine's clock. Redis uses the same clock.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    resource: usize,
    sent: u64,
    answered: u64,
}

#[test]
fn four_servers_with_different_clocks_admit_exactly_the_limit() {
    let redis = RedisServer::start();
    let config = ConfigFile::new("fleet", CONFIG);
    let servers: Vec<Server> = SKEWS.iter().map(|skew| skewed_server(skew, &config, &redis)).collect();
    let admitted = hammer(&servers);
    let of = |resource: usize| -> Vec<Admitted> {
        admitted.iter().filter(|each| each.resource == resource).copied().collect()
    };
    for (resource, name) in RESOURCES.iter().enumerate() {
        let count = of(resource).len();
        // The load is ten times the limit, so most of the limit must have been used.
        assert!(count >= LIMIT * RUN.as_secs() as usize / 2, "{name}: only {count} admitted");
    }
    check_bucket(&of(0));
    check_windows("log", &of(1), LIMIT);
    check_windows("counter", &of(2), 2 * LIMIT - 1);
    check_fixed(&of(3));
}

/// A server with a time of day that is off by `skew`.
fn skewed_server(skew: &str, config: &ConfigFile, redis: &RedisServer) -> Server {
    // Only the time of day is wrong; timers stay correct. `faketime` is the parent process of the server, which must
    // end with it.
    let end_with_parent = ["setpriv", "--pdeathsig", "KILL"];
    let wrapper = [&["env", "DONT_FAKE_MONOTONIC=1", "faketime", "-f", skew], &end_with_parent[..]].concat();
    Server::start_under(&wrapper, &["--config", config.path(), "--store", &redis.url()])
}

/// Sends requests for all limits to all servers in a loop.
fn hammer(servers: &[Server]) -> Vec<Admitted> {
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address("api")).collect();
    let end = micros() + RUN.as_micros() as u64;
    let addresses = addresses.iter().flat_map(|address| [*address; CLIENTS_PER_SERVER]);
    std::thread::scope(|scope| {
        let clients: Vec<_> = addresses.map(|address| scope.spawn(move || send_until(address, end))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("a client")).collect()
    })
}

fn send_until(address: SocketAddr, end: u64) -> Vec<Admitted> {
    let mut session = Session::open(address);
    let mut admitted = Vec::new();
    while micros() < end {
        for (resource, name) in RESOURCES.iter().enumerate() {
            let body = format!(r#"{{"resource":"{name}","identifier":"alice"}}"#);
            let sent = micros();
            let answer = session.post("/v1/check", &body);
            let answered = micros();
            assert!(matches!(answer.status, 200 | 429), "{answer:?}");
            assert_eq!(answer.json()["degraded"], Value::Bool(false), "{answer:?}");
            if answer.status == 200 {
                admitted.push(Admitted { resource, sent, answered });
            }
        }
    }
    admitted
}

/// Every interval admits at most the capacity and the refill.
fn check_bucket(admitted: &[Admitted]) {
    for_all_intervals(admitted, |length, count| {
        let allowed = LIMIT as u64 * 1_000_000 + length * REFILL_PER_SECOND;
        assert!(count as u64 * 1_000_000 <= allowed, "bucket: {count} in {length} µs");
    });
}

/// Every interval shorter than the window admits at most `most`.
fn check_windows(name: &str, admitted: &[Admitted], most: usize) {
    for_all_intervals(admitted, |length, count| {
        assert!(length >= WINDOW_MICROS || count <= most, "{name}: {count} in {length} µs");
    });
}

/// At most the limit between two whole seconds.
fn check_fixed(admitted: &[Admitted]) {
    let window = |instant: u64| instant / WINDOW_MICROS;
    for each in admitted {
        let inside = |other: &&Admitted| {
            window(other.sent) == window(each.sent) && window(other.answered) == window(each.sent)
        };
        let count = admitted.iter().filter(inside).count();
        assert!(count <= LIMIT, "fixed: {count} in one second");
    }
}

/// Calls `check` with the length of every interval from one sending to one response, and the number of requests within
/// it.
fn for_all_intervals(admitted: &[Admitted], check: impl Fn(u64, usize)) {
    let mut by_answer = admitted.to_vec();
    by_answer.sort_by_key(|each| each.answered);
    for start in admitted.iter().map(|each| each.sent) {
        let within = by_answer.iter().filter(|each| each.sent >= start);
        for (index, last) in within.enumerate() {
            check(last.answered - start, index + 1);
        }
    }
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("fits")
}
