//! Runs one identity through the core and the model side by side.
//!
//! [`Run`] takes one step at a time and checks the invariants of a single process after each. I1: no interval exceeds
//! the bound. I2: the model agrees on every decision. I3: `retry_after` is exact to the microsecond. I4: exactly
//! `remaining` units are admitted. I7: an expired state is equivalent to no state. I8: a denial changes nothing. I9:
//! going back in time frees nothing. I5, no panic and no overflow, is checked by running at all, because overflow
//! checks are on. [`Subject`] is the core's side alone, for states that no history of the model explains.

use sluicegate_core::{
    Align, Calendar, Cost, DEBT_LIMITS_MAX, FixedWindow, Micros, Outcome, Quota, QuotaError, Rate, SlidingCounter,
    SlidingWindow, State, Timestamp, TokenBucket, Verdict,
};
use sluicegate_testkit::model::monitor::{Leak, heaviest_window};
use sluicegate_testkit::model::{self, Bucket, Exact, Fixed, Limit, Model, Uneven, whole};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The violated invariant as text; `Ok` if all hold.
pub(crate) type Check = Result<(), String>;

/// Returns an error from the function unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

pub(crate) use ensure;

/// The core's quota for a limit of the model.
pub(crate) fn quota(limit: &Limit) -> Result<Quota, QuotaError> {
    Ok(match limit {
        Limit::Bucket(Bucket { capacity, credits, amount, period, credit_ttl }) => {
            let refill = Rate::new(*amount, Micros::from_micros(*period))?;
            TokenBucket::with_credits(*capacity, refill, *credits, Micros::from_micros(*credit_ttl))?.into()
        }
        Limit::Log(log) => SlidingWindow::new(log.limit, Micros::from_micros(log.window))?.into(),
        Limit::Counter(counter) => SlidingCounter::new(counter.limit, Micros::from_micros(counter.window))?.into(),
        Limit::Fixed(fixed) => {
            FixedWindow::new(fixed.limit, Micros::from_micros(fixed.window), Align::Epoch)?.into()
        }
        Limit::Uneven(uneven) => FixedWindow::on_calendar(uneven.limit, Arc::new(calendar(uneven)?))?.into(),
    })
}

/// The core's calendar for one of the model.
pub(crate) fn calendar(uneven: &Uneven) -> Result<Calendar, QuotaError> {
    let mut start = uneven.first;
    let run = |length: &u64| {
        let run = sluicegate_core::calendar::Run {
            start: Timestamp::from_micros(start),
            length: Micros::from_micros(*length),
        };
        start += length;
        run
    };
    // The model's calendars may share a name.
    Calendar::new("any", uneven.lengths.iter().map(run).collect::<Vec<_>>())
}

/// One identity on the core's side.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) quota: Quota,
    pub(crate) state: Option<State>,
    /// Microseconds since the epoch.
    pub(crate) now: u64,
    /// The last verdict; later steps may aim at it.
    pub(crate) verdict: Option<Verdict>,
}

impl Subject {
    pub(crate) fn new(quota: Quota, state: Option<State>, now: u64) -> Self {
        Self { quota, state, now, verdict: None }
    }

