//! Strategies for the properties: the steps of a run, its `limits`, and `damaged` states.
//!
//! Uniform numbers would hardly ever hit an edge, so most steps *aim*: at the end of a window, the promised wait or
//! the expiry of a state, a microsecond to either side; and at a cost near the remaining units or the limit. Only the
//! run knows these values, so a step is resolved when it is taken.

pub(crate) mod damaged;
pub(crate) mod limits;

use crate::harness::{Run, Subject};
use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_core::{Micros, Outcome, Quota, Timestamp, Verdict};
use sluicegate_testkit::model::Limit;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
const PERIOD_MAX: u64 = Micros::PERIOD_MAX.as_micros();
/// The start of most runs.
const START: u64 = 1_705_312_800 * SECOND;
const NOW_MAX: u64 = Timestamp::NOW_MAX.as_micros();

/// The direction of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Steady,
    /// The clock also steps back. Then no state is dropped, because a store keeps states for longer than the clock
    /// errs.
    Stepping,
}

/// One run: its start and its steps.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) limit: Limit,
    pub(crate) clock: Clock,
    pub(crate) start: u64,
    pub(crate) steps: Vec<Step>,
}

/// Time passes, then an event happens.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) time: Time,
    pub(crate) act: Act,
}

/// The movement of the clock, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    Stay,
    Forward(u64),
    /// By this many thousandths of the window, with an offset.
    Part(u64, i64),
    /// By the time in which this many units refill, with an offset.
    Units(u64, i64),
    /// To the next multiple of the window or boundary of the calendar, with an offset.
    Boundary(i64),
    /// To the end of the last promised wait, with an offset.
    Retry(i64),
    /// To the instant at which the limit should be full, with an offset.
    Reset(i64),
    /// To the expiry of the state, with an offset.
    Kept(i64),
    Back(u64),
    /// Back by this many thousandths of the window, with an offset.
    BackPart(u64, i64),
}

/// The event of a step.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Check(Units),
    Refund(Units),
    Report(Units),
    /// The store drops the state if it has expired.
    Drop,
    Change(Limit),
}

/// The cost of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Units {
    Exactly(u32),
    /// The remaining units plus this number.
    Remaining(u32),
    /// The limit plus this number.
    Limit(u32),
    /// This many thousandths of the limit.
    Part(u64),
}

/// The events of one or more runs. A property that never met a denial has shown little.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) never: u64,
    pub(crate) repaired: u64,
    pub(crate) dropped: u64,
    pub(crate) changed: u64,
}

impl Tally {
    pub(crate) fn count(&mut self, verdict: Verdict) {
        self.steps += 1;
        match verdict.outcome {
            Outcome::Allowed => self.allowed += 1,
            Outcome::Denied { .. } => self.denied += 1,
            Outcome::NeverAdmissible => self.never += 1,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            allowed: self.allowed + other.allowed,
            denied: self.denied + other.denied,
            never: self.never + other.never,
            repaired: self.repaired + other.repaired,
            dropped: self.dropped + other.dropped,
            changed: self.changed + other.changed,
        }
    }
}

impl Plan {
    /// Executes the plan and checks every invariant on the way.
    pub(crate) fn carry_out(&self) -> Result<Tally, String> {
        let mut run = Run::new(&self.limit, self.start);
        let mut tally = Tally::default();
        for step in &self.steps {
            let now = step.time.resolve(run.subject());
            let now = if self.clock == Clock::Steady { now.max(run.subject().now) } else { now };
            run.set_clock(now);
            tally.repaired += u64::from(run.needs_repair());
            match step.act.perform(&mut run, self.clock, &mut tally)? {
                Some(verdict) => tally.count(verdict),
                None => tally.steps += 1,
            }
        }
        run.verify_bound()?;
        Ok(tally)
    }
}

impl Act {
    fn perform(&self, run: &mut Run, clock: Clock, tally: &mut Tally) -> Result<Option<Verdict>, String> {
        let verdict = match self {
            Self::Check(units) => run.check(units.resolve(run.subject())),
            Self::Refund(units) => run.refund(units.resolve(run.subject())),
            Self::Report(units) => run.report(units.resolve(run.subject())),
            Self::Change(limit) => {
                // No request follows at that moment: the next step finds the state of the old limit.
                run.change(limit)?;
                tally.changed += 1;
                return Ok(None);
            }
            Self::Drop => {
                if clock == Clock::Steady {
                    tally.dropped += u64::from(run.drop_expired());
                }
                run.check(0)
            }
        };
        verdict.map(Some)
    }
}

