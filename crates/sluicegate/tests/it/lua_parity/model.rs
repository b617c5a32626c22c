//! The expected content of Redis: the core's functions over a plain map, down to bytes and expiries.

use super::value::{Kept, Place};
use sha2::{Digest, Sha256};
use sluicegate::core::algorithm::fixed_window::FixedWindowState;
use sluicegate::core::algorithm::sliding_counter::SlidingCounterState;
use sluicegate::core::algorithm::sliding_window::{Entry, SlidingWindowState};
use sluicegate::core::algorithm::token_bucket::TokenBucketState;
use sluicegate::core::decision::{is_charged, joint_wait};
use sluicegate::core::{Algorithm, Micros, Outcome, Quota, State, Timestamp};
use sluicegate::store::{Charge, Verdicts};
use sluicegate_testkit::conformance::OperationKind;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

const SECOND: u64 = 1_000_000;

/// All keys by their name in Redis.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) keys: BTreeMap<String, Value>,
    /// Keys with an unreadable value.
    pub(crate) damaged: BTreeSet<String>,
    /// How many such values were met so far.
    pub(crate) damage_met: u64,
}

/// The value of a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Value {
    pub(crate) states: BTreeMap<Place, Kept>,
    /// The time to live from the write on, in milliseconds.
    pub(crate) expiry_millis: u64,
}

#[derive(Clone)]
struct Limit<'a> {
    key: String,
    place: Place,
    quota: &'a Quota,
    charge: &'a Charge<'a>,
    at: Timestamp,
    phase: u64,
}

/// The name of a key of the default tenant, for identifiers without escapes.
pub(crate) fn name(charge: &Charge<'_>) -> String {
    let Some(sluicegate::Identity::Named(identifier)) = charge.key.subject.identity else { panic!("a name") };
    format!("sg:1:{{{}:{identifier}}}:{}", charge.key.subject.tenant.unwrap(), charge.key.space.name())
}

