//! Redis users, certificates and permissions, and hashed keys, which hide the names of clients from Redis.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::json;
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_cluster::{self, RedisCluster};
use sluicegate_testkit::redis_server::{Certificates, ClientCertificates, Options, RedisServer};

use super::{EVERY_POLICY, admitted, answer, check, fleet_size, lines_with, start};
use crate::server::{ConfigFile, PATIENCE};

const OPERATIONS: &str = include_str!("../../../../../docs/operations.md");

/// The user from the documentation, as a line of an access control list.
fn documented_user() -> String {
    let (_, rest) = OPERATIONS.split_once("ACL SETUSER ").expect("a user in the documentation");
    let (user, _) = rest.split_once("```").expect("the end of its block");
    user.replace("PASSWORD", "good-canary").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_documented_rights_suffice() {
    let redis = RedisServer::with(&Options::default().user(&documented_user()));
    let config = ConfigFile::new("redis-rights", EVERY_POLICY);
    let server = start(&config, &redis.url_as("sluicegate", "good-canary"));
    assert!(lines_with(&server, "WARN").is_empty(), "{:#?}", server.lines_to_ready());
    for resource in ["open", "closed", "local"] {
        assert_eq!(answer(&server, resource), (200, json!(false)));
    }
    poll::until_true("a heartbeat", PATIENCE, || fleet_size(&redis) == 1);
    assert_nothing_was_refused(&redis);
    // The permissions also cover the health probe after an outage.
    redis.restart();
    poll::until_true("the store decides", PATIENCE, || answer(&server, "closed") == (200, json!(false)));
    poll::until_true("a heartbeat", PATIENCE, || fleet_size(&redis) == 1);
    server.signal("TERM");
    assert_eq!(server.wait().status.code(), Some(0));
    assert_eq!(fleet_size(&redis), 0);
    assert_nothing_was_refused(&redis);
}

/// The server requests the slots from every node, probes it and uses it.
#[test]
fn the_documented_rights_suffice_on_a_cluster() {
    let node = Options::default().user(&documented_user());
    let cluster = RedisCluster::with(&redis_cluster::Options::new(node).size(3, 0));
    let hosts: Vec<String> = cluster.nodes().iter().map(|node| node.address().to_string()).collect();
    let config = ConfigFile::new("redis-cluster-rights", EVERY_POLICY);
    let server = start(&config, &format!("redis+cluster://sluicegate:good-canary@{}", hosts.join(",")));
    assert!(lines_with(&server, "WARN").is_empty(), "{:#?}", server.lines_to_ready());
    for number in 0..20 {
        let answer = check(&server, "closed", &format!("user-{number}"));
        assert_eq!((answer.status, &answer.json()["degraded"]), (200, &json!(false)));
    }
    server.signal("TERM");
    assert_eq!(server.wait().status.code(), Some(0));
    for node in cluster.nodes() {
        assert!(node.command::<u64>(&["DBSIZE"]) > 0, "every node has keys");
        assert_nothing_was_refused(node);
    }
}

fn assert_nothing_was_refused(redis: &RedisServer) {
    let refused: Vec<HashMap<String, String>> = redis.command(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn hashed_keys_show_no_identifier() {
    let redis = RedisServer::start();
    let hashed = format!("redis: {{ keys: hashed, key_secret: any }}\n{EVERY_POLICY}");
    let config = ConfigFile::new("redis-hashed", hashed);
    let server = start(&config, &redis.url());
    for name in ["mallory@example.com", "192.0.2.77"] {
        assert_eq!(admitted(&server, "closed", name, 1), 1);
    }
    let keys: Vec<String> = redis.command(&["KEYS", "*"]);
    assert!(keys.iter().filter(|key| key.ends_with(":closed")).count() == 2, "{keys:?}");
    for word in ["mallory", "example", "192", "acme", "default"] {
        assert!(!keys.iter().any(|key| key.contains(word)), "{word} in {keys:?}");
    }
}

#[test]
fn certificates_of_both_sides_are_shown_and_checked() {
    let certificates = Arc::new(Certificates::new());
    let redis = RedisServer::with(&Options::default().tls(&certificates, ClientCertificates::Required));
    let with =
        |name: &str, section: String| ConfigFile::new(name, format!("redis: {{ {section} }}\n{EVERY_POLICY}"));
    let authority = format!("ca_file: {}", certificates.authority().display());
    let (client, key) = (certificates.client(), certificates.client_key());
    let own = format!("certificate_file: {}, key_file: {}", client.display(), key.display());

    let config = with("redis-tls", format!("{authority}, {own}"));
    let server = start(&config, &redis.url());
    assert!(lines_with(&server, "WARN").is_empty(), "{:#?}", server.lines_to_ready());
    assert_eq!(check(&server, "closed", "alice").status, 200);

    for (name, section) in [("redis-tls-nobody", authority), ("redis-tls-stranger", own)] {
        let config = with(name, section);
        let server = start(&config, &redis.url());
        let warnings = lines_with(&server, "WARN");
        assert!(warnings.len() == 1 && warnings[0].contains("connection"), "{warnings:?}");
        assert_eq!(check(&server, "closed", "alice").status, 503);
    }
}
