//! From charges to the arguments of a script call; `lua/charge.lua` says what they mean.

use super::call::Word;
use super::key::{KeyEncoder, seed};
use super::plan::Plan;
use crate::store::Charge;
use crate::store::key::Digest;
use sluicegate_core::decision::Group;
use sluicegate_core::{Algorithm, Calendar, Cost, FixedWindow, Quota, Timestamp, TokenBucket};
use smallvec::SmallVec;
use std::io::Write;
use std::num::NonZeroU32;
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
    /// Whether there may be more room after it than before.
    pub(super) fn gives_back(self) -> bool {
        match self {
            Self::Charge | Self::Peek => false,
            Self::Refund | Self::Reset | Self::Undo(_) => true,
        }
    }

    fn argument(self, times: u32) -> Word {
        let name = match self {
            Self::Charge => "charge",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Reset => "reset",
            Self::Undo(_) => "undo",
        };
        let mut text = Word::from_slice(name.as_bytes());
        match self {
            Self::Undo(charged_at) => write_numbers(&mut text, [charged_at.as_micros()]),
            Self::Charge if times > 1 => write_numbers(&mut text, [times.into()]),
            _ => {}
        }
        text
    }
}

/// How often one decision may be asked for at once. Who wants more of it has to ask again: the script would bear more,
/// but whoever replays what it said goes through all of them.
pub(super) const TIMES_MAX: u32 = 65_536;

/// What is said in one call: decisions, one after the other, over keys that may share it.
#[derive(Debug)]
pub(super) struct Message<'a> {
    encoder: &'a KeyEncoder,
    pub(super) keys: SmallVec<[Vec<u8>; 1]>,
    /// What stands for each of the keys here.
    digests: SmallVec<[Digest; 1]>,
    /// The key of the limit that was said last.
    last_key: usize,
    pub(super) arguments: SmallVec<[Word; 2]>,
    pub(super) limits: SmallVec<[Limit<'a>; 2]>,
    pub(super) decisions: SmallVec<[Question; 1]>,
    /// About what time it is where this is read.
    about: Timestamp,
    /// What is said of limits with a calendar: which limit, where, and which argument that is.
    dated: Vec<(usize, Place, usize)>,
}

/// One decision that is asked for.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) operation: Operation,
    /// How often in a row.
    pub(super) times: u32,
    /// Where its limits are among those of the message.
    pub(super) limits: Range<usize>,
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
    /// Nothing yet, to be read at about this time.
    pub(super) fn new(encoder: &'a KeyEncoder, about: Timestamp) -> Self {
        Self {
            encoder,
            keys: SmallVec::new(),
            digests: SmallVec::new(),
            last_key: 0,
            arguments: SmallVec::new(),
            limits: SmallVec::new(),
            decisions: SmallVec::new(),
            about,
            dated: Vec::new(),
        }
    }

    /// True if what it says depends on when it is read.
    pub(super) fn is_dated(&self) -> bool {
        !self.dated.is_empty()
    }

    /// Says the same anew, to be read at about this time.
    pub(super) fn date(&mut self, about: Timestamp) {
        self.about = about;
        for (limit, place, argument) in &self.dated {
            self.arguments[*argument] = self.limits[*limit].argument(*place, about);
        }
    }

    /// One decision more, over the limits of `charges`.
    pub(super) fn add<'c>(&mut self, operation: Operation, charges: impl IntoIterator<Item = &'c Charge<'a>>)
    where
        'a: 'c,
    {
        self.push(operation, 1, charges);
    }

    /// The same charge `times` in a row: all that this is is decided as if it stood there so often. Beyond
    /// [`TIMES_MAX`] it is that many. No two of the charges may have the same key.
    pub(super) fn add_times<'c>(&mut self, times: NonZeroU32, charges: impl IntoIterator<Item = &'c Charge<'a>>)
    where
        'a: 'c,
    {
        self.push(Operation::Charge, times.get().min(TIMES_MAX), charges);
    }

    fn push<'c>(&mut self, operation: Operation, times: u32, charges: impl IntoIterator<Item = &'c Charge<'a>>)
    where
        'a: 'c,
    {
        let start = self.limits.len();
        self.arguments.push(operation.argument(times));
        for charge in charges {
            let key = self.key(charge.key.digest(), |encoder| encoder.encode(&charge.key));
            self.add_limits(key, charge.quotas, charge.cost, charge.group);
        }
        self.decisions.push(Question { operation, times, limits: start..self.limits.len() });
    }

    /// The same, for a decision that was planned.
    pub(super) fn add_planned(&mut self, times: u32, plan: &'a Plan) {
        let (start, times) = (self.limits.len(), times.clamp(1, TIMES_MAX));
        self.arguments.push(Operation::Charge.argument(times));
        for charge in &plan.charges {
            let key = self.key(charge.digest, |_| charge.key.clone());
            self.add_limits(key, &charge.quotas, charge.cost, charge.group);
        }
        self.decisions.push(Question { operation: Operation::Charge, times, limits: start..self.limits.len() });
    }

    fn add_limits(&mut self, key: usize, quotas: &'a [Quota], cost: Cost, group: Group) {
        for (index, quota) in quotas.iter().enumerate() {
            let seed = if has_phase(quota) { seed(&self.keys[key]) } else { 0 };
            let limit = Limit { quota, cost, group, seed };
            let place = Place { key, last_key: self.last_key, index };
            if calendar_of(quota).is_some() {
                self.dated.push((self.limits.len(), place, self.arguments.len()));
            }
            self.arguments.push(limit.argument(place, self.about));
            self.last_key = key;
            self.limits.push(limit);
        }
    }

    /// The place of a key among those of the message.
    fn key(&mut self, digest: Digest, encoded: impl FnOnce(&KeyEncoder) -> Vec<u8>) -> usize {
        self.digests.iter().position(|known| *known == digest).unwrap_or_else(|| {
            self.digests.push(digest);
            self.keys.push(encoded(self.encoder));
            self.keys.len() - 1
        })
    }
}

