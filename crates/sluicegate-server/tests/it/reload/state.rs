//! The state of an identity survives a change of its limits, for every algorithm and in both stores. A renamed rule
//! starts with new state.

use serde_json::json;
use sluicegate_testkit::redis_server::RedisServer;

use super::{Followed, rule, rules};

/// An algorithm with a limit that does not refill within a test.
struct Case {
    algorithm: &'static str,
    /// The configuration of a limit of this size.
    limit: fn(u32) -> String,
    /// The remaining units of 10 after 3 of 5 were used. A window counts requests, and a bucket stores the time until
    /// it is full.
    left_of_ten: u32,
}

const CASES: [Case; 4] = [
    Case { algorithm: "fixed_window", limit: window, left_of_ten: 7 },
    Case { algorithm: "sliding_window", limit: window, left_of_ten: 7 },
    Case { algorithm: "sliding_counter", limit: window, left_of_ten: 7 },
    Case { algorithm: "token_bucket", limit: bucket, left_of_ten: 4 },
];

fn window(limit: u32) -> String {
    format!("limit: {limit}, window: 365d")
}

/// A bucket that refills in a year, at any capacity.
fn bucket(capacity: u32) -> String {
    format!("capacity: {capacity}, refill: {capacity}/365d")
}

/// One rule for each algorithm, each with this limit.
fn each(limit: u32) -> String {
    let rule = |case: &Case| {
        let Case { algorithm, limit: written, .. } = case;
        let limit = written(limit);
        format!(
            "  - {{ name: {algorithm}, deadline: 5s, match: {{ tenant: {algorithm} }}, limits: [{{ algorithm: \
             {algorithm}, {limit} }}] }}\n"
        )
    };
    rules(&CASES.iter().map(rule).collect::<Vec<_>>())
}

fn survives(store: &str) {
    let followed = Followed::start_on(store, &each(5));
    let send = |path: &str, algorithm: &str| {
        let body = json!({ "tenant": algorithm, "resource": "r", "identifier": "alice" }).to_string();
        crate::client::post(followed.server.address("api"), path, body)
    };
    for Case { algorithm, .. } in &CASES {
        for left in [4, 3, 2] {
            assert_eq!(send("/v1/check", algorithm).json()["remaining"], left, "{algorithm}");
        }
    }
    followed.change_to(&each(10));
    for Case { algorithm, left_of_ten, .. } in &CASES {
        let answer = send("/v1/peek", algorithm).json();
        assert_eq!((&answer["limit"], &answer["remaining"]), (&json!(10), &json!(left_of_ten)), "{algorithm}");
    }
    followed.change_to(&each(1));
    for Case { algorithm, .. } in &CASES {
        assert_eq!(send("/v1/check", algorithm).status, 429, "{algorithm}");
    }
    // Two changes lost nothing.
    followed.change_to(&each(5));
    for Case { algorithm, .. } in &CASES {
        assert_eq!(send("/v1/check", algorithm).json()["remaining"], 1, "{algorithm}");
    }
}

#[test]
fn state_survives_in_the_embedded_store() {
    survives("memory");
}

#[test]
fn state_survives_in_redis() {
    survives(&RedisServer::start().url());
}

#[test]
fn a_denial_that_was_remembered_does_not_outlive_its_limit() {
    let redis = RedisServer::start();
    let one = |limit| rules(&[rule("one", limit).replace("limits:", "deadline: 5s, limits:")]);
    let followed = Followed::start_on(&redis.url(), &one(1));
    assert_eq!(followed.check("alice").status, 200);
    for _ in 0..3 {
        assert_eq!(followed.check("alice").status, 429);
    }
    followed.change_to(&one(2));
    assert_eq!(followed.check("alice").status, 200);
    assert_eq!(followed.check("alice").status, 429);
}

#[test]
fn another_name_starts_anew_and_the_old_name_remembers() {
    let followed = Followed::start(&rules(&[rule("one", 1)]));
    assert_eq!((followed.check("alice").status, followed.check("alice").status), (200, 429));
    followed.change_to(&rules(&[rule("two", 1)]));
    assert_eq!(followed.check("alice").status, 200);
    followed.change_to(&rules(&[rule("one", 1)]));
    assert_eq!(followed.check("alice").status, 429);
}

#[test]
fn tiers_and_unmatched_are_exchanged_as_well() {
    let followed = Followed::start("rules: []\n");
    let send = |tier: &str| {
        let body = json!({ "resource": "r", "identifier": "alice", "tier": tier }).to_string();
        crate::client::post(followed.server.address("api"), "/v1/check", body).status
    };
    assert_eq!((send("gold"), followed.check("alice").status), (400, 200));
    followed.change_to("tiers: [gold]\nunmatched: deny\nrules: []\n");
    assert_eq!((send("gold"), followed.check("alice").status), (429, 429));
}