impl Limit<'_> {
    fn is_at(&self, other: &Limit<'_>) -> bool {
        (&self.key, self.place) == (&other.key, other.place)
    }
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
    /// One decision in a call of its own.
    pub(crate) fn run(&mut self, kind: OperationKind, charges: &[Charge<'_>], now: Timestamp) -> Verdicts {
        self.call(kind, &[(NonZeroU32::MIN, charges.to_vec())], now).remove(0).remove(0)
    }

    /// All decisions of one call with their repetitions. Returns the verdicts of each.
    pub(crate) fn call(
        &mut self,
        kind: OperationKind,
        decisions: &[(NonZeroU32, Vec<Charge<'_>>)],
        now: Timestamp,
    ) -> Vec<Vec<Verdicts>> {
        let keys: BTreeSet<String> = decisions.iter().flat_map(|(_, charges)| charges).map(name).collect();
        self.damage_met += keys.intersection(&self.damaged).count() as u64;
        if matches!(kind, OperationKind::Reset) {
            self.forget(&keys);
        }
        let mut call = Call { model: self, sent: Vec::new(), changed: BTreeSet::new() };
        let mut verdicts = Vec::new();
        for (times, charges) in decisions {
            let limits = limits(charges, now);
            verdicts.push((0..times.get()).map(|_| call.run(kind, &limits)).collect());
        }
        let Call { sent, changed, .. } = call;
        self.write(sent, &changed, now);
        verdicts
    }

    /// Writes an unreadable value.
    pub(crate) fn damage(&mut self, key: String) {
        self.keys.remove(&key);
        self.damaged.insert(key);
    }

    fn forget(&mut self, keys: &BTreeSet<String>) {
        for key in keys {
            self.keys.remove(key);
            self.damaged.remove(key);
        }
    }

    /// Writes the keys with a changed state; the others keep every byte.
    fn write(&mut self, sent: Vec<(Limit<'_>, Option<State>)>, changed: &BTreeSet<String>, now: Timestamp) {
        for key in changed {
            let limits = sent.iter().filter(|(limit, _)| limit.key == *key).cloned().collect();
            let before = self.keys.remove(key).unwrap_or_default();
            self.damaged.remove(key);
            let value = rewritten(before, limits, now);
            if !value.states.is_empty() {
                self.keys.insert(key.clone(), value);
            }
        }
    }
}

/// A call: it writes the result of its last decision, by the limits that used each state last.
struct Call<'m, 'a> {
    model: &'m Model,
    sent: Vec<(Limit<'a>, Option<State>)>,
    /// Keys with a changed state, even if it changed back.
    changed: BTreeSet<String>,
}

impl<'a> Call<'_, 'a> {
    fn run(&mut self, kind: OperationKind, limits: &[Limit<'a>]) -> Verdicts {
        let outcomes = self.outcomes(limits);
        match kind {
            OperationKind::Charge => {
                let votes = || limits.iter().zip(&outcomes).map(|(limit, outcome)| (limit.charge.mode, *outcome));
                self.change(limits, |limit, state| {
                    let charged = is_charged(votes(), limit.charge.mode);
                    match charged {
                        true => limit.quota.charge(state, limit.charge.cost, limit.at),
                        false => limit.quota.force(state, limit.charge.usage, limit.at),
                    }
                });
                self.verdicts(limits, &outcomes)
            }
            OperationKind::Report => {
                self.change(limits, |limit, state| limit.quota.force(state, limit.charge.cost, limit.at));
                self.verdicts(limits, &self.outcomes(limits))
            }
            OperationKind::Refund => {
                self.change(limits, |limit, state| limit.quota.refund(state, limit.charge.cost, limit.at));
                self.verdicts(limits, &self.outcomes(limits))
            }
            OperationKind::Peek | OperationKind::Reset => self.verdicts(limits, &outcomes),
        }
    }

    fn change(&mut self, limits: &[Limit<'a>], after: impl Fn(&Limit<'a>, Option<State>) -> Option<State>) {
        for limit in limits {
            let state = after(limit, self.state(limit));
            if state != self.left(limit) {
                self.changed.insert(limit.key.clone());
            }
            self.sent.retain(|(before, _)| !before.is_at(limit));
            self.sent.push((limit.clone(), state));
        }
    }

    /// The state after the last decision, if it is readable.
    fn left(&self, limit: &Limit<'_>) -> Option<State> {
        if let Some((_, state)) = self.sent.iter().find(|(before, _)| before.is_at(limit)) {
            return state.clone();
        }
        self.model.keys.get(&limit.key)?.states.get(&limit.place).map(|(state, _)| state.clone())
    }

    fn state(&self, limit: &Limit<'_>) -> Option<State> {
        let is_damaged = self.model.damaged.contains(&limit.key);
        let is_first = || self.sent.iter().all(|(before, _)| !before.is_at(limit));
        let state = if is_damaged && is_first() { Some(drained(limit)) } else { self.left(limit) };
        limit.quota.repaired(state, limit.at)
    }

    fn outcomes(&self, limits: &[Limit<'_>]) -> Vec<Outcome> {
        let outcome =
            |limit: &Limit<'_>| limit.quota.outcome(self.state(limit).as_ref(), limit.charge.cost, limit.at);
        let outcomes: Vec<Outcome> = limits.iter().map(outcome).collect();
        let votes = limits.iter().zip(&outcomes).map(|(limit, outcome)| (limit.charge.mode, *outcome));
        let Some(wait) = joint_wait(votes) else { return outcomes };
        let after = |(limit, outcome): (&Limit<'_>, &Outcome)| {
            let (state, cost) = (self.state(limit), limit.charge.cost);
            limit.quota.outcome_after_waiting(*outcome, state.as_ref(), cost, limit.at, wait)
        };
        limits.iter().zip(&outcomes).map(after).collect()
    }

    fn verdicts(&self, limits: &[Limit<'_>], outcomes: &[Outcome]) -> Verdicts {
        let verdict = |(limit, outcome): (&Limit<'_>, &Outcome)| {
            limit.quota.verdict(*outcome, self.state(limit).as_ref(), limit.at)
        };
        limits.iter().zip(outcomes).map(verdict).collect()
    }
}

fn rewritten(mut value: Value, limits: Vec<(Limit<'_>, Option<State>)>, now: Timestamp) -> Value {
    // A state that no limit used is dropped a second after it stops mattering.
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
                // A limit with a phase has a time scale of its own.
                last = last.max(limit.quota.kept_until(&state).as_micros().saturating_sub(limit.phase));
                let kept = said(&limit, &state);
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

/// The state of a limit with an unreadable stored state.
fn drained(limit: &Limit<'_>) -> State {
    let (units, at) = (limit.quota.limit(), limit.at.as_micros());
    let end = |window: Micros| Timestamp::from_micros((at / window.as_micros() + 1) * window.as_micros());
    match limit.quota {
        Quota::TokenBucket(bucket) => {
            let per_micro = u128::from(bucket.parts_per_micro());
            let parts_of = |tokens: u64| u128::from(tokens) * u128::from(bucket.parts_per_token());
            // Empty now: the capacity is restored after the first of these, the credits after the second.
            let (parts, whole) = (parts_of(bucket.capacity()), parts_of(units));
            let tat_micros = at + (parts / per_micro) as u64;
            let kept_until_micros = at + whole.div_ceil(per_micro) as u64;
            let ttl = if bucket.credits() > 0 { bucket.credit_ttl().as_micros() } else { 0 };
            State::TokenBucket(TokenBucketState {
                tat_micros,
                tat_parts: (parts % per_micro) as u64,
                parts_per_micro: bucket.parts_per_micro(),
                kept_until_micros: kept_until_micros.max(at + ttl),
            })
        }
        Quota::SlidingWindow(_) => {
            let entry = Entry { at: limit.at, units: units as u32 };
            State::SlidingWindow(SlidingWindowState::from_entries([entry]))
        }
        Quota::SlidingCounter(counter) => {
            let end = end(counter.window());
            State::SlidingCounter(SlidingCounterState { previous: 0, current: units, end })
        }
        Quota::FixedWindow(window) => {
            let calendar = window.calendar().map(|calendar| calendar.after(limit.at));
            let end = calendar.unwrap_or_else(|| end(window.window()));
            State::FixedWindow(FixedWindowState { count: units, end })
        }
        _ => panic!("another algorithm"),
    }
}

fn is_empty(state: &State) -> bool {
    matches!(state, State::SlidingWindow(log) if log.entry_count() == 0)
}

/// Until when a record matters, for calls that do not know its limit.
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
