//! The embedded store: bounded, exact with many threads, and lossless when it drops states.

use crate::support::{block_on, hourly, unit};
use sluicegate::MemoryStore;
use sluicegate::core::{
    Align, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::{KeySpace, LIMITS_PER_KEY_MAX, Store};
use sluicegate_testkit::conformance::{DEADLINE, START};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

fn store(max_keys: usize) -> MemoryStore {
    MemoryStore::new(MemoryOptions { max_keys, ..MemoryOptions::default() }, START)
}

fn is_allowed(store: &MemoryStore, space: &KeySpace, identifier: &str, quotas: &[Quota], now: Timestamp) -> bool {
    store.charge_now(&[unit(space, identifier, quotas)], now).iter().all(|verdict| verdict.outcome.is_allowed())
}

#[test]
fn threads_on_one_key_admit_exactly_the_limit() {
    const THREADS: usize = 8;
    const PERMITS: u64 = 10_000;
    for quotas in [vec![hourly(PERMITS)], vec![hourly(PERMITS), hourly(PERMITS + 1)]] {
        let (store, space, barrier) = (store(1_000), KeySpace::new("hot"), Barrier::new(THREADS));
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..PERMITS / 4 {
                        let allowed = is_allowed(&store, &space, "shared", &quotas, START);
                        admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), PERMITS);
    }
}

#[test]
fn threads_over_crossing_keys_are_atomic_and_never_deadlock() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 20_000;
    let (store, user, tenant) = (store(1_000), KeySpace::new("user"), KeySpace::new("tenant"));
    let (roomy, tight) = ([hourly(50_000)], [hourly(5_000)]);
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, user, tenant, roomy, tight, admitted) =
                (&store, &user, &tenant, &roomy, &tight, &admitted);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let mut charges = [unit(user, "u", roomy), unit(tenant, "t", tight)];
                    if (thread + round) % 2 == 0 {
                        charges.reverse();
                    }
                    let verdicts = store.charge_now(&charges, START);
                    let allowed = verdicts.iter().all(|verdict| verdict.outcome.is_allowed());
                    admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 5_000);
    let left = store.peek_now(&[unit(&user, "u", &roomy)], START)[0].remaining;
    assert_eq!(left, 50_000 - 5_000, "the other limit was charged exactly as often");
}

#[test]
fn flood_of_identities_stays_within_the_cap_and_evicts_no_live_state() {
    const CAP: usize = 1_000;
    let (store, space, quotas) = (store(CAP), KeySpace::new("flood"), [hourly(2)]);
    assert!(is_allowed(&store, &space, "victim", &quotas, START));
    assert!(is_allowed(&store, &space, "victim", &quotas, START));
    let mut newcomers_admitted = 0;
    for index in 0..50_000 {
        newcomers_admitted += usize::from(is_allowed(&store, &space, &format!("bot-{index}"), &quotas, START));
        assert!(store.used() <= CAP + 1, "{} keys of {CAP}", store.used());
    }
    assert!(!is_allowed(&store, &space, "victim", &quotas, START), "a live state was evicted");
    // One each for those with capacity, and two from the overflow for all the rest together.
    assert_eq!(newcomers_admitted, CAP - 1 + 2);
}

#[test]
fn overflow_is_one_state_per_rule_for_all_new_keys() {
    let store = store(0);
    let (one, other, quotas) = (KeySpace::new("one"), KeySpace::new("other"), [hourly(3)]);
    let admitted =
        |space| (0..10).filter(|index| is_allowed(&store, space, &index.to_string(), &quotas, START)).count();
    assert_eq!(admitted(&one), 3);
    assert_eq!(admitted(&other), 3, "another rule has an overflow of its own");
}

