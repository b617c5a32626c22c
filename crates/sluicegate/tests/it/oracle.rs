//! The library against the contract: random rules, clients and operations on every store, and every field of every
//! decision.
//!
//! A failure prints the seed, the smallest failing case, and the difference. `cargo xtask oracle` runs for a given
//! time with other seeds.

use sluicegate_testkit::oracle::stores::{Layout, Redis, memory, memory_full, memory_together, on_memory};
use sluicegate_testkit::oracle::{Disagreement, Tally};
use sluicegate_testkit::redis_server::Program;

const ON_MEMORY: usize = 1_000_000;
const ON_SERVERS: usize = 100_000;

/// Checks that enough operations were compared and that both outcomes occurred often.
fn is_thorough(found: Result<Tally, Box<Disagreement>>, operations: usize) {
    let tally = found.unwrap_or_else(|found| panic!("{found}"));
    assert!(tally.operations >= operations, "{tally:?}");
    assert!(tally.allowed > operations / 5 && tally.denied > operations / 20, "{tally:?}");
}

#[test]
fn embedded_store_fulfils_the_contract() {
    is_thorough(memory(&on_memory(1), |tally| tally.operations < ON_MEMORY), ON_MEMORY);
}

fn on_servers(layout: Layout, program: Program) {
    let servers = Redis::start(layout, program);
    is_thorough(servers.run(&servers.campaign(1), |tally| tally.operations < ON_SERVERS), ON_SERVERS);
}

#[test]
fn redis_keeps_the_contract() {
    on_servers(Layout::Single, Program::Redis);
}

#[test]
fn valkey_fulfils_the_contract_with_the_denial_cache() {
    on_servers(Layout::RememberingDenials, Program::Valkey);
}

#[test]
fn cluster_fulfils_the_contract() {
    on_servers(Layout::Cluster, Program::Redis);
}

/// Checks that both outcomes occurred often under concurrency.
fn is_contended(found: Result<Tally, String>) {
    let tally = found.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(tally.allowed > 1_000 && tally.denied > 1_000, "{tally:?}");
}

#[test]
fn concurrent_threads_are_admitted_exactly_the_limit() {
    is_contended(memory_together(1, 400));
}

#[test]
fn concurrent_requests_on_redis_and_a_cluster_are_admitted_exactly_the_limit() {
    for layout in [Layout::Single, Layout::RememberingDenials, Layout::Cluster] {
        is_contended(Redis::start(layout, Program::Redis).run_together(1, 100));
    }
}

#[test]
fn full_store_admits_no_more_than_the_contract() {
    is_contended(memory_full(1, 200));
}
