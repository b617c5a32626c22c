//! One limit of a rule in many sizes, each with a state of its own.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use sluicegate::MemoryStore;
use sluicegate::core::decision::Group;
use sluicegate::core::{Quota, Timestamp};
use sluicegate::identity::Identity;
use sluicegate::observe::Decided;
use sluicegate::rules::file::Environment;
use sluicegate::store::Charge;
use sluicegate::store::memory::MemoryOptions;

use super::pick::{self, Targets};
use super::rule_text::{RuleTexts, Written};
use super::{Suggestion, Tried};
use crate::cli::explain::words::rate_words;

/// How windows are made larger and smaller: by two and by one and a half in turn, as numerator and denominator.
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
/// How rates and bursts of buckets are made larger and smaller, each with each.
const RATE_SCALE: [(u64, u64); 8] = [(1, 8), (1, 4), (1, 2), (1, 1), (2, 1), (4, 1), (8, 1), (16, 1)];
const BURST_SCALE: [(u64, u64); 4] = [(1, 4), (1, 1), (4, 1), (16, 1)];
/// Who was denied by which size is kept in as many bits.
const SIZES_MAX: usize = 32;
const _: () = assert!(WINDOW_SCALE.len() <= SIZES_MAX && RATE_SCALE.len() * BURST_SCALE.len() <= SIZES_MAX);

/// The most identities whose denials are told apart.
const PEOPLE_MAX: usize = 1_000_000;
/// Shards of a store that one thread uses.
const SHARDS: usize = 64;
/// How many charges there are between two looks for states that matter no longer, and how many steps each takes.
const CHARGES_PER_SWEEP: u64 = 1_024;
const STEPS_PER_SWEEP: usize = 32;

/// One limit in many sizes.
#[derive(Debug)]
pub(super) struct Ladder {
    rule: usize,
    limit: usize,
    sizes: Vec<Size>,
    requests: u64,
    /// By identity, which sizes denied it something.
    people: HashMap<u64, u32, foldhash::fast::FixedState>,
    hasher: foldhash::fast::FixedState,
}

/// One size.
#[derive(Debug)]
struct Size {
    values: Vec<(&'static str, String)>,
    /// How large it is, to tell which of two is smaller.
    measure: u128,
    is_current: bool,
    /// Whether it lies on the line on which a knee is looked for.
    is_on_line: bool,
    quota: Quota,
    store: MemoryStore,
    denied: u64,
}

impl Ladder {
    /// A ladder for one limit; nothing where its numbers cannot be told.
    pub(super) fn new(
        rule: usize,
        limit: usize,
        texts: &RuleTexts,
        environment: &Environment,
        now: Timestamp,
    ) -> Option<Self> {
        let mut sizes: Vec<Size> = Vec::new();
        for (values, measure, is_current, is_on_line) in plans(&texts.written(rule, limit)?) {
            if sizes.iter().any(|size| size.values == values) {
                continue;
            }
            let read = || {
                let text = texts.with_limit(rule, limit, &values)?;
                let rules = texts.parsed(&text, environment)?;
                rules.rules().first()?.limits.quotas().get(limit).cloned()
            };
            // What is no limit any more, because it is too large or too small, is not tried.
            let Some(quota) = read() else { continue };
            let options = MemoryOptions { shards: SHARDS, ..MemoryOptions::default() };
            let store = MemoryStore::new(options, now);
            sizes.push(Size { values, measure, is_current, is_on_line, quota, store, denied: 0 });
        }
        let (people, hasher) = (HashMap::default(), foldhash::fast::FixedState::default());
        Some(Self { rule, limit, sizes, requests: 0, people, hasher })
    }

    pub(super) fn rule(&self) -> usize {
        self.rule
    }

