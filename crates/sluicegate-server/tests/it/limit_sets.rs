//! Limit sets from outside: clients of several tiers and overrides share an address, a tenant or an identifier, and no
//! limit affects the remaining quota of another. Runs on the embedded store, on one Redis and on a Cluster.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sluicegate_testkit::redis_cluster::RedisCluster;
use sluicegate_testkit::redis_server::RedisServer;

use crate::client::{post, send, send_with};
use crate::server::{ConfigFile, Server};

/// Runs `test` with the URL of every kind of store.
fn on_every_store(test: impl Fn(&str)) {
    test("memory");
    test(&RedisServer::start().url());
    let cluster = RedisCluster::start();
    test(&cluster.url());
}

/// The gateway distinguishes two kinds of clients at one address: with an API key of a tier, and without one.
fn by_address(algorithm: &str) -> String {
    let key: String = Sha256::digest("k").iter().map(|byte| format!("{byte:02x}")).collect();
    let limit = |count: u64, time: &str| match algorithm {
        "token_bucket" => format!("{{ algorithm: token_bucket, capacity: {count}, refill: {count}/{time} }}"),
        _ => format!("{{ algorithm: {algorithm}, limit: {count}, window: {time} }}"),
    };
    format!(
        "demo: true
tiers: [pro]
identity: [ {{ api_key: {{ keys: [ {{ sha256: {key}, identifier: bob, tier: pro }} ] }} }}, {{ ip: {{}} }} ]
rules:
  - name: per-address
    per: ip
    deadline: 10s
    limits: [ {} ]
    tiers: {{ pro: [ {} ] }}
",
        limit(10, "10h"),
        limit(1_000, "60s")
    )
}

#[test]
fn clients_of_two_tiers_at_one_address_have_limits_of_their_own() {
    on_every_store(|store| {
        for algorithm in ["token_bucket", "sliding_window", "sliding_counter", "fixed_window"] {
            let config = ConfigFile::new(&format!("limit-sets-{algorithm}"), by_address(algorithm));
            let server = Server::start(&["--config", config.path(), "--store", store]);
            let gateway = server.address("gateway");
            let anonymous = || send(gateway, "GET", "/api/ping").status;
            let pro = || send_with(gateway, "GET", "/api/ping", "x-api-key: k");
            let mut passed = 0;
            for round in 0..6 {
                passed += (0..6).filter(|_| anonymous() == 200).count();
                let answer = pro();
                let remaining = answer.header("x-ratelimit-remaining").map(str::to_owned);
                assert_eq!(answer.status, 200, "round {round} of {algorithm} on {store}");
                let left: u64 = remaining.and_then(|left| left.parse().ok()).expect("a remainder");
                // The tolerance is the refill of the minute bucket in the meantime. The refill never exceeds the
                // charge.
                assert!((999 - round..=999).contains(&left), "{left} in round {round} of {algorithm} on {store}");
            }
            assert_eq!(passed, 10, "{algorithm} on {store}");
        }
    });
}

/// Requests of one identifier under two tiers, and a tenant shared by clients with and without an override.
#[test]
fn tiers_and_overrides_on_one_subject_are_counted_apart_by_the_api() {
    let config = ConfigFile::new(
        "limit-sets-api",
        "
tiers: [pro]
rules:
  - name: client
    match: { resource: client }
    per: identifier
    deadline: 10s
    limits: [ { algorithm: sliding_window, limit: 5, window: 1d } ]
    tiers: { pro: [ { algorithm: sliding_window, limit: 5, window: 100ms } ] }
  - name: tenant
    match: { resource: tenant }
    per: tenant
    deadline: 10s
    limits: [ { algorithm: token_bucket, capacity: 5, refill: 5/d } ]
    overrides: [ { identifier: 'vip-*', limits: [ { algorithm: token_bucket, capacity: 5, refill: 50/s } ] } ]
",
    );
    on_every_store(|store| {
        let server = Server::start(&["--config", config.path(), "--store", store]);
        let check = |resource: &str, identifier: &str, tier: Option<&str>| {
            let mut body = json!({ "resource": resource, "identifier": identifier });
            if let Some(tier) = tier {
                body["tier"] = json!(tier);
            }
            post(server.address("api"), "/v1/check", body.to_string())
        };
        for (resource, slow, fast) in
            [("client", ("alice", None), ("alice", Some("pro"))), ("tenant", ("alice", None), ("vip-1", None))]
        {
            let mut passed = 0;
            for _ in 0..20 {
                let answer = check(resource, slow.0, slow.1);
                passed += usize::from(answer.status == 200);
                let remaining = answer.json()["remaining"].clone();
                assert_eq!(remaining, json!(5 - passed), "{resource} on {store}");
                check(resource, fast.0, fast.1);
            }
            assert_eq!(passed, 5, "{resource} on {store}");
        }
    });
}

/// Several parameter sets on one key of `CL.THROTTLE` share one state, and no set loosens it.
#[test]
fn parameter_sets_of_one_throttled_key_loosen_nothing() {
    use std::io::{Read as _, Write as _};
    on_every_store(|store| {
        let config = ConfigFile::new("limit-sets-resp", "resp: { deadline: 10s }\nrules: []");
        let server = Server::start(&["--config", config.path(), "--store", store, "--resp", "127.0.0.1:0"]);
        let mut stream = std::net::TcpStream::connect(server.address("resp")).expect("the listener accepts");
        let mut throttle = |command: &str| -> Vec<i64> {
            stream.write_all(format!("{command}\r\n").as_bytes()).expect("the server reads");
            let mut text = String::new();
            let mut byte = [0];
            while text.matches("\r\n").count() < 6 {
                stream.read_exact(&mut byte).expect("an answer");
                text.push(char::from(byte[0]));
            }
            text.lines().skip(1).map(|line| line[1..].parse().expect("a number")).collect()
        };
        let mut passed = 0;
        for turn in 0..30 {
            passed += u32::from(throttle("CL.THROTTLE k 4 5 3600")[0] == 0);
            // The sets alternate: one that is denied, one that fits, and one of cost zero.
            let other = ["CL.THROTTLE k 4 5 1", "CL.THROTTLE k 0 1 1", "CL.THROTTLE k 4 5 1 0"][turn % 3];
            throttle(other);
        }
        assert_eq!(passed, 5, "on {store}");
    });
}

/// A denial over several limits reports the cost that would pass.
#[test]
fn the_top_level_remainder_of_a_denial_would_pass() {
    let config = ConfigFile::new(
        "limit-sets-remaining",
        "
rules:
  - name: both
    deadline: 10s
    limits:
      - { algorithm: fixed_window, limit: 7, window: 3650d }
      - { algorithm: token_bucket, capacity: 6, refill: 6/d }
",
    );
    on_every_store(|store| {
        let server = Server::start(&["--config", config.path(), "--store", store]);
        let check = |cost: u32| {
            let body = json!({ "resource": "r", "identifier": "a", "cost": cost });
            post(server.address("api"), "/v1/check", body.to_string())
        };
        assert_eq!(check(5).status, 200);
        let denied = check(3);
        let body: Value = denied.json();
        assert_eq!((denied.status, &body["limit"], &body["remaining"]), (429, &json!(7), &json!(1)), "{body}");
        assert_eq!(denied.header("x-ratelimit-remaining"), Some("1"));
        assert_eq!(check(2).status, 429);
        assert_eq!(check(1).status, 200);
    });
}
