//! From the body of a reply to verdicts.
//!
//! The script returns the state that it found, and whether the cost fits. The core computes everything else here. If
//! core and script disagree, the reply is a protocol error.

use crate::store::redis::client::call::ScriptReply;
use crate::store::redis::client::error::{CallError, Executed};
use crate::store::redis::protocol::arguments::{DecisionSpec, Operation, RequestedLimit, ScriptInput};
use crate::store::redis::protocol::replay::Replay;
use crate::store::{ErrorClass, Verdicts};
use sluicegate_core::algorithm::fixed_window::FixedWindowState;
use sluicegate_core::algorithm::sliding_counter::SlidingCounterState;
use sluicegate_core::algorithm::sliding_window::{Entry, SlidingWindowState};
use sluicegate_core::algorithm::token_bucket::TokenBucketState;
use sluicegate_core::decision::{is_allowed, is_charged, joint_wait};
use sluicegate_core::{Outcome, State, Timestamp};
use smallvec::SmallVec;

/// The limits of one decision, as the script found them.
pub(crate) type FoundLimits<'a> = SmallVec<[FoundLimit<'a>; 2]>;

/// One limit, as the script found it.
#[derive(Clone, Debug)]
pub(crate) struct FoundLimit<'a> {
    pub(crate) limit: RequestedLimit<'a>,
    /// The present, on the limit's own time scale.
    pub(crate) at: Timestamp,
    pub(crate) outcome: Outcome,
    pub(crate) state: Option<State>,
}

/// The reply to a call: the found limits of every decision.
#[derive(Debug)]
pub(crate) struct ParsedReply<'a> {
    pub(crate) now: Timestamp,
    /// How many keys were unreadable. They counted as exhausted.
    pub(crate) damaged: u64,
    pub(crate) decisions: SmallVec<[DecisionResult<'a>; 1]>,
}

/// The result of one decision.
#[derive(Debug)]
pub(crate) struct DecisionResult<'a> {
    pub(crate) operation: Operation,
    /// The number of repetitions.
    pub(crate) times: u32,
    /// How many of the repetitions fit, which are the first ones. If the operation charges, these were charged.
    pub(crate) admitted: u32,
    /// The limits before the first repetition.
    pub(crate) found: FoundLimits<'a>,
    /// Those with usage that is charged in any case, as they are after the decision. They are a part of `found`, in the
    /// same order; their cost is the usage.
    pub(crate) usage: FoundLimits<'a>,
}

impl<'a> ParsedReply<'a> {
    pub(crate) fn read(answer: &ScriptReply, input: &ScriptInput<'a>) -> Result<Self, CallError> {
        let nonsense = |problem: &str| {
            let body = answer.body.escape_ascii().to_string();
            CallError::of_server(
                ErrorClass::Protocol,
                Executed::Unknown,
                format!("{problem} in the reply {body:.200}"),
            )
        };
        if answer.is_outdated() {
            // The script did nothing, twice: its clock moved beyond a whole window between the two calls.
            return Err(CallError::of_call(
                ErrorClass::Protocol,
                "the server's clock moved to another calendar window twice",
            ));
        }
        let mut words = answer.body.split(|byte| *byte == b' ');
        let damaged = words.next().and_then(number).ok_or_else(|| nonsense("no count"))?;
        let mut decisions = SmallVec::with_capacity(input.decisions.len());
        for spec in &input.decisions {
            decisions.push(DecisionResult::read(&mut words, spec, input, answer.now).map_err(nonsense)?);
        }
        if words.next().is_some() {
            return Err(nonsense("a limit too many"));
        }
        Ok(Self { now: answer.now, damaged, decisions })
    }
}

