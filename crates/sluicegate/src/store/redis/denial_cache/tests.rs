//! The denial cache with explicit instants: when a denial is valid, for which requests, and which events invalidate
//! it.

mod charged_since;
mod never_wrong;
mod server;

use super::insert::CallStart;
use super::invalidation::InvalidationClock;
use super::table::{ObservationTable, WAYS};
use super::*;
use crate::identity::Identity;
use crate::store::redis::protocol::arguments::Operation;
use crate::store::{Key, KeySpace, Subject};
use server::{Decision, all, answer, drained, partition};
use sluicegate_core::{Align, FixedWindow, Rate, SlidingWindow, State, TokenBucket};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, sleep_until};

const NOW: Timestamp = Timestamp::now(1_705_312_800_000_000);
const MILLISECOND: LocalNanos = 1_000_000;
const SECOND: LocalNanos = 1_000 * MILLISECOND;

/// One token per second, with a burst of `capacity`.
fn bucket(capacity: u64) -> Quota {
    TokenBucket::new(capacity, Rate::new(1, Micros::from_secs(1)).unwrap()).unwrap().into()
}

fn fixed(limit: u64) -> Quota {
    FixedWindow::new(limit, Micros::from_secs(3_600), Align::Epoch).unwrap().into()
}

fn charge<'a>(space: &'a KeySpace, identifier: &'a str, quotas: &'a [Quota], cost: u32) -> Charge<'a> {
    let subject = Subject { tenant: None, identity: Some(Identity::Named(identifier)), address: None };
    Charge {
        key: Key { space, subject },
        quotas,
        cost: Cost::new(cost),
        mode: ChargeMode::Enforced,
        lease: None,
        usage: Cost::ZERO,
    }
}

fn at(local: LocalNanos) -> CacheMoment {
    CacheMoment { local, generation: 0 }
}