    pub(crate) fn timestamp(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    /// The remaining units.
    pub(crate) fn remaining(&self) -> u64 {
        self.quota.standing(self.state.as_ref(), self.timestamp()).remaining
    }

    /// True unless another algorithm wrote the state.
    fn is_own(&self, state: &State) -> bool {
        matches!(
            (&self.quota, state),
            (Quota::TokenBucket(_), State::TokenBucket(_))
                | (Quota::SlidingWindow(_), State::SlidingWindow(_))
                | (Quota::SlidingCounter(_), State::SlidingCounter(_))
                | (Quota::FixedWindow(_), State::FixedWindow(_))
        )
    }

    /// Charges `cost` and checks the invariants of any result: I3, I4, I7, I8 and I9.
    pub(crate) fn check(&mut self, cost: u32) -> Result<Verdict, String> {
        let (cost, now) = (Cost::new(cost), self.timestamp());
        let before = self.quota.repaired(self.state.clone(), now).filter(|state| self.is_own(state));
        let (after, verdict) = self.quota.decide(self.state.take(), cost, now);
        if !verdict.outcome.is_allowed() || cost.is_zero() {
            ensure!(after == before, "I8: {cost:?} was not charged, but {before:?} became {after:?}");
        }
        check_promises(&self.quota, after.as_ref(), cost, now, verdict)?;
        self.state = after;
        self.verdict = Some(verdict);
        Ok(verdict)
    }

    /// Charges `cost` in full and returns the verdict on the same cost afterwards. No report forgives a debt or makes
    /// one beyond the bound.
    pub(crate) fn report(&mut self, cost: u32) -> Result<Verdict, String> {
        let (cost, now) = (Cost::new(cost), self.timestamp());
        let before = self.quota.repaired(self.state.take(), now);
        let (stood, cut_off) =
            (self.quota.standing(before.as_ref(), now), self.quota.cut_off(before.as_ref(), cost, now));
        let after = self.quota.force(before, cost, now);
        let verdict = self.quota.verdict(self.quota.outcome(after.as_ref(), cost, now), after.as_ref(), now);
        let most = self.quota.limit().saturating_mul(DEBT_LIMITS_MAX).max(stood.debt);
        let is_counter = matches!(self.quota, Quota::SlidingCounter(_));
        ensure!(is_counter || verdict.debt <= most, "a report of {cost:?} made a debt of {}", verdict.debt);
        ensure!(verdict.debt >= stood.debt, "a report of {cost:?} forgave a debt of {}", stood.debt);
        ensure!(verdict.debt == 0 || verdict.remaining == 0, "{verdict:?} remains in debt");
        ensure!(cut_off <= cost.units(), "{cut_off} of {cost:?} were cut off");
        check_promises(&self.quota, after.as_ref(), cost, now, verdict)?;
        self.state = after;
        self.verdict = Some(verdict);
        Ok(verdict)
    }

    /// Refunds `cost`. Whatever the state, a refund must neither take nor create units.
    pub(crate) fn refund(&mut self, cost: u32) -> Check {
        let before = self.remaining();
        let state = self.state.take();
        self.state = self.quota.refund(state.clone(), Cost::new(cost), self.timestamp());
        let after = self.remaining();
        let own = self.state.as_ref().is_none_or(|state| self.is_own(state));
        ensure!(own, "a refund kept the state of another algorithm: {:?}", self.state);
        ensure!(before <= after, "a refund of {cost} took something: {before} before, {after} after");
        ensure!(after <= self.quota.limit(), "a refund of {cost} minted: {after} left");
        ensure!(after - before <= u64::from(cost), "a refund of {cost} gave more: {before}, then {after}");
        Ok(())
    }
}

/// One identity in the core and in the model, with the observed admissions.
#[derive(Clone)]
pub(crate) struct Run {
    subject: Subject,
    model: Model,
    watch: Watch,
}

impl Run {
    /// A new identity at `now`.
    pub(crate) fn new(limit: &Limit, now: u64) -> Self {
        let quota = quota(limit).expect("the limits of a run are valid");
        let subject = Subject::new(quota, None, now);
        Self { subject, model: Model::new(limit.clone()), watch: Watch::new(limit) }
    }

    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    pub(crate) fn limit(&self) -> &Limit {
        self.model.limit()
    }

    /// A value that is equal for two runs that will continue alike.
    pub(crate) fn fingerprint(&self) -> impl Eq + std::hash::Hash + use<> {
        let Subject { quota, state, now, .. } = &self.subject;
        (*now, format!("{quota:?} {state:?}"), self.model.fingerprint())
    }

    /// Moves the clock, forwards or back.
    pub(crate) fn set_clock(&mut self, now: u64) {
        let now = now.min(Timestamp::NOW_MAX.as_micros());
        self.watch.clock_moved(self.subject.now, now);
        self.subject.now = now;
    }

