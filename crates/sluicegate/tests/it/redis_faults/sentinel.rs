//! A primary under Sentinel that dies, and one that is replaced.

use super::fleet::{Deadline, Fleet};
use super::record::Outage;
use super::single::RECOVERY_MAX;
use super::{identities, run};
use sluicegate::store::ErrorClass;
use sluicegate_testkit::redis_sentinel::RedisSentinels;
use std::time::Duration;

/// How long the old and the new primary may both receive calls after a planned failover: until each instance has
/// noticed it.
const SPLIT: Duration = Duration::from_millis(500);

#[test]
fn a_failover_by_sentinel_is_followed() {
    run(async {
        let watched = RedisSentinels::start();
        let url = watched.url();
        survive("killed", &url, || {
            let old = watched.kill_primary();
            watched.wait_for_new_primary(old);
            watched.servers()[old].restart();
        })
        .await;
        survive("replaced", &url, || _ = watched.fail_over()).await;
    });
}

/// Promotes another server under load. It is the primary when `change` returns.
async fn survive(how: &str, url: &str, change: impl FnOnce()) {
    let fleet = Fleet::start(url, Deadline::Usual, &identities(how, 3)).await;
    fleet.until_whole().await;
    let load = fleet.load();
    load.until_asked(10).await;
    change();
    let recovered = fleet.until_whole().await;
    load.until_asked(10).await;
    let record = load.finish().await;
    record.print(&format!("sentinel, primary {how}, recovered after {recovered:?}"));
    assert!(recovered < RECOVERY_MAX, "recovered after {recovered:?}");
    let classes = vec![
        ErrorClass::Timeout,
        ErrorClass::Connection,
        ErrorClass::Open,
        ErrorClass::ReadOnly,
        ErrorClass::Unusable,
    ];
    record.check(&Outage { classes, dark: None, losses: 1, split: SPLIT });
}