    /// Charges all sizes as if each were alone.
    pub(super) fn charge(&mut self, charge: &Charge<'_>, decided: &Decided<'_>) {
        self.requests += 1;
        let now = decided.asked_at;
        let is_sweep = self.requests.is_multiple_of(CHARGES_PER_SWEEP);
        let mut mask: u32 = 0;
        for (place, size) in self.sizes.iter_mut().enumerate() {
            let quotas = std::slice::from_ref(&size.quota);
            let alone = Charge { quotas, group: Group::Enforced, lease: None, ..*charge };
            let verdicts = size.store.charge_now(&[alone], now);
            let is_denied = verdicts.iter().any(|verdict| !verdict.outcome.is_allowed());
            size.denied += u64::from(is_denied);
            mask |= u32::from(is_denied) << place;
            if is_sweep {
                size.store.sweep(now, STEPS_PER_SWEEP);
            }
        }
        let who = match decided.request.identity {
            Identity::Named(name) | Identity::Claimed(name) => {
                self.hasher.hash_one((decided.request.tenant, name))
            }
            Identity::Address(address) => self.hasher.hash_one(address),
        };
        if let Some(denied) = self.people.get_mut(&who) {
            *denied |= mask;
        } else if self.people.len() < PEOPLE_MAX {
            self.people.insert(who, mask);
        }
    }

    pub(super) fn suggestion(&self, texts: &RuleTexts, targets: Targets) -> Suggestion {
        let mut order: Vec<usize> = (0..self.sizes.len()).collect();
        order.sort_by_key(|place| self.sizes[*place].measure);
        let tried = |place: &usize| {
            let size = &self.sizes[*place];
            let people = self.people.values().filter(|mask| **mask >> *place & 1 == 1).count() as u64;
            let texts: Vec<String> = size.values.iter().map(|(key, value)| format!("{key}: {value}")).collect();
            Tried {
                limit: texts.join(", "),
                denied: size.denied,
                identities_denied: people,
                is_current: size.is_current,
                is_knee: false,
                is_suggested: false,
            }
        };
        let mut table: Vec<Tried> = order.iter().map(tried).collect();
        let identities = self.people.len() as u64;
        let suggested = targets.first_good(&table, self.requests, identities);
        let on_line: Vec<usize> = (0..table.len()).filter(|row| self.sizes[order[*row]].is_on_line).collect();
        let denied: Vec<u64> = on_line.iter().map(|row| table[*row].denied).collect();
        if let Some(knee) = pick::knee(&denied) {
            table[on_line[knee]].is_knee = true;
        }
        let yaml = suggested.and_then(|row| {
            table[row].is_suggested = true;
            texts.with_limit(self.rule, self.limit, &self.sizes[order[row]].values)
        });
        let rule = texts.name(self.rule);
        Suggestion { rule, limit: self.limit, requests: self.requests, identities, table, yaml }
    }
}

/// The values of every size, how large it is, whether it is the one there is, and whether it lies on the line of the knee.
type Plan = (Vec<(&'static str, String)>, u128, bool, bool);

fn plans(written: &Written) -> Vec<Plan> {
    match *written {
        Written::Window { limit } => WINDOW_SCALE
            .iter()
            .map(|scale| {
                let scaled = scaled(limit.max(1), *scale);
                let is_current = *scale == (1, 1);
                let scaled = if is_current { limit } else { scaled };
                (vec![("limit", scaled.to_string())], u128::from(scaled), is_current, true)
            })
            .collect(),
        Written::Bucket { capacity, tokens, micros } => RATE_SCALE
            .iter()
            .flat_map(|rate| BURST_SCALE.iter().map(move |burst| (*rate, *burst)))
            .map(|(rate, burst)| {
                let capacity = scaled(capacity, burst);
                let (tokens, micros) = (tokens.saturating_mul(rate.0), micros.saturating_mul(rate.1));
                let values = vec![("capacity", capacity.to_string()), ("refill", rate_words(tokens, micros))];
                // Bucketfuls times speed, in parts of the current one.
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
