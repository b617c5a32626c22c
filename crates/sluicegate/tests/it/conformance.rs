//! Every store passes the same suite, and random operations agree with the reference.

use crate::support::block_on;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};
use sluicegate::MemoryStore;
use sluicegate::core::Timestamp;
use sluicegate::store::memory::MemoryOptions;
use sluicegate_testkit::conformance::{Operation, OperationKind, START, agrees_with_reference, behaves};
use std::sync::atomic::{AtomicUsize, Ordering};

const OPERATIONS_MAX: usize = 200;

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    let kind = prop_oneof![
        8 => Just(OperationKind::Charge),
        2 => Just(OperationKind::Peek),
        1 => Just(OperationKind::Refund),
        1 => Just(OperationKind::Report),
        1 => Just(OperationKind::Reset),
    ];
    // Mostly one key under its usual limits, as in practice, and sometimes any limits.
    let keys = prop_oneof![4 => (0_u32..6).prop_map(|key| 1_u8 << key), 1 => any::<u8>()];
    let limits = prop_oneof![9 => Just(0_u8), 1 => 0_u8..8];
    let cost = prop_oneof![6 => Just(1_u32), 2 => 0_u32..12, 1 => any::<u32>()];
    let shadow = prop_oneof![4 => Just(0_u8), 1 => any::<u8>()];
    let usage = prop_oneof![4 => Just(0_u8), 1 => any::<u8>()];
    let pause = prop_oneof![
        3 => Just(0_u64),
        3 => 0_u64..400_000,
        1 => prop::sample::select(vec![1, 249_999, 250_000, 250_001, 999_999, 1_000_000, 1_000_001]),
        1 => 0_u64..90_000_000,
    ];
    (kind, keys, limits, cost, shadow, usage, pause).prop_map(
        |(kind, keys, limits, cost, shadow, usage, pause_micros)| Operation {
            kind,
            keys,
            limits,
            cost,
            shadow,
            usage,
            pause_micros,
        },
    )
}

pub(crate) fn runner_config(cases: u32) -> Config {
    let regressions = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/conformance.proptest-regressions");
    let persistence = FileFailurePersistence::Direct(regressions);
    Config { cases, failure_persistence: Some(Box::new(persistence)), ..Config::default() }
}

/// Stores of every shape: one or many shards; states that pack and, in a store with a late epoch, states that do not.
fn memory_stores() -> [MemoryStore; 3] {
    let options = |shards| MemoryOptions { max_keys: 1_000_000, shards };
    [
        MemoryStore::new(options(1), START),
        MemoryStore::new(options(64), Timestamp::now(START.as_micros() - 1)),
        MemoryStore::new(options(7), Timestamp::NOW_MAX),
    ]
}

#[test]
fn the_memory_store_behaves() {
    block_on(behaves(async || MemoryStore::new(MemoryOptions::default(), START)));
}

#[test]
fn memory_store_agrees_with_the_reference_on_random_operations() {
    static OPERATIONS: AtomicUsize = AtomicUsize::new(0);
    let cases = 1_200;
    let mut runner = proptest::test_runner::TestRunner::new(runner_config(cases));
    let sequences = prop::collection::vec(operation(), 1..OPERATIONS_MAX);
    runner
        .run(&sequences, |operations| {
            for store in memory_stores() {
                OPERATIONS.fetch_add(operations.len(), Ordering::Relaxed);
                block_on(agrees_with_reference(&store, &operations));
                store.sweep(Timestamp::NOW_MAX, store.steps_per_round());
                prop_assert_eq!(store.used(), 0, "the count agrees with the content");
            }
            Ok(())
        })
        .unwrap();
    let operations = OPERATIONS.load(Ordering::Relaxed);
    assert!(operations >= 300_000, "only {operations} operations were tried");
}