    /// Charges `cost` and checks all invariants of the result.
    pub(crate) fn check(&mut self, cost: u32) -> Result<Verdict, String> {
        let now = self.subject.now;
        if self.needs_repair() {
            self.watch.repaired();
        }
        let verdict = self.subject.check(cost)?;
        let answer = self.model.check(u64::from(cost), now);
        ensure!(
            answer == answer_of(verdict),
            "I2 at {now} for {cost}: the core returns {verdict:?}, the model {answer:?}"
        );
        if let Some(State::TokenBucket(state)) = &self.subject.state {
            // Each value has one representation. Otherwise two stores that agree would look different.
            ensure!(state.tat_parts < state.parts_per_micro, "a whole microsecond in parts: {state:?}");
        }
        if verdict.outcome.is_allowed() {
            self.watch.passed(now, &whole(u64::from(cost)), i128::from(cost));
        }
        Ok(verdict)
    }

    /// Charges `cost` in full and checks the effect. Usage that has already happened is no admission.
    pub(crate) fn report(&mut self, cost: u32) -> Result<Verdict, String> {
        let now = self.subject.now;
        if self.needs_repair() {
            self.watch.repaired();
        }
        let verdict = self.subject.report(cost)?;
        let answer = self.model.report(u64::from(cost), now);
        ensure!(
            answer == answer_of(verdict),
            "I2 at {now} for a report of {cost}: the core returns {verdict:?}, the model {answer:?}"
        );
        Ok(verdict)
    }

    /// Refunds `cost` and checks the effect.
    pub(crate) fn refund(&mut self, cost: u32) -> Result<Verdict, String> {
        self.subject.refund(cost)?;
        let given_back = self.model.refund(u64::from(cost), self.subject.now);
        let units = i128::try_from(given_back.to_integer()).expect("units are 64 bits");
        self.watch.passed(self.subject.now, &-given_back, -units);
        self.check(0)
    }

    /// True if the next request will find the state in need of repair.
    pub(crate) fn needs_repair(&self) -> bool {
        let Subject { quota, state, .. } = &self.subject;
        state.as_ref().is_some_and(|state| quota.repair(state, self.subject.timestamp()).is_some())
    }

    /// Drops an expired state, as a store may at any moment. Returns whether it did.
    pub(crate) fn drop_expired(&mut self) -> bool {
        let Subject { quota, state, .. } = &self.subject;
        let now = self.subject.timestamp();
        let expired = state.as_ref().is_some_and(|state| now > quota.kept_until(state));
        if expired {
            self.subject.state = None;
        }
        expired
    }

    /// Changes the limit of the identity.
    pub(crate) fn change(&mut self, limit: &Limit) -> Check {
        self.verify_bound()?;
        if self.subject.state.is_none() {
            // A state that a store has dropped does not return under a longer window.
            self.model.forget();
        }
        self.subject.quota = quota(limit).expect("the limits of a run are valid");
        self.subject.verdict = None;
        self.model.change(limit.clone());
        self.watch = Watch::new(limit);
        Ok(())
    }

    /// Checks I1 for everything since the run began or the limit last changed.
    pub(crate) fn verify_bound(&self) -> Check {
        self.watch.verify(self.model.limit())
    }
}

/// I1: the admissions over time. The time is the forward movement of the clock, without its steps back, so the bounds
/// hold for a clock that steps back as well.
#[derive(Clone)]
struct Watch {
    elapsed: u64,
    leak: Leak,
    /// The same by clock readings. As long as no state was repaired, a bucket keeps its bound between any two
    /// readings, in whatever order they came. So no client gains by clocks that differ.
    readings: Leak,
    rate: Exact,
    records: Vec<(u64, i128)>,
    /// The admissions in each calendar window; dropped once the clock has stepped back.
    calendar: Option<BTreeMap<u64, i128>>,
    /// The shortest window, if windows differ.
    window: u64,
    uneven: Option<Uneven>,
}

impl Watch {
    fn new(limit: &Limit) -> Self {
        let (rate, window) = match limit {
            Limit::Bucket(bucket) => (bucket.refill(), bucket.period),
            Limit::Log(log) => (whole(0), log.window),
            Limit::Counter(counter) => (whole(0), counter.window),
            Limit::Fixed(fixed) => (whole(0), fixed.window),
            Limit::Uneven(uneven) => (whole(0), uneven.lengths.iter().copied().min().unwrap_or(1)),
        };
        let uneven = if let Limit::Uneven(uneven) = limit { Some(uneven.clone()) } else { None };
        let calendar = Some(BTreeMap::new());
        let (leak, readings) = (Leak::new(rate.clone()), Leak::new(rate.clone()));
        Self { elapsed: 0, leak, readings, rate, records: Vec::new(), calendar, window, uneven }
    }