impl<'a> DecisionResult<'a> {
    /// Parses the next words. Returns a description of the error if they are malformed.
    fn read<'w>(
        words: &mut impl Iterator<Item = &'w [u8]>,
        spec: &DecisionSpec,
        input: &ScriptInput<'a>,
        now: Timestamp,
    ) -> Result<Self, &'static str> {
        let &DecisionSpec { operation, times, .. } = spec;
        let reported =
            if times > 1 { Some(words.next().and_then(count).ok_or("no count of the admitted")?) } else { None };
        let mut found = read_limits(words, &input.limits[spec.limits.clone()], now)?;
        wait_for_all(&mut found.iter_mut().collect::<SmallVec<[_; 2]>>());
        let admitted = match reported {
            None => u32::from(all_fit(&found)),
            Some(_) => Replay::new(found.clone(), times).admitted(),
        };
        if reported.is_some_and(|reported| reported != u64::from(admitted)) {
            return Err(DISAGREEMENT);
        }
        let mut usage = read_limits(words, &input.limits[spec.usage.clone()], now)?;
        wait_for_all(&mut usage.iter_mut().collect::<SmallVec<[_; 2]>>());
        Ok(Self { operation, times, admitted, found, usage })
    }

    /// The verdicts of the first repetition.
    pub(crate) fn verdicts(&self) -> Verdicts {
        let (mut verdicts, mut usage) = (verdicts(self.operation, &self.found), self.usage.iter().peekable());
        for (verdict, found_limit) in verdicts.iter_mut().zip(&self.found) {
            let Some(after) = usage.next_if(|usage| usage.is_of(found_limit)) else { continue };
            let FoundLimit { limit, at, outcome, state } = after;
            if self.operation == Operation::Report {
                *verdict = limit.quota.verdict(*outcome, state.as_ref(), *at);
            } else if !self.is_charged(found_limit) {
                *verdict = limit.quota.verdict(found_limit.outcome, state.as_ref(), *at);
            }
        }
        verdicts
    }

    /// Whether the decision charges this limit the whole cost, at least once.
    pub(crate) fn is_charged(&self, found_limit: &FoundLimit<'_>) -> bool {
        let votes = self.found.iter().map(|found_limit| (found_limit.limit.mode, found_limit.outcome));
        self.operation.charges() && is_charged(votes, found_limit.limit.mode)
    }

    /// Whether the decision charges this limit its usage in any case.
    pub(crate) fn has_usage(&self, found_limit: &FoundLimit<'_>) -> bool {
        self.usage.iter().any(|usage| usage.is_of(found_limit))
    }

    /// The units of usage that were cut off, because of the bound on debt.
    pub(crate) fn cut_off(&self) -> u64 {
        let (mut units, mut usage) = (0_u64, self.usage.iter().peekable());
        for found_limit in &self.found {
            if let Some(FoundLimit { limit, at, .. }) = usage.next_if(|usage| usage.is_of(found_limit))
                && !self.is_charged(found_limit)
            {
                units = units.saturating_add(limit.quota.cut_off(found_limit.state.as_ref(), limit.cost, *at));
            }
        }
        units
    }

    /// Whether the operation charges, and not all repetitions had room.
    pub(crate) fn is_denial(&self) -> bool {
        self.operation.charges() && self.admitted < self.times
    }

    /// The limits after the decision, as the next decision would find them.
    pub(crate) fn after(&self) -> FoundLimits<'a> {
        let mut found = match self.operation {
            operation if operation.charges() && self.admitted > 0 => {
                Replay::new(self.found.clone(), self.times).after()
            }
            _ => self.found.clone(),
        };
        let mut usage = self.usage.iter().peekable();
        for found_limit in &mut found {
            if let Some(after) = usage.next_if(|usage| usage.is_of(found_limit)) {
                *found_limit = after.clone();
            }
        }
        found
    }

    /// The verdicts of all repetitions. Only charges are repeated.
    pub(crate) fn replay(self) -> Replay<'a> {
        Replay::new(self.found, self.times)
    }
}

const DISAGREEMENT: &str = "the script and the core disagree";

