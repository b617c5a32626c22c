//! Clusters with changes of slots and primaries during use.

use super::*;
use sluicegate_testkit::redis_cluster::{Options, RedisCluster};
use std::sync::atomic::AtomicBool;

/// A key for each slot under test.
const KEY: &str = "{a}counter";

/// Starts with one address; the client discovers the others.
fn start_with_one_seed(cluster: &RedisCluster) -> Arc<Servers> {
    start(&options(&format!("redis+cluster://{}", cluster.nodes()[0].address())))
}

fn redirected(servers: &Servers) -> u64 {
    servers.health().servers.iter().map(|server| server.counts.redirected).sum()
}

fn name(cluster: &RedisCluster, node: usize) -> String {
    cluster.nodes()[node].command(&["CLUSTER", "MYID"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirections_are_followed() {
    let mut cluster = RedisCluster::with(&Options::default().size(3, 0));
    let servers = start_with_one_seed(&cluster);
    servers.ready(PATIENCE).await.expect("ready");
    assert_eq!((servers.health().servers.len(), servers.health().up()), (3, 3));
    for number in 0..100 {
        assert_eq!(count(&servers, &format!("key:{number}"), PATIENCE).await.expect("an answer"), 1);
    }
    assert_eq!(redirected(&servers), 0);
    assert_eq!(servers.route_of(b"{a}1"), servers.route_of(b"{a}2"));
    assert_ne!(servers.route_of(b"{a}1"), servers.route_of(b"{b}1"));

    let slot = cluster.slot_of(KEY);
    let giver = cluster.primary_of(slot);
    let receiver = cluster.add_node();
    slot_on_its_way(&cluster, &servers, slot, giver, receiver).await;
    slot_that_moves_under_load(&cluster, &servers, slot, receiver).await;
    slot_that_moved_unseen(&cluster, &servers, slot, giver).await;
}

/// The key does not exist yet, so the owner redirects every call to the importing server, whose scripts were
/// flushed.
async fn slot_on_its_way(cluster: &RedisCluster, servers: &Servers, slot: u16, giver: usize, receiver: usize) {
    let set = |node: usize, words: &[&str]| {
        let slot = slot.to_string();
        cluster.nodes()[node].command::<()>(&[&["CLUSTER", "SETSLOT", &slot], words].concat());
    };
    set(receiver, &["IMPORTING", &name(cluster, giver)]);
    set(giver, &["MIGRATING", &name(cluster, receiver)]);
    for expected in 1..=10 {
        cluster.nodes()[receiver].command::<()>(&["SCRIPT", "FLUSH"]);
        assert_eq!(count(servers, KEY, PATIENCE).await.expect("an answer"), expected);
        assert_eq!(redirected(servers), expected, "the slot still belongs to the giver");
    }
    // The migration is cancelled: the imported keys are dropped.
    cluster.nodes()[receiver].command::<()>(&["FLUSHALL"]);
    set(receiver, &["STABLE"]);
    set(giver, &["STABLE"]);
}

/// The count continues without a gap while the slot migrates.
async fn slot_that_moves_under_load(cluster: &RedisCluster, servers: &Arc<Servers>, slot: u16, receiver: usize) {
    let over = Arc::new(AtomicBool::new(false));
    let counting = tokio::spawn({
        let (servers, over) = (Arc::clone(servers), Arc::clone(&over));
        async move {
            let mut counted = 0;
            while !over.load(Ordering::Relaxed) || counted < 100 {
                counted += 1;
                assert_eq!(count(&servers, KEY, PATIENCE).await.expect("an answer"), counted);
            }
            counted
        }
    });
    cluster.move_slot(slot, receiver);
    over.store(true, Ordering::Relaxed);
    let counted = counting.await.expect("no gap");
    assert_eq!(stored(&cluster.nodes()[receiver], KEY), counted);
}

/// One call learns the new owner for all.
async fn slot_that_moved_unseen(cluster: &RedisCluster, servers: &Servers, slot: u16, receiver: usize) {
    count(servers, KEY, PATIENCE).await.expect("an answer");
    let before = redirected(servers);
    cluster.move_slot(slot, receiver);
    for _ in 0..10 {
        count(servers, KEY, PATIENCE).await.expect("an answer");
    }
    assert!(redirected(servers) <= before + 1);
}

/// Row 47: a key lives on one shard; the others must continue without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_primary_is_followed_while_other_slots_continue() {
    let cluster = RedisCluster::with(&Options::default().full_coverage(false));
    let servers = start_with_one_seed(&cluster);
    servers.ready(PATIENCE).await.expect("ready");
    let (lost, kept) = (cluster.slot_of("a"), cluster.slot_of("b"));
    assert_ne!(cluster.primary_of(lost), cluster.primary_of(kept));

    let over = Arc::new(AtomicBool::new(false));
    let going_on = tokio::spawn({
        let (servers, over) = (Arc::clone(&servers), Arc::clone(&over));
        async move {
            let mut counted = 0;
            while !over.load(Ordering::Relaxed) {
                counted += 1;
                assert_eq!(count(&servers, "b", PATIENCE).await.expect("an answer"), counted);
            }
        }
    });
    count(&servers, "a", PATIENCE).await.expect("an answer");
    let old = cluster.kill_primary_of(lost);
    until(&servers, "a", |result| class(result) == Some(ErrorClass::Open)).await;
    assert_eq!(servers.health().up(), 2);
    let health = crate::store::redis::client::transport::Transport::health(&servers);
    assert!(matches!(health, crate::store::Health::Partial { .. }), "{health:?}");
    cluster.wait_for_new_primary(lost, old);
    let recovered = until(&servers, "a", Result::is_ok).await;
    assert!(recovered < Duration::from_secs(6), "recovered after {recovered:?}");

    cluster.nodes()[old].restart();
    cluster.wait_until_agreed();
    let failing_over = Arc::new(AtomicBool::new(true));
    let undisturbed = tokio::spawn({
        let (servers, failing_over) = (Arc::clone(&servers), Arc::clone(&failing_over));
        async move {
            while failing_over.load(Ordering::Relaxed) {
                count(&servers, "a", PATIENCE).await.expect("an answer");
            }
        }
    });
    cluster.fail_over(lost);
    failing_over.store(false, Ordering::Relaxed);
    undisturbed.await.expect("no call fails when primaries change in good order");
    over.store(true, Ordering::Relaxed);
    going_on.await.expect("no call to another server fails");
    until_up(&servers);
    // Until the map is read again, the slot of the redirected call has another owner than its neighbours.
    poll::until_true("three primaries", PATIENCE, || servers.health().servers.len() == 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_outside_a_cluster_is_reported() {
    let server = RedisServer::start();
    let servers = start(&options(&format!("redis+cluster://{}", server.address())));
    let error = count(&servers, "key", Duration::from_millis(500)).await.expect_err("no map");
    assert!(error.message.contains("cluster support disabled"), "{error}");
}