/// What undoes a charge, made at this instant, of limits of one key: each its place there, and how much was charged.
pub(super) fn undo<'a>(
    charged_at: Timestamp,
    limits: impl IntoIterator<Item = (usize, &'a Quota, Cost)>,
) -> Vec<Word> {
    let mut arguments = vec![Operation::Undo(charged_at).argument(1)];
    arguments.extend(limits.into_iter().map(|(index, quota, cost)| {
        let limit = Limit { quota, cost, group: Group::Enforced, seed: 0 };
        limit.argument(Place { key: 0, last_key: 0, index }, charged_at)
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

/// The calendar that the windows of this limit are of.
fn calendar_of(quota: &Quota) -> Option<&Calendar> {
    match quota {
        Quota::FixedWindow(window) => window.calendar(),
        _ => None,
    }
}

/// Where a limit is, and where the limit was that was said before it.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: usize,
    last_key: usize,
    index: usize,
}

impl Place {
    /// Where keys follow each other they are not counted, so that decisions about different keys are said in the same
    /// words, which are read only once.
    fn write(self, text: &mut Word) {
        // Writing to memory cannot fail.
        let _ = if self.key == self.last_key + 1 {
            write!(text, " + {:x} ", self.index)
        } else {
            write!(text, " {} {:x} ", self.key + 1, self.index)
        };
    }
}

impl Limit<'_> {
    fn argument(&self, place: Place, about: Timestamp) -> Word {
        let mut text = Word::new();
        match self.quota {
            Quota::TokenBucket(bucket) => self.write_bucket(&mut text, bucket, place),
            Quota::SlidingWindow(log) => {
                self.write_head(&mut text, b'l', place);
                write_numbers(&mut text, [self.cost.units(), log.limit(), log.window().as_micros()]);
            }
            Quota::SlidingCounter(counter) => {
                self.write_head(&mut text, b'c', place);
                write_numbers(
                    &mut text,
                    [self.cost.units(), counter.limit(), counter.window().as_micros() / 1_000],
                );
            }
            Quota::FixedWindow(window) => self.write_window(&mut text, window, place, about),
            // An algorithm that the script does not know: it refuses the call instead of guessing.
            _ => self.write_head(&mut text, b'?', place),
        }
        text
    }

    fn write_head(&self, text: &mut Word, kind: u8, place: Place) {
        text.push(kind);
        place.write(text);
        match self.group {
            Group::Enforced => text.push(b'e'),
            // Writing to memory cannot fail.
            Group::Shadow(number) => drop(write!(text, "{number}")),
        }
    }

    /// The server's clock decides in which window it is, so it is told of several.
    fn write_window(&self, text: &mut Word, window: &FixedWindow, place: Place, about: Timestamp) {
        let (cost, limit) = (self.cost.units(), window.limit());
        if let Some(calendar) = window.calendar() {
            self.write_head(text, b'm', place);
            write_numbers(text, [cost, limit]);
            write_numbers(text, calendar.around(about).map(Timestamp::as_micros));
        } else {
            self.write_head(text, b'f', place);
            write_numbers(text, [cost, limit, window.window().as_micros(), window.phase(self.seed).as_micros()]);
        }
    }

    fn write_bucket(&self, text: &mut Word, bucket: &TokenBucket, place: Place) {
        let (full, full_parts) = lasting(bucket, bucket.limit());
        let (cost, cost_parts) = if self.cost.units() > bucket.limit() {
            // Beyond anything that is believed, so that it never fits and gives everything back.
            (full + bucket.window().as_micros().max(1_000_000) + 1, 0)
        } else {
            lasting(bucket, self.cost.units())
        };
        if bucket.credits() > 0 {
            let (unearned, unearned_parts) = lasting(bucket, bucket.credits());
            self.write_head(text, b'k', place);
            write_numbers(text, [bucket.parts_per_micro(), cost, cost_parts, full, full_parts]);
            write_numbers(text, [unearned, unearned_parts, bucket.credit_ttl().as_micros()]);
        } else if bucket.parts_per_micro() == 1 {
            self.write_head(text, b'w', place);
            write_numbers(text, [cost, full]);
        } else {
            self.write_head(text, b'b', place);
            write_numbers(text, [bucket.parts_per_micro(), cost, cost_parts, full, full_parts]);
        }
    }
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
