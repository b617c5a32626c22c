//! Damaged states, which no history explains, and runs that start from them.

use super::limits::{all_limits, buckets, buckets_with_credits, counters, fixed, logs, uneven};
use super::{Act, DAY, NOW_MAX, Step, Tally, starts, steps};
use crate::harness::{Subject, quota};
use proptest::collection::vec;
use proptest::prelude::*;
use sluicegate_core::algorithm::fixed_window::FixedWindowState;
use sluicegate_core::algorithm::sliding_counter::SlidingCounterState;
use sluicegate_core::algorithm::sliding_window::{Entry, SlidingWindowState};
use sluicegate_core::algorithm::token_bucket::TokenBucketState;
use sluicegate_core::{State, Timestamp};
use sluicegate_testkit::model::Limit;

/// A state that no decision wrote: damaged, forged, or from another time, under a limit of its algorithm.
#[derive(Clone, Debug)]
pub(crate) struct Damaged {
    pub(crate) limit: Limit,
    pub(crate) state: State,
    pub(crate) start: u64,
    pub(crate) steps: Vec<Step>,
}

impl Damaged {
    /// All invariants hold from the first decision on, whatever the state was. Only the earlier admissions are
    /// unknown.
    pub(crate) fn carry_out(&self) -> Result<Tally, String> {
        let quota = quota(&self.limit).expect("the limits of a run are valid");
        let mut subject = Subject::new(quota, Some(self.state.clone()), self.start);
        let mut tally = Tally::default();
        for step in &self.steps {
            let state = subject.state.as_ref().filter(|state| {
                let now = subject.timestamp();
                subject.quota.repair(state, now).is_some()
            });
            tally.repaired += u64::from(state.is_some());
            let verdict = match &step.act {
                Act::Check(units) => subject.check(units.resolve(&subject))?,
                Act::Refund(units) => {
                    subject.refund(units.resolve(&subject))?;
                    subject.check(0)?
                }
                Act::Report(units) => subject.report(units.resolve(&subject))?,
                Act::Drop | Act::Change(_) => subject.check(1)?,
            };
            tally.count(verdict);
            subject.now = step.time.resolve(&subject).min(NOW_MAX);
        }
        Ok(tally)
    }
}

/// Damaged states and the steps that follow.
pub(crate) fn damaged() -> impl Strategy<Value = Damaged> {
    starts().prop_flat_map(|start| {
        let pairs = prop_oneof![
            (prop_oneof![buckets(), buckets_with_credits()], damaged_bucket(start)),
            (logs(), damaged_log(start)),
            (counters(), damaged_counter(start)),
            (prop_oneof![fixed(), uneven()], damaged_fixed(start)),
        ];
        let steps = vec(steps(all_limits()), 1..=20);
        (pairs, steps).prop_map(move |((limit, state), steps)| Damaged { limit, state, start, steps })
    })
}

/// Any number, most often one near `start` or at the end of a range.
fn damaged_number(start: u64) -> BoxedStrategy<u64> {
    let near = (0..=3 * DAY, any::<bool>());
    prop_oneof![
        any::<u64>(),
        0..=10u64,
        (0..=10u64).prop_map(|below| u64::MAX - below),
        (0..=2u64).prop_map(|below| (1 << 53) - below),
        near.prop_map(move |(far, later)| if later { start + far } else { start.saturating_sub(far) }),
        (0..=50u64).prop_map(move |far| start + far),
    ]
    .boxed()
}

fn damaged_instant(start: u64) -> impl Strategy<Value = Timestamp> {
    damaged_number(start).prop_map(Timestamp::from_micros)
}

fn damaged_bucket(start: u64) -> BoxedStrategy<State> {
    let number = || damaged_number(start);
    (number(), number(), number(), number())
        .prop_map(|(tat_micros, tat_parts, parts_per_micro, kept_until_micros)| {
            let state = TokenBucketState { tat_micros, tat_parts, parts_per_micro, kept_until_micros };
            State::TokenBucket(state)
        })
        .boxed()
}

fn damaged_log(start: u64) -> BoxedStrategy<State> {
    let units = prop_oneof![0..=5u32, any::<u32>(), Just(u32::MAX)];
    let entries = vec((damaged_instant(start), units), 0..=8);
    let entry = |(at, units)| Entry { at, units };
    entries
        .prop_map(move |entries| {
            State::SlidingWindow(SlidingWindowState::from_entries(entries.into_iter().map(entry)))
        })
        .boxed()
}

fn damaged_counter(start: u64) -> BoxedStrategy<State> {
    (damaged_number(start), damaged_number(start), damaged_instant(start))
        .prop_map(|(previous, current, end)| State::SlidingCounter(SlidingCounterState { previous, current, end }))
        .boxed()
}

fn damaged_fixed(start: u64) -> BoxedStrategy<State> {
    (damaged_number(start), damaged_instant(start))
        .prop_map(|(count, end)| State::FixedWindow(FixedWindowState { count, end }))
        .boxed()
}
