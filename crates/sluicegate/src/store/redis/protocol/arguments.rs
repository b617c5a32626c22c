//! From charges to the arguments of a script call. `lua/charge.lua` documents their meaning.

use crate::store::Charge;
use crate::store::key::Digest;
use crate::store::redis::client::call::Argument;
use crate::store::redis::protocol::key::{KeyEncoder, seed};
use crate::store::redis::protocol::planned_charge::PlannedCharge;
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Algorithm, Calendar, Cost, FixedWindow, Quota, Timestamp, TokenBucket};
use smallvec::SmallVec;
use std::io::Write;
use std::ops::Range;

/// The operation on the limits of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Charge,
    /// Charges, and answers with the state after that, as a peek does.
    Report,
    /// Charges, and records the data that an exact release needs.
    Reserve,
    Peek,
    Refund,
    Reset,
    /// Takes back one charge that was made at this instant of the server's clock.
    Undo(Timestamp),
    /// Takes back one reservation that was made at this instant of the server's clock.
    Release(Timestamp),
    /// Charges this many admissions that were made elsewhere, even if they do not fit.
    Force(u32),
}

impl Operation {
    /// Whether it takes units where there is room.
    pub(crate) fn charges(self) -> bool {
        matches!(self, Self::Charge | Self::Report | Self::Reserve)
    }

    /// Whether it may leave more room than before.
    pub(crate) fn gives_back(self) -> bool {
        match self {
            Self::Charge | Self::Report | Self::Reserve | Self::Peek | Self::Force(_) => false,
            Self::Refund | Self::Reset | Self::Undo(_) | Self::Release(_) => true,
        }
    }

    fn argument(self, times: u32) -> Argument {
        let name = match self {
            Self::Charge | Self::Report => "charge",
            Self::Reserve => "reserve",
            Self::Peek => "peek",
            Self::Refund => "refund",
            Self::Reset => "reset",
            Self::Undo(_) => "undo",
            Self::Release(_) => "release",
            Self::Force(_) => "force",
        };
        let mut text = Argument::from_slice(name.as_bytes());
        match self {
            Self::Undo(charged_at) | Self::Release(charged_at) => {
                write_numbers(&mut text, [charged_at.as_micros()])
            }
            Self::Force(times) => write_numbers(&mut text, [times.into()]),
            Self::Charge | Self::Report if times > 1 => write_numbers(&mut text, [times.into()]),
            _ => {}
        }
        text
    }
}

/// The most repetitions of one decision in a call. The script could do more, but the replay computes each of them.
pub(crate) const TIMES_MAX: u32 = 65_536;

/// The input of one script call: decisions in order, over keys that may share a call.
#[derive(Debug)]
pub(crate) struct ScriptInput<'a> {
    encoder: &'a KeyEncoder,
    pub(crate) keys: SmallVec<[Vec<u8>; 1]>,
    /// The digest of each key.
    digests: SmallVec<[Digest; 1]>,
    /// The index of the key of the last limit that was added.
    last_key: usize,
    pub(crate) arguments: SmallVec<[Argument; 2]>,
    pub(crate) limits: SmallVec<[RequestedLimit<'a>; 2]>,
    pub(crate) decisions: SmallVec<[DecisionSpec; 1]>,
    /// The expected time of the clock that decides.
    expected_now: Timestamp,
    /// The limits with a calendar: index of the limit, its position, and the index of its argument.
    calendar_limits: Vec<(usize, LimitPosition, usize)>,
    /// Whether the denial cache stores the results of operations that do not charge.
    is_cacheable: bool,
}

/// The usage of one key that a decision charges in any case: the index of the key, its limits, the units and the mode.
type UsageOfKey<'a> = (usize, &'a [Quota], Cost, ChargeMode);

/// One requested decision.
#[derive(Clone, Debug)]
pub(crate) struct DecisionSpec {
    pub(crate) operation: Operation,
    /// The number of repetitions.
    pub(crate) times: u32,
    /// The range of its limits among all limits of the input.
    pub(crate) limits: Range<usize>,
    /// The range of the limits that are charged their usage if the decision does not charge them. The script takes
    /// them as a decision of its own.
    pub(crate) usage: Range<usize>,
}

