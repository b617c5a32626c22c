//! Conformance tests for every store: named behaviours, and random operations. Each verdict of a random operation is
//! compared with that of the [`ReferenceStore`].

use crate::reference::ReferenceStore;
use sluicegate::core::calendar::Run;
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::{
    Align, Calendar, Cost, FixedWindow, Micros, Outcome, Quota, Rate, SlidingCounter, SlidingWindow, Timestamp,
    TokenBucket, Verdict,
};
use sluicegate::store::{Charge, Key, KeySpace, Store, Subject, Verdicts};
use sluicegate::{Identity, identity::DEFAULT_TENANT};
use std::sync::Arc;
use std::time::Duration;

/// An instant in January 2024 that lies on no window boundary.
pub const START: Timestamp = Timestamp::now(1_705_312_800_123_456);

/// The deadline of store calls in tests, long enough for a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// One operation on a store. The caller draws it at random.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The kind of operation.
    pub kind: OperationKind,
    /// The keys of the operation, one bit for each of [`KEYS`].
    pub keys: u8,
    /// The index of the limit set of the keys. It varies because rules and tiers change.
    pub limits: u8,
    /// The cost.
    pub cost: u32,
    /// The keys in shadow mode, one bit each.
    pub shadow: u8,
    /// The keys that are charged even if the request is denied, one bit each.
    pub usage: u8,
    /// The time that passes before the operation.
    pub pause_micros: u64,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug)]
pub enum OperationKind {
    /// [`Store::charge`].
    Charge,
    /// [`Store::peek`].
    Peek,
    /// [`Store::refund`].
    Refund,
    /// [`Store::report`].
    Report,
    /// [`Store::reset`].
    Reset,
}

/// The keys of the operations: rule and identifier.
pub const KEYS: [(&str, &str); 6] =
    [("one", "alice"), ("one", "bob"), ("two", "alice"), ("two", "a:b"), ("two", "a"), ("three", "b:a")];

/// Runs `operations` against `store` and the reference, and compares every verdict.
///
/// # Panics
/// At the first difference.
pub async fn agrees_with_reference<S: Store>(store: &S, operations: &[Operation]) {
    let reference = ReferenceStore::default();
    let spaces: Vec<KeySpace> = KEYS.iter().map(|(rule, _)| KeySpace::new(rule)).collect();
    let quotas = quota_sets();
    let mut now = START;
    for (step, operation) in operations.iter().enumerate() {
        now = now.plus(Micros::from_micros(operation.pause_micros));
        let charges = charges(operation, &spaces, &quotas);
        let expected = run(&reference, operation.kind, &charges, now).await;
        let actual = run(store, operation.kind, &charges, now).await;
        assert_eq!(actual, expected, "step {step}: {operation:?} at {now:?}");
    }
}

async fn run<S: Store>(store: &S, kind: OperationKind, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
    let reply = match kind {
        OperationKind::Charge => store.charge(charges, now, DEADLINE).await,
        OperationKind::Peek => store.peek(charges, now, DEADLINE).await,
        OperationKind::Refund => store.refund(charges, now, DEADLINE).await,
        OperationKind::Report => store.report(charges, now, DEADLINE).await,
        OperationKind::Reset => store.reset(charges, now, DEADLINE).await,
    };
    answered(reply)
}

fn answered(reply: Result<sluicegate::store::Reply, sluicegate::store::StoreError>) -> Verdicts {
    match reply {
        Ok(reply) => reply.verdicts,
        Err(error) => panic!("{error}"),
    }
}

