//! A store too simple to be wrong: one map, one lock, the core's own functions. It does not pack, sweep or bound
//! anything. Real stores are compared with it.

use sluicegate::core::decision::{is_charged, joint_wait};
use sluicegate::core::{Outcome, Quota, State, Timestamp};
use sluicegate::store::{Charge, Reply, Store, StoreError, Verdicts};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The simplest store.
#[derive(Debug, Default)]
pub struct ReferenceStore {
    states: Mutex<States>,
}

/// By the full key, the index of the limit under it, and the algorithm.
type States = HashMap<Place, State>;
type Place = (String, usize, &'static str);

struct Limit<'a> {
    place: Place,
    quota: &'a Quota,
    charge: &'a Charge<'a>,
}

impl ReferenceStore {
    fn states(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let mut states = self.states();
        let limits = limits(charges);
        let outcomes = outcomes(&states, &limits, now);
        let votes = || limits.iter().zip(&outcomes).map(|(limit, outcome)| (limit.charge.mode, *outcome));
        for limit in &limits {
            let state = limit.quota.repaired(states.get(&limit.place).cloned(), now);
            let charged = is_charged(votes(), limit.charge.mode);
            let state = match charged {
                true => limit.quota.charge(state, limit.charge.cost, now),
                false => limit.quota.force(state, limit.charge.usage, now),
            };
            keep(&mut states, &limit.place, state);
        }
        verdicts(&states, &limits, &outcomes, now)
    }

    fn peek_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let states = self.states();
        let limits = limits(charges);
        verdicts(&states, &limits, &outcomes(&states, &limits, now), now)
    }

    fn refund_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        for limit in limits(charges) {
            let mut states = self.states();
            let state = limit.quota.repaired(states.get(&limit.place).cloned(), now);
            let state = limit.quota.refund(state, limit.charge.cost, now);
            keep(&mut states, &limit.place, state);
        }
        self.peek_now(charges, now)
    }

    fn report_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        for limit in limits(charges) {
            let mut states = self.states();
            let state = limit.quota.repaired(states.get(&limit.place).cloned(), now);
            let state = limit.quota.force(state, limit.charge.cost, now);
            keep(&mut states, &limit.place, state);
        }
        self.peek_now(charges, now)
    }

    fn reset_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        for charge in charges {
            let name = name(charge);
            self.states().retain(|(key, ..), _| *key != name);
        }
        self.peek_now(charges, now)
    }
}

fn name(charge: &Charge<'_>) -> String {
    format!("{} {:?} {:?}", charge.key.space.name(), charge.key.space.set(), charge.key.subject)
}

fn limits<'a>(charges: &'a [Charge<'a>]) -> Vec<Limit<'a>> {
    let of_charge = |charge: &'a Charge<'a>| {
        let limit = move |(index, quota): (usize, &'a Quota)| Limit {
            place: (name(charge), index, quota.algorithm()),
            quota,
            charge,
        };
        charge.quotas.iter().enumerate().map(limit)
    };
    charges.iter().flat_map(of_charge).collect()
}

fn keep(states: &mut States, place: &Place, state: Option<State>) {
    match state {
        Some(state) => states.insert(place.clone(), state),
        None => states.remove(place),
    };
}

fn outcomes(states: &States, limits: &[Limit<'_>], now: Timestamp) -> Vec<Outcome> {
    let outcome = |limit: &Limit<'_>| {
        let state = limit.quota.repaired(states.get(&limit.place).cloned(), now);
        limit.quota.outcome(state.as_ref(), limit.charge.cost, now)
    };
    let outcomes: Vec<Outcome> = limits.iter().map(outcome).collect();
    let votes = limits.iter().zip(&outcomes).map(|(limit, outcome)| (limit.charge.mode, *outcome));
    let Some(wait) = joint_wait(votes) else { return outcomes };
    let after = |(limit, outcome): (&Limit<'_>, &Outcome)| {
        let state = limit.quota.repaired(states.get(&limit.place).cloned(), now);
        limit.quota.outcome_after_waiting(*outcome, state.as_ref(), limit.charge.cost, now, wait)
    };
    limits.iter().zip(&outcomes).map(after).collect()
}

fn verdicts(states: &States, limits: &[Limit<'_>], outcomes: &[Outcome], now: Timestamp) -> Verdicts {
    let verdict = |(limit, outcome): (&Limit<'_>, &Outcome)| {
        let state = limit.quota.repaired(states.get(&limit.place).cloned(), now);
        limit.quota.verdict(*outcome, state.as_ref(), now)
    };
    limits.iter().zip(outcomes).map(verdict).collect()
}

impl Store for ReferenceStore {
    async fn charge(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now, verdicts: self.charge_now(charges, now) })
    }

    async fn peek(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now, verdicts: self.peek_now(charges, now) })
    }

    async fn refund(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now, verdicts: self.refund_now(charges, now) })
    }

    async fn report(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now, verdicts: self.report_now(charges, now) })
    }

    async fn reset(&self, charges: &[Charge<'_>], now: Timestamp, _: Duration) -> Result<Reply, StoreError> {
        Ok(Reply { now, verdicts: self.reset_now(charges, now) })
    }
}
