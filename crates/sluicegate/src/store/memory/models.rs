//! loom models, which explore every interleaving of threads: locks over several shards, the key count, and sweeping
//! against charging.

use super::{MemoryOptions, MemoryStore};
use crate::identity::Identity;
use crate::store::{Charge, Key, KeySpace, Subject};
use loom::sync::Arc;
use loom::thread;
use sluicegate_core::decision::ChargeMode;
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
    Charge {
        key: Key { space, subject },
        quotas,
        cost: Cost::ONE,
        mode: ChargeMode::Enforced,
        lease: None,
        usage: Cost::ZERO,
    }
}

/// Two identifiers with states in different shards.
fn apart(store: &MemoryStore, space: &KeySpace) -> (String, String) {
    let shard = |identifier: &str| store.shard_index(charge(space, identifier, &[]).key.digest());
    let other = (1..).map(|index| index.to_string()).find(|other| shard(other) != shard("0"));
    ("0".to_owned(), other.unwrap())
}

fn is_allowed(store: &MemoryStore, charges: &[Charge<'_>], now: Timestamp) -> bool {
    store.charge_now(charges, now).iter().all(|verdict| verdict.outcome.is_allowed())
}

#[test]
fn loom_requests_over_crossing_keys_are_atomic_and_never_deadlock() {
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
fn loom_one_key_admits_exactly_its_limit() {
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
fn loom_new_keys_exceed_the_cap_by_at_most_the_overflow() {
    loom::model(|| {
        let store = store(1);
        let new_client = |identifier: &'static str| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let (space, quotas) = (KeySpace::new("full"), [bucket(1)]);
                is_allowed(&store, &[charge(&space, identifier, &quotas)], NOW)
            })
        };
        let threads = [new_client("a"), new_client("b")];
        let admitted = threads.map(|thread| thread.join().unwrap());
        assert_eq!(admitted, [true, true], "one in its own state, the other in the overflow");
        assert_eq!(store.used(), 2);
    });
}

#[test]
fn loom_client_gets_its_limit_once_while_a_full_store_frees_capacity() {
    loom::model(|| {
        let store = store(1);
        let (fillers, space, quotas) = (KeySpace::new("fillers"), KeySpace::new("capacity"), [bucket(1)]);
        assert!(is_allowed(&store, &[charge(&fillers, "filler", &quotas)], NOW));
        let ask = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let (space, quotas) = (KeySpace::new("capacity"), [bucket(1)]);
                is_allowed(&store, &[charge(&space, "x", &quotas)], NOW)
            })
        };
        let make_room = {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let (fillers, quotas) = (KeySpace::new("fillers"), [bucket(1)]);
                store.reset_now(&[charge(&fillers, "filler", &quotas)], NOW);
            })
        };
        let own = is_allowed(&store, &[charge(&space, "x", &quotas)], NOW);
        let other = ask.join().unwrap();
        make_room.join().unwrap();
        assert!(own != other, "one of two requests passes, in the overflow or in its own state");
        assert!(!is_allowed(&store, &[charge(&space, "x", &quotas)], NOW));
    });
}

#[test]
fn loom_sweeping_against_charging_loses_no_charge_or_count() {
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