/// One limit of one charge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedLimit<'a> {
    pub(crate) quota: &'a Quota,
    pub(crate) cost: Cost,
    pub(crate) mode: ChargeMode,
    /// The seed of its phase; 0 without one.
    pub(crate) seed: u64,
    /// The index of its key.
    pub(crate) key: usize,
}

impl<'a> ScriptInput<'a> {
    /// An empty input for a script that is expected to run at this time.
    pub(crate) fn new(encoder: &'a KeyEncoder, expected_now: Timestamp) -> Self {
        Self {
            encoder,
            keys: SmallVec::new(),
            digests: SmallVec::new(),
            last_key: 0,
            arguments: SmallVec::new(),
            limits: SmallVec::new(),
            decisions: SmallVec::new(),
            expected_now,
            calendar_limits: Vec::new(),
            is_cacheable: false,
        }
    }

    /// Marks the input as a part of a decision that may be a denial: the denial cache stores its results even if it
    /// does not charge.
    pub(crate) fn cacheable(self) -> Self {
        Self { is_cacheable: true, ..self }
    }

    pub(crate) fn is_cacheable(&self) -> bool {
        self.is_cacheable
    }

    /// The digest of each key.
    pub(crate) fn digests(&self) -> &[Digest] {
        &self.digests
    }

    /// The expected time of the clock that decides.
    pub(crate) fn expected_now(&self) -> Timestamp {
        self.expected_now
    }

    /// Whether the arguments depend on the time at which the script runs.
    pub(crate) fn has_calendar(&self) -> bool {
        !self.calendar_limits.is_empty()
    }

    /// Rewrites the calendar arguments for a script that runs at this time.
    pub(crate) fn set_time(&mut self, expected_now: Timestamp) {
        self.expected_now = expected_now;
        for (limit, place, argument) in &self.calendar_limits {
            self.arguments[*argument] = self.limits[*limit].argument(*place, expected_now);
        }
    }

    /// Adds one decision over the limits of `charges`.
    pub(crate) fn add<'c>(&mut self, operation: Operation, charges: impl IntoIterator<Item = &'c Charge<'a>>)
    where
        'a: 'c,
    {
        self.push(operation, 1, charges);
    }

