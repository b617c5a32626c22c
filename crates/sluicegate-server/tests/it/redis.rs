//! The server on Redis: start, shared limits, outages, and stop.

mod permissions;
mod sharing;
mod startup_errors;

use std::net::TcpListener;

use serde_json::{Value, json};
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;

use crate::client::{Answer, Connection, post, send};
use crate::server::{ConfigFile, PATIENCE, Server};

/// The key in which Redis keeps the members of the fleet.
const FLEET: &str = "sg:1:{instances}";
/// The text of the log line about an unusable store at the start.
const CANNOT_BE_USED: &str = "the store cannot be used yet";

/// A rule of each policy. The limits do not refill within a test, and the deadline is long enough for a busy machine.
const EVERY_POLICY: &str = "
rules:
  - { name: open,   match: { resource: open },   per: identifier, deadline: 1s, on_store_failure: open,
      limits: [ { algorithm: token_bucket, capacity: 11, refill: 1/h } ] }
  - { name: closed, match: { resource: closed }, per: identifier, deadline: 1s, on_store_failure: closed,
      limits: [ { algorithm: token_bucket, capacity: 11, refill: 1/h } ] }
  - { name: local,  match: { resource: local },  per: identifier, deadline: 1s, on_store_failure: local,
      limits: [ { algorithm: token_bucket, capacity: 11, refill: 1/h } ] }
";
/// All rules fail closed, so every request needs the store.
const ONLY_CLOSED: &str = "
rules:
  - { name: closed, match: { resource: closed }, per: identifier, deadline: 1s, on_store_failure: closed,
      limits: [ { algorithm: token_bucket, capacity: 11, refill: 1/h } ] }
";

fn start(config: &ConfigFile, store: &str) -> Server {
    Server::start(&["--config", config.path(), "--store", store])
}

fn check(server: &Server, resource: &str, identifier: &str) -> Answer {
    let body = json!({ "resource": resource, "identifier": identifier, "tenant": "acme" });
    post(server.address("api"), "/v1/check", body.to_string())
}

/// The status, and whether the response is degraded.
fn answer(server: &Server, resource: &str) -> (u16, Value) {
    let answer = check(server, resource, "alice");
    (answer.status, answer.json()["degraded"].clone())
}

fn readiness(server: &Server) -> (u16, Value) {
    let answer = send(server.address("admin"), "GET", "/readyz");
    (answer.status, answer.json())
}

/// The number of allowed requests among this many.
fn admitted(server: &Server, resource: &str, identifier: &str, requests: usize) -> usize {
    (0..requests).filter(|_| check(server, resource, identifier).status == 200).count()
}

/// The lines up to `ready` that contain a text.
fn lines_with<'a>(server: &'a Server, text: &str) -> Vec<&'a String> {
    server.lines_to_ready().iter().filter(|line| line.contains(text)).collect()
}

fn fleet_size(redis: &RedisServer) -> u64 {
    redis.command(&["ZCARD", FLEET])
}

fn until_decided(server: &Server) {
    poll::until_true("the store decides", PATIENCE, || answer(server, "closed") == (200, json!(false)));
}

#[test]
fn a_start_that_waits_for_redis_can_be_called_off() {
    // Connections to this store never get a reply, so the start waits for its maximum time.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let store = format!("redis://{}", silent.local_addr().expect("it is bound"));
    let server = Server::begin(&["--store", &store]);
    let _connection = silent.accept().expect("the server connects while it starts");
    server.signal("HUP");
    server.signal("TERM");
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{:#?}", ended.lines);
    assert!(ended.lines.iter().any(|line| line.contains("stopped")), "{:#?}", ended.lines);
    assert!(!ended.lines.iter().any(|line| line == "ready"), "{:#?}", ended.lines);
}

#[test]
fn a_server_starts_without_redis_and_joins_it_when_it_appears() {
    let redis = RedisServer::start();
    redis.kill();
    let config = ConfigFile::new("redis-every-policy", EVERY_POLICY);
    let server = start(&config, &redis.url());
    let warnings = lines_with(&server, "WARN");
    assert_eq!(warnings.len(), 1, "{:#?}", server.lines_to_ready());
    assert!(warnings[0].contains(CANNOT_BE_USED) && warnings[0].contains("connection"), "{warnings:?}");

    assert_eq!(readiness(&server), (200, json!({ "status": "ready", "degraded": true })));
    assert_eq!(answer(&server, "open"), (200, json!(true)));
    assert_eq!(answer(&server, "local"), (200, json!(true)));
    assert_eq!(answer(&server, "closed"), (503, json!(true)));

    redis.restart();
    until_decided(&server);
    poll::until_true("readiness", PATIENCE, || {
        readiness(&server).1 == json!({ "status": "ready", "degraded": false })
    });
    poll::until_true("a heartbeat", PATIENCE, || fleet_size(&redis) == 1);
}

#[test]
fn a_server_that_can_answer_nothing_without_redis_is_not_ready_until_it_appears() {
    let redis = RedisServer::start();
    redis.kill();
    let config = ConfigFile::new("redis-only-closed", ONLY_CLOSED);
    let server = start(&config, &redis.url());
    assert_eq!(lines_with(&server, CANNOT_BE_USED).len(), 1, "{:#?}", server.lines_to_ready());
    assert_eq!(readiness(&server), (503, json!({ "status": "unavailable", "degraded": true })));
    assert_eq!(answer(&server, "closed"), (503, json!(true)));

    redis.restart();
    let ready = (200, json!({ "status": "ready", "degraded": false }));
    poll::until_true("readiness", PATIENCE, || readiness(&server) == ready);
    until_decided(&server);

    redis.kill();
    poll::until_true("not ready", PATIENCE, || readiness(&server).0 == 503);
    redis.restart();
    poll::until_true("readiness", PATIENCE, || readiness(&server) == ready);
}

/// A server that starts together with Redis waits for it instead of starting degraded.
#[test]
fn a_start_waits_a_moment_for_redis() {
    let redis = RedisServer::start();
    let config = ConfigFile::new("redis-at-once", EVERY_POLICY);
    let server = start(&config, &redis.url());
    assert!(lines_with(&server, "the store answers").len() == 1 && lines_with(&server, "WARN").is_empty());
    assert_eq!(answer(&server, "closed"), (200, json!(false)));
    assert_eq!(readiness(&server), (200, json!({ "status": "ready", "degraded": false })));
}

/// Both requests are sent at once, and the first one needs no store.
#[test]
fn an_answer_does_not_wait_for_the_next_decision() {
    let redis = RedisServer::start();
    let rules = ONLY_CLOSED.replace("deadline: 1s", "deadline: 10s");
    let config = ConfigFile::new("redis-pipelined", rules);
    let server = start(&config, &redis.url());
    until_decided(&server);
    let check = |resource: &str| {
        let body = format!(r#"{{"resource":"{resource}","identifier":"bob"}}"#);
        let length = body.len();
        format!(
            "POST /v1/check HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    redis.pause();
    let mut connection = Connection::open(server.address("api"));
    connection.send(format!("{}{}", check("unlimited"), check("closed")));
    let head = connection.read_whole_head();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    connection.read(length.parse().expect("a number"));
    redis.resume();
    let next = connection.read_whole_head();
    assert!(
        next.starts_with("HTTP/1.1 200 OK\r\n") && next.contains("\r\nx-ratelimit-remaining: 10\r\n"),
        "{next}"
    );
}
