//! From the body of a reply to verdicts.
//!
//! The script says what it found, and whether the cost fits. Everything that is derived from that is computed by the
//! core, here; should the core see it otherwise than the script, the reply makes no sense and is an error.

use super::arguments::{Limit, Message, Operation, Question};
use super::call::Answer;
use super::denials::Seen;
use super::error::{Ran, Trouble};
use super::replay::Replay;
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
#[derive(Clone, Debug)]
pub(super) struct Finding<'a> {
    pub(super) limit: Limit<'a>,
    /// The time by which the limit sees now.
    pub(super) at: Timestamp,
    pub(super) outcome: Outcome,
    pub(super) state: Option<State>,
}

/// What a call found: for every decision, what its limits are.
#[derive(Debug)]
pub(super) struct Findings<'a> {
    pub(super) now: Timestamp,
    /// How many keys could not be read and counted as drained.
    pub(super) damaged: u64,
    pub(super) decisions: SmallVec<[Decided<'a>; 1]>,
}

/// What was found of one decision.
#[derive(Debug)]
pub(super) struct Decided<'a> {
    pub(super) operation: Operation,
    /// How often it was asked for.
    pub(super) times: u32,
    /// How many of these have room, which are the first: what was charged so often, if it is a charge.
    pub(super) admitted: u32,
    /// What the limits were before the first.
    pub(super) findings: Found<'a>,
}

impl<'a> Findings<'a> {
    pub(super) fn read(answer: &Answer, message: &Message<'a>) -> Result<Self, Trouble> {
        let nonsense = |what: &str| {
            let body = answer.body.escape_ascii().to_string();
            Trouble::with_server(ErrorClass::Protocol, Ran::Unknown, format!("{what} in the reply {body:.200}"))
        };
        if answer.is_outdated() {
            // Nothing was done, twice: its clock went a window further while it was asked.
            return Err(Trouble::with_call(
                ErrorClass::Protocol,
                "the server's clock is in another window each time",
            ));
        }
        let mut words = answer.body.split(|byte| *byte == b' ');
        let damaged = words.next().and_then(number).ok_or_else(|| nonsense("no count"))?;
        let mut decisions = SmallVec::with_capacity(message.decisions.len());
        for question in &message.decisions {
            let limits = &message.limits[question.limits.clone()];
            decisions.push(Decided::read(&mut words, question, limits, answer.now).map_err(nonsense)?);
        }
        if words.next().is_some() {
            return Err(nonsense("a limit too many"));
        }
        Ok(Self { now: answer.now, damaged, decisions })
    }
}

impl<'a> Decided<'a> {
    /// What the next words say, or what is wrong with them.
    fn read<'w>(
        words: &mut impl Iterator<Item = &'w [u8]>,
        question: &Question,
        limits: &[Limit<'a>],
        now: Timestamp,
    ) -> Result<Self, &'static str> {
        let &Question { operation, times, .. } = question;
        let said =
            if times > 1 { Some(words.next().and_then(count).ok_or("no count of the admitted")?) } else { None };
        let mut findings = Found::with_capacity(limits.len());
        for limit in limits {
            let word = words.next().ok_or("a limit is missing")?;
            let finding = Finding::read(word, *limit, now).ok_or("an unknown state")?;
            if finding.outcome.is_allowed() != word.starts_with(b"+") {
                return Err(DISAGREEMENT);
            }
            findings.push(finding);
        }
        let admitted = match said {
            None => u32::from(all_fit(&findings)),
            Some(_) => Replay::new(findings.clone(), times).admitted(),
        };
        if said.is_some_and(|said| said != u64::from(admitted)) {
            return Err(DISAGREEMENT);
        }
        Ok(Self { operation, times, admitted, findings })
    }

    /// The verdicts of the first.
    pub(super) fn verdicts(&self) -> Verdicts {
        verdicts(self.operation, &self.findings)
    }

    /// Whether something was to be charged, and not all of it had room.
    pub(super) fn is_denial(&self) -> bool {
        self.operation == Operation::Charge && self.admitted < self.times
    }

    /// The verdicts of all, one after the other. Only charges are asked for more than once.
    pub(super) fn replay(self) -> Replay<'a> {
        Replay::new(self.findings, self.times)
    }
}

const DISAGREEMENT: &str = "the script and the core disagree";

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

/// How many were admitted.
fn count(word: &[u8]) -> Option<u64> {
    word.strip_prefix(b"x").and_then(number)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
