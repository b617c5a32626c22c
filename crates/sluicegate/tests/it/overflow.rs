//! The embedded store when it is full. However clients fill and empty the table, one identity never gets more under
//! one limit than that limit allows, no live state is evicted, and the replies of resets and refunds are correct.

use crate::support::{hourly, unit};
use proptest::prelude::*;
use sluicegate::core::algorithm::token_bucket::CREDIT_TTL_DEFAULT;
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::{
    Align, Cost, FixedWindow, Micros, Outcome, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp, TokenBucket,
};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::{Charge, Key, KeySpace, Subject, Verdicts};
use sluicegate::{Identity, MemoryStore};
use sluicegate_testkit::conformance::START;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const LIMIT: u64 = 5;
const DAY: Micros = Micros::from_secs(86_400);

fn store(max_keys: usize) -> MemoryStore {
    MemoryStore::new(MemoryOptions { max_keys, ..MemoryOptions::default() }, START)
}

fn charge<'a>(space: &'a KeySpace, identifier: &'a str, quotas: &'a [Quota], cost: u32) -> Charge<'a> {
    Charge { cost: Cost::new(cost), ..unit(space, identifier, quotas) }
}

/// The same for any kind of identity.
fn charge_of<'a>(space: &'a KeySpace, identity: Identity<'a>, quotas: &'a [Quota], cost: u32) -> Charge<'a> {
    let Charge { key: Key { subject, .. }, .. } = unit(space, "", quotas);
    let subject = Subject { identity: Some(identity), ..subject };
    Charge { key: Key { space, subject }, ..charge(space, "", quotas, cost) }
}

fn address(number: u32) -> Identity<'static> {
    Identity::Address(IpAddr::V4(number.into()))
}