fn charges<'a>(operation: &Operation, spaces: &'a [KeySpace], quotas: &'a [Vec<Quota>]) -> Vec<Charge<'a>> {
    let chosen = (0..KEYS.len()).filter(|index| operation.keys >> index & 1 == 1);
    chosen
        .map(|index| Charge {
            key: key(&spaces[index], KEYS[index].1),
            quotas: &quotas[(usize::from(operation.limits) + index) % quotas.len()],
            cost: Cost::new(operation.cost),
            usage: Cost::new(if operation.usage >> index & 1 == 1 { operation.cost } else { 0 }),
            mode: match operation.shadow >> index & 1 {
                1 => ChargeMode::Shadow(index as u16),
                _ => ChargeMode::Enforced,
            },
            lease: None,
        })
        .collect()
}

fn key<'a>(space: &'a KeySpace, identifier: &'a str) -> Key<'a> {
    let identity = Some(Identity::Named(identifier));
    Key { space, subject: Subject { tenant: Some(DEFAULT_TENANT), identity, address: None } }
}

fn valid<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the suite's own quota is refused: {error}"),
    }
}

fn bucket(capacity: u64, amount: u64, period: Micros) -> Quota {
    valid(TokenBucket::new(capacity, valid(Rate::new(amount, period)))).into()
}

/// Windows of different lengths, starting when the operations start.
fn uneven() -> Calendar {
    let mut start = Timestamp::from_micros(START.as_micros() / 1_000_000 * 1_000_000);
    let run = |millis| {
        let run = Run { start, length: Micros::from_millis(millis) };
        start = start.plus(run.length);
        run
    };
    valid(Calendar::new("uneven", [1_250, 2_000, 1_000, 1_000, 3_000, 1_500].map(run)))
}

/// Limits of every kind: with packed and wide state, alone and combined.
fn quota_sets() -> Vec<Vec<Quota>> {
    let second = Micros::from_secs(1);
    let rate = valid(Rate::new(7, second));
    let credits = || valid(TokenBucket::with_credits(3, rate, 4, Micros::from_secs(2))).into();
    let log = || valid(SlidingWindow::new(5, Micros::from_millis(250))).into();
    let counter = || valid(SlidingCounter::new(9, second)).into();
    let window = |limit| valid(FixedWindow::new(limit, second, Align::Epoch)).into();
    let uneven = Arc::new(uneven());
    let calendar = |limit| valid(FixedWindow::on_calendar(limit, Arc::clone(&uneven))).into();
    vec![
        vec![bucket(10, 3, second)],
        vec![bucket(4, 97, second)],
        vec![bucket(5, 1, Micros::from_secs(60)), window(8)],
        vec![credits()],
        vec![log(), bucket(100, 1, second)],
        vec![counter()],
        vec![window(6)],
        vec![window(20_000_000), counter(), log(), credits()],
        // The calendar limit is in a position where no other set has a fixed window. A store may have dropped an empty
        // counter that the reference still has. The two are equivalent only as long as windows keep their ends.
        vec![bucket(50, 3, second), counter(), calendar(6)],
        vec![bucket(40, 7, second), log(), calendar(20_000_000)],
    ]
}

/// Runs every named behaviour, each against a new store from `make`.
pub async fn behaves<S: Store>(make: impl AsyncFn() -> S) {
    all_or_nothing_over_several_keys(&make().await).await;
    a_denied_request_charges_nothing_anywhere(&make().await).await;
    shadow_limits_watch_without_deciding(&make().await).await;
    nothing_costs_nothing_and_leaves_no_trace(&make().await).await;
    one_key_never_touches_another(&make().await).await;
    a_refund_never_exceeds_full(&make().await).await;
    a_reset_forgets(&make().await).await;
    another_algorithm_starts_fresh(&make().await).await;
    a_lowered_limit_is_honest_about_the_wait(&make().await).await;
    no_charges_need_no_state(&make().await).await;
}

const MINUTE: Micros = Micros::from_secs(60);

fn one<'a>(space: &'a KeySpace, identifier: &'a str, quotas: &'a [Quota], cost: u32) -> Charge<'a> {
    Charge {
        key: key(space, identifier),
        quotas,
        cost: Cost::new(cost),
        mode: ChargeMode::Enforced,
        lease: None,
        usage: Cost::ZERO,
    }
}

