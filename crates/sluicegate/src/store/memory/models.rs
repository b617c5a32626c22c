//! Models for loom, which runs them in every order that threads can take: locks over several shards, the
//! count of keys, sweeping against charging.

use super::{MemoryOptions, MemoryStore};
use crate::identity::Identity;
use crate::store::{Charge, Key, KeySpace, Subject};
use loom::sync::Arc;
use loom::thread;
use sluicegate_core::decision::Group;
use sluicegate_core::{Cost, Micros, Quota, Rate, Timestamp, TokenBucket};

const NOW: Timestamp = Timestamp::now(1_705_312_800_000_000);

fn bucket(capacity: u64) -> Quota {
    TokenBucket::new(capacity, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()
}

fn store(max_keys: usize) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(MemoryOptions { max_keys, shards: 2 }, NOW))
}

fn charge<'a>(space: &'a KeySpace, identifier: &'a str, quotas: &'a [Quota]) -> Charge<'a> {
    let subject = Subject { tenant: None, identity: Some(Identity::Named(identifier)), address: None };
    Charge { key: Key { space, subject }, quotas, cost: Cost::ONE, group: Group::Enforced, lease: None }
}

/// Two identifiers whose states are in different shards.
fn apart(store: &MemoryStore, space: &KeySpace) -> (String, String) {
    let shard = |identifier: &str| store.shard_index(charge(space, identifier, &[]).key.digest());
    let other = (1..).map(|index| index.to_string()).find(|other| shard(other) != shard("0"));
    ("0".to_owned(), other.unwrap())
}

fn is_allowed(store: &MemoryStore, charges: &[Charge<'_>], now: Timestamp) -> bool {
    store.charge_now(charges, now).iter().all(|verdict| verdict.outcome.is_allowed())
}

#[test]
fn loom_requests_over_crossing_keys_neither_deadlock_nor_charge_by_halves() {
    loom::model(|| {
        let store = store(100);
        let crossing = |is_reversed: bool| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let (space, quotas) = (KeySpace::new("crossing"), [bucket(1)]);
                let (left, right) = apart(&store, &space);
                let mut charges = [charge(&space, &left, &quotas), charge(&space, &right, &quotas)];
                if is_reversed {
                    charges.reverse();
                }
                is_allowed(&store, &charges, NOW)
            })
        };
        let threads = [crossing(false), crossing(true)];
        let admitted = threads.map(|thread| thread.join().unwrap()).into_iter().filter(|each| *each).count();
        assert_eq!(admitted, 1);
        assert_eq!(store.used(), 2);
    });
}

#[test]
fn loom_one_key_gives_exactly_the_permits_it_has() {
    loom::model(|| {
        let store = store(100);
        let ask = || {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let (space, quotas) = (KeySpace::new("hot"), [bucket(2)]);
                is_allowed(&store, &[charge(&space, "x", &quotas)], NOW)
            })
        };
        let threads = [ask(), ask()];
        let (space, quotas) = (KeySpace::new("hot"), [bucket(2)]);
        let own = is_allowed(&store, &[charge(&space, "x", &quotas)], NOW);
        let others = threads.map(|thread| thread.join().unwrap());
        assert_eq!(others.into_iter().chain([own]).filter(|each| *each).count(), 2);
        assert_eq!(store.used(), 1);
    });
}

#[test]
fn loom_newcomers_never_exceed_the_cap_by_more_than_the_overflow() {
    loom::model(|| {
        let store = store(1);
        let newcomer = |identifier: &'static str| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let (space, quotas) = (KeySpace::new("full"), [bucket(1)]);
                is_allowed(&store, &[charge(&space, identifier, &quotas)], NOW)
            })
        };
        let threads = [newcomer("a"), newcomer("b")];
        let admitted = threads.map(|thread| thread.join().unwrap());
        assert_eq!(admitted, [true, true], "one in its own state, the other in the overflow");
        assert_eq!(store.used(), 2);
    });
}

#[test]
fn loom_sweeping_against_charging_loses_no_charge_and_no_count() {
    loom::model(|| {
        let store = store(100);
        let (space, quotas) = (KeySpace::new("swept"), [bucket(1)]);
        assert!(is_allowed(&store, &[charge(&space, "x", &quotas)], NOW));
        let later = NOW.plus(Micros::from_secs(3));
        let sweeper = {
            let store = Arc::clone(&store);
            thread::spawn(move || store.sweep(later, 2))
        };
        assert!(is_allowed(&store, &[charge(&space, "x", &quotas)], later));
        sweeper.join().unwrap();
        assert!(!is_allowed(&store, &[charge(&space, "x", &quotas)], later), "the charge was swept away");
        assert_eq!(store.used(), 1);
    });
}
