//! From the body of a reply to verdicts.
//!
//! The script says what it found, and whether the cost fits. Everything that is derived from that is computed by the
//! core, here; should the core see it otherwise than the script, the reply makes no sense and is an error.

use super::arguments::{Limit, Message, Operation};
use super::call::Answer;
use super::denials::Seen;
use super::error::{Ran, Trouble};
use crate::store::{ErrorClass, Verdicts};
use sluicegate_core::algorithm::fixed_window::FixedWindowState;
use sluicegate_core::algorithm::sliding_counter::SlidingCounterState;
use sluicegate_core::algorithm::sliding_window::{Entry, SlidingWindowState};
use sluicegate_core::algorithm::token_bucket::TokenBucketState;
use sluicegate_core::decision::{is_allowed, is_charged};
use sluicegate_core::{Outcome, State, Timestamp};
use smallvec::SmallVec;

/// What the limits of one decision were found to be.
pub(super) type Found<'a> = SmallVec<[Finding<'a>; 2]>;

/// What one limit was found to be.
#[derive(Debug)]
pub(super) struct Finding<'a> {
    limit: Limit<'a>,
    /// The time by which the limit sees now.
    at: Timestamp,
    outcome: Outcome,
    state: Option<State>,
}

/// What a call found: for every decision, what its limits are.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    pub(super) now: Timestamp,
    /// How many keys could not be read and counted as drained.
    pub(super) damaged: u64,
    pub(super) decisions: SmallVec<[(Operation, Found<'a>); 1]>,
}

impl<'a> Findings<'a> {
    pub(super) fn read(answer: &Answer, message: &Message<'a>) -> Result<Self, Trouble> {
        let nonsense = |what: &str| {
            let body = answer.body.escape_ascii().to_string();
            Trouble::with_server(ErrorClass::Protocol, Ran::Unknown, format!("{what} in the reply {body:.200}"))
        };
        let mut words = answer.body.split(|byte| *byte == b' ');
        let damaged = words.next().and_then(number).ok_or_else(|| nonsense("no count"))?;
        let mut decisions = SmallVec::with_capacity(message.decisions.len());
        for (operation, limits) in &message.decisions {
            let mut findings = Found::with_capacity(limits.len());
            for limit in &message.limits[limits.clone()] {
                let word = words.next().ok_or_else(|| nonsense("a limit is missing"))?;
                let finding =
                    Finding::read(word, *limit, answer.now).ok_or_else(|| nonsense("an unknown state"))?;
                if finding.outcome.is_allowed() != word.starts_with(b"+") {
                    return Err(nonsense("the script and the core disagree"));
                }
                findings.push(finding);
            }
            decisions.push((*operation, findings));
        }
        if words.next().is_some() {
            return Err(nonsense("a limit too many"));
        }
        Ok(Self { now: answer.now, damaged, decisions })
    }
}

impl<'a> Finding<'a> {
    fn read(word: &[u8], limit: Limit<'a>, now: Timestamp) -> Option<Self> {
        let (b'+' | b'-', state) = word.split_first()? else { return None };
        let state = read_state(state)?;
        let at = limit.quota.aligned(now, limit.seed);
        let outcome = limit.quota.outcome(state.as_ref(), limit.cost, at);
        Some(Self { limit, at, outcome, state })
    }
}

impl Finding<'_> {
    /// What was seen of the limit.
    pub(super) fn seen(&self) -> Seen {
        Seen { state: self.state.clone(), at: self.at }
    }
}

/// The verdicts of a decision, once the operation is done.
pub(super) fn verdicts(operation: Operation, findings: &[Finding<'_>]) -> Verdicts {
    match operation {
        Operation::Charge => charged(findings),
        Operation::Peek | Operation::Refund | Operation::Reset | Operation::Undo(_) => {
            uncharged(findings).collect()
        }
    }
}

/// True if all enforced limits have room.
pub(super) fn all_fit(findings: &[Finding<'_>]) -> bool {
    is_allowed(findings.iter().map(|finding| (finding.limit.group, finding.outcome)))
}

/// The verdicts as if nothing had been charged.
pub(super) fn uncharged<'f>(findings: &'f [Finding<'_>]) -> impl Iterator<Item = sluicegate_core::Verdict> + 'f {
    findings.iter().map(|finding| {
        let Finding { limit, at, outcome, state } = finding;
        limit.quota.verdict(*outcome, state.as_ref(), *at)
    })
}

fn charged(findings: &[Finding<'_>]) -> Verdicts {
    let votes = || findings.iter().map(|finding| (finding.limit.group, finding.outcome));
    let verdict = |finding: &Finding<'_>| {
        let Finding { limit, at, outcome, state } = finding;
        if !is_charged(votes(), limit.group) {
            return limit.quota.verdict(*outcome, state.as_ref(), *at);
        }
        let after = limit.quota.charge(state.clone(), limit.cost, *at);
        limit.quota.verdict(*outcome, after.as_ref(), *at)
    };
    findings.iter().map(verdict).collect()
}

/// `None` for what is no state, `Some(None)` for the state of who has none.
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
        // Of a log that has no room only so much is known: what leaves the window by `c` is enough, and all by `b`.
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

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