#[test]
fn capacity_returns_when_states_expire() {
    let (store, space) = (store(100), KeySpace::new("turnover"));
    let quotas = [TokenBucket::new(1, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()];
    for second in 0..50 {
        let now = START.plus(Micros::from_secs(3 * second));
        for index in 0..100 {
            let identifier = format!("{second}-{index}");
            assert!(is_allowed(&store, &space, &identifier, &quotas, now), "{identifier} got no capacity");
        }
        store.sweep(now.plus(Micros::from_secs(3)), store.steps_per_round());
        assert_eq!(store.used(), 0);
    }
}

#[test]
fn expired_states_free_capacity_without_a_sweeper() {
    let store = MemoryStore::new(MemoryOptions { max_keys: 64, shards: 1 }, START);
    let space = KeySpace::new("unswept");
    let quotas = [TokenBucket::new(1, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()];
    for index in 0..1_000_u64 {
        let now = START.plus(Micros::from_millis(100 * index));
        assert!(is_allowed(&store, &space, &index.to_string(), &quotas, now));
    }
    assert!(store.used() <= 64);
}

#[test]
fn dropping_expired_states_changes_no_verdict() {
    let (swept, kept, space) = (store(1_000), store(1_000), KeySpace::new("expiry"));
    let quotas = [
        TokenBucket::new(3, Rate::new(7, Micros::from_secs(1)).unwrap()).unwrap().into(),
        SlidingWindow::new(4, Micros::from_millis(700)).unwrap().into(),
        FixedWindow::new(5, Micros::from_secs(1), Align::Key).unwrap().into(),
    ];
    let mut now = START;
    for step in 0..2_000_u64 {
        now = now.plus(Micros::from_micros(step * 7_919 % 600_000));
        swept.sweep(now, swept.steps_per_round());
        let charges = [unit(&space, "x", &quotas)];
        assert_eq!(swept.charge_now(&charges, now), kept.charge_now(&charges, now), "step {step}");
    }
}

#[test]
fn repair_that_does_not_fit_a_word_is_stored() {
    // 97 per second needs more parts of a microsecond than fit a word.
    let (store, space) = (store(1_000), KeySpace::new("repair"));
    let slow = [TokenBucket::new(5, Rate::new(1, Micros::from_secs(60)).unwrap()).unwrap().into()];
    let fast = [TokenBucket::new(4, Rate::new(97, Micros::from_secs(1)).unwrap()).unwrap().into()];
    assert!(is_allowed(&store, &space, "x", &slow, START));
    assert!(!is_allowed(&store, &space, "x", &fast, START));
    let filled = START.plus(Micros::from_secs(1));
    assert!(is_allowed(&store, &space, "x", &fast, filled), "the wait moved away with the clock");
}

#[test]
fn sweeping_the_expired_state_of_a_request_keeps_the_count() {
    let store = MemoryStore::new(MemoryOptions { max_keys: 100, shards: 1 }, START);
    let space = KeySpace::new("own");
    let quotas = [TokenBucket::new(1, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()];
    let names: Vec<String> = (0..64).map(|index| index.to_string()).collect();
    for round in 0..20_u64 {
        let now = START.plus(Micros::from_secs(2 * round));
        for pair in names.windows(2) {
            let charges = [unit(&space, &pair[0], &quotas), unit(&space, &pair[1], &quotas)];
            store.charge_now(&charges, now);
        }
        assert!(store.used() <= names.len(), "{} counted", store.used());
    }
    store.sweep(Timestamp::NOW_MAX, store.steps_per_round());
    assert_eq!(store.used(), 0);
}

#[test]
fn log_entries_count_against_the_cap_and_stay_strict_at_it() {
    let (store, space) = (store(50), KeySpace::new("log"));
    let window = Micros::from_secs(60);
    let quotas = [SlidingWindow::new(1_000, window).unwrap().into()];
    let mut admitted = Vec::new();
    for step in 0..3_000_u64 {
        let now = START.plus(Micros::from_millis(step * 50));
        if is_allowed(&store, &space, "greedy", &quotas, now) {
            admitted.push(now);
        }
        assert!(store.used() <= 51, "{} in use", store.used());
    }
    let in_window =
        |end: &Timestamp| admitted.iter().filter(|at| **at <= *end && end.since(**at) < window).count();
    let most = admitted.iter().map(in_window).max();
    assert!(most <= Some(1_000), "{most:?} within one window");
    assert!(admitted.len() >= 1_000, "a full store must not deny requests within the limit: {}", admitted.len());
}

#[test]
fn key_takes_at_most_48_bytes_at_any_number_of_keys() {
    let (space, quotas) = (KeySpace::new("bytes"), [hourly(5)]);
    let (store, mut worst) = (store(10_000_000), 0);
    let mut next_look = 250_000;
    for index in 0..1_000_000_usize {
        assert!(is_allowed(&store, &space, &format!("user:{index:019}"), &quotas, START));
        if index + 1 == next_look {
            worst = worst.max(store.allocated_bytes() / next_look);
            next_look += 50_000;
        }
    }
    assert!(worst <= 48, "{worst} bytes per key");
}

/// One limit or the maximum number per key. Sixteen are hard on a table, because all limits of a subject are inserted
/// together.
const LIMITS: [usize; 4] = [1, 3, 8, LIMITS_PER_KEY_MAX];

#[test]
fn key_takes_at_most_48_bytes_with_many_limits_and_replacements() {
    const KEYS: usize = 100_000;
    for limits in LIMITS {
        // As many keys per shard as ten million in a store of the default size.
        let store = MemoryStore::new(MemoryOptions { max_keys: 10_000_000, shards: 10 }, START);
        let (space, quotas) = (KeySpace::new("several"), vec![every_second(); limits]);
        for round in 0..10_u64 {
            let now = START.plus(Micros::from_secs(3 * round));
            for index in 0..KEYS / limits {
                is_allowed(&store, &space, &format!("{round}-{index}"), &quotas, now);
                if index % 10 == 0 {
                    store.sweep(now, limits);
                }
            }
            let bytes = store.allocated_bytes() as f64 / KEYS as f64;
            assert!(bytes <= 48.0, "{bytes:.1} bytes per key in round {round} with {limits} limits");
        }
    }
}

#[test]
fn store_without_a_sweeper_holds_few_expired_states() {
    const KEYS_PER_SECOND: usize = 20_000;
    for limits in LIMITS {
        let (store, space) = (store(10_000_000), KeySpace::new("unswept"));
        let (quotas, per_second) = (vec![every_second(); limits], KEYS_PER_SECOND / limits);
        for index in 0..30 * per_second {
            let now = START.plus(Micros::from_micros((index * 1_000_000 / per_second) as u64));
            is_allowed(&store, &space, &index.to_string(), &quotas, now);
        }
        // A state is live for a second, and is kept for another.
        let matter = 2 * KEYS_PER_SECOND;
        assert!(store.used() < 4 * matter, "{} keys where {matter} are live, with {limits} limits", store.used());
    }
}

#[test]
fn wide_states_free_their_memory() {
    let (store, space) = (store(1_000_000), KeySpace::new("wide"));
    let quotas = [SlidingCounter::new(5, Micros::from_secs(1)).unwrap().into()];
    let empty = store.allocated_bytes();
    for index in 0..50_000 {
        is_allowed(&store, &space, &index.to_string(), &quotas, START);
    }
    store.sweep(START.plus(Micros::from_secs(60)), store.steps_per_round());
    assert_eq!(store.used(), 0);
    let left = store.allocated_bytes() - empty;
    assert!(left <= 1_024 * 33 * 64, "{left} bytes for nothing");
}

fn every_second() -> Quota {
    TokenBucket::new(1, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()
}

#[test]
fn windows_aligned_by_key_start_at_different_instants() {
    let (store, space) = (store(10_000), KeySpace::new("phase"));
    let quotas = [FixedWindow::new(1, Micros::from_secs(60), Align::Key).unwrap().into()];
    let reset_after = |index: u32| {
        let identifier = index.to_string();
        let verdicts =
            block_on(store.charge(&[unit(&space, &identifier, &quotas)], START, DEADLINE)).unwrap().verdicts;
        verdicts[0].reset_after.as_micros()
    };
    let resets: std::collections::HashSet<u64> = (0..1_000).map(reset_after).collect();
    assert!(resets.len() > 900, "only {} different instants", resets.len());
    assert!(resets.iter().all(|reset| *reset <= 60_000_000));
}

#[test]
fn missing_limits_of_known_identities_respect_the_cap() {
    const CAP: usize = 400;
    let second = TokenBucket::new(1, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap();
    let quotas = [hourly(1_000), second.clone().into(), second.clone().into(), second.into()];
    let (store, space) = (store(CAP), KeySpace::new("partial"));
    let mut now = START;
    for round in 0..20 {
        for index in 0..CAP / 4 {
            store.charge_now(&[unit(&space, &format!("{round}-{index}"), &quotas)], now);
        }
        // The short states expire, and the hourly ones stay until they alone fill the store.
        now = now.plus(Micros::from_secs(2));
        store.sweep(now, store.steps_per_round());
    }
    for round in 0..20 {
        for index in 0..CAP / 4 {
            store.charge_now(&[unit(&space, &format!("{round}-{index}"), &quotas)], now);
            assert!(store.used() <= CAP + quotas.len(), "{} of {CAP}", store.used());
        }
    }
}

#[test]
fn log_of_a_past_burst_frees_its_memory() {
    let (store, space) = (store(1_000_000), KeySpace::new("burst"));
    let quotas = [SlidingWindow::new(10_000, Micros::from_secs(3)).unwrap().into()];
    for step in 0..10_000_u64 {
        assert!(is_allowed(&store, &space, "x", &quotas, START.plus(Micros::from_micros(step))));
    }
    assert!(store.allocated_bytes() > 160_000);
    for step in 1..10_u64 {
        is_allowed(&store, &space, "x", &quotas, START.plus(Micros::from_millis(1_500 * step)));
    }
    let empty = MemoryStore::new(MemoryOptions::default(), START).allocated_bytes();
    let left = store.allocated_bytes() - empty;
    assert!(left < 2_000, "{left} bytes for a log of a few entries");
}

#[test]
fn late_request_still_finds_its_state() {
    let (store, space) = (store(1_000), KeySpace::new("late"));
    let quotas = [TokenBucket::new(1, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()];
    assert!(is_allowed(&store, &space, "x", &quotas, START));
    // A sweep happens just after the bucket is full; this request read the clock just before.
    store.sweep(START.plus(Micros::from_micros(1_000_010)), store.steps_per_round());
    assert!(!is_allowed(&store, &space, "x", &quotas, START.plus(Micros::from_micros(999_990))));
}

#[test]
fn full_store_frees_capacity_without_a_sweeper() {
    let (store, space) = (store(64), KeySpace::new("unswept"));
    let quotas = [TokenBucket::new(1, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()];
    for index in 0..64 {
        assert!(is_allowed(&store, &space, &format!("old-{index}"), &quotas, START));
    }
    // All states have expired; each new key sweeps a part of the table until there is capacity.
    let later = START.plus(Micros::from_secs(10));
    let admitted =
        (0..2_000).filter(|index| is_allowed(&store, &space, &format!("new-{index}"), &quotas, later)).count();
    assert!(admitted >= 64, "only {admitted} got capacity in a store of 64");
}
