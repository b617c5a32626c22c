//! Candidates for one limit of a rule: the limit in many sizes, each with a state of its own.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use sluicegate::MemoryStore;
use sluicegate::core::decision::ChargeMode;
use sluicegate::core::{Quota, Timestamp};
use sluicegate::identity::Identity;
use sluicegate::observe::DecisionEvent;
use sluicegate::rules::file::Environment;
use sluicegate::store::Charge;
use sluicegate::store::memory::MemoryOptions;

use super::rule_text::{LimitValues, RuleTexts};
use super::{CandidateResult, DenialTargets, Suggestion, knee};
use crate::cli::format;

/// The factors for the limits of windows, as numerator and denominator: steps of two with a step of one and a half between.
const WINDOW_SCALE: [(u64, u64); 24] = [
    (1, 32),
    (3, 64),
    (1, 16),
    (3, 32),
    (1, 8),
    (3, 16),
    (1, 4),
    (3, 8),
    (1, 2),
    (3, 4),
    (1, 1),
    (3, 2),
    (2, 1),
    (3, 1),
    (4, 1),
    (6, 1),
    (8, 1),
    (12, 1),
    (16, 1),
    (24, 1),
    (32, 1),
    (48, 1),
    (64, 1),
    (96, 1),
];
/// The factors for the rates and the bursts of token buckets. All combinations are tested.
const RATE_SCALE: [(u64, u64); 8] = [(1, 8), (1, 4), (1, 2), (1, 1), (2, 1), (4, 1), (8, 1), (16, 1)];
const BURST_SCALE: [(u64, u64); 4] = [(1, 4), (1, 1), (4, 1), (16, 1)];
/// The bits per identity, one for every size that denied it.
const SIZES_MAX: usize = 32;
const _: () = assert!(WINDOW_SCALE.len() <= SIZES_MAX && RATE_SCALE.len() * BURST_SCALE.len() <= SIZES_MAX);

/// The most identities whose denials are counted separately.
const IDENTITIES_MAX: usize = 1_000_000;
/// The shards of a store that a single thread uses.
const SHARDS: usize = 64;
/// The charges between two sweeps of the stores, and the steps per sweep.
const CHARGES_PER_SWEEP: u64 = 1_024;
const STEPS_PER_SWEEP: usize = 32;

/// The candidates for one limit.
#[derive(Debug)]
pub(super) struct CandidateLimits {
    rule: usize,
    limit: usize,
    candidates: Vec<Candidate>,
    requests: u64,
    /// By the hash of an identity, a bit for every candidate that denied it.
    denied_by: HashMap<u64, u32, foldhash::fast::FixedState>,
    hasher: foldhash::fast::FixedState,
}

/// One size of a limit.
#[derive(Debug)]
struct Candidate {
    values: Vec<(&'static str, String)>,
    /// The size, for sorting.
    measure: u128,
    is_current: bool,
    /// Whether it belongs to the curve on which the knee is searched.
    is_on_curve: bool,
    quota: Quota,
    store: MemoryStore,
    denied: u64,
}

impl CandidateLimits {
    /// The candidates for one limit; `None` if its numbers are not plain numbers in the file.
    pub(super) fn new(
        rule: usize,
        limit: usize,
        texts: &RuleTexts,
        environment: &Environment,
        now: Timestamp,
    ) -> Option<Self> {
        let mut candidates: Vec<Candidate> = Vec::new();
        for (values, measure, is_current, is_on_curve) in plans(&texts.limit_values(rule, limit)?) {
            if candidates.iter().any(|candidate| candidate.values == values) {
                continue;
            }
            let read = || {
                let text = texts.with_limit(rule, limit, &values)?;
                let rules = texts.parsed(&text, environment)?;
                rules.rules().first()?.limits.quotas().get(limit).cloned()
            };
            // A size outside the bounds of a limit is skipped.
            let Some(quota) = read() else { continue };
            let options = MemoryOptions { shards: SHARDS, ..MemoryOptions::default() };
            let store = MemoryStore::new(options, now);
            candidates.push(Candidate { values, measure, is_current, is_on_curve, quota, store, denied: 0 });
        }
        let (denied_by, hasher) = (HashMap::default(), foldhash::fast::FixedState::default());
        Some(Self { rule, limit, candidates, requests: 0, denied_by, hasher })
    }

    pub(super) fn rule(&self) -> usize {
        self.rule
    }

