//! The limiter over real servers that die, stand still, refuse, move, or hide behind a broken network.
//!
//! Two instances are asked without pause for what they share, under a rule of each policy. [`fleet`] asks and records,
//! [`record`] holds what it saw against the promises: one answer to every request, in time; no more admitted than the
//! limit says plus what a loss of state costs; without the store every rule by its policy. The other modules say what
//! breaks: [`single`] a server or the network before it, [`cluster`] and [`sentinel`] a primary among several.

mod cluster;
mod damage;
mod fleet;
mod giving_back;
mod moving;
mod record;
mod sentinel;
mod single;

use fleet::{Deadline, Fleet};
use record::Outage;
use sluicegate_testkit::redis_server::RedisServer;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than anything takes that is not meant to fail.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two threads are what the smallest machine has; the test itself runs on a third and may block.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

/// Runs `change` while everybody asks, and expects nobody to notice.
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

/// Waits until `is_so`, which is asked every few milliseconds.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}
