//! Servers share limits through Redis, and use local shares while Redis is down.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;

use super::{EVERY_POLICY, FLEET, admitted, answer, fleet_size, start, until_decided};
use crate::server::{ConfigFile, PATIENCE, Server};

/// The capacity of each limit of [`EVERY_POLICY`].
const CAPACITY: usize = 11;
/// The time without a heartbeat after which a server no longer counts.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);

/// Row 66: K instances with the whole limit each would admit K times the limit without their store.
#[test]
fn two_servers_share_limits_and_their_shares_without_redis() {
    let redis = RedisServer::start();
    let config = ConfigFile::new("redis-sharing", EVERY_POLICY);
    let servers = [start(&config, &redis.url()), start(&config, &redis.url())];
    let together = |resource, name| servers.iter().map(|server| admitted(server, resource, name, CAPACITY)).sum();
    let whole: usize = together("closed", "bob");
    assert_eq!(whole, CAPACITY, "two servers, one limit");

    until_heard_of_each_other(&redis);
    redis.kill();
    for server in &servers {
        poll::until_true("without the store", PATIENCE, || answer(server, "open") == (200, json!(true)));
    }
    // Each share is half, rounded up. Together the shares are the limit plus K - 1.
    let shares: usize = together("local", "carol");
    assert_eq!(shares, CAPACITY + 1);
    // Earlier admissions count against the share of the server that made them, so nothing remains.
    let nothing: usize = together("local", "carol");
    assert_eq!(nothing, 0);

    redis.restart();
    servers.iter().for_each(until_decided);
    leave(&redis, servers);
}

/// A stopping server deregisters, so the others need not wait for its expiry.
fn leave(redis: &RedisServer, servers: [Server; 2]) {
    poll::until_true("both are counted", PATIENCE, || fleet_size(redis) == 2);
    let [staying, leaving] = servers;
    leaving.signal("TERM");
    let told = Instant::now();
    assert_eq!(leaving.wait().status.code(), Some(0));
    assert!(told.elapsed() < FORGOTTEN_AFTER, "ended after {:?}", told.elapsed());
    assert_eq!(fleet_size(redis), 1);
    assert_eq!(answer(&staying, "closed").1, json!(false));
}

/// A server reads the list of the others with its own heartbeat.
fn until_heard_of_each_other(redis: &RedisServer) {
    poll::until_true("both are counted", PATIENCE, || fleet_size(redis) == 2);
    let heard = || -> HashMap<String, f64> { redis.command(&["ZRANGE", FLEET, "0", "-1", "WITHSCORES"]) };
    let before = heard();
    poll::until_true("both are heard of once more", PATIENCE, || {
        let now = heard();
        before.iter().all(|(instance, at)| now.get(instance).is_some_and(|later| later > at))
    });
}
