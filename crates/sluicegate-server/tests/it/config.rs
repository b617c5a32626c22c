//! Configuration files from the command line to the response: `validate`, `schema`, and a server that decides by its
//! file.

use std::process::Output;

use serde_json::{Value, json};

use crate::client::post;
use crate::server::{ConfigFile, Server, sluicegate};

fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = sluicegate(arguments).output().expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

const GOOD: &str = "
tiers: [free, pro]
headers: { styles: [x-ratelimit], x_ratelimit_reset: delta, degraded: true }
rules:
  - name: payments
    match: { resource: 'pay.*' }
    limits:
      - { algorithm: sliding_window, limit: 2, window: 1h }
      - { algorithm: fixed_window, limit: 5, window: 1d }
    tiers: { pro: [ { algorithm: token_bucket, capacity: 3, refill: 1/h } ] }
    overrides: [ { identifier: 'vip-*', limits: unlimited } ]
    on_store_failure: closed
    deadline: 5ms
  - name: trial
    mode: shadow
    on_store_failure: local
    limits: [ { algorithm: token_bucket, capacity: 1, refill: 1/h } ]
";

#[test]
fn a_good_file_is_one_line_and_exit_0() {
    let file = ConfigFile::new("good", GOOD);
    let (code, stdout, stderr) = run(&["validate", file.path()]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert_eq!(stdout, format!("{}: ok, 2 rules, 4 limits, 2 tiers\n", file.path()));
}

#[test]
fn every_error_of_a_file_is_reported_with_its_place_and_exit_1() {
    let bad = "rules:\n  - name: a\n    limits:\n      - { algorithm: token_bucket, capacity: 0, refill: 5/fortnight }\n    moode: off\n    deadline: 1min\n    on_store_failure: close\n";
    let file = ConfigFile::new("bad", bad);
    let (code, stdout, stderr) = run(&["validate", file.path()]);
    assert_eq!((code, stdout.as_str()), (1, ""));
    let places: Vec<&str> = stderr.lines().filter_map(|line| line.strip_prefix(file.path())).collect();
    assert_eq!(places.len(), 5, "{stderr}");
    assert!(places[0].starts_with(":4:46: rules[0].limits[0].capacity: "), "{stderr}");
    assert!(places[1].starts_with(":4:57: rules[0].limits[0].refill: "), "{stderr}");
    assert!(places[2].starts_with(":5:5: rules[0].moode: unknown key"), "{stderr}");
    let deadline = ":6:15: rules[0].deadline: out of range (value 1min): use at least 1ms and at most 10s";
    assert_eq!(places[3], deadline);
    assert!(places[4].starts_with(":7:23: rules[0].on_store_failure: unknown value (value close): did you mean"));
}

#[test]
fn a_missing_or_too_long_file_is_reported() {
    let (code, _, stderr) = run(&["validate", "/nowhere/at/all.yaml"]);
    assert_eq!(code, 1);
    assert!(stderr.contains("cannot read the configuration file /nowhere/at/all.yaml"), "{stderr}");
    let file = ConfigFile::new("long", vec![b'#'; 2_000_000]);
    let (code, _, stderr) = run(&["validate", file.path()]);
    assert_eq!(code, 1);
    assert!(stderr.contains("1048576"), "{stderr}");
}

#[test]
fn the_schema_is_json_that_names_every_top_level_key() {
    let (code, stdout, _) = run(&["schema"]);
    assert_eq!(code, 0);
    let schema: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for key in ["store", "memory", "listen", "headers", "tiers", "unmatched", "rules"] {
        assert!(schema["properties"][key].is_object(), "{key}");
    }
}

#[test]
fn a_server_decides_by_its_file() {
    let file = ConfigFile::new("serve", GOOD);
    let server = Server::start(&["--config", file.path()]);
    let hints: Vec<_> = server.lines_to_ready().iter().filter(|line| line.starts_with("try: ")).collect();
    assert!(hints.len() == 1 && hints[0].contains("/v1/check") && !hints[0].contains("demo"), "{hints:?}");
    let send = |identifier: &str, tier: Value| {
        let body = json!({ "resource": "pay.create", "identifier": identifier, "tier": tier });
        post(server.address("api"), "/v1/check", body.to_string())
    };
    let statuses = |identifier, tier: Value| [(); 4].map(|()| send(identifier, tier.clone()).status);
    assert_eq!(statuses("a", Value::Null), [200, 200, 429, 429]);
    assert_eq!(statuses("b", json!("pro")), [200, 200, 200, 429]);
    assert_eq!(statuses("c", json!("free")), [200, 200, 429, 429]);
    assert_eq!(statuses("vip-1", Value::Null), [200, 200, 200, 200]);

    let denied = send("a", Value::Null);
    assert_eq!(denied.header("ratelimit"), None, "only the styles that the file names");
    assert_eq!(denied.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(denied.header("x-ratelimit-degraded"), None, "the embedded store does not fail");
    assert_eq!(denied.json()["degraded"], false);
    let reset: u64 = denied.header("x-ratelimit-reset").expect("a reset").parse().expect("a number");
    assert!(reset <= 3_600, "{reset} is not in seconds from now");
    let limits = denied.json()["limits"].as_array().expect("limits").clone();
    let told = limits.iter().map(|each| (each["rule"].clone(), each["allowed"].clone(), each["shadow"].clone()));
    let expected = [
        (json!("payments"), json!(false), json!(false)),
        (json!("payments"), json!(true), json!(false)),
        (json!("trial"), json!(false), json!(true)),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);

    let unknown = send("a", json!("gold"));
    assert_eq!((unknown.status, &unknown.json()["field"]), (400, &json!("tier")));
}

#[test]
fn a_server_refuses_a_bad_file_with_every_problem() {
    let file = ConfigFile::new("refused", "store: mysql://cache\nrules: [ { name: '' } ]\nidentities: []\n");
    let (code, _, stderr) = run(&["--config", file.path(), "--api", "127.0.0.1:0"]);
    assert_eq!(code, 1);
    for problem in [":1:8: store: ", "rules[0].name", "rules[0].limits", ":3:1: identities: unknown key"] {
        assert!(stderr.contains(problem), "{problem} in {stderr}");
    }
    assert!(!stderr.lines().any(|line| line == "ready"));
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let text = "listen: { gateway: 'off', api: '127.0.0.1:1', admin: '${ADMIN_AT}' }\nrules: []\n";
    let file = ConfigFile::new("precedence", text);
    let mut command = sluicegate(&["--config", file.path(), "--api", "127.0.0.1:0"]);
    command.env("ADMIN_AT", "127.0.0.1:0").env("SLUICEGATE_API", "127.0.0.1:2");
    let server = Server::start_command(command);
    assert_eq!(server.listeners(), ["admin", "api"], "the file turned the gateway off");
}

#[test]
fn unmatched_requests_are_denied_if_configured() {
    let file = ConfigFile::new("unmatched", "unmatched: deny\nrules: []\n");
    let server = Server::start(&["--config", file.path()]);
    let denied = post(server.address("api"), "/v1/check", r#"{"resource":"r","identifier":"a"}"#);
    assert_eq!(denied.status, 429);
    let body = denied.json();
    assert_eq!(body["rule"], Value::Null);
    assert_eq!(body["retryAfter"], Value::Null);
    assert_eq!(denied.header("retry-after"), None);
}
