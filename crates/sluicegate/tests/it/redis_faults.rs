//! The limiter over real servers that die, stall, reject calls, migrate slots, or are behind a broken network.
//!
//! Two instances receive requests continuously for shared limits, under one rule for each failure policy. [`fleet`]
//! sends and records, and [`record`] checks the results: one reply to every request, in time; no more admitted than
//! the limit plus the cost of lost state; without the store every rule by its policy. The other modules cause the
//! faults: [`single`] on one server or its network, [`cluster`] and [`sentinel`] on a primary among several.

mod cluster;
mod damage;
mod fleet;
mod record;
mod releases;
mod sentinel;
mod single;
mod slot_migration;

use fleet::{Deadline, Fleet};
use record::Outage;
use sluicegate_testkit::redis_server::RedisServer;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than any step of the test takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two worker threads, as on the smallest machine. The test runs on a third thread and may block.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// Runs `change` under load, and expects that no request is affected.
async fn unnoticed<T>(name: &str, url: &str, identities: &[String], change: impl FnOnce() -> T) -> T {
    let fleet = Fleet::start(url, Deadline::Generous, identities).await;
    let load = fleet.load();
    load.until_asked(20).await;
    let result = change();
    load.until_asked(20).await;
    let record = load.finish().await;
    record.print(name);
    record.check(&Outage::none());
    result
}

/// Names that no other scenario uses.
fn identities(scenario: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{scenario}-{number}")).collect()
}

/// The state of one rule for one identity.
fn key(rule: &str, identity: &str) -> String {
    format!("sg:1:{{default:{identity}}}:{rule}")
}

fn stored(server: &RedisServer, key: &str) -> Option<String> {
    server.command(&["GET", key])
}

/// Polls every few milliseconds until `is_so` returns true.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}