    /// Adds the same charge `times` in a row, with the effect of `times` separate decisions, at most [`TIMES_MAX`].
    /// No two of the charges may have the same key.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn add_times<'c>(
        &mut self,
        times: std::num::NonZeroU32,
        charges: impl IntoIterator<Item = &'c Charge<'a>>,
    ) where
        'a: 'c,
    {
        self.push(Operation::Charge, times.get().min(TIMES_MAX), charges);
    }

    fn push<'c>(&mut self, operation: Operation, times: u32, charges: impl IntoIterator<Item = &'c Charge<'a>>)
    where
        'a: 'c,
    {
        let (start, mut usage) = (self.limits.len(), Vec::new());
        self.arguments.push(operation.argument(times));
        for charge in charges {
            let key = self.key(charge.key.digest(), |encoder| encoder.encode(&charge.key));
            self.add_limits(key, charge.quotas, charge.cost, charge.mode);
            if !charge.usage.is_zero() {
                usage.push((key, charge.quotas, charge.usage, charge.mode));
            }
        }
        self.end_decision(operation, times, start, usage);
    }

    /// Ends the decision with the limits from `start` on. `usage` is charged if the decision does not charge it.
    fn end_decision(&mut self, operation: Operation, times: u32, start: usize, usage: Vec<UsageOfKey<'a>>) {
        let limits = start..self.limits.len();
        if operation.charges() && !usage.is_empty() {
            self.arguments.push(Argument::from_slice(b"usage"));
            for (key, quotas, cost, mode) in usage {
                self.add_limits(key, quotas, cost, mode);
            }
        }
        let usage = limits.end..self.limits.len();
        self.decisions.push(DecisionSpec { operation, times, limits, usage });
    }

    /// Adds the same planned charge `times` in a row, with the effect of `times` separate decisions, at most [`TIMES_MAX`].
    pub(crate) fn add_planned(&mut self, operation: Operation, times: u32, charges: &'a [PlannedCharge]) {
        self.push_planned(operation, times.clamp(1, TIMES_MAX), charges);
    }

    /// Adds the undo of one planned decision that was made at this instant.
    pub(crate) fn undo_planned(&mut self, charged_at: Timestamp, charges: &'a [PlannedCharge]) {
        self.push_planned(Operation::Undo(charged_at), 1, charges);
    }

    /// Adds this many admissions of one planned decision, to be charged even if they do not fit.
    pub(crate) fn force_planned(&mut self, times: u32, charges: &'a [PlannedCharge]) {
        self.push_planned(Operation::Force(times.clamp(1, TIMES_MAX)), 1, charges);
    }

    fn push_planned(&mut self, operation: Operation, times: u32, charges: &'a [PlannedCharge]) {
        let (start, mut usage) = (self.limits.len(), Vec::new());
        self.arguments.push(operation.argument(times));
        for charge in charges {
            let key = self.key(charge.digest, |_| charge.key.clone());
            self.add_limits(key, &charge.quotas, charge.cost, charge.mode);
            if !charge.usage.is_zero() {
                usage.push((key, &*charge.quotas, charge.usage, charge.mode));
            }
        }
        self.end_decision(operation, times, start, usage);
    }

    fn add_limits(&mut self, key: usize, quotas: &'a [Quota], cost: Cost, mode: ChargeMode) {
        for (index, quota) in quotas.iter().enumerate() {
            let seed = if has_phase(quota) { seed(&self.keys[key]) } else { 0 };
            let limit = RequestedLimit { quota, cost, mode, seed, key };
            let place = LimitPosition { key, last_key: self.last_key, index };
            if calendar_of(quota).is_some() {
                self.calendar_limits.push((self.limits.len(), place, self.arguments.len()));
            }
            self.arguments.push(limit.argument(place, self.expected_now));
            self.last_key = key;
            self.limits.push(limit);
        }
    }

    /// The index of a key, which is added if it is new.
    fn key(&mut self, digest: Digest, encoded: impl FnOnce(&KeyEncoder) -> Vec<u8>) -> usize {
        self.digests.iter().position(|known| *known == digest).unwrap_or_else(|| {
            self.digests.push(digest);
            self.keys.push(encoded(self.encoder));
            self.keys.len() - 1
        })
    }
}

/// The arguments that undo a charge of one key, made at this instant. Each limit has its index and the cost that was
/// charged.
pub(crate) fn undo<'a>(
    charged_at: Timestamp,
    limits: impl IntoIterator<Item = (usize, &'a Quota, Cost)>,
) -> Vec<Argument> {
    let mut arguments = vec![Operation::Undo(charged_at).argument(1)];
    arguments.extend(limits.into_iter().map(|(index, quota, cost)| {
        let limit = RequestedLimit { quota, cost, mode: ChargeMode::Enforced, seed: 0, key: 0 };
        limit.argument(LimitPosition { key: 0, last_key: 0, index }, charged_at)
    }));
    arguments
}

/// Whether the windows of this limit start at another time for every key.
fn has_phase(quota: &Quota) -> bool {
    match quota {
        Quota::FixedWindow(window) => !window.phase(1).is_zero(),
        _ => false,
    }
}

/// The calendar of the limit's windows, if it has one.
fn calendar_of(quota: &Quota) -> Option<&Calendar> {
    match quota {
        Quota::FixedWindow(window) => window.calendar(),
        _ => None,
    }
}

/// The position of a limit: its key, its index there, and the key of the limit before it.
#[derive(Clone, Copy, Debug)]
struct LimitPosition {
    key: usize,
    last_key: usize,
    index: usize,
}