    fn repaired(&mut self) {
        self.readings = Leak::new(self.rate.clone());
    }

    fn clock_moved(&mut self, from: u64, to: u64) {
        self.elapsed += to.saturating_sub(from);
        if to < from {
            self.calendar = None;
        }
    }

    fn passed(&mut self, now: u64, exact: &Exact, units: i128) {
        if *exact == whole(0) {
            return;
        }
        self.leak.record(self.elapsed, exact);
        self.readings.record(now, exact);
        self.records.push((self.elapsed, units));
        if let Some(calendar) = &mut self.calendar {
            let window = self.uneven.as_ref().map_or(now / self.window, |uneven| uneven.end_after(now));
            *calendar.entry(window).or_default() += units;
        }
    }

    fn verify(&self, limit: &Limit) -> Check {
        let (heaviest, bound) = match limit {
            Limit::Bucket(bucket) => {
                let brim = whole(bucket.brim());
                for highest in [self.leak.highest(), self.readings.highest()] {
                    ensure!(*highest <= brim, "I1: {highest} passed beyond the rate, the bound is {brim}");
                }
                return Ok(());
            }
            Limit::Log(log) => (heaviest_window(&self.records, log.window), i128::from(log.limit)),
            Limit::Fixed(Fixed { limit, .. }) | Limit::Uneven(Uneven { limit, .. }) => {
                let per_window = self.calendar.iter().flat_map(BTreeMap::values).max().unwrap_or(&0);
                ensure!(*per_window <= i128::from(*limit), "I1: {per_window} passed in one calendar window");
                (heaviest_window(&self.records, self.window), 2 * i128::from(*limit))
            }
            Limit::Counter(counter) => {
                let bound = (2 * i128::from(counter.limit) - 1).max(0);
                (heaviest_window(&self.records, counter.window), bound)
            }
        };
        ensure!(heaviest <= bound, "I1: {heaviest} passed within one window, the bound is {bound}");
        Ok(())
    }
}

/// Checks the invariants of any verdict on any state that a decision left, whatever came before: I3, I4, I7, I8 and
/// I9.
fn check_promises(quota: &Quota, state: Option<&State>, cost: Cost, now: Timestamp, verdict: Verdict) -> Check {
    ensure!(verdict.limit == quota.limit(), "the limit is {}, not {}", quota.limit(), verdict.limit);
    if let Some(state) = state {
        ensure!(quota.repair(state, now).is_none(), "I8: {state:?} is in need of repair after a decision");
    }
    check_wait(quota, state, cost, now, verdict.outcome)?;
    check_remaining(quota, state, now, verdict)?;
    check_forgetting(quota, state, now)?;
    check_going_back(quota, state, now, verdict.remaining)
}

fn decide(quota: &Quota, state: Option<&State>, cost: Cost, now: Timestamp) -> Verdict {
    quota.decide(state.cloned(), cost, now).1
}

/// I3: after `retry_after` the same cost is admitted, and a microsecond earlier it is not. Never means never.
fn check_wait(quota: &Quota, state: Option<&State>, cost: Cost, now: Timestamp, outcome: Outcome) -> Check {
    match outcome {
        Outcome::Allowed => {}
        Outcome::Denied { retry_after } => {
            ensure!(!retry_after.is_zero(), "I3: denied with a wait of zero");
            let then = now.plus(retry_after);
            let verdict = decide(quota, state, cost, then);
            ensure!(verdict.outcome.is_allowed(), "I3: {cost:?} waited {retry_after:?} in vain: {verdict:?}");
            let verdict = decide(quota, state, cost, Timestamp::from_micros(then.as_micros() - 1));
            let left = Outcome::Denied { retry_after: Micros::from_micros(1) };
            ensure!(verdict.outcome == left, "I3: {cost:?} need not have waited {retry_after:?}: {verdict:?}");
        }
        Outcome::NeverAdmissible => {
            for wait in [Micros::from_micros(1), quota.window(), Micros::PERIOD_MAX] {
                let verdict = decide(quota, state, cost, now.plus(wait));
                let never = verdict.outcome == Outcome::NeverAdmissible;
                ensure!(never, "I3: {cost:?} is never admissible, but after {wait:?}: {verdict:?}");
            }
        }
    }
    Ok(())
}

/// I4: `remaining` units are admitted at this instant, together or one by one, and not one more.
fn check_remaining(quota: &Quota, state: Option<&State>, now: Timestamp, verdict: Verdict) -> Check {
    let remaining = verdict.remaining;
    ensure!(remaining <= quota.limit(), "I4: {remaining} of {} remain", quota.limit());
    if let Ok(cost) = u32::try_from(remaining) {
        let all = decide(quota, state, Cost::new(cost), now);
        ensure!(all.outcome.is_allowed(), "I4: {remaining} remain, but: {all:?}");
        let left = if cost == 0 { remaining } else { all.remaining };
        ensure!(left == 0, "I4: {remaining} were taken and {left} are left");
    }
    if let Ok(cost) = u32::try_from(remaining + 1) {
        let more = decide(quota, state, Cost::new(cost), now);
        ensure!(!more.outcome.is_allowed(), "I4: only {remaining} remain, but one more passed");
    }
    if remaining <= 8 {
        let mut state = state.cloned();
        for left in (0..remaining).rev() {
            let (next, verdict) = quota.decide(state, Cost::ONE, now);
            ensure!(verdict.outcome.is_allowed(), "I4: a unit was denied with {left} still to come");
            ensure!(verdict.remaining == left, "I4: {} remain instead of {left}", verdict.remaining);
            state = next;
        }
    }
    Ok(())
}

/// I7: from the first instant after `kept_until` on, the state is equivalent to no state.
fn check_forgetting(quota: &Quota, state: Option<&State>, now: Timestamp) -> Check {
    // There is no instant after the last one.
    let Some(kept) = state.filter(|state| quota.kept_until(state) < Timestamp::MAX) else { return Ok(()) };
    let forgotten = now.max(Timestamp::from_micros(quota.kept_until(kept).as_micros() + 1));
    for later in [forgotten, forgotten.plus(Micros::from_micros(1)), forgotten.plus(quota.window())] {
        for cost in [Cost::ZERO, Cost::ONE, Cost::new(u32::try_from(quota.limit()).unwrap_or(u32::MAX))] {
            let (with, without) = (decide(quota, state, cost, later), decide(quota, None, cost, later));
            ensure!(with == without, "I7 at {later:?}: {with:?} with {kept:?}, {without:?} without");
        }
    }
    Ok(())
}

/// I9: with the same state, an earlier instant never admits more.
fn check_going_back(quota: &Quota, state: Option<&State>, now: Timestamp, remaining: u64) -> Check {
    // An expired identity has lost its credits. Going back to a time before the expiry is no gain.
    let Some(kept) = state.filter(|state| now <= quota.kept_until(state)) else { return Ok(()) };
    let window = quota.window().as_micros();
    for back in [1, window / 3 + 1, window, 3 * window + 1] {
        let earlier = Timestamp::from_micros(now.as_micros().saturating_sub(back));
        let verdict = decide(quota, state, Cost::ZERO, earlier);
        ensure!(
            verdict.remaining <= remaining,
            "I9: {remaining} remain of {kept:?} at {now:?}, but {} at {earlier:?}",
            verdict.remaining
        );
    }
    Ok(())
}

/// The verdict as an answer of the model.
fn answer_of(verdict: Verdict) -> model::Answer {
    let Verdict { outcome, remaining, debt, reset_after, .. } = verdict;
    model::Answer { outcome: plain(outcome), remaining, debt, reset_after: reset_after.as_micros() }
}

fn plain(outcome: Outcome) -> model::Outcome {
    match outcome {
        Outcome::Allowed => model::Outcome::Allowed,
        Outcome::Denied { retry_after } => model::Outcome::Denied { retry_after: retry_after.as_micros() },
        Outcome::NeverAdmissible => model::Outcome::Never,
    }
}