impl Time {
    /// The clock after this movement.
    pub(crate) fn resolve(self, subject: &Subject) -> u64 {
        let now = subject.now;
        let window = subject.quota.window().as_micros();
        let off = |to: u64, by: i64| to.saturating_add_signed(by);
        let part = |parts: u64| (u128::from(window) * u128::from(parts) / 1_000) as u64;
        match self {
            Self::Stay => now,
            Self::Forward(micros) => now.saturating_add(micros),
            Self::Part(parts, by) => off(now.saturating_add(part(parts)), by),
            Self::Units(units, by) => {
                let lasts = u128::from(window) * u128::from(units) / u128::from(subject.quota.limit().max(1));
                off(now.saturating_add(lasts as u64), by)
            }
            Self::Boundary(by) => {
                let calendar =
                    if let Quota::FixedWindow(quota) = &subject.quota { quota.calendar() } else { None };
                let next = calendar.map(|calendar| calendar.after(subject.timestamp()).as_micros());
                off(next.unwrap_or_else(|| (now / window + 1).saturating_mul(window)), by)
            }
            Self::Retry(by) => match subject.verdict.map(|verdict| verdict.outcome) {
                Some(Outcome::Denied { retry_after }) => off(now.saturating_add(retry_after.as_micros()), by),
                _ => now,
            },
            Self::Reset(by) => {
                let wait = subject.verdict.map_or(0, |verdict| verdict.reset_after.as_micros());
                off(now.saturating_add(wait), by)
            }
            Self::Kept(by) => match &subject.state {
                Some(state) => off(subject.quota.kept_until(state).as_micros(), by),
                None => now,
            },
            Self::Back(micros) => now.saturating_sub(micros),
            Self::BackPart(parts, by) => off(now.saturating_sub(part(parts)), by),
        }
    }
}

impl Units {
    pub(crate) fn resolve(self, subject: &Subject) -> u32 {
        let limit = subject.quota.limit();
        let units = match self {
            Self::Exactly(units) => return units,
            Self::Remaining(more) => subject.remaining().saturating_add(u64::from(more)),
            Self::Limit(more) => limit.saturating_add(u64::from(more)),
            Self::Part(parts) => (u128::from(limit) * u128::from(parts) / 1_000) as u64,
        };
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

/// Runs of up to two hundred steps under limits of this kind; the limit may change to one of `changed`.
pub(crate) fn plans<L, C>(limits: L, changed: C) -> impl Strategy<Value = Plan>
where
    L: Strategy<Value = Limit>,
    C: Strategy<Value = Limit> + Clone + 'static,
{
    let clocks = prop_oneof![Just(Clock::Steady), Just(Clock::Stepping)];
    (limits, clocks, starts(), vec(steps(changed), 1..=200)).prop_map(|(limit, clock, start, steps)| Plan {
        limit,
        clock,
        start,
        steps,
    })
}

fn starts() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => Just(START),
        2 => 0..=NOW_MAX,
        1 => 0..=2_000u64,
        1 => NOW_MAX - 2_000..=NOW_MAX,
    ]
}

pub(crate) fn steps(changed: impl Strategy<Value = Limit> + Clone + 'static) -> impl Strategy<Value = Step> {
    (times(), acts(changed)).prop_map(|(time, act)| Step { time, act })
}

fn times() -> impl Strategy<Value = Time> {
    let near = || -1..=1i64;
    prop_oneof![
        8 => Just(Time::Stay),
        2 => Just(Time::Forward(1)),
        4 => (1..=1_500u64).prop_map(Time::Forward),
        1 => (1..=PERIOD_MAX).prop_map(Time::Forward),
        4 => (1..=1_000u64, near()).prop_map(|(parts, by)| Time::Part(parts, by)),
        1 => (1_000..=3_000u64, near()).prop_map(|(parts, by)| Time::Part(parts, by)),
        4 => (1..=5u64, near()).prop_map(|(units, by)| Time::Units(units, by)),
        3 => near().prop_map(Time::Boundary),
        4 => near().prop_map(Time::Retry),
        1 => near().prop_map(Time::Reset),
        1 => near().prop_map(Time::Kept),
        1 => (1..=1_500u64).prop_map(Time::Back),
        1 => (1..=2_500u64, near()).prop_map(|(parts, by)| Time::BackPart(parts, by)),
        1 => (1..=2 * DAY).prop_map(Time::Back),
    ]
}

fn acts(changed: impl Strategy<Value = Limit> + Clone + 'static) -> impl Strategy<Value = Act> {
    prop_oneof![
        40 => units().prop_map(Act::Check),
        3 => units().prop_map(Act::Refund),
        1 => units().prop_map(Act::Report),
        2 => Just(Act::Drop),
        1 => changed.prop_map(Act::Change),
    ]
}

fn units() -> impl Strategy<Value = Units> {
    prop_oneof![
        1 => Just(Units::Exactly(0)),
        6 => Just(Units::Exactly(1)),
        4 => (2..=8u32).prop_map(Units::Exactly),
        3 => (0..=1u32).prop_map(Units::Remaining),
        2 => (0..=1u32).prop_map(Units::Limit),
        3 => (1..=1_000u64).prop_map(Units::Part),
        1 => any::<u32>().prop_map(Units::Exactly),
    ]
}