/// Parses a word for each of these limits. Returns a description of the error if one is malformed.
fn read_limits<'a, 'w>(
    words: &mut impl Iterator<Item = &'w [u8]>,
    limits: &[RequestedLimit<'a>],
    now: Timestamp,
) -> Result<FoundLimits<'a>, &'static str> {
    let mut found = FoundLimits::with_capacity(limits.len());
    for limit in limits {
        let word = words.next().ok_or("a limit is missing")?;
        let found_limit = FoundLimit::read(word, *limit, now).ok_or("an unknown state")?;
        if found_limit.outcome.is_allowed() != word.starts_with(b"+") {
            return Err(DISAGREEMENT);
        }
        found.push(found_limit);
    }
    Ok(found)
}

impl<'a> FoundLimit<'a> {
    /// Whether both are the same limit of the same key.
    fn is_of(&self, other: &FoundLimit<'_>) -> bool {
        self.limit.key == other.limit.key && std::ptr::eq(self.limit.quota, other.limit.quota)
    }

    fn read(word: &[u8], limit: RequestedLimit<'a>, now: Timestamp) -> Option<Self> {
        let (b'+' | b'-', state) = word.split_first()? else { return None };
        let state = read_state(state)?;
        let at = limit.quota.aligned(now, limit.seed);
        let outcome = limit.quota.outcome(state.as_ref(), limit.cost, at);
        Some(Self { limit, at, outcome, state })
    }
}

/// Corrects the outcomes of a denied decision over all these limits. A limit that would drop the credits which the
/// request needs before the longest wait is over can never admit it.
pub(crate) fn wait_for_all(found: &mut [&mut FoundLimit<'_>]) {
    if found.len() < 2 {
        return;
    }
    let votes = found.iter().map(|found_limit| (found_limit.limit.mode, found_limit.outcome));
    let Some(wait) = joint_wait(votes) else { return };
    for FoundLimit { limit, at, outcome, state } in found {
        *outcome = limit.quota.outcome_after_waiting(*outcome, state.as_ref(), limit.cost, *at, wait);
    }
}

/// The verdicts of a decision after its operation.
pub(crate) fn verdicts(operation: Operation, found: &[FoundLimit<'_>]) -> Verdicts {
    match operation {
        Operation::Charge | Operation::Report | Operation::Reserve => charged(found),
        Operation::Peek
        | Operation::Refund
        | Operation::Reset
        | Operation::Undo(_)
        | Operation::Release(_)
        | Operation::Force(_) => uncharged(found).collect(),
    }
}

/// Whether all enforced limits have room.
pub(crate) fn all_fit(found: &[FoundLimit<'_>]) -> bool {
    is_allowed(found.iter().map(|found_limit| (found_limit.limit.mode, found_limit.outcome)))
}

/// The verdicts as if nothing had been charged.
pub(crate) fn uncharged<'f>(found: &'f [FoundLimit<'_>]) -> impl Iterator<Item = sluicegate_core::Verdict> + 'f {
    found.iter().map(|found_limit| {
        let FoundLimit { limit, at, outcome, state } = found_limit;
        limit.quota.verdict(*outcome, state.as_ref(), *at)
    })
}

fn charged(found: &[FoundLimit<'_>]) -> Verdicts {
    let votes = || found.iter().map(|found_limit| (found_limit.limit.mode, found_limit.outcome));
    let verdict = |found_limit: &FoundLimit<'_>| {
        let FoundLimit { limit, at, outcome, state } = found_limit;
        if !is_charged(votes(), limit.mode) {
            return limit.quota.verdict(*outcome, state.as_ref(), *at);
        }
        let after = limit.quota.charge(state.clone(), limit.cost, *at);
        limit.quota.verdict(*outcome, after.as_ref(), *at)
    };
    found.iter().map(verdict).collect()
}

/// `None` for a malformed state, `Some(None)` for a limit without state.
fn read_state(text: &[u8]) -> Option<Option<State>> {
    let (kind, fields) = text.split_first()?;
    if text == b"-" {
        return Some(None);
    }
    let mut numbers = [0_u64; 4];
    let mut count = 0;
    for field in fields.split(|byte| *byte == b',') {
        *numbers.get_mut(count)? = number(field)?;
        count += 1;
    }
    let [a, b, c, d] = numbers;
    let instant = Timestamp::from_micros;
    Some(Some(match (kind, count) {
        (b'w', 1) => bucket(a, 0, 1, a),
        (b'b', 4) => bucket(a, b, c, d),
        (b'f', 2) => State::FixedWindow(FixedWindowState { count: a, end: instant(b) }),
        (b'c', 3) => State::SlidingCounter(SlidingCounterState { previous: a, current: b, end: instant(c) }),
        (b'l', 2) => log(&[(instant(b), a)])?,
        // Of a log without room, the reply has two facts only: `d` units leave the window by `c`, which is enough,
        // and all by `b`.
        (b'l', 4) => log(&[(instant(c), d), (instant(b), a.checked_sub(d)?)])?,
        _ => return None,
    }))
}

fn bucket(tat_micros: u64, tat_parts: u64, parts_per_micro: u64, kept_until_micros: u64) -> State {
    State::TokenBucket(TokenBucketState { tat_micros, tat_parts, parts_per_micro, kept_until_micros })
}

fn log(entries: &[(Timestamp, u64)]) -> Option<State> {
    let entry = |&(at, units): &(Timestamp, u64)| Some(Entry { at, units: u32::try_from(units).ok()? });
    let entries: Option<Vec<Entry>> = entries.iter().map(entry).collect();
    Some(State::SlidingWindow(SlidingWindowState::from_entries(entries?)))
}

/// The count of admissions.
fn count(word: &[u8]) -> Option<u64> {
    word.strip_prefix(b"x").and_then(number)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