fn is_allowed(store: &MemoryStore, charges: &[Charge<'_>], now: Timestamp) -> bool {
    store.charge_now(charges, now).iter().all(|verdict| verdict.outcome.is_allowed())
}

/// A bucket of one token that is full again after a second.
fn short() -> [Quota; 1] {
    [TokenBucket::new(1, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()]
}

/// Every algorithm with the same numbers.
fn of_every_algorithm(limit: u64, length: Micros) -> Vec<Quota> {
    let rate = Rate::new(limit, length).unwrap();
    vec![
        TokenBucket::new(limit, rate).unwrap().into(),
        TokenBucket::with_credits(limit, rate, limit, CREDIT_TTL_DEFAULT).unwrap().into(),
        SlidingWindow::new(limit, length).unwrap().into(),
        SlidingCounter::new(limit, length).unwrap().into(),
        FixedWindow::new(limit, length, Align::Epoch).unwrap().into(),
    ]
}

/// Fills the store with states that are live for a second.
fn fill(store: &MemoryStore, space: &KeySpace, max_keys: usize, now: Timestamp) {
    for index in 0..max_keys {
        assert!(is_allowed(store, &[unit(space, &format!("filler-{index}"), &short())], now));
    }
}

#[test]
fn limit_spent_in_the_overflow_is_not_granted_again() {
    const CAP: usize = 1_000;
    for quota in of_every_algorithm(LIMIT, DAY) {
        let (store, fillers, long) = (store(CAP), KeySpace::new("short"), KeySpace::new("long"));
        let quotas = [quota];
        fill(&store, &fillers, CAP, START);
        let mut admitted = 0;
        for step in 0..20_u64 {
            let now = START.plus(Micros::from_millis(step * 200));
            admitted += u64::from(is_allowed(&store, &[unit(&long, "x", &quotas)], now));
            store.sweep(now, store.steps_per_round());
        }
        assert_eq!(admitted, LIMIT, "{quotas:?}");
        assert!(store.used() < CAP, "there is capacity again");
    }
}

#[test]
fn clients_without_charges_in_the_overflow_start_full() {
    const CAP: usize = 100;
    for quota in of_every_algorithm(LIMIT, DAY) {
        let (store, fillers, long) = (store(CAP), KeySpace::new("short"), KeySpace::new("long"));
        let quotas = [quota];
        fill(&store, &fillers, CAP, START);
        for _ in 0..2 * LIMIT {
            is_allowed(&store, &[unit(&long, "x", &quotas)], START);
        }
        assert!(!is_allowed(&store, &[unit(&long, "y", &quotas)], START), "the overflow is exhausted");
        let later = START.plus(Micros::from_secs(3));
        store.sweep(later, store.steps_per_round());
        let admitted = (0..2 * LIMIT).filter(|_| is_allowed(&store, &[unit(&long, "y", &quotas)], later)).count();
        assert_eq!(admitted as u64, LIMIT, "{quotas:?}");
        assert!(!is_allowed(&store, &[unit(&long, "x", &quotas)], later), "{quotas:?}");
    }
}

#[test]
fn client_that_left_the_overflow_is_independent() {
    let (store, fillers, long) = (store(100), KeySpace::new("short"), KeySpace::new("long"));
    let quotas = [hourly(10)];
    fill(&store, &fillers, 100, START);
    for identifier in ["x", "y"] {
        for _ in 0..2 {
            assert!(is_allowed(&store, &[unit(&long, identifier, &quotas)], START));
        }
    }
    let later = START.plus(Micros::from_secs(3));
    store.sweep(later, store.steps_per_round());
    // Each starts with a copy of the shared state's remaining quota, which is at most its own.
    for identifier in ["x", "y"] {
        let admitted = (0..20).filter(|_| is_allowed(&store, &[unit(&long, identifier, &quotas)], later)).count();
        assert_eq!(admitted, 6, "{identifier}");
    }
}

#[test]
fn overflow_admits_at_most_the_limit_to_one_request() {
    for quota in of_every_algorithm(LIMIT, DAY) {
        let (store, space, quotas) = (store(0), KeySpace::new("joint"), [quota]);
        let names: Vec<String> = (0..40).map(|index| index.to_string()).collect();
        let admitted: usize = names
            .chunks(2)
            .map(|pair| {
                let charges = [unit(&space, &pair[0], &quotas), unit(&space, &pair[1], &quotas)];
                2 * usize::from(is_allowed(&store, &charges, START))
            })
            .sum();
        assert_eq!(admitted, 4, "two pairs fit into five units: {quotas:?}");
    }
}

#[test]
fn client_gets_its_limit_once_while_capacity_fluctuates() {
    for round in 0..50_u64 {
        let (store, fillers, long) = (store(1), KeySpace::new("fillers"), KeySpace::new("long"));
        let (quotas, filler_quotas) = ([hourly(LIMIT)], [hourly(1)]);
        let (admitted, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let filler = [unit(&fillers, "filler", &filler_quotas)];
                while !is_over.load(Ordering::Relaxed) {
                    store.charge_now(&filler, START);
                    store.reset_now(&filler, START);
                }
            });
            let clients: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..500 {
                            let allowed = is_allowed(&store, &[unit(&long, "x", &quotas)], START);
                            admitted.fetch_add(u64::from(allowed), Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
        });
        assert_eq!(admitted.into_inner(), LIMIT, "round {round}");
    }
}

#[test]
fn reset_returns_the_verdicts_of_the_next_peek() {
    for max_keys in [0, 2, 3, 100] {
        for quota in of_every_algorithm(2, DAY) {
            let (store, space, quotas) = (store(max_keys), KeySpace::new("reset"), [quota]);
            for index in 0..2 {
                store.charge_now(&[unit(&space, &index.to_string(), &quotas)], START);
            }
            for identifier in ["x", "0", "never-seen"] {
                let client = [unit(&space, identifier, &quotas)];
                (0..3).for_each(|_| drop(store.charge_now(&client, START)));
                let told = store.reset_now(&client, START);
                assert_eq!(told, store.peek_now(&client, START), "{identifier} of {max_keys}, {quotas:?}");
                let passes = is_allowed(&store, &client, START);
                assert_eq!(passes, told[0].outcome.is_allowed(), "{identifier} of {max_keys}, {quotas:?}");
            }
        }
    }
}

#[test]
fn reset_clears_overflow_charges_once_there_is_capacity() {
    let (store, fillers, long) = (store(100), KeySpace::new("short"), KeySpace::new("long"));
    let quotas = [hourly(LIMIT)];
    fill(&store, &fillers, 100, START);
    let client = [unit(&long, "x", &quotas)];
    (0..LIMIT).for_each(|_| assert!(is_allowed(&store, &client, START)));
    let later = START.plus(Micros::from_secs(3));
    store.sweep(later, store.steps_per_round());
    assert!(!is_allowed(&store, &client, later));
    assert_eq!(store.reset_now(&client, later)[0].remaining, LIMIT);
    let admitted = (0..2 * LIMIT).filter(|_| is_allowed(&store, &client, later)).count();
    assert_eq!(admitted as u64, LIMIT);
}

#[test]
fn refund_never_changes_the_overflow() {
    for quota in of_every_algorithm(LIMIT, DAY) {
        let (store, space, quotas) = (store(0), KeySpace::new("refund"), [quota]);
        let of = |identifier, cost| [charge(&space, identifier, &quotas, cost)];
        assert!(is_allowed(&store, &of("y", 1), START));
        for _ in 1..LIMIT {
            assert!(is_allowed(&store, &of("x", 1), START));
        }
        for (identifier, cost) in [("never-charged", 1), ("never-charged", 100), ("y", 100)] {
            let told = store.refund_now(&of(identifier, cost), START);
            assert_eq!(told, store.peek_now(&of(identifier, cost), START));
            for each in ["x", "y", "never-charged"] {
                assert!(!is_allowed(&store, &of(each, 1), START), "{each} after {identifier}, {quotas:?}");
            }
        }
    }
}

#[test]
fn refund_reaches_a_client_that_left_the_overflow() {
    let (store, fillers, long) = (store(100), KeySpace::new("short"), KeySpace::new("long"));
    let quotas = [hourly(LIMIT)];
    fill(&store, &fillers, 100, START);
    let client = [unit(&long, "x", &quotas)];
    (0..LIMIT).for_each(|_| assert!(is_allowed(&store, &client, START)));
    let later = START.plus(Micros::from_secs(3));
    store.sweep(later, store.steps_per_round());
    assert_eq!(store.refund_now(&client, later)[0].remaining, 1);
    assert!(is_allowed(&store, &client, later));
    assert!(!is_allowed(&store, &client, later));
}

#[test]
fn marks_are_bounded_and_expire_with_the_overflow() {
    let (store, fillers, long) = (store(1_000), KeySpace::new("short"), KeySpace::new("long"));
    let quotas = [TokenBucket::new(100_000, Rate::new(100_000, Micros::from_secs(10)).unwrap()).unwrap().into()];
    fill(&store, &fillers, 1_000, START);
    let full = store.allocated_bytes();
    for index in 0..100_000 {
        assert!(is_allowed(&store, &[unit(&long, &index.to_string(), &quotas)], START));
    }
    assert!(store.used() <= 1_001);
    let grown = store.allocated_bytes() - full;
    assert!(grown <= 1_024 * 128 * 64, "{grown} bytes for a hundred thousand new keys");
    let later = START.plus(Micros::from_secs(20));
    store.sweep(later, store.steps_per_round());
    assert_eq!(store.used(), 0);
    assert!(is_allowed(&store, &[charge(&long, "0", &quotas, 100_000)], later), "all of it was refunded");
}

#[test]
fn clients_without_a_mark_get_their_limit_once() {
    // One shard of eight keys has seventeen marks.
    for quota in of_every_algorithm(100, DAY) {
        let store = MemoryStore::new(MemoryOptions { max_keys: 8, shards: 1 }, START);
        let (fillers, long, quotas) = (KeySpace::new("short"), KeySpace::new("long"), [quota]);
        fill(&store, &fillers, 8, START);
        let names: Vec<String> = (0..50).map(|index| index.to_string()).collect();
        for name in &names {
            assert!(is_allowed(&store, &[charge(&long, name, &quotas, 2)], START), "{name}, {quotas:?}");
        }
        for index in [3, 40, 49] {
            let later = START.plus(Micros::from_secs(3));
            store.sweep(later, store.steps_per_round());
            let client = [charge(&long, &names[index], &quotas, 1)];
            assert!(!is_allowed(&store, &client, later), "{index}, {quotas:?}");
        }
        // After a day, or two for the sliding counter, none of it counts.
        let later = START.plus(Micros::from_secs(3 * 86_400));
        store.sweep(later, store.steps_per_round());
        assert!(is_allowed(&store, &[charge(&long, &names[49], &quotas, 100)], later), "{quotas:?}");
    }
}

#[test]
fn windows_aligned_by_key_keep_their_bound_after_the_overflow() {
    const WINDOW_MILLIS: u64 = 10_000;
    let quotas = [FixedWindow::new(LIMIT, Micros::from_millis(WINDOW_MILLIS), Align::Key).unwrap().into()];
    for (client, full_for) in (0..60).map(|client| (client, WINDOW_MILLIS * (client % 25) / 10)) {
        let (store, fillers, space) = (store(4), KeySpace::new("fillers"), KeySpace::new("by-key"));
        let (filler_quotas, name) = ([hourly(1)], client.to_string());
        let names: Vec<String> = (0..4).map(|index| index.to_string()).collect();
        for filler in &names {
            assert!(is_allowed(&store, &[unit(&fillers, filler, &filler_quotas)], START));
        }
        let mut admitted: Vec<u64> = Vec::new();
        for millis in (0..6 * WINDOW_MILLIS).step_by(100) {
            let now = START.plus(Micros::from_millis(millis));
            if millis == full_for / 100 * 100 {
                names
                    .iter()
                    .for_each(|filler| drop(store.reset_now(&[unit(&fillers, filler, &filler_quotas)], now)));
            }
            store.sweep(now, store.steps_per_round());
            for _ in 0..LIMIT {
                if is_allowed(&store, &[unit(&space, &name, &quotas)], now) {
                    admitted.push(millis);
                }
            }
        }
        let within =
            |start: &u64| admitted.iter().filter(|at| (*start..*start + WINDOW_MILLIS).contains(*at)).count();
        let most = admitted.iter().map(within).max();
        assert!(most <= Some(2 * LIMIT as usize), "{most:?} within a window, client {client}");
        assert!(admitted.len() >= 5 * LIMIT as usize, "{} admitted, client {client}", admitted.len());
    }
}

/// An operation on the store.
#[derive(Clone, Debug)]
enum Step {
    Charge { rule: usize, client: usize, cost: u32 },
    Pair { rule: usize, clients: [usize; 2] },
    Everything { client: usize },
    Fill { fillers: usize },
    Refund { rule: usize, client: usize, cost: u32 },
    Reset { rule: usize, client: usize },
    Sweep,
    SweepAndLook { rule: usize, client: usize },
    Pass { millis: u64 },
}

const RULES: usize = 7;
const CLIENTS: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    let (rule, client) = (0..RULES, 0..CLIENTS);
    prop_oneof![
        12 => (rule.clone(), client.clone(), 0_u32..5).prop_map(|(rule, client, cost)| Step::Charge { rule, client, cost }),
        2 => (rule.clone(), client.clone(), client.clone())
            .prop_map(|(rule, one, other)| Step::Pair { rule, clients: [one, other] }),
        2 => client.clone().prop_map(|client| Step::Everything { client }),
        3 => (1_usize..12).prop_map(|fillers| Step::Fill { fillers }),
        1 => (rule.clone(), client.clone(), 1_u32..8).prop_map(|(rule, client, cost)| Step::Refund { rule, client, cost }),
        1 => (rule.clone(), client.clone()).prop_map(|(rule, client)| Step::Reset { rule, client }),
        2 => Just(Step::Sweep),
        2 => (rule, client).prop_map(|(rule, client)| Step::SweepAndLook { rule, client }),
        4 => prop_oneof![Just(0), 1_u64..400, 400_u64..4_000].prop_map(|millis| Step::Pass { millis }),
    ]
}