/// A call that is sent at one instant and answered at another, at [`NOW`] on the server, by exhausted limits.
fn ask(cache: &DenialCache, charges: &[Charge<'_>], sent_at: LocalNanos, received_at: LocalNanos) {
    assert!(!is_denied(cache, charges, sent_at), "it is denied already");
    remember(cache, cache.call_start(at(sent_at)), charges, at(received_at));
}

fn remember(cache: &DenialCache, call_start: CallStart, charges: &[Charge<'_>], received_at: CacheMoment) {
    observe(cache, call_start, charges, drained(charges, NOW), received_at);
}

/// A charge was decided on these states, at [`NOW`] on the server.
fn observe(
    cache: &DenialCache,
    call_start: CallStart,
    charges: &[Charge<'_>],
    states: Vec<Option<State>>,
    received_at: CacheMoment,
) {
    let decision = Decision { operation: Operation::Charge, times: 1, charges, states };
    answer(cache, call_start, vec![decision], NOW, received_at, all);
}

fn invalidate(cache: &DenialCache, charges: &[Charge<'_>]) {
    cache.invalidate(partition(&charges[0].key));
}

fn is_denied(cache: &DenialCache, charges: &[Charge<'_>], local: LocalNanos) -> bool {
    cache.lookup(charges, at(local)).is_some()
}

#[test]
fn a_denial_is_cached_until_the_request_may_pass() {
    let (cache, space, quotas) = (DenialCache::new(), KeySpace::new("rule"), [bucket(1)]);
    let charges = [charge(&space, "x", &quotas, 1)];
    ask(&cache, &charges, 5 * MILLISECOND, 9 * MILLISECOND);
    cache.record_exchange(SECOND);
    let last = SECOND + 5 * MILLISECOND - 1_000;
    let reply = cache.lookup(&charges, at(last)).unwrap();
    // The reply may be too long by the round trip of the first call.
    let elapsed = Micros::from_micros(1_000_000 - 4_000 - 1);
    let retry_after = Micros::from_micros(4_001);
    assert_eq!(reply.now, NOW.plus(elapsed));
    assert_eq!(reply.verdicts[0].outcome, Outcome::Denied { retry_after });
    assert_eq!((reply.verdicts[0].limit, reply.verdicts[0].remaining), (1, 0));
    assert_eq!((cache.observed_keys(), cache.hits()), (1, 1));
    assert!(!is_denied(&cache, &charges, last + 1), "the server's clock may show the second by now");
    assert!(!is_denied(&cache, &charges, last + 1_000));
    assert_eq!((cache.observed_keys(), cache.hits()), (0, 1), "an expired observation is removed by the lookup");
}

#[test]
fn a_bucket_denies_any_cost_from_the_cache_and_a_log_only_one() {
    let (cache, space) = (DenialCache::new(), KeySpace::new("rule"));
    let quotas = [bucket(10)];
    let state = quotas[0].charge(None, Cost::new(7), NOW);
    let five = [charge(&space, "x", &quotas, 5)];
    observe(&cache, cache.call_start(at(0)), &five, vec![state], at(1));
    for (cost, is_so) in [(5, true), (4, true), (3, false), (1, false), (6, true), (10, true), (11, true)] {
        assert_eq!(is_denied(&cache, &[charge(&space, "x", &quotas, cost)], MILLISECOND), is_so, "{cost}");
    }
    let quotas = [SlidingWindow::new(5, Micros::from_secs(60)).unwrap().into()];
    ask(&cache, &[charge(&space, "log", &quotas, 2)], 0, 1);
    for (cost, is_so) in [(1, false), (2, true), (3, false)] {
        assert_eq!(is_denied(&cache, &[charge(&space, "log", &quotas, cost)], MILLISECOND), is_so, "{cost}");
    }
}

#[test]
fn other_rules_are_another_decision() {
    let (cache, space, quotas) = (DenialCache::new(), KeySpace::new("rule"), [fixed(1), bucket(1)]);
    let one = charge(&space, "x", &quotas[..1], 1);
    ask(&cache, &[one], 0, 1);
    assert!(is_denied(&cache, &[one], MILLISECOND));
    let (renamed, changed) = (KeySpace::new("other"), [fixed(2)]);
    for (other, why) in [
        (vec![charge(&renamed, "x", &quotas[..1], 1)], "the name"),
        (vec![charge(&space, "x", &changed, 1)], "the limit"),
        (vec![charge(&space, "x", &quotas, 1)], "a limit more"),
        (vec![charge(&space, "y", &quotas[..1], 1)], "the identity"),
        (vec![one, charge(&space, "y", &quotas[..1], 1)], "a rule more"),
        (vec![Charge { mode: ChargeMode::Shadow(0), ..one }], "the group"),
    ] {
        assert!(!is_denied(&cache, &other, MILLISECOND), "{why}");
    }
}

#[test]
fn only_enforced_limits_deny_and_all_of_them_are_shown() {
    let (cache, space, quotas) = (DenialCache::new(), KeySpace::new("rule"), [bucket(1), bucket(3)]);
    let shadow = Charge { mode: ChargeMode::Shadow(0), ..charge(&space, "x", &quotas, 1) };
    ask(&cache, &[shadow], 0, 1);
    assert_eq!(cache.observed_keys(), 0);
    let charges = [shadow, charge(&space, "y", &quotas, 1)];
    ask(&cache, &charges, 0, 1);
    let reply = cache.lookup(&charges, at(MILLISECOND)).unwrap();
    assert_eq!(reply.verdicts.iter().map(|verdict| verdict.limit).collect::<Vec<_>>(), [1, 3, 1, 3]);
    assert!(reply.verdicts.iter().all(|verdict| !verdict.outcome.is_allowed()));
}

#[test]
fn a_cost_above_the_limit_is_denied_unless_history_could_change_it() {
    let (cache, space) = (DenialCache::new(), KeySpace::new("rule"));
    let hour = Micros::from_secs(3_600);
    let credits = TokenBucket::with_credits(5, Rate::new(1, Micros::from_secs(1)).unwrap(), 3, hour).unwrap();
    let quotas = [Quota::from(credits)];
    let call_start = cache.call_start(at(0));
    let seven = [charge(&space, "x", &quotas, 7)];
    observe(&cache, call_start, &seven, vec![None], at(1));
    assert!(!is_denied(&cache, &seven, 2), "with the next charge the client begins to earn credits");
    let beyond = [charge(&space, "x", &quotas, 9)];
    observe(&cache, call_start, &beyond, vec![None], at(1));
    let reply = cache.lookup(&beyond, at(RENEWAL_AGE)).unwrap();
    assert_eq!(reply.verdicts[0].outcome, Outcome::NeverAdmissible);
    assert!(!is_denied(&cache, &seven, RENEWAL_AGE));
    cache.record_exchange(SECOND);
    assert!(!is_denied(&cache, &beyond, SECOND + 1), "others may have charged it since");
}

#[test]
fn a_refund_invalidates_earlier_observations_of_its_partition_only() {
    let (cache, space, quotas) = (DenialCache::new(), KeySpace::new("rule"), [fixed(1)]);
    let [a, b] = ["a", "b"].map(|name| [charge(&space, name, &quotas, 1)]);
    ask(&cache, &a, 0, 1);
    ask(&cache, &b, 0, 1);
    let before = cache.call_start(at(2));
    invalidate(&cache, &a);
    assert!(!is_denied(&cache, &a, 3) && is_denied(&cache, &b, 3));
    // The reply of a call from before the refund, which was in flight meanwhile.
    remember(&cache, before, &a, at(4));
    assert!(!is_denied(&cache, &a, 5));
    ask(&cache, &a, 6, 7);
    assert!(is_denied(&cache, &a, 8));
    cache.invalidations.invalidate_all();
    assert!(!is_denied(&cache, &a, 9) && !is_denied(&cache, &b, 9));
}

/// The server may execute an abandoned refund until its deadline.
#[tokio::test(start_paused = true)]
async fn a_refund_without_a_reply_invalidates_again_at_its_deadline() {
    let (cache, space, quotas) = (Arc::new(DenialCache::new()), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1)];
    let deadline = Instant::now() + Duration::from_secs(5);
    let pending_refund = || PendingRefund::new(&cache, [partition(&charges[0].key)], deadline);
    ask(&cache, &charges, 0, 1);
    let received_at = pending_refund();
    assert!(is_denied(&cache, &charges, 2), "it may not have been done yet");
    received_at.confirm();
    assert!(!is_denied(&cache, &charges, 3));
    ask(&cache, &charges, 4, 5);
    sleep_until(deadline).await;
    sleep(Duration::from_millis(1)).await;
    assert!(is_denied(&cache, &charges, 6));

    let deadline = Instant::now() + Duration::from_secs(5);
    drop(PendingRefund::new(&cache, [partition(&charges[0].key)], deadline));
    assert!(!is_denied(&cache, &charges, 7));
    ask(&cache, &charges, 8, 9);
    assert!(is_denied(&cache, &charges, 10));
    sleep_until(deadline).await;
    sleep(Duration::from_millis(1)).await;
    assert!(!is_denied(&cache, &charges, 11));
}

#[test]
fn a_refund_of_an_admitting_limit_invalidates_its_numbers_too() {
    let (cache, space, quotas) = (DenialCache::new(), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1), charge(&space, "b", &quotas, 1)];
    let states = || vec![None, drained(&charges[1..], NOW).remove(0)];
    for other in [0, 1] {
        observe(&cache, cache.call_start(at(0)), &charges, states(), at(1));
        let reply = cache.lookup(&charges, at(2)).unwrap();
        assert!(reply.verdicts[0].outcome.is_allowed() && !reply.verdicts[1].outcome.is_allowed());
        invalidate(&cache, &charges[other..]);
        assert!(!is_denied(&cache, &charges, 2));
    }
}

#[test]
fn observations_of_another_generation_are_invalid() {
    let (cache, space, quotas) = (DenialCache::new(), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1)];
    ask(&cache, &charges, 0, 1);
    let next = |local| CacheMoment { local, generation: 1 };
    assert!(cache.lookup(&charges, next(2)).is_none(), "the states may be lost");
    remember(&cache, cache.call_start(next(2)), &charges, next(3));
    assert!(cache.lookup(&charges, next(4)).is_some());
    // Sent before the data was lost, answered afterwards.
    let other = [charge(&space, "b", &quotas, 1)];
    remember(&cache, cache.call_start(at(0)), &other, next(5));
    assert!(cache.lookup(&other, next(6)).is_none() && cache.lookup(&other, at(6)).is_none());
}

#[test]
fn without_exchanges_an_observation_is_valid_for_a_second() {
    let (cache, space, quotas) = (DenialCache::new(), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1)];
    ask(&cache, &charges, 0, 1);
    assert!(is_denied(&cache, &charges, RENEWAL_AGE));
    assert!(!is_denied(&cache, &charges, RENEWAL_AGE + 1), "one request asks for news");
    assert!(is_denied(&cache, &charges, RENEWAL_AGE + 1) && is_denied(&cache, &charges, SECOND));
    assert!(!is_denied(&cache, &charges, SECOND + 1));
    cache.record_exchange(10 * SECOND);
    assert!(is_denied(&cache, &charges, 12 * SECOND));
    assert!(!is_denied(&cache, &charges, 12 * SECOND + 1));
    cache.record_exchange(20 * SECOND);
    assert!(is_denied(&cache, &charges, 20 * SECOND), "the exchange has reported all refunds");
}

#[test]
fn observations_from_the_future_are_invalid() {
    let (cache, space, quotas) = (DenialCache::new(), KeySpace::new("rule"), [fixed(1)]);
    let charges = [charge(&space, "a", &quotas, 1)];
    ask(&cache, &charges, SECOND, SECOND);
    assert!(!is_denied(&cache, &charges, SECOND - 1) && is_denied(&cache, &charges, SECOND));
}

#[test]
fn a_full_set_evicts_the_observation_that_ends_first() {
    let cache = DenialCache::of(ObservationTable::new(1), InvalidationClock::new(4096));
    let space = KeySpace::new("rule");
    let names: Vec<String> = (0..=WAYS).map(|number| number.to_string()).collect();
    let slower = |number| TokenBucket::new(1, Rate::new(1, Micros::from_secs(100 - number)).unwrap()).unwrap();
    let quotas: Vec<[Quota; 1]> = (0..=WAYS as u64).map(|number| [slower(number).into()]).collect();
    let charges = |index: usize| [charge(&space, &names[index], &quotas[index], 1)];
    for index in 0..WAYS {
        ask(&cache, &charges(index), 0, 1);
    }
    assert_eq!(cache.observed_keys(), WAYS);
    ask(&cache, &charges(WAYS), 0, 1);
    assert_eq!(cache.observed_keys(), WAYS);
    let observed_keys: Vec<usize> = (0..=WAYS).filter(|index| is_denied(&cache, &charges(*index), 2)).collect();
    assert_eq!(
        observed_keys,
        [0, 1, 2, 3, 4, 5, 6, 8],
        "all but the one with the shortest wait when room was needed"
    );
    // An invalid observation is evicted first.
    invalidate(&cache, &charges(0));
    ask(&cache, &charges(WAYS - 1), 3, 4);
    let observed_keys: Vec<usize> = (0..=WAYS).filter(|index| is_denied(&cache, &charges(*index), 5)).collect();
    assert_eq!(observed_keys, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn a_flood_of_denials_takes_bounded_memory() {
    let (cache, space, quotas) = (DenialCache::new(), KeySpace::new("rule"), [fixed(1)]);
    let call_start = cache.call_start(at(0));
    for number in 0..150_000 {
        remember(&cache, call_start, &[charge(&space, &number.to_string(), &quotas, 1)], at(1));
    }
    let most = table::SETS * WAYS;
    assert!(cache.observed_keys() <= most && cache.observed_keys() > most * 9 / 10, "{}", cache.observed_keys());
}
