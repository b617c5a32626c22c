//! Metrics and top clients after requests through every front door.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sluicegate_testkit::redis_server::RedisServer;

use crate::client::{post, send, send_with};
use crate::server::{ConfigFile, PATIENCE, Server};

/// A rule of each kind. Limits do not refill within a test, and the deadlines suit a busy machine.
const RULES: &str = "
demo: true
rules:
  - { name: ping, match: { resource: api.ping }, per: identifier, deadline: 5s,
      limits: [ { algorithm: token_bucket, capacity: 2, refill: 1/h } ] }
  - { name: open, match: { resource: open }, per: identifier, deadline: 5s, on_store_failure: open,
      limits: [ { algorithm: token_bucket, capacity: 3, refill: 1/h }, { algorithm: sliding_window, limit: 9, window: 1h } ] }
  - { name: closed, match: { resource: closed }, per: identifier, deadline: 5s, on_store_failure: closed,
      limits: [ { algorithm: fixed_window, limit: 3, window: 365d } ] }
  - { name: local, match: { resource: local }, per: identifier, deadline: 5s, on_store_failure: local,
      limits: [ { algorithm: sliding_counter, limit: 3, window: 1h } ] }
  - { name: a-shadow.RULE_1, match: { resource: shadow }, per: identifier, deadline: 5s, mode: shadow,
      limits: [ { algorithm: token_bucket, capacity: 3, refill: 1/h } ] }
";

fn start(test: &str, store: &str) -> (Server, ConfigFile) {
    let config = ConfigFile::new(test, RULES);
    let server = Server::start(&["--config", config.path(), "--store", store, "--resp", "127.0.0.1:0"]);
    (server, config)
}

/// The metrics, checked with Prometheus' own tool.
fn metrics(server: &Server) -> String {
    let answer = send(server.address("admin"), "GET", "/metrics");
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("text/plain; version=0.0.4; charset=utf-8"))
    );
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed; `cargo xtask test` does that");
    let mut stdin = promtool.stdin.take().expect("it is piped");
    stdin.write_all(answer.body.as_bytes()).expect("it reads");
    drop(stdin);
    let output = promtool.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}\n{}", String::from_utf8_lossy(&said), answer.body);
    answer.body
}

/// All decision counts above zero: rule, algorithm, outcome and count.
fn decisions(text: &str) -> Vec<String> {
    let series = text.lines().filter_map(|line| line.strip_prefix("sluicegate_decisions_total{"));
    let counted = series.filter(|line| !line.ends_with(" 0"));
    let words = |line: &str| {
        let parts: Vec<&str> = line.split('"').collect();
        format!("{} {} {}{}", parts[5], parts[1], parts[3], parts[6].trim_start_matches('}'))
    };
    let mut words: Vec<String> = counted.map(words).collect();
    words.sort_unstable();
    words
}

#[track_caller]
fn value(text: &str, series: &str) -> String {
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {series} in\n{text}")).to_owned()
}

fn check(server: &Server, path: &str, resource: &str, times: usize) {
    for _ in 0..times {
        let body = json!({ "resource": resource, "identifier": "alice" });
        post(server.address("api"), path, body.to_string());
    }
}