/// Two verified identities, an unverified name and an address.
fn clients() -> [Identity<'static>; CLIENTS] {
    [Identity::Named("a"), Identity::Named("b"), Identity::Claimed("a"), address(1)]
}

/// One rule for each algorithm, with numbers that do not divide evenly; one with short limits, one with several.
fn rules() -> Vec<(KeySpace, Vec<Quota>)> {
    let mut limits: Vec<Vec<Quota>> =
        of_every_algorithm(LIMIT, Micros::from_millis(7_001)).into_iter().map(|quota| vec![quota]).collect();
    limits.push(vec![SlidingWindow::new(2, Micros::from_millis(900)).unwrap().into()]);
    limits.push(vec![
        SlidingWindow::new(3, Micros::from_secs(1)).unwrap().into(),
        FixedWindow::new(7, Micros::from_secs(30), Align::Epoch).unwrap().into(),
        TokenBucket::new(6, Rate::new(7, Micros::from_secs(11)).unwrap()).unwrap().into(),
    ]);
    assert_eq!(limits.len(), RULES);
    limits.into_iter().enumerate().map(|(index, quotas)| (KeySpace::new(&index.to_string()), quotas)).collect()
}

/// The store under test beside one that is never full. The second store receives only the admissions of the first, so
/// each identity's admissions there are those of one limit of its own. It must have room for every one of them.
struct Pair {
    store: MemoryStore,
    oracle: MemoryStore,
    fillers: KeySpace,
    filled: usize,
    now: Timestamp,
}