    /// Charges all candidates, each as if it were the only limit.
    pub(super) fn charge(&mut self, charge: &Charge<'_>, decided: &DecisionEvent<'_>) {
        self.requests += 1;
        let now = decided.asked_at;
        let is_sweep = self.requests.is_multiple_of(CHARGES_PER_SWEEP);
        let mut mask: u32 = 0;
        for (index, candidate) in self.candidates.iter_mut().enumerate() {
            let quotas = std::slice::from_ref(&candidate.quota);
            let alone = Charge { quotas, mode: ChargeMode::Enforced, lease: None, ..*charge };
            let verdicts = candidate.store.charge_now(&[alone], now);
            let is_denied = verdicts.iter().any(|verdict| !verdict.outcome.is_allowed());
            candidate.denied += u64::from(is_denied);
            mask |= u32::from(is_denied) << index;
            if is_sweep {
                candidate.store.sweep(now, STEPS_PER_SWEEP);
            }
        }
        let identity = match decided.request.identity {
            Identity::Named(name) | Identity::Claimed(name) => {
                self.hasher.hash_one((decided.request.tenant, name))
            }
            Identity::Address(address) => self.hasher.hash_one(address),
        };
        if let Some(denied) = self.denied_by.get_mut(&identity) {
            *denied |= mask;
        } else if self.denied_by.len() < IDENTITIES_MAX {
            self.denied_by.insert(identity, mask);
        }
    }

    pub(super) fn suggestion(&self, texts: &RuleTexts, targets: DenialTargets) -> Suggestion {
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        order.sort_by_key(|index| self.candidates[*index].measure);
        let result = |index: &usize| {
            let candidate = &self.candidates[*index];
            let identities = self.denied_by.values().filter(|mask| **mask >> *index & 1 == 1).count() as u64;
            let texts: Vec<String> =
                candidate.values.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            CandidateResult {
                limit: texts.join(", "),
                denied: candidate.denied,
                identities_denied: identities,
                is_current: candidate.is_current,
                is_knee: false,
                is_suggested: false,
            }
        };
        let mut table: Vec<CandidateResult> = order.iter().map(result).collect();
        let identities = self.denied_by.len() as u64;
        let suggested = targets.first_within(&table, self.requests, identities);
        let curve: Vec<usize> = (0..table.len()).filter(|row| self.candidates[order[*row]].is_on_curve).collect();
        let denied: Vec<u64> = curve.iter().map(|row| table[*row].denied).collect();
        if let Some(knee) = knee(&denied) {
            table[curve[knee]].is_knee = true;
        }
        let yaml = suggested.and_then(|row| {
            table[row].is_suggested = true;
            texts.with_limit(self.rule, self.limit, &self.candidates[order[row]].values)
        });
        let rule = texts.name(self.rule);
        Suggestion { rule, limit: self.limit, requests: self.requests, identities, table, yaml }
    }
}

/// The fields of a [`Candidate`]: values, size, whether it is the current limit, and whether it is on the curve of the knee.
type CandidatePlan = (Vec<(&'static str, String)>, u128, bool, bool);

fn plans(values: &LimitValues) -> Vec<CandidatePlan> {
    match *values {
        LimitValues::Window { limit } => WINDOW_SCALE
            .iter()
            .map(|scale| {
                let scaled = scaled(limit.max(1), *scale);
                let is_current = *scale == (1, 1);
                let scaled = if is_current { limit } else { scaled };
                (vec![("limit", scaled.to_string())], u128::from(scaled), is_current, true)
            })
            .collect(),
        LimitValues::Bucket { capacity, tokens, micros } => RATE_SCALE
            .iter()
            .flat_map(|rate| BURST_SCALE.iter().map(move |burst| (*rate, *burst)))
            .map(|(rate, burst)| {
                let capacity = scaled(capacity, burst);
                let (tokens, micros) = (tokens.saturating_mul(rate.0), micros.saturating_mul(rate.1));
                let values = vec![("capacity", capacity.to_string()), ("refill", format::rate(tokens, micros))];
                // Burst times rate, relative to the current limit.
                let measure = u128::from(burst.0 * 64 / burst.1) * u128::from(rate.0 * 64 / rate.1) * 64
                    + u128::from(rate.0 * 8 / rate.1);
                (values, measure, rate == (1, 1) && burst == (1, 1), burst == (1, 1))
            })
            .collect(),
    }
}

fn scaled(number: u64, (numerator, denominator): (u64, u64)) -> u64 {
    (number.saturating_mul(numerator) / denominator).max(1)
}
