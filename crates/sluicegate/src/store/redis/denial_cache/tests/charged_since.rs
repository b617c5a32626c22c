//! Charges by this process after a denial, in every order of replies.

use super::*;
use crate::store::redis::denial_cache::insert::PendingCharge;

/// A call with these charges, decided or denied at this server time.
struct Call {
    call_start: CallStart,
    states: Vec<Option<State>>,
    micros: u64,
}

/// A key with a bucket of ten, partly used.
struct World {
    cache: Arc<DenialCache>,
    space: KeySpace,
    quotas: [Quota; 1],
}

impl World {
    fn new() -> Self {
        let quotas = [TokenBucket::new(10, Rate::new(1, Micros::from_secs(3_600)).unwrap()).unwrap().into()];
        Self { cache: Arc::new(DenialCache::new()), space: KeySpace::new("rule"), quotas }
    }

    fn costing(&self, cost: u32) -> [Charge<'_>; 1] {
        [charge(&self.space, "x", &self.quotas, cost)]
    }

    fn used(&self, used: u32) -> Vec<Option<State>> {
        vec![self.quotas[0].charge(None, Cost::new(used), NOW)]
    }

    /// A call that finds this many units used, at this server time.
    fn send(&self, sent_at: LocalNanos, used: u32, micros: u64) -> Call {
        Call { call_start: self.cache.call_start(at(sent_at)), states: self.used(used), micros }
    }

    fn land(&self, call: Call, cost: u32, received_at: LocalNanos) {
        let charges = self.costing(cost);
        let decision = Decision { operation: Operation::Charge, times: 1, charges: &charges, states: call.states };
        let now = NOW.plus(Micros::from_micros(call.micros));
        answer(&self.cache, call.call_start, vec![decision], now, at(received_at), all);
    }

    /// The remaining quota in a denial of the whole cost.
    fn left(&self, local: LocalNanos) -> Option<u64> {
        Some(self.cache.lookup(&self.costing(10), at(local))?.verdicts[0].remaining)
    }
}

#[test]
fn a_charge_updates_observations_and_inserts_none() {
    let world = World::new();
    world.land(world.send(0, 0, 0), 1, 10);
    assert_eq!((world.left(20), world.cache.observed_keys()), (None, 0), "no client is denied");
    world.land(world.send(20, 1, 20), 10, 30);
    assert_eq!(world.left(40), Some(9));
    world.land(world.send(40, 1, 40), 3, 50);
    assert_eq!(world.left(60), Some(6));
}

#[test]
fn overtaking_calls_are_ordered_by_the_server() {
    let world = World::new();
    // A denial that was executed before a charge, and is answered after it.
    let (denial, charge) = (world.send(0, 2, 100), world.send(0, 2, 101));
    world.land(charge, 3, 10);
    world.land(denial, 10, 11);
    assert_eq!(world.left(12), None, "it may not be the latest");
    // A denial that was executed after the charge.
    let (charge, denial) = (world.send(20, 5, 200), world.send(20, 6, 201));
    world.land(denial, 10, 30);
    world.land(charge, 1, 31);
    assert_eq!(world.left(32), Some(4), "the charge is in it already");
    // Two charges.
    let (first, second) = (world.send(40, 6, 300), world.send(40, 7, 301));
    world.land(second, 1, 50);
    world.land(first, 1, 51);
    assert_eq!(world.left(52), Some(2));
    // The order of two calls in one microsecond is unknown.
    let (first, second) = (world.send(60, 8, 400), world.send(60, 9, 400));
    world.land(first, 1, 70);
    world.land(second, 1, 71);
    assert_eq!(world.left(72), None);
}

#[test]
fn a_charge_without_a_reply_removes_the_observation_and_rejects_older_replies() {
    let world = World::new();
    world.land(world.send(0, 4, 0), 10, 10);
    assert_eq!(world.left(20), Some(6));
    let denial = world.send(20, 4, 20);
    let keys = [world.costing(1)[0].key.digest()];
    drop(PendingCharge::new(Arc::clone(&world.cache), world.cache.call_start(at(20)), &keys));
    assert_eq!(world.left(30), None);
    world.land(denial, 10, 40);
    assert_eq!(world.left(50), None);
}

#[test]
fn the_last_decision_of_a_call_is_observed() {
    let world = World::new();
    world.land(world.send(0, 1, 0), 10, 10);
    assert_eq!(world.left(11), Some(9));
    let charges = [3, 2, 10].map(|cost| world.costing(cost));
    let states = [world.used(1), world.used(4), world.used(6)];
    let decisions = charges.iter().zip(states);
    let decision = |(charges, states)| Decision { operation: Operation::Charge, times: 1, charges, states };
    let decisions: Vec<Decision<'_>> =
        decisions.map(|(charges, states)| decision((&charges[..], states))).collect();
    let call_start = world.cache.call_start(at(20));
    answer(&world.cache, call_start, decisions, NOW.plus(Micros::from_micros(20)), at(30), all);
    assert_eq!(world.left(31), Some(4));
}

#[test]
fn a_key_that_a_decision_has_twice_is_not_cached() {
    let world = World::new();
    world.land(world.send(0, 1, 0), 10, 10);
    let [one] = world.costing(2);
    let other = charge(&world.space, "y", &world.quotas, 2);
    let states = [world.used(1), world.used(0), world.used(1)].concat();
    let decision = Decision { operation: Operation::Charge, times: 1, charges: &[one, other, one], states };
    let call_start = world.cache.call_start(at(20));
    answer(&world.cache, call_start, vec![decision], NOW.plus(Micros::from_micros(20)), at(30), all);
    assert_eq!(world.left(31), None);
}

/// Otherwise a server whose clock was set back would reject every observation until it has caught up.
#[test]
fn a_clock_step_back_rejects_observations_only_until_it_is_detected() {
    let world = World::new();
    world.land(world.send(0, 0, 1_000), 1, 10);
    let (charge, denial) = (world.send(20, 1, 2_000), world.send(20, 2, 5));
    world.land(charge, 1, 30);
    world.land(denial, 10, 31);
    assert_eq!(world.left(32), None);
    world.cache.invalidations.invalidate_all();
    let (charge, denial) = (world.send(40, 2, 6), world.send(40, 3, 7));
    world.land(charge, 1, 50);
    world.land(denial, 10, 51);
    assert_eq!(world.left(52), Some(7));
}

/// The other requests still use the old observation while one request refreshes it.
#[test]
fn one_request_refreshes_an_ageing_observation() {
    let world = World::new();
    world.land(world.send(0, 4, 0), 10, 10);
    let sent_at = (0..100).filter(|_| world.left(SECOND - 1).is_none()).count();
    assert_eq!(sent_at, 1);
    world.land(world.send(SECOND - 1, 5, 999_999), 10, SECOND);
    assert_eq!(world.left(SECOND + 1), Some(5));
}