impl LimitPosition {
    /// Writes `+` for the next key instead of its number. So decisions over different keys have equal arguments, and
    /// the script parses equal arguments only once.
    fn write(self, text: &mut Argument) {
        // Writing to memory cannot fail.
        let _ = if self.key == self.last_key + 1 {
            write!(text, " + {:x} ", self.index)
        } else {
            write!(text, " {} {:x} ", self.key + 1, self.index)
        };
    }
}

impl RequestedLimit<'_> {
    fn argument(&self, place: LimitPosition, expected_now: Timestamp) -> Argument {
        let mut text = Argument::new();
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
            Quota::FixedWindow(window) => self.write_window(&mut text, window, place, expected_now),
            // The script does not know this algorithm, and rejects the call instead of guessing.
            _ => self.write_head(&mut text, b'?', place),
        }
        text
    }

    fn write_head(&self, text: &mut Argument, kind: u8, place: LimitPosition) {
        text.push(kind);
        place.write(text);
        match self.mode {
            ChargeMode::Enforced => text.push(b'e'),
            // Writing to memory cannot fail.
            ChargeMode::Shadow(number) => drop(write!(text, "{number}")),
        }
    }

    /// The server's clock selects the calendar window, so the argument has the boundaries of several windows.
    fn write_window(
        &self,
        text: &mut Argument,
        window: &FixedWindow,
        place: LimitPosition,
        expected_now: Timestamp,
    ) {
        let (cost, limit) = (self.cost.units(), window.limit());
        if let Some(calendar) = window.calendar() {
            self.write_head(text, b'm', place);
            write_numbers(text, [cost, limit]);
            write_numbers(text, calendar.around(expected_now).map(Timestamp::as_micros));
        } else {
            self.write_head(text, b'f', place);
            write_numbers(text, [cost, limit, window.window().as_micros(), window.phase(self.seed).as_micros()]);
        }
    }

    fn write_bucket(&self, text: &mut Argument, bucket: &TokenBucket, place: LimitPosition) {
        let (fill, fill_parts) = lasting(bucket, bucket.capacity());
        // More than the distance from the furthest TAT to the earliest: it never fits, exceeds the largest debt, and a
        // refund restores the whole limit.
        let (full, _) = lasting(bucket, bucket.limit());
        let furthest = (full + bucket.tolerance().as_micros() + 1, 0);
        let (cost, cost_parts) = lasting(bucket, self.cost.units()).min(furthest);
        let is_shared = bucket.is_on_shared_state();
        if bucket.credits() > 0 {
            let (earning, earning_parts) = lasting(bucket, bucket.credits());
            self.write_head(text, b'k', place);
            write_numbers(text, [bucket.parts_per_micro(), cost, cost_parts, fill, fill_parts]);
            write_numbers(text, [earning, earning_parts, bucket.credit_ttl().as_micros()]);
        } else if bucket.parts_per_micro() == 1 {
            self.write_head(text, if is_shared { b's' } else { b'w' }, place);
            write_numbers(text, [cost, fill]);
        } else {
            self.write_head(text, if is_shared { b't' } else { b'b' }, place);
            write_numbers(text, [bucket.parts_per_micro(), cost, cost_parts, fill, fill_parts]);
        }
    }
}

/// The time in which `tokens` refill: whole microseconds and parts of one.
fn lasting(bucket: &TokenBucket, tokens: u64) -> (u64, u64) {
    let per_micro = u128::from(bucket.parts_per_micro());
    let parts = u128::from(tokens) * u128::from(bucket.parts_per_token());
    // A bucket refills within ten years, but a cost may be far above its limit.
    (u64::try_from(parts / per_micro).unwrap_or(u64::MAX), (parts % per_micro) as u64)
}

fn write_numbers<const COUNT: usize>(text: &mut Argument, numbers: [u64; COUNT]) {
    for number in numbers {
        // Writing to memory cannot fail.
        let _ = write!(text, " {number}");
    }
}
