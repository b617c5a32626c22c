//! Usage that is reported after the fact, through the front doors of a real server, on the embedded store and on Redis.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sluicegate_testkit::redis_server::RedisServer;

use crate::client::{ask, post, post_with};
use crate::resp::Client;
use crate::server::{ConfigFile, Server};

/// A thousand tokens, and one more per hour.
const CONFIG: &str = "
rules:
  - name: tokens
    match: { resource: tokens }
    limits: [ { algorithm: token_bucket, capacity: 1000, refill: 1/1h } ]
    deadline: 10s
";

fn start(test: &str, store: &str) -> (Server, ConfigFile) {
    let config = ConfigFile::new(test, CONFIG);
    let arguments = ["--config", config.path(), "--store", store, "--resp", "127.0.0.1:0"];
    (Server::start(&arguments), config)
}

fn body(cost: u64) -> String {
    json!({ "resource": "tokens", "identifier": "alice", "cost": cost }).to_string()
}

/// The status, whether the answer allows, the remaining units, and the debt of the limit.
fn numbers(api: SocketAddr, path: &str, cost: u64) -> (u16, Value, Value, Value) {
    let answer = post(api, path, body(cost));
    let json = answer.json();
    assert_eq!(json["limits"].as_array().map(Vec::len), Some(1), "{json}");
    (answer.status, json["allowed"].clone(), json["remaining"].clone(), json["limits"][0]["debt"].clone())
}

fn usage_puts_a_limit_in_debt(test: &str, store: &str) {
    let (server, _config) = start(test, store);
    let api = server.address("api");
    assert_eq!(numbers(api, "/v1/check", 900), (200, json!(true), json!(100), Value::Null));
    // 5,000 do not fit into the 100 that are left, and are charged.
    assert_eq!(numbers(api, "/v1/report", 5_000), (200, json!(false), json!(0), json!(4_900)));
    let denied = post(api, "/v1/check", body(1));
    assert_eq!((denied.status, &denied.json()["limits"][0]["debt"]), (429, &json!(4_900)));
    // Of the wait of 4,901 hours, the test takes some seconds.
    let hours = denied.json()["retryAfterMs"].as_u64().expect("a wait").div_ceil(3_600_000);
    assert_eq!(hours, 4_901);
    let restored = denied.json()["resetAt"].as_u64().expect("a time");

    let mut resp = Client::connect(&server);
    resp.send("SG.REPORT tokens alice COST 100\r\n");
    let reply = resp.read_values();
    assert_eq!((&reply[..3], &reply[5]), (&[json!(0), json!(1_000), json!(0)][..], &json!("tokens")));
    let peeked = post(api, "/v1/peek", body(1)).json();
    assert_eq!(peeked["limits"][0]["debt"], 5_000);
    let later = peeked["resetAt"].as_u64().expect("a time") - restored;
    assert!((later.abs_diff(100 * 3_600_000)) <= 1, "{later} ms for 100 tokens");

    // The bound on debt, and the units beyond it.
    assert_eq!(numbers(api, "/v1/report", 6_000), (200, json!(false), json!(0), json!(10_000)));
    let metrics = ask(server.address("admin"), "GET", "/metrics").body;
    let line =
        metrics.lines().find(|line| line.starts_with("sluicegate_uncharged_usage_units_total{reason=\"debt\"}"));
    assert_eq!(line.and_then(|line| line.rsplit(' ').next()), Some("1000"), "{line:?}");
    // Nothing else has changed.
    assert_eq!(numbers(api, "/v1/report", 0), (200, json!(true), json!(0), json!(10_000)));
}

#[test]
fn usage_puts_a_limit_of_the_embedded_store_in_debt() {
    usage_puts_a_limit_in_debt("usage-memory", "memory");
}

#[test]
fn usage_puts_a_limit_of_redis_in_debt() {
    let redis = RedisServer::start();
    usage_puts_a_limit_in_debt("usage-redis", &redis.url());
}

/// A report needs the right to check, and no other.
#[test]
fn a_report_needs_the_token_of_the_api_where_there_is_one() {
    let config = ConfigFile::new("usage-token", format!("{CONFIG}\napi: {{ token: canary-token-of-tests }}\n"));
    let server = Server::start(&["--config", config.path()]);
    let api = server.address("api");
    assert_eq!(post(api, "/v1/report", body(1)).status, 401);
    let right = post_with(api, "/v1/report", "authorization: Bearer canary-token-of-tests\r\n", body(1));
    assert_eq!((right.status, &right.json()["remaining"]), (200, &json!(999)));
}