/// Sends commands and waits for the reply to the last one.
fn resp(server: &Server, commands: &str) {
    let mut stream = TcpStream::connect(server.address("resp")).expect("the listener accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(format!("{commands}QUIT\r\n").as_bytes()).expect("the server reads");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).expect("answers");
    assert!(answers.ends_with("+OK\r\n"), "{answers}");
}

#[test]
fn every_request_through_any_front_door_is_counted_once() {
    let (server, _config) = start("metrics-doors", "memory");
    let start = metrics(&server);
    assert_eq!((decisions(&start), value(&start, "sluicegate_tracked_keys")), (Vec::new(), "0".to_owned()));

    check(&server, "/v1/check", "open", 4);
    check(&server, "/v1/peek", "open", 5);
    let checks: Vec<Value> = (0..4).map(|_| json!({ "resource": "closed", "identifier": "bob" })).collect();
    assert_eq!(
        post(server.address("api"), "/v1/check/batch", json!({ "checks": checks }).to_string()).status,
        200
    );
    for _ in 0..3 {
        send_with(server.address("gateway"), "GET", "/api/ping", "x-api-key: demo-key");
    }
    send_with(server.address("gateway"), "GET", "/api/ping", "x-api-key: wrong");
    resp(&server, &"SG.CHECK shadow carol\r\nSG.CHECK shadow carol PEEK\r\n".repeat(5));
    resp(&server, &"CL.THROTTLE dave 1 1 3600\r\n".repeat(3));
    // Unlimited requests and invalid requests count for no rule.
    check(&server, "/v1/check", "nothing", 2);
    post(server.address("api"), "/v1/check", "{}");

    let text = metrics(&server);
    assert_eq!(
        decisions(&text),
        [
            "a-shadow.RULE_1 token_bucket allowed 3",
            "a-shadow.RULE_1 token_bucket shadow_denied 2",
            "closed fixed_window allowed 3",
            "closed fixed_window denied 1",
            "open sliding_window allowed 4",
            "open token_bucket allowed 3",
            "open token_bucket denied 1",
            "ping token_bucket allowed 2",
            "ping token_bucket denied 1",
            "resp:cl.throttle token_bucket allowed 2",
            "resp:cl.throttle token_bucket denied 1",
        ]
    );
    assert_eq!(value(&text, "sluicegate_remaining_ratio_count{rule=\"open\"}"), "8");
    assert_eq!(value(&text, "sluicegate_decision_duration_seconds_count"), "18");
    assert_eq!(value(&text, "sluicegate_store_duration_seconds_count{operation=\"charge\"}"), "16");
    assert_eq!(value(&text, "sluicegate_store_duration_seconds_count{operation=\"peek\"}"), "10");
    assert_eq!(value(&text, "sluicegate_store_up"), "1");
    assert_ne!(value(&text, "sluicegate_tracked_keys"), "0");
    assert!(!["alice", "bob", "carol", "dave"].iter().any(|name| text.contains(name)), "{text}");
    assert_eq!(text.lines().count(), start.lines().count(), "requests add no series");
}

#[test]
fn outcomes_without_the_store_are_counted() {
    let redis = RedisServer::start();
    let (server, _config) = start("metrics-redis", &redis.url());
    check(&server, "/v1/check", "local", 1);
    let text = metrics(&server);
    assert_eq!(
        (decisions(&text), value(&text, "sluicegate_store_up")),
        (vec!["local sliding_counter allowed 1".to_owned()], "1".to_owned())
    );
    redis.kill();
    for resource in ["open", "closed", "local"] {
        check(&server, "/v1/check", resource, 4);
    }
    let text = metrics(&server);
    assert_eq!(
        decisions(&text),
        [
            "closed fixed_window failed_closed 4",
            "local sliding_counter allowed 1",
            "local sliding_counter fallback_allowed 2",
            "local sliding_counter fallback_denied 2",
            "open sliding_window failed_open 4",
            "open token_bucket failed_open 4",
        ]
    );
    let errors = text.lines().filter(|line| line.starts_with("sluicegate_store_errors_total{"));
    let counts = errors.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), 12, "{text}");
    assert_eq!(value(&text, "sluicegate_store_up"), "0");
    assert_eq!(value(&text, "sluicegate_decision_duration_seconds_count"), "13");
}

#[test]
fn the_top_clients_are_visible_on_the_admin_listener() {
    let (server, _config) = start("metrics-top", "memory");
    let batch = |identifier: &str| {
        let checks = vec![json!({ "resource": "open", "identifier": identifier, "tenant": "acme" }); 1_000];
        assert_eq!(
            post(server.address("api"), "/v1/check/batch", json!({ "checks": checks }).to_string()).status,
            200
        );
    };
    (0..3).for_each(|_| batch("mallory"));
    batch("alice");
    resp(&server, &"CL.THROTTLE dave 999 1 3600\r\n".repeat(300));
    let top = send(server.address("admin"), "GET", "/admin/v1/top?limit=3");
    assert_eq!((top.status, top.header("content-type")), (200, Some("application/json")));
    let top = top.json();
    let names = |list: &str| -> Vec<Value> {
        top[list]
            .as_array()
            .expect("a list")
            .iter()
            .map(|entry| json!([entry["tenant"], entry["identifier"]]))
            .collect()
    };
    let [mallory, alice, dave] =
        [json!(["acme", "mallory"]), json!(["acme", "alice"]), json!(["resp:cl.throttle", "dave"])];
    assert_eq!(names("heaviest"), [mallory.clone(), alice.clone(), dave]);
    assert_eq!(names("mostDenied"), [mallory, alice]);
    let head = send(server.address("admin"), "HEAD", "/admin/v1/top");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(send(server.address("admin"), "DELETE", "/admin/v1/top").status, 405);
}

/// The example of docs/configuration.md: the bounds of leases with four servers.
#[test]
fn lease_bounds_have_series_for_rules_with_leases() {
    let lease = |name: &str, mode: &str| {
        let limits = "limits: [ { algorithm: token_bucket, capacity: 100, refill: 200/s } ]";
        format!("  - {{ name: {name}, {limits}, lease: {{ ttl: 100ms, mode: {mode} }} }}\n")
    };
    let plain = "  - { name: plain, limits: unlimited }\n";
    let rules = [lease("strict", "strict"), lease("bounded", "bounded"), plain.to_owned()].concat();
    let config = ConfigFile::new("leases", format!("redis: {{ min_instances: 4 }}\nrules:\n{rules}"));
    let redis = RedisServer::start();
    let shared = metrics(&Server::start(&["--config", config.path(), "--store", &redis.url()]));
    let series: Vec<&str> = shared.lines().filter(|line| line.starts_with("sluicegate_lease_")).collect();
    assert_eq!(
        series,
        [
            "sluicegate_lease_extra_tokens{rule=\"strict\"} 0",
            "sluicegate_lease_extra_tokens{rule=\"bounded\"} 20",
            "sluicegate_lease_stranded_tokens_max{rule=\"strict\"} 30",
            "sluicegate_lease_stranded_tokens_max{rule=\"bounded\"} 36",
        ]
    );
    let embedded = metrics(&Server::start(&["--config", config.path(), "--store", "memory"]));
    assert!(!embedded.contains("sluicegate_lease_"), "{embedded}");
}
