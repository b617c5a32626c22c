//! Settlement of deferred charges: a background task that charges them to the server.

use super::{DeferredCharge, Planned, planned_of};
use crate::store::key::Digest;
use crate::store::redis::client::call::LatePolicy;
use crate::store::redis::client::error::Executed;
use crate::store::redis::client::transport::Transport;
use crate::store::redis::protocol::arguments::ScriptInput;
use crate::store::redis::protocol::planned_charge::PlannedCharge;
use crate::store::redis::protocol::scripts;
use crate::store::redis::shared::SharedStore;
use crate::store::{Charge, StoreError};
use futures_util::stream::{StreamExt as _, iter};
use sluicegate_core::Timestamp;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long charges are gathered before they are sent.
const GATHER_TIME: Duration = Duration::from_millis(50);
/// The most charges in one call. More would delay other calls, because the server executes one script at a time.
const PER_CALL_MAX: usize = 64;
/// The most concurrent calls.
const CALLS_MAX: usize = 2;
/// The timeout of a call. No client waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Defers the charges of a request that was admitted without the server, because of `error`. Usage that the server may
/// have charged is only counted.
pub(crate) fn defer<T>(store: &SharedStore<T>, charges: &[Charge<'_>], error: &mut StoreError) {
    let fate = error.fate.take();
    let is_uncertain = error.may_have_charged && fate.is_none();
    let mut planned: SmallVec<[Planned; 1]> = SmallVec::new();
    for charge in charges.iter().filter(|charge| !charge.cost.is_zero() && !charge.quotas.is_empty()) {
        let charge = PlannedCharge::new(&store.encoder, charge);
        if is_uncertain {
            store.deferred.count_unknown(&charge, 1);
            planned.extend(charge.without_usage().map(planned_of));
        } else {
            planned.push(planned_of(charge));
        }
    }
    store.deferred.add(fate, planned);
}

/// Settles deferred charges forever.
pub(crate) async fn settle_forever<T: Transport>(store: Arc<SharedStore<T>>) {
    loop {
        store.deferred.added.notified().await;
        while !store.deferred.is_empty() {
            sleep(GATHER_TIME).await;
            settle(&store).await;
        }
    }
}

/// Sends all charges that can be settled now.
async fn settle<T: Transport>(store: &SharedStore<T>) {
    let mut routes: BTreeMap<usize, Vec<(Digest, DeferredCharge)>> = BTreeMap::new();
    for (digest, owed) in store.deferred.take(Instant::now()) {
        let route = store.transport.route_of(&owed.charge.key);
        routes.entry(route).or_default().push((digest, owed));
    }
    let mut calls = Vec::new();
    for mut deferred in routes.into_values() {
        while !deferred.is_empty() {
            let rest = deferred.split_off(deferred.len().min(PER_CALL_MAX));
            calls.push(std::mem::replace(&mut deferred, rest));
        }
    }
    iter(calls).for_each_concurrent(CALLS_MAX, |deferred| settle_in_one_call(store, deferred)).await;
    store.deferred.settled();
}

async fn settle_in_one_call<T: Transport>(store: &SharedStore<T>, deferred: Vec<(Digest, DeferredCharge)>) {
    let charges: Vec<(Arc<PlannedCharge>, u32)> =
        deferred.iter().map(|(_, owed)| (Arc::clone(&owed.charge), owed.times)).collect();
    let mut input = ScriptInput::new(&store.encoder, store.calendar_clock.estimate(Timestamp::default()));
    charges.iter().for_each(|(charge, times)| input.force_planned(*times, from_ref(&**charge)));
    let late_policy = LatePolicy { waiter_count: Some(&store.waiter_count), keep_waiting: None };
    let result = store.execute(&scripts::CHARGE, &mut input, Instant::now() + TIMEOUT, late_policy).await;
    match result {
        Ok(_) => {}
        Err(error) if error.executed == Executed::No => store.deferred.put_back(deferred),
        // Charges that may have been made are not made again.
        Err(_) => deferred.iter().for_each(|(_, owed)| store.deferred.count_unknown(&owed.charge, owed.times)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use crate::identity::Identity;
    use crate::store::memory::MemoryOptions;
    use crate::store::redis::{KeyEncoder, RedisStore};
    use crate::store::{ErrorClass, Fate, Key, KeySpace, LateOutcome, Store as _, Subject};
    use sluicegate_core::decision::ChargeMode;
    use sluicegate_core::{
        Align, Cost, FixedWindow, Micros, Quota, Rate, SlidingCounter, SlidingWindow, TokenBucket,
    };
    use sluicegate_testkit::redis_server::RedisServer;

    const PATIENCE: Duration = Duration::from_secs(20);
    const DAY: Micros = Micros::from_secs(86_400);

    fn charge<'a>(space: &'a KeySpace, name: &'a str, quotas: &'a [Quota], cost: u32) -> Charge<'a> {
        let subject = Subject { tenant: None, identity: Some(Identity::Named(name)), address: None };
        let key = Key { space, subject };
        Charge { key, quotas, cost: Cost::new(cost), mode: ChargeMode::Enforced, lease: None, usage: Cost::ZERO }
    }

    fn overload(fate: Option<Option<LateOutcome>>) -> StoreError {
        let error = StoreError::new(ErrorClass::Overloaded, "as requested");
        StoreError { fate: fate.map(|fate| Fate::new(move || fate)), ..error }
    }

    async fn start(server: &RedisServer) -> RedisStore {
        let store = RedisStore::start(&server.url().parse().unwrap(), KeyEncoder::default()).unwrap();
        store.ready(PATIENCE).await.unwrap();
        store
    }

    async fn until_settled(store: &RedisStore) {
        let started = Instant::now();
        while !store.shared.deferred.is_empty() {
            assert!(started.elapsed() < PATIENCE);
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn remaining(store: &RedisStore, charge: &Charge<'_>) -> u64 {
        let probe = [Charge { cost: Cost::ONE, ..*charge }];
        store.peek(&probe, Timestamp::default(), PATIENCE).await.unwrap().verdicts[0].remaining
    }

    /// The result is that of the core's `force` in the embedded store.
    #[tokio::test]
    async fn deferred_charges_are_charged_even_if_they_do_not_fit() {
        let server = RedisServer::start();
        let store = start(&server).await;
        let bucket = || TokenBucket::new(6, Rate::new(1, Micros::from_secs(3_600)).unwrap()).unwrap();
        let thirds = TokenBucket::new(6, Rate::new(3, Micros::from_micros(10_000_000_007)).unwrap()).unwrap();
        let shared: Quota = bucket().on_shared_state().into();
        let quotas: [Quota; 6] = [
            bucket().into(),
            thirds.into(),
            shared,
            FixedWindow::new(6, DAY, Align::Epoch).unwrap().into(),
            SlidingCounter::new(6, DAY).unwrap().into(),
            SlidingWindow::new(6, DAY).unwrap().into(),
        ];
        let space = KeySpace::new("rule");
        for (number, quota) in quotas.iter().enumerate() {
            let quotas = from_ref(quota);
            for (passed, left) in [(2, 2), (3, 0), (5, 0)] {
                let (name, core) =
                    (format!("n{number}-{passed}"), MemoryStore::new(MemoryOptions::default(), Timestamp::now(1)));
                let charge = charge(&space, &name, quotas, 2);
                for _ in 0..passed {
                    store.charge_later(&[charge], &mut overload(None));
                    core.force_now(&[charge], Timestamp::now(1));
                }
                until_settled(&store).await;
                let by_core =
                    core.peek_now(&[Charge { cost: Cost::ONE, ..charge }], Timestamp::now(1))[0].remaining;
                assert_eq!((remaining(&store, &charge).await, by_core), (left, left), "{quota:?} {passed}");
                // The first refund does not restore units that were deferred beyond the limit.
                store.refund(&[charge], Timestamp::default(), PATIENCE).await.unwrap();
                core.refund_now(&[charge], Timestamp::now(1));
                let by_core =
                    core.peek_now(&[Charge { cost: Cost::ONE, ..charge }], Timestamp::now(1))[0].remaining;
                assert_eq!(remaining(&store, &charge).await, by_core, "{quota:?} {passed}");
            }
        }
        assert_eq!(store.damaged_values(), 0);
    }

    #[tokio::test]
    async fn a_late_charge_is_not_deferred() {
        let server = RedisServer::start();
        let store = start(&server).await;
        let quotas = [Quota::from(FixedWindow::new(6, DAY, Align::Epoch).unwrap())];
        let space = KeySpace::new("rule");
        for (name, fate, left) in [
            ("yes", Some(LateOutcome::Charged), 6),
            ("denied", Some(LateOutcome::Denied), 5),
            ("no", Some(LateOutcome::Failed), 5),
            ("unknown", None, 5),
        ] {
            let charge = charge(&space, name, &quotas, 1);
            store.charge_later(&[charge], &mut overload(Some(fate)));
            until_settled(&store).await;
            assert_eq!(remaining(&store, &charge).await, left, "{name}");
        }
    }

    /// A server that is restarted late receives the charges then.
    #[tokio::test]
    async fn deferred_charges_survive_an_outage_of_the_server() {
        let server = RedisServer::start();
        let store = start(&server).await;
        let quotas = [Quota::from(FixedWindow::new(6, DAY, Align::Epoch).unwrap())];
        let space = KeySpace::new("rule");
        let charge = charge(&space, "x", &quotas, 2);
        server.kill();
        while store.peek(&[charge], Timestamp::default(), GATHER_TIME).await.is_ok() {}
        store.charge_later(&[charge], &mut overload(None));
        server.restart_empty();
        until_settled(&store).await;
        assert_eq!(remaining(&store, &charge).await, 4);
    }
}
