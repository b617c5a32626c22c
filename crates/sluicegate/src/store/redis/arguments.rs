//! From charges to the arguments of a script call; `lua/charge.lua` says what they mean.

use super::call::Word;
use super::key::{KeyEncoder, seed};
use crate::store::Charge;
use sluicegate_core::decision::Group;
use sluicegate_core::{Algorithm, Cost, FixedWindow, Quota, Timestamp, TokenBucket};
use smallvec::SmallVec;
use std::io::Write;
use std::ops::Range;

/// What is done with the limits of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Charge,
    Peek,
    Refund,
    Reset,
    /// Takes back one charge, made at this instant of the server's clock.
    Undo(Timestamp),
}

impl Operation {
    fn argument(self) -> Word {
        let name = match self {
            Self::Charge => "charge",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Reset => "reset",
            Self::Undo(_) => "undo",
        };
        let mut text = Word::from_slice(name.as_bytes());
        if let Self::Undo(charged_at) = self {
            write_numbers(&mut text, [charged_at.as_micros()]);
        }
        text
    }
}

/// What is said in one call: decisions, one after the other, over keys that may share it.
#[derive(Debug)]
pub(super) struct Message<'a> {
    encoder: &'a KeyEncoder,
    pub(super) keys: SmallVec<[Vec<u8>; 1]>,
    pub(super) arguments: SmallVec<[Word; 2]>,
    pub(super) limits: SmallVec<[Limit<'a>; 2]>,
    /// The limits of every decision.
    pub(super) decisions: SmallVec<[(Operation, Range<usize>); 1]>,
}

/// One limit of one charge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit<'a> {
    pub(super) quota: &'a Quota,
    pub(super) cost: Cost,
    pub(super) group: Group,
    /// What picks its phase, if it has one.
    pub(super) seed: u64,
}

impl<'a> Message<'a> {
    /// Nothing yet.
    pub(super) fn new(encoder: &'a KeyEncoder) -> Self {
        Self {
            encoder,
            keys: SmallVec::new(),
            arguments: SmallVec::new(),
            limits: SmallVec::new(),
            decisions: SmallVec::new(),
        }
    }

    /// One decision more, over the limits of `charges`.
    pub(super) fn add<'c>(&mut self, operation: Operation, charges: impl IntoIterator<Item = &'c Charge<'a>>)
    where
        'a: 'c,
    {
        let start = self.limits.len();
        self.arguments.push(operation.argument());
        for charge in charges {
            let key = self.key(charge);
            for (index, quota) in charge.quotas.iter().enumerate() {
                let seed = if has_phase(quota) { seed(&self.keys[key]) } else { 0 };
                let limit = Limit { quota, cost: charge.cost, group: charge.group, seed };
                self.arguments.push(limit.argument(key + 1, index));
                self.limits.push(limit);
            }
        }
        self.decisions.push((operation, start..self.limits.len()));
    }

    fn key(&mut self, charge: &Charge<'_>) -> usize {
        let encoded = self.encoder.encode(&charge.key);
        self.keys.iter().position(|key| *key == encoded).unwrap_or_else(|| {
            self.keys.push(encoded);
            self.keys.len() - 1
        })
    }
}

/// What undoes a charge, made at this instant, of limits of one key: each its place there, and how much was charged.
pub(super) fn undo<'a>(
    charged_at: Timestamp,
    limits: impl IntoIterator<Item = (usize, &'a Quota, Cost)>,
) -> Vec<Word> {
    let mut arguments = vec![Operation::Undo(charged_at).argument()];
    arguments.extend(limits.into_iter().map(|(index, quota, cost)| {
        let limit = Limit { quota, cost, group: Group::Enforced, seed: 0 };
        limit.argument(1, index)
    }));
    arguments
}

/// True if the windows of this limit start at another time for every key.
fn has_phase(quota: &Quota) -> bool {
    match quota {
        Quota::FixedWindow(window) => !window.phase(1).is_zero(),
        _ => false,
    }
}

impl Limit<'_> {
    fn argument(&self, key: usize, index: usize) -> Word {
        let mut text = Word::new();
        match self.quota {
            Quota::TokenBucket(bucket) => self.write_bucket(&mut text, bucket, key, index),
            Quota::SlidingWindow(log) => {
                self.write_head(&mut text, 'l', key, index);
                write_numbers(&mut text, [self.cost.units(), log.limit(), log.window().as_micros()]);
            }
            Quota::SlidingCounter(counter) => {
                self.write_head(&mut text, 'c', key, index);
                write_numbers(
                    &mut text,
                    [self.cost.units(), counter.limit(), counter.window().as_micros() / 1_000],
                );
            }
            Quota::FixedWindow(window) => {
                self.write_head(&mut text, 'f', key, index);
                write_numbers(&mut text, fixed_numbers(window, self.cost, self.seed));
            }
            // An algorithm that the script does not know: it refuses the call instead of guessing.
            _ => self.write_head(&mut text, '?', key, index),
        }
        text
    }

    fn write_head(&self, text: &mut Word, kind: char, key: usize, index: usize) {
        // Writing to memory cannot fail.
        let _ = match self.group {
            Group::Enforced => write!(text, "{kind} {key} {index:x} e"),
            Group::Shadow(number) => write!(text, "{kind} {key} {index:x} {number}"),
        };
    }

    fn write_bucket(&self, text: &mut Word, bucket: &TokenBucket, key: usize, index: usize) {
        let (full, full_parts) = lasting(bucket, bucket.limit());
        let (cost, cost_parts) = if self.cost.units() > bucket.limit() {
            // Beyond anything that is believed, so that it never fits and gives everything back.
            (full + bucket.window().as_micros().max(1_000_000) + 1, 0)
        } else {
            lasting(bucket, self.cost.units())
        };
        if bucket.credits() > 0 {
            let (unearned, unearned_parts) = lasting(bucket, bucket.credits());
            self.write_head(text, 'k', key, index);
            write_numbers(text, [bucket.parts_per_micro(), cost, cost_parts, full, full_parts]);
            write_numbers(text, [unearned, unearned_parts, bucket.credit_ttl().as_micros()]);
        } else if bucket.parts_per_micro() == 1 {
            self.write_head(text, 'w', key, index);
            write_numbers(text, [cost, full]);
        } else {
            self.write_head(text, 'b', key, index);
            write_numbers(text, [bucket.parts_per_micro(), cost, cost_parts, full, full_parts]);
        }
    }
}

fn fixed_numbers(window: &FixedWindow, cost: Cost, seed: u64) -> [u64; 4] {
    [cost.units(), window.limit(), window.window().as_micros(), window.phase(seed).as_micros()]
}

/// How long `tokens` last: whole microseconds and parts of one. They are no more than the bucket holds, so it is at
/// most ten years.
fn lasting(bucket: &TokenBucket, tokens: u64) -> (u64, u64) {
    let per_micro = u128::from(bucket.parts_per_micro());
    let parts = u128::from(tokens) * u128::from(bucket.parts_per_token());
    ((parts / per_micro) as u64, (parts % per_micro) as u64)
}

fn write_numbers<const COUNT: usize>(text: &mut Word, numbers: [u64; COUNT]) {
    for number in numbers {
        // Writing to memory cannot fail.
        let _ = write!(text, " {number}");
    }
}