impl Pair {
    fn charge(&mut self, charges: &[Charge<'_>]) -> Result<Verdicts, TestCaseError> {
        let verdicts = self.store.charge_now(charges, self.now);
        let is_admitted = verdicts.iter().all(|verdict| verdict.outcome.is_allowed());
        if is_admitted {
            for verdict in self.oracle.charge_now(charges, self.now) {
                prop_assert_eq!(
                    verdict.outcome,
                    Outcome::Allowed,
                    "beyond the limit of one identity: {:?}",
                    charges
                );
            }
        }
        Ok(verdicts)
    }

    fn fill(&mut self, fillers: usize) {
        for _ in 0..fillers {
            self.filled += 1;
            self.store.charge_now(&[unit(&self.fillers, &self.filled.to_string(), &short())], self.now);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn identity_stays_within_its_limits_under_random_operations(
        max_keys in 0_usize..16,
        shards in 1_usize..4,
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let (rules, clients) = (rules(), clients());
        let mut pair = Pair {
            store: MemoryStore::new(MemoryOptions { max_keys, shards }, START),
            oracle: MemoryStore::new(MemoryOptions::default(), START),
            fillers: KeySpace::new("fillers"),
            filled: 0,
            now: START,
        };
        for step in steps {
            match step {
                Step::Charge { rule, client, cost } => {
                    let (space, quotas) = &rules[rule];
                    drop(pair.charge(&[charge_of(space, clients[client], quotas, cost)])?);
                }
                Step::Pair { clients: [one, other], .. } if one == other => {}
                Step::Pair { rule, clients: pair_of } => {
                    let (space, quotas) = &rules[rule];
                    drop(pair.charge(&pair_of.map(|client| charge_of(space, clients[client], quotas, 1)))?);
                }
                Step::Everything { client } => {
                    let charges: Vec<_> =
                        rules.iter().map(|(space, quotas)| charge_of(space, clients[client], quotas, 1)).collect();
                    drop(pair.charge(&charges)?);
                }
                Step::Fill { fillers } => pair.fill(fillers),
                Step::Refund { rule, client, cost } => {
                    let (space, quotas) = &rules[rule];
                    let charges = [charge_of(space, clients[client], quotas, cost)];
                    let told = pair.store.refund_now(&charges, pair.now);
                    prop_assert_eq!(told, pair.store.peek_now(&charges, pair.now));
                    pair.oracle.refund_now(&charges, pair.now);
                }
                Step::Reset { rule, client } => {
                    let (space, quotas) = &rules[rule];
                    let charges = [charge_of(space, clients[client], quotas, 1)];
                    let told = pair.store.reset_now(&charges, pair.now);
                    prop_assert_eq!(told, pair.store.peek_now(&charges, pair.now));
                    pair.oracle.reset_now(&charges, pair.now);
                }
                Step::Sweep => drop(pair.store.sweep(pair.now, pair.store.steps_per_round())),
                Step::SweepAndLook { rule, client } => {
                    // Now nothing is left to sweep, and a peek returns the verdicts of a charge.
                    pair.store.sweep(pair.now, pair.store.steps_per_round());
                    let (space, quotas) = &rules[rule];
                    let charges = [charge_of(space, clients[client], quotas, 1)];
                    let outcomes = |verdicts: Verdicts| -> Vec<Outcome> {
                        verdicts.iter().map(|verdict| verdict.outcome).collect()
                    };
                    let promised = outcomes(pair.store.peek_now(&charges, pair.now));
                    prop_assert_eq!(promised, outcomes(pair.charge(&charges)?));
                }
                Step::Pass { millis } => pair.now = pair.now.plus(Micros::from_millis(millis)),
            }
            // New keys beyond the bound share a state for each limit and kind, and the log of a shared window has a
            // few entries.
            prop_assert!(pair.store.used() <= max_keys + 3 * 64, "{} used of {}", pair.store.used(), max_keys);
        }
    }
}

#[test]
fn shadow_limits_count_in_the_overflow() {
    let (store, space, quotas) = (store(0), KeySpace::new("shadow"), [hourly(LIMIT)]);
    let watched = [Charge { mode: ChargeMode::Shadow(0), ..unit(&space, "x", &quotas) }];
    let admitted = (0..10).filter(|_| is_allowed(&store, &watched, START)).count();
    assert_eq!(admitted as u64, LIMIT);
}

/// Identities that cost nothing to invent: unverified names, and addresses of a large network.
fn of_kind(is_name: bool, name: &str, number: u32) -> Identity<'_> {
    if is_name { Identity::Claimed(name) } else { address(number) }
}

#[test]
fn invented_names_and_addresses_take_no_capacity_of_verified_identities() {
    const CAP: usize = 2_000;
    for shards in [1, 7, 1_024] {
        for quota in of_every_algorithm(LIMIT, DAY) {
            let store = MemoryStore::new(MemoryOptions { max_keys: CAP, shards }, START);
            let (public, login, quotas) = (KeySpace::new("public"), KeySpace::new("login"), [quota]);
            for number in 0..2_300 {
                let name = number.to_string();
                for identity in [true, false].map(|is_name| of_kind(is_name, &name, number)) {
                    store.charge_now(&[charge_of(&public, identity, &quotas, 1)], START);
                }
            }
            // Neither by their number nor by the marks of those without capacity.
            for user in 0..12 {
                let user = user.to_string();
                for space in [&login, &public] {
                    let allowed = (0..10).filter(|_| is_allowed(&store, &[unit(space, &user, &quotas)], START));
                    assert_eq!(allowed.count() as u64, LIMIT, "user {user} of {shards} shards, {quotas:?}");
                }
            }
        }
    }
}

/// As with a rule per address beside one per user: one key of such a request may have capacity and the other none.
#[test]
fn verified_identity_has_its_own_state_beside_an_overflowing_address() {
    const CAP: usize = 400;
    for quota in of_every_algorithm(LIMIT, DAY) {
        let (store, by_user, by_address) = (store(CAP), KeySpace::new("user"), KeySpace::new("address"));
        let (quotas, ample) = ([quota], [hourly(10_000)]);
        for number in 0..1_000 {
            store.charge_now(&[charge_of(&by_address, address(number), &ample, 1)], START);
        }
        for user in 0..12_u32 {
            let name = user.to_string();
            let charges = [
                charge_of(&by_address, address(5_000 + user), &ample, 1),
                charge_of(&by_user, Identity::Named(&name), &quotas, 1),
            ];
            let allowed = (0..10).filter(|_| is_allowed(&store, &charges, START)).count() as u64;
            assert_eq!(allowed, LIMIT, "user {user}, {quotas:?}");
        }
    }
}

#[test]
fn every_kind_of_identity_has_its_exact_share_and_overflow() {
    const CAP: usize = 400;
    let (store, space, quotas) = (store(CAP), KeySpace::new("parts"), [hourly(1)]);
    let admitted = |kind: usize| {
        let of = |number: u32, name: &str| {
            let identity = if kind == 2 { Identity::Named(name) } else { of_kind(kind == 0, name, number) };
            is_allowed(&store, &[charge_of(&space, identity, &quotas, 1)], START)
        };
        (0..1_000).filter(|number| of(*number, &number.to_string())).count()
    };
    // Each has one more, in the state that its new keys share.
    assert_eq!(admitted(0), CAP / 4 + 1);
    assert_eq!(admitted(1), CAP / 2 + 1);
    assert_eq!(admitted(2), CAP / 4 - 2 + 1, "two of the shared states existed before");
    assert_eq!(store.used(), CAP + 1);
    assert_eq!([admitted(0), admitted(1), admitted(2)], [0; 3], "no state was evicted");
}

#[test]
fn usage_by_kind_is_counted_exactly() {
    const CAP: usize = 400;
    let (store, space) = (store(CAP), KeySpace::new("turnover"));
    let window = [SlidingWindow::new(3, Micros::from_secs(1)).unwrap().into()];
    for round in 0..20_u64 {
        let now = START.plus(Micros::from_secs(5 * round));
        for number in 0..150 {
            let name = number.to_string();
            for identity in [of_kind(true, &name, number), of_kind(false, &name, number)] {
                let charges = [charge_of(&space, identity, &window, 1)];
                store.charge_now(&charges, now);
                match number % 3 {
                    0 => drop(store.refund_now(&charges, now)),
                    1 => drop(store.reset_now(&charges, now)),
                    _ => drop(store.charge_now(&charges, now)),
                }
            }
        }
        store.sweep(now.plus(Micros::from_secs(4)), store.steps_per_round());
        assert_eq!(store.used(), 0);
    }
    // Nothing has leaked: every kind has all of its share again.
    let (now, quotas) = (START.plus(Micros::from_secs(200)), [hourly(1)]);
    let fresh = KeySpace::new("fresh");
    for is_name in [true, false] {
        let part = CAP / if is_name { 4 } else { 2 };
        for number in 0..part as u32 {
            let name = number.to_string();
            let identity = of_kind(is_name, &name, number);
            assert!(is_allowed(&store, &[charge_of(&fresh, identity, &quotas, 1)], now), "{identity:?}");
        }
    }
    assert_eq!(store.used(), CAP / 4 + CAP / 2);
}
