//! Leases on a real server: fewer calls, and no units gained or lost.

use crate::support::{passed, unit};
use sluicegate::core::{Micros, Quota, Rate, Timestamp, TokenBucket};
use sluicegate::store::redis::{KeyEncoder, RedisStore};
use sluicegate::store::{Charge, KeySpace, Lease, LeaseMode, Store as _};
use sluicegate_testkit::poll;
use sluicegate_testkit::redis_server::RedisServer;
use std::time::Duration;

/// Longer than any step of the test takes.
const PATIENCE: Duration = Duration::from_secs(20);
const NOW: Timestamp = Timestamp::now(0);
const CAPACITY: u64 = 100_000;
const REQUESTS: u64 = 3_000;

/// So slow that nothing refills within a test.
fn quotas() -> [Quota; 1] {
    [TokenBucket::new(CAPACITY, Rate::new(1, Micros::from_secs(1_000)).unwrap()).unwrap().into()]
}

fn lease(millis: u64) -> Option<Lease> {
    Some(Lease { ttl: Micros::from_millis(millis), mode: LeaseMode::Bounded })
}

async fn started(server: &RedisServer) -> RedisStore {
    let store = RedisStore::start(&server.url().parse().unwrap(), KeyEncoder::default()).unwrap();
    store.ready(PATIENCE).await.unwrap();
    store
}

/// Sends `count` requests in sequence. Returns the remaining quota after each.
async fn send(store: &RedisStore, charge: Charge<'_>, count: u64) -> Vec<u64> {
    let mut remaining = Vec::new();
    for _ in 0..count {
        let reply = store.charge(&[charge], NOW, PATIENCE).await.unwrap();
        assert!(passed(&reply));
        remaining.push(reply.verdicts[0].remaining);
    }
    remaining
}

async fn left(store: &RedisStore, charge: Charge<'_>) -> u64 {
    store.peek(&[charge], NOW, PATIENCE).await.unwrap().verdicts[0].remaining
}

fn held(store: &RedisStore) -> u64 {
    store.savings().leased_tokens.iter().map(|(_, tokens)| tokens).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_decision_gets_permits_and_unused_ones_are_given_back() {
    let server = RedisServer::start();
    let store = started(&server).await;
    let (space, quotas) = (KeySpace::new("hot"), quotas());
    let charge = Charge { lease: lease(10_000), ..unit(&space, "alice", &quotas) };
    // However slow the machine is, the decision is hot first.
    let mut sent = REQUESTS;
    while held(&store) == 0 {
        send(&store, charge, 10).await;
        sent += 10;
    }
    let before = server.script_calls();
    let remaining = send(&store, charge, REQUESTS).await;
    let calls = server.script_calls() - before;
    assert!(calls < REQUESTS / 3, "{calls} calls for {REQUESTS} requests");
    assert!(remaining.windows(2).all(|pair| pair[1] < pair[0]), "the remaining quota decreases");
    let held = held(&store);
    assert!(held > 0);
    assert_eq!(store.savings().leased_tokens[0].0.as_ref(), "hot");
    assert_eq!(left(&store, charge).await, CAPACITY - sent - held, "held permits are charged");
    store.close().await;
    assert_eq!(left(&store, charge).await, CAPACITY - sent, "and was given back");
    send(&store, charge, 10).await;
    assert_eq!(left(&store, charge).await, CAPACITY - sent - 10, "nothing is charged ahead any more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_permits_are_given_back() {
    let server = RedisServer::start();
    let store = started(&server).await;
    let (space, quotas) = (KeySpace::new("idle"), quotas());
    let charge = Charge { lease: lease(200), ..unit(&space, "alice", &quotas) };
    let mut sent = 0;
    while held(&store) == 0 {
        send(&store, charge, 10).await;
        sent += 10;
    }
    poll::until_true("nothing is held", PATIENCE, || held(&store) == 0);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while left(&store, charge).await != CAPACITY - sent {
        assert!(tokio::time::Instant::now() < deadline, "not all was given back");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_a_server_that_lost_its_data_are_worthless() {
    let server = RedisServer::start();
    let store = started(&server).await;
    let (space, quotas) = (KeySpace::new("lost"), quotas());
    let charge = Charge { lease: lease(10_000), ..unit(&space, "alice", &quotas) };
    while held(&store) == 0 {
        send(&store, charge, 10).await;
    }
    server.restart_empty();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    // Until the loss of the connection is detected, permits may still be spent.
    let first = loop {
        assert!(tokio::time::Instant::now() < deadline, "the server received no further request");
        match store.charge(&[charge], NOW, PATIENCE).await {
            Ok(reply) if left(&store, charge).await < CAPACITY => break reply,
            _ => {}
        }
    };
    assert!(passed(&first));
    assert!(first.verdicts[0].remaining >= CAPACITY - 2, "it was charged to a full limit: {first:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_from_before_a_reset_do_not_pass_after_it() {
    let server = RedisServer::start();
    let store = started(&server).await;
    let (space, quotas) = (KeySpace::new("reset"), quotas());
    let charge = Charge { lease: lease(10_000), ..unit(&space, "alice", &quotas) };
    let other = Charge { lease: lease(10_000), ..unit(&space, "bob", &quotas) };
    while held(&store) == 0 {
        send(&store, charge, 10).await;
    }
    store.reset(&[other], NOW, PATIENCE).await.unwrap();
    assert!(held(&store) > 0, "the reset of another key forfeits nothing");
    store.reset(&[charge], NOW, PATIENCE).await.unwrap();
    assert_eq!(held(&store), 0);
    send(&store, charge, 1).await;
    assert_eq!(left(&store, charge).await, CAPACITY - 1 - held(&store), "it was charged to a full limit");
    store.close().await;
    assert_eq!(left(&store, charge).await, CAPACITY - 1, "nothing from before the reset was given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_lease_every_request_is_charged_on_arrival() {
    let server = RedisServer::start();
    let store = started(&server).await;
    let (space, quotas) = (KeySpace::new("exact"), quotas());
    let charge = unit(&space, "alice", &quotas);
    let before = server.script_calls();
    let remaining = send(&store, charge, 500).await;
    assert!(remaining.into_iter().rev().eq(CAPACITY - 500..CAPACITY));
    assert!(server.script_calls() - before >= 500);
    assert_eq!(held(&store), 0);
}
