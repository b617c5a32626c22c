//! Clusters form, fail over, and move slots with their keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluicegate_testkit::poll;
use sluicegate_testkit::redis_cluster::{Options, RedisCluster};
use sluicegate_testkit::redis_server::{self, Certificates, ClientCertificates, Program, RedisServer};

fn get(node: &RedisServer, key: &str) -> Option<String> {
    node.command(&["GET", key])
}

fn forms_and_fails_over(program: Program) {
    let cluster = RedisCluster::with(&Options::new(redis_server::Options::new(program)));
    let slot = cluster.slot_of("a");
    let first = cluster.primary_of(slot);
    cluster.nodes()[first].command::<()>(&["SET", "a", "1"]);
    assert_eq!(cluster.nodes()[first].command::<u32>(&["WAIT", "1", "10000"]), 1);

    assert_eq!(cluster.kill_primary_of(slot), first);
    let second = cluster.wait_for_new_primary(slot, first);
    assert_eq!(get(&cluster.nodes()[second], "a").as_deref(), Some("1"));

    cluster.nodes()[first].restart();
    cluster.wait_until_agreed();
    assert_eq!(cluster.replicas_of(second), [first]);
    assert_eq!(cluster.fail_over(slot), first);
    assert_eq!(get(&cluster.nodes()[first], "a").as_deref(), Some("1"));
}

#[test]
fn a_redis_cluster_chooses_a_new_primary_and_takes_the_old_one_back() {
    forms_and_fails_over(Program::Redis);
}

#[test]
fn a_valkey_cluster_chooses_a_new_primary_and_takes_the_old_one_back() {
    forms_and_fails_over(Program::Valkey);
}

#[test]
fn slots_move_with_their_keys_while_they_are_used() {
    let mut cluster = RedisCluster::with(&Options::default().size(3, 0));
    let slot = cluster.slot_of("{a}");
    let giver = cluster.primary_of(slot);
    for number in 0..250 {
        cluster.nodes()[giver].command::<()>(&["SET", &format!("{{a}}{number}"), "1"]);
    }
    let receiver = cluster.add_node();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let user = scope.spawn(|| increments(&cluster, &done));
        cluster.move_slot(slot, receiver);
        done.store(true, Ordering::SeqCst);
        let increments = user.join().unwrap();
        assert_eq!(get(&cluster.nodes()[receiver], "{a}counter"), Some(increments.to_string()));
    });
    assert_eq!(cluster.primary_of(slot), receiver);
    assert_eq!(cluster.nodes()[receiver].command::<u32>(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]), 251);
    let moved = cluster.nodes()[giver].try_command::<Option<String>>(&["GET", "{a}1"]).unwrap_err();
    assert_eq!(moved.code(), Some("MOVED"), "{moved}");
}

/// Increments a counter in the moving slot as a client would, at least once, until the flag stops it.
fn increments(cluster: &RedisCluster, done: &AtomicBool) -> u64 {
    let mut count = 0;
    loop {
        let stop = done.load(Ordering::SeqCst);
        let answered = cluster.nodes().iter().any(|node| increment(node).is_ok());
        count += u64::from(answered);
        if stop && answered {
            return count;
        }
    }
}

fn increment(node: &RedisServer) -> redis::RedisResult<()> {
    let mut connection = node.connection()?;
    // ASKING is harmless unless the slot is being imported, and required if it is.
    redis::cmd("ASKING").exec(&mut connection)?;
    redis::cmd("INCR").arg("{a}counter").exec(&mut connection)
}

#[test]
fn many_slots_move_at_once() {
    let cluster = RedisCluster::with(&Options::default().size(3, 0));
    let slots = cluster.move_slots(0, 1, 1_000);
    assert_eq!((slots.first(), slots.last()), (Some(&0), Some(&999)));
    assert_eq!(cluster.primary_of(999), 1);
    assert_eq!(cluster.primary_of(1_000), 0);
}

#[test]
fn without_full_coverage_the_rest_goes_on() {
    let lose_one = |required| {
        let cluster = RedisCluster::with(&Options::default().size(3, 0).full_coverage(required));
        let (lost, kept) = (cluster.slot_of("a"), cluster.slot_of("b"));
        let node = cluster.primary_of(kept);
        assert_ne!(cluster.kill_primary_of(lost), node, "the keys lie on different nodes");
        poll::until_true("a noticed death", Duration::from_secs(30), || {
            !cluster.nodes()[node].command::<String>(&["CLUSTER", "INFO"]).contains("cluster_slots_fail:0\r")
        });
        cluster.nodes()[node].try_command::<Option<String>>(&["GET", "b"])
    };
    assert_eq!(lose_one(false).unwrap(), None);
    assert_eq!(lose_one(true).unwrap_err().code(), Some("CLUSTERDOWN"));
}

#[test]
fn a_cluster_can_have_passwords_and_tls() {
    let certificates = Arc::new(Certificates::new());
    let node =
        redis_server::Options::default().password("secret").tls(&certificates, ClientCertificates::NotAsked);
    let mut cluster = RedisCluster::with(&Options::new(node).size(3, 0));
    let ports: Vec<String> = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    assert_eq!(cluster.url(), format!("rediss+cluster://:secret@{}", ports.join(",")));
    let replica = cluster.add_replica_of(1);
    assert_eq!(cluster.replicas_of(1), [replica]);
    cluster.nodes()[0].command::<()>(&["SET", "b", "1"]);
    cluster.move_slot(cluster.slot_of("b"), 1);
    assert_eq!(get(&cluster.nodes()[1], "b").as_deref(), Some("1"));
}
