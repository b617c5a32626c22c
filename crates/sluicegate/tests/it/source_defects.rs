//! The rows of `docs/source-defects.md` that need a store or keys; the core's own tests have the table of all rows.
//! The comment of each test describes the effect of the document's text, and the test asserts the correct behaviour.

use crate::support::{block_on, hourly, unit};
use sluicegate::clock::ManualClock;
use sluicegate::core::{Align, FixedWindow, Micros, Quota, Rate, SlidingWindow, TokenBucket};
use sluicegate::rules::{Limits, Per, Rule, RuleSet, Unmatched};
use sluicegate::store::memory::MemoryOptions;
use sluicegate::store::{Charge, Key, KeySpace, Subject};
use sluicegate::{Identity, Limiter, MemoryStore, Request};
use sluicegate_testkit::conformance::START;
use std::net::IpAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

fn store() -> MemoryStore {
    MemoryStore::new(MemoryOptions::default(), START)
}

fn passes(store: &MemoryStore, charge: Charge<'_>) -> bool {
    store.charge_now(&[charge], START).iter().all(|verdict| verdict.outcome.is_allowed())
}

fn bucket(capacity: u64, amount: u64, period_secs: u64) -> Quota {
    TokenBucket::new(capacity, Rate::new(amount, Micros::from_secs(period_secs)).unwrap()).unwrap().into()
}

/// Row 23: without a TTL the state of every user ever seen is kept forever.
#[test]
fn idle_identity_leaves_no_state() {
    let (store, space, quotas) = (store(), KeySpace::new("r"), [bucket(5, 1, 1)]);
    for index in 0..1_000 {
        assert!(passes(&store, unit(&space, &index.to_string(), &quotas)));
    }
    assert_eq!(store.used(), 1_000);
    store.sweep(START.plus(Micros::from_secs(3)), store.steps_per_round());
    assert_eq!(store.used(), 0);
}

/// Rows 26 and 41: with separate calls to read, decide and write, every concurrent request sees the last token; 50 of
/// 50 are admitted where one is left, and 10,000 instead of 100.
#[test]
fn concurrent_requests_share_the_last_tokens_exactly() {
    let sliding = SlidingWindow::new(100, Micros::from_secs(3_600)).unwrap();
    for quotas in [[hourly(100)], [Quota::from(sliding)]] {
        let (store, space, barrier) = (store(), KeySpace::new("r"), Barrier::new(50));
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..50 {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..4 {
                        let passed = passes(&store, unit(&space, "x", &quotas));
                        admitted.fetch_add(u64::from(passed), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 100);
    }
}

/// Row 44: under LRU eviction an attacker with random names resets the limits of all clients.
#[test]
fn flood_of_names_resets_no_client() {
    let store = MemoryStore::new(MemoryOptions { max_keys: 500, ..MemoryOptions::default() }, START);
    let (space, quotas) = (KeySpace::new("r"), [hourly(1)]);
    assert!(passes(&store, unit(&space, "victim", &quotas)));
    for index in 0..20_000 {
        passes(&store, unit(&space, &format!("random-{index}"), &quotas));
    }
    assert!(!passes(&store, unit(&space, "victim", &quotas)));
}

/// Row 50: one key per user cannot limit user, tenant and the whole service together.
#[test]
fn user_tenant_and_global_limits_are_one_decision() {
    let rule = |name: &str, capacity, per| {
        let mut rule = Rule::new(name, Limits::all(name, [(None, hourly(capacity))]));
        rule.per = per;
        rule
    };
    let rules =
        vec![rule("user", 3, Per::IDENTIFIER), rule("tenant", 4, Per::TENANT), rule("all", 5, Per::GLOBAL)];
    let rules = RuleSet::new(rules, Vec::new(), Unmatched::Allow).unwrap();
    let limiter = Limiter::new(rules, store(), ManualClock::at(START));
    let admitted = |tenant, identifier| {
        let request = Request::new("r", identifier).tenant(tenant);
        (0..10).filter(|_| block_on(limiter.check(&request)).unwrap().is_allowed()).count()
    };
    assert_eq!(admitted("a", "x"), 3, "the user's own limit");
    assert_eq!(admitted("a", "y"), 1, "the tenant's rest, after seven denials in between");
    assert_eq!(admitted("b", "x"), 1, "the rest of the global limit");
}

/// Row 52: a client called `a:last_refill` writes its tokens to the key of a's timestamp. Row 53: tenant `a`,
/// resource `b:c` and id `d` share a key with `a`, `b` and `c:d`; so does any IPv6 address. Row 56: braces in an id
/// choose the slot of another client's key.
#[test]
fn no_name_reaches_the_state_of_another_client() {
    let (store, quotas) = (store(), [hourly(1)]);
    let spaces = [KeySpace::new("b"), KeySpace::new("b:c"), KeySpace::new("bucket")];
    let names = ["a", "a:last_refill", "d", "c:d", "victim", "victim}1", "}x", "{x}", "", "::1", "2001:db8::1"];
    for space in &spaces {
        for tenant in [None, Some("a"), Some("a:b"), Some("default")] {
            for name in names {
                let subject = Subject { tenant, identity: Some(Identity::Named(name)), address: None };
                let charge = Charge { key: Key { space, subject }, ..unit(space, name, &quotas) };
                assert!(passes(&store, charge), "{} {tenant:?} {name} shares a state", space.name());
            }
        }
    }
}

/// Rows 54 and 55: two algorithms on one key give WRONGTYPE, and the error admits every request.
#[test]
fn rule_keeps_limiting_after_a_change_of_algorithm() {
    let (store, space) = (store(), KeySpace::new("r"));
    let window = Micros::from_secs(3_600);
    let sets = [
        [hourly(2)],
        [Quota::from(FixedWindow::new(2, window, Align::Epoch).unwrap())],
        [Quota::from(SlidingWindow::new(2, window).unwrap())],
    ];
    for quotas in &sets {
        let admitted = (0..5).filter(|_| passes(&store, unit(&space, "u", quotas))).count();
        assert_eq!(admitted, 2, "{}", quotas[0].algorithm());
    }
}

/// Row 59: an API key with the text `203.0.113.9` locks out the client at that address.
#[test]
fn name_that_looks_like_an_address_is_not_that_address() {
    let (store, space, quotas) = (store(), KeySpace::new("r"), [hourly(1)]);
    let address: IpAddr = "203.0.113.9".parse().unwrap();
    assert!(passes(&store, unit(&space, "203.0.113.9", &quotas)));
    let subject = Subject { identity: Some(Identity::Address(address)), ..Subject::default() };
    assert!(passes(&store, Charge { key: Key { space: &space, subject }, ..unit(&space, "", &quotas) }));
}
