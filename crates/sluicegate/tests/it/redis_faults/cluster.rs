//! A Cluster with primaries that die, fail over and migrate slots.

use super::fleet::{Deadline, Fleet};
use super::record::Outage;
use super::single::RECOVERY_MAX;
use super::{key, run, unnoticed};
use sluicegate::store::ErrorClass;
use sluicegate_testkit::redis_cluster::{Options, RedisCluster};
use std::time::Duration;

/// How many slots migrate.
const MOVED: usize = 1_000;

/// Rows 46 and 47: "no single point of failure if clustered", but a key lives on one shard. The policies decide for
/// a dead shard, its loss is bounded, and the other shards continue.
#[test]
fn limits_hold_while_primaries_die_fail_over_and_migrate_slots() {
    run(async {
        let mut cluster = RedisCluster::with(&Options::default().full_coverage(false));
        let names = everywhere(&cluster);
        let slot = slot_of(&cluster, &names[0]);
        unnoticed("cluster, changed in good order", &cluster.url(), &names, || cluster.fail_over(slot)).await;

        let giver = cluster.primary_of(0);
        let names = low_slots(&cluster);
        unnoticed("cluster, a node added and slots moved", &cluster.url(), &names, || {
            let receiver = cluster.add_node();
            let moved = cluster.move_slots(giver, receiver, MOVED);
            assert!(names.iter().all(|name| moved.contains(&slot_of(&cluster, name))));
        })
        .await;

        kill(&cluster).await;
    });
}

/// A dead primary loses its last admissions; the others continue.
async fn kill(cluster: &RedisCluster) {
    let names: Vec<String> = everywhere(cluster).iter().map(|name| format!("{name}{name}")).collect();
    let slot = slot_of(cluster, &names[0]);
    let fleet = Fleet::start(&cluster.url(), Deadline::Usual, &names).await;
    fleet.until_whole().await;
    let load = fleet.load();
    load.until_asked(10).await;
    let old = cluster.kill_primary_of(slot);
    load.until(|answer| answer.identity == 0 && answer.outcome.class().is_some(), 3).await;
    cluster.wait_for_new_primary(slot, old);
    let recovered = fleet.until_whole().await;
    load.until_asked(10).await;
    let record = load.finish().await;
    record.print(&format!("cluster, primary killed, recovered after {recovered:?}"));
    assert!(recovered < RECOVERY_MAX, "recovered after {recovered:?}");
    let classes = vec![ErrorClass::Timeout, ErrorClass::Connection, ErrorClass::Open, ErrorClass::Unusable];
    record.check(&Outage { classes, dark: None, losses: 1, split: Duration::ZERO });
}

fn slot_of(cluster: &RedisCluster, identity: &str) -> u16 {
    cluster.slot_of(&key("any", identity))
}

/// An identity on every primary.
fn everywhere(cluster: &RedisCluster) -> Vec<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for name in (0..).map(|number| format!("c{number}")) {
        let primary = cluster.primary_of(slot_of(cluster, &name));
        if found.iter().all(|(other, _)| *other != primary) {
            found.push((primary, name));
        }
        if found.len() == 3 {
            break;
        }
    }
    found.into_iter().map(|(_, name)| name).collect()
}

/// Identities in the slots that migrate first.
fn low_slots(cluster: &RedisCluster) -> Vec<String> {
    let names = (0..).map(|number| format!("m{number}"));
    names.filter(|name| usize::from(slot_of(cluster, name)) < MOVED).take(3).collect()
}
