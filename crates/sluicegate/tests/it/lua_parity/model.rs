//! What must be in Redis: the core's functions over a plain map, down to bytes that are written and when they expire.

use super::value::{Kept, Place};
use sha2::{Digest, Sha256};
use sluicegate::core::decision::is_charged;
use sluicegate::core::{Outcome, Quota, State, Timestamp};
use sluicegate::store::{Charge, Verdicts};
use sluicegate_testkit::conformance::OperationKind;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000;

/// All keys by their name in Redis.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) keys: BTreeMap<String, Value>,
}

/// What is under a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Value {
    pub(crate) states: BTreeMap<Place, Kept>,
    /// How long it lives from when it was written, in milliseconds.
    pub(crate) expiry_millis: u64,
}

struct Limit<'a> {
    key: String,
    place: Place,
    quota: &'a Quota,
    charge: &'a Charge<'a>,
    at: Timestamp,
    phase: u64,
}

/// The name of a key of the default tenant's, for identifiers that need no escaping.
pub(crate) fn name(charge: &Charge<'_>) -> String {
    let Some(sluicegate::Identity::Named(identifier)) = charge.key.subject.identity else { panic!("a name") };
    format!("sg:1:{{{}:{identifier}}}:{}", charge.key.subject.tenant.unwrap(), charge.key.space.name())
}

fn limits<'a>(charges: &'a [Charge<'a>], now: Timestamp) -> Vec<Limit<'a>> {
    let of_charge = |charge: &'a Charge<'a>| {
        let key = name(charge);
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let seed = u64::from_be_bytes(hash[..8].try_into().unwrap());
        charge.quotas.iter().enumerate().map(move |(index, quota)| {
            let letter = ['b', 'l', 'c', 'f'][quota.algorithm_index()];
            let at = quota.aligned(now, seed);
            let phase = at.as_micros() - now.as_micros();
            Limit { key: key.clone(), place: (letter, index), quota, charge, at, phase }
        })
    };
    charges.iter().flat_map(of_charge).collect()
}

impl Model {
    pub(crate) fn run(&mut self, kind: OperationKind, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        let limits = limits(charges, now);
        match kind {
            OperationKind::Charge => self.charge(&limits, now),
            OperationKind::Peek => self.peek(&limits),
            OperationKind::Refund => self.refund(&limits, now),
            OperationKind::Reset => self.reset(&limits),
        }
    }

    fn state(&self, limit: &Limit<'_>) -> Option<State> {
        let (state, _) = self.keys.get(&limit.key)?.states.get(&limit.place)?;
        limit.quota.repaired(Some(state.clone()), limit.at)
    }

    fn charge(&mut self, limits: &[Limit<'_>], now: Timestamp) -> Verdicts {
        let outcomes = self.outcomes(limits);
        let votes = || limits.iter().zip(&outcomes).map(|(limit, outcome)| (limit.charge.group, *outcome));
        let after = |limit: &Limit<'_>| {
            let state = self.state(limit);
            let charged = is_charged(votes(), limit.charge.group);
            if charged { limit.quota.charge(state, limit.charge.cost, limit.at) } else { state }
        };
        let states: Vec<Option<State>> = limits.iter().map(after).collect();
        self.write(limits, states, now);
        self.verdicts(limits, &outcomes)
    }

    fn peek(&self, limits: &[Limit<'_>]) -> Verdicts {
        self.verdicts(limits, &self.outcomes(limits))
    }

    fn refund(&mut self, limits: &[Limit<'_>], now: Timestamp) -> Verdicts {
        let after = |limit: &Limit<'_>| limit.quota.refund(self.state(limit), limit.charge.cost, limit.at);
        let states: Vec<Option<State>> = limits.iter().map(after).collect();
        self.write(limits, states, now);
        self.peek(limits)
    }

    fn reset(&mut self, limits: &[Limit<'_>]) -> Verdicts {
        for limit in limits {
            self.keys.remove(&limit.key);
        }
        self.peek(limits)
    }

    fn outcomes(&self, limits: &[Limit<'_>]) -> Vec<Outcome> {
        let outcome =
            |limit: &Limit<'_>| limit.quota.outcome(self.state(limit).as_ref(), limit.charge.cost, limit.at);
        limits.iter().map(outcome).collect()
    }

    fn verdicts(&self, limits: &[Limit<'_>], outcomes: &[Outcome]) -> Verdicts {
        let verdict = |(limit, outcome): (&Limit<'_>, &Outcome)| {
            limit.quota.verdict(*outcome, self.state(limit).as_ref(), limit.at)
        };
        limits.iter().zip(outcomes).map(verdict).collect()
    }

    /// Writes the keys of which a state has changed; the others stay as they are, to the byte.
    fn write(&mut self, limits: &[Limit<'_>], states: Vec<Option<State>>, now: Timestamp) {
        let mut written: BTreeMap<&str, Vec<(&Limit<'_>, Option<State>)>> = BTreeMap::new();
        for (limit, state) in limits.iter().zip(states) {
            written.entry(&limit.key).or_default().push((limit, state));
        }
        for (key, limits) in written {
            let before = self.keys.get(key).cloned().unwrap_or_default();
            let stored = |place| before.states.get(place).map(|(state, _)| state);
            if limits.iter().all(|(limit, state)| stored(&limit.place) == state.as_ref()) {
                continue;
            }
            let value = rewritten(before, limits, now);
            if value.states.is_empty() {
                self.keys.remove(key);
            } else {
                self.keys.insert(key.to_owned(), value);
            }
        }
    }
}

fn rewritten(mut value: Value, limits: Vec<(&Limit<'_>, Option<State>)>, now: Timestamp) -> Value {
    // What nobody asked for goes a second after it ceased to matter.
    let is_live = |place: &Place, kept: u64| {
        limits.iter().any(|(limit, _)| limit.place == *place) || kept + SECOND >= now.as_micros()
    };
    value.states.retain(|place, (_, kept)| is_live(place, *kept));
    let mut last = value
        .states
        .iter()
        .filter(|(place, _)| limits.iter().all(|(limit, _)| limit.place != **place))
        .map(|(_, (_, kept))| *kept)
        .max()
        .unwrap_or(0);
    for (limit, state) in limits {
        match state {
            Some(state) if !is_empty(&state) => {
                // A limit with a phase lives in a time of its own.
                last = last.max(limit.quota.kept_until(&state).as_micros().saturating_sub(limit.phase));
                let kept = said(limit, &state);
                value.states.insert(limit.place, (state, kept));
            }
            _ => {
                value.states.remove(&limit.place);
            }
        }
    }
    value.expiry_millis = last.saturating_sub(now.as_micros()).div_ceil(1_000) + 1_000;
    value
}

fn is_empty(state: &State) -> bool {
    matches!(state, State::SlidingWindow(log) if log.entry_count() == 0)
}

/// Until when a record says that it matters, for calls that know nothing of its limit.
fn said(limit: &Limit<'_>, state: &State) -> u64 {
    let window = limit.quota.window().as_micros();
    match state {
        State::TokenBucket(state) => state.kept_until_micros,
        State::FixedWindow(state) => state.end.as_micros().saturating_sub(limit.phase),
        State::SlidingCounter(state) => state.end.as_micros() + window,
        State::SlidingWindow(log) => log.entries().last().unwrap().at.as_micros() + window,
        _ => panic!("another algorithm"),
    }
}