async fn charge<S: Store>(store: &S, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
    answered(store.charge(charges, now, DEADLINE).await)
}

async fn peek<S: Store>(store: &S, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
    answered(store.peek(charges, now, DEADLINE).await)
}

fn remaining(verdicts: &Verdicts) -> Vec<u64> {
    verdicts.iter().map(|verdict: &Verdict| verdict.remaining).collect()
}

async fn all_or_nothing_over_several_keys<S: Store>(store: &S) {
    let (user, tenant) = (KeySpace::new("user"), KeySpace::new("tenant"));
    let (wide, narrow) = ([bucket(10, 1, MINUTE)], [bucket(2, 1, MINUTE)]);
    let both = [one(&user, "u", &wide, 1), one(&tenant, "t", &narrow, 1)];
    assert_eq!(remaining(&charge(store, &both, START).await), [9, 1]);
    assert_eq!(remaining(&charge(store, &both, START).await), [8, 0]);
    let denied = charge(store, &both, START).await;
    assert_eq!(remaining(&denied), [8, 0], "the limit that had room was charged for a denied request");
    assert_eq!(denied[0].outcome, Outcome::Allowed);
    assert_eq!(denied[1].outcome, Outcome::Denied { retry_after: MINUTE });
}

async fn a_denied_request_charges_nothing_anywhere<S: Store>(store: &S) {
    let space = KeySpace::new("denied");
    let quotas = [
        bucket(3, 1, MINUTE),
        valid(SlidingWindow::new(3, MINUTE)).into(),
        valid(SlidingCounter::new(3, MINUTE)).into(),
    ];
    let before = charge(store, &[one(&space, "x", &quotas, 2)], START).await;
    for _ in 0..3 {
        let denied = charge(store, &[one(&space, "x", &quotas, 2)], START).await;
        assert_eq!(remaining(&denied), remaining(&before));
    }
    let rest = charge(store, &[one(&space, "x", &quotas, 1)], START).await;
    assert!(rest.iter().all(|verdict| verdict.outcome.is_allowed()), "what was left is still there: {rest:?}");
}

async fn shadow_limits_watch_without_deciding<S: Store>(store: &S) {
    let (enforced, shadow) = (KeySpace::new("enforced"), KeySpace::new("shadow"));
    let (roomy, tight) = ([bucket(5, 1, MINUTE)], [bucket(1, 1, MINUTE)]);
    let watched = Charge { mode: ChargeMode::Shadow(1), ..one(&shadow, "x", &tight, 1) };
    let charges = [one(&enforced, "x", &roomy, 1), watched];
    assert_eq!(remaining(&charge(store, &charges, START).await), [4, 0]);
    let second = charge(store, &charges, START).await;
    assert_eq!(remaining(&second), [3, 0], "a shadow denial kept the request from being charged");
    assert!(!second[1].outcome.is_allowed());
}

async fn nothing_costs_nothing_and_leaves_no_trace<S: Store>(store: &S) {
    let space = KeySpace::new("nothing");
    let quotas = [bucket(5, 1, MINUTE), valid(FixedWindow::new(0, MINUTE, Align::Epoch)).into()];
    let verdicts = charge(store, &[one(&space, "x", &quotas, 0)], START).await;
    assert!(verdicts.iter().all(|verdict| verdict.outcome.is_allowed()));
    assert_eq!(remaining(&verdicts), [5, 0]);
    if let Some(keys) = store.tracked_keys() {
        assert_eq!(keys, 0, "a question created state");
    }
}

async fn one_key_never_touches_another<S: Store>(store: &S) {
    let spaces = [KeySpace::new("a"), KeySpace::new("a:b"), KeySpace::new("b")];
    let identifiers = ["b:c", "c", "{c}", "b", "a:b:c", "}x", "203.0.113.9", "*"];
    let quotas = [bucket(2, 1, MINUTE)];
    for space in &spaces {
        for identifier in identifiers {
            let verdicts = charge(store, &[one(space, identifier, &quotas, 2)], START).await;
            assert_eq!(remaining(&verdicts), [0], "{} {identifier}", space.name());
        }
    }
}

async fn a_refund_never_exceeds_full<S: Store>(store: &S) {
    let space = KeySpace::new("refund");
    let quotas = [
        bucket(10, 1, MINUTE),
        valid(SlidingWindow::new(10, MINUTE)).into(),
        valid(SlidingCounter::new(10, MINUTE)).into(),
        valid(FixedWindow::new(10, MINUTE, Align::Epoch)).into(),
    ];
    charge(store, &[one(&space, "x", &quotas, 6)], START).await;
    let back = answered(store.refund(&[one(&space, "x", &quotas, 4)], START, DEADLINE).await);
    assert_eq!(remaining(&back), [8, 8, 8, 8]);
    let more = answered(store.refund(&[one(&space, "x", &quotas, 4_000_000_000)], START, DEADLINE).await);
    assert_eq!(remaining(&more), [10, 10, 10, 10]);
    let stranger = answered(store.refund(&[one(&space, "y", &quotas, 5)], START, DEADLINE).await);
    assert_eq!(remaining(&stranger), [10, 10, 10, 10]);
}

async fn a_reset_forgets<S: Store>(store: &S) {
    let space = KeySpace::new("reset");
    let quotas = [bucket(10, 1, MINUTE), valid(SlidingWindow::new(10, MINUTE)).into()];
    charge(store, &[one(&space, "x", &quotas, 6)], START).await;
    charge(store, &[one(&space, "y", &quotas, 6)], START).await;
    let fresh = answered(store.reset(&[one(&space, "x", &quotas, 1)], START, DEADLINE).await);
    assert_eq!(remaining(&fresh), [10, 10]);
    assert_eq!(remaining(&peek(store, &[one(&space, "y", &quotas, 1)], START).await), [4, 4]);
}

async fn another_algorithm_starts_fresh<S: Store>(store: &S) {
    let space = KeySpace::new("switch");
    let sets: [[Quota; 1]; 4] = [
        [bucket(5, 1, MINUTE)],
        [valid(SlidingWindow::new(5, MINUTE)).into()],
        [valid(SlidingCounter::new(5, MINUTE)).into()],
        [valid(FixedWindow::new(5, MINUTE, Align::Epoch)).into()],
    ];
    for quotas in sets.iter().chain(&sets) {
        let verdicts = charge(store, &[one(&space, "x", quotas, 5)], START).await;
        assert_eq!(remaining(&verdicts), [0], "{}", quotas[0].algorithm());
    }
}

async fn a_lowered_limit_is_honest_about_the_wait<S: Store>(store: &S) {
    let space = KeySpace::new("lowered");
    let (daily, minutely) = ([bucket(100, 100, Micros::from_secs(86_400))], [bucket(100, 100, MINUTE)]);
    charge(store, &[one(&space, "x", &daily, 100)], START).await;
    let verdicts = charge(store, &[one(&space, "x", &minutely, 1)], START).await;
    let Outcome::Denied { retry_after } = verdicts[0].outcome else { panic!("{verdicts:?}") };
    assert!(retry_after <= MINUTE, "a raised rate locks nobody out for longer than it takes to fill");
    let early = START.plus(Micros::from_micros(retry_after.as_micros() - 1));
    assert!(!charge(store, &[one(&space, "x", &minutely, 1)], early).await[0].outcome.is_allowed());
    let late = START.plus(retry_after);
    assert!(charge(store, &[one(&space, "x", &minutely, 1)], late).await[0].outcome.is_allowed());
}

async fn no_charges_need_no_state<S: Store>(store: &S) {
    assert!(charge(store, &[], START).await.is_empty());
    assert!(peek(store, &[], START).await.is_empty());
}
