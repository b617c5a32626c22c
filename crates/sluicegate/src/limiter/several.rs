//! Several requests, one decision: all of them pass and are charged, or none is.
//!
//! Their charges go to the store in one call. A state that several of them count in is charged once, with the sum of
//! their costs: a store looks at all limits before it writes, so a key that stood in a call twice would be found with
//! room for either, and both would take it.

use super::failure::{self, Local};
use super::{Action, CheckError, Limiter, Question, is_free, validate};
use crate::clock::Clock;
use crate::decision::{Decision, Degradation};
use crate::identity::Request;
use crate::observe::{Decided, Observer, Undecided};
use crate::rules::matching::{Applied, Charges, Matched, Origins};
use crate::rules::{DEADLINES, OnStoreFailure, RuleSet, Unmatched};
use crate::store::{Charge, Reply, Store, StoreError, Verdicts};
use sluicegate_core::{Cost, Micros, Timestamp};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// What was decided about several requests at once.
#[derive(Clone, Debug)]
pub struct Decisions {
    joint: Decision,
    each: Vec<Decision>,
}

impl Decisions {
    /// True if all may pass.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.joint.is_allowed()
    }

    /// The decision about all of them: every limit that had a say, once.
    #[must_use]
    pub fn joint(&self) -> &Decision {
        &self.joint
    }

    /// What the limits of each request said, in the order of the requests. One that is allowed here passes only if all
    /// are.
    #[must_use]
    pub fn each(&self) -> &[Decision] {
        &self.each
    }

    /// The decision about all of them, and what the limits of each said.
    #[must_use]
    pub fn into_parts(self) -> (Decision, Vec<Decision>) {
        (self.joint, self.each)
    }
}

impl<S: Store, C: Clock, O: Observer> Limiter<S, C, O> {
    /// Decides several requests as one: if all limits of all of them have room, all are charged, otherwise none is.
    /// Where several count in one state, that must have room for all of them.
    ///
    /// `rules` are [those in force](Limiter::rules), or were when something was looked up in them.
    ///
    /// ```
    /// use sluicegate::clock::SystemClock;
    /// use sluicegate::core::{Align, FixedWindow, Micros, Quota};
    /// use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
    /// use sluicegate::{Limiter, MemoryStore, Request};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let quota = Quota::from(FixedWindow::new(2, Micros::from_secs(86_400), Align::Epoch)?);
    /// let rule = Rule::new("daily", Limits::all("daily", [(None, quota)]));
    /// let rules = RuleSet::new(vec![rule], vec![], Unmatched::Allow)?;
    /// let limiter = Limiter::new(rules, MemoryStore::default(), SystemClock::new());
    ///
    /// let (alice, bob) = (Request::new("reports", "alice"), Request::new("reports", "bob"));
    /// assert!(limiter.check_all(&limiter.rules(), &[alice, bob]).await?.is_allowed());
    /// // One is left for each of them, so there is no room for two of alice, and nothing is charged.
    /// let decisions = limiter.check_all(&limiter.rules(), &[alice, bob, alice]).await?;
    /// assert!(!decisions.is_allowed());
    /// assert!(!decisions.each()[0].is_allowed() && decisions.each()[1].is_allowed());
    /// assert!(limiter.check_all(&limiter.rules(), &[alice, bob]).await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If one of the requests is malformed, or the store could not decide and a rule is closed then.
    pub async fn check_all(
        &self,
        rules: &Arc<RuleSet>,
        requests: &[Request<'_>],
    ) -> Result<Decisions, CheckError> {
        self.act_all(rules, requests, Action::Charge).await
    }

    /// What [`Limiter::check_all`] would decide, without charging anything.
    ///
    /// # Errors
    /// As [`Limiter::check_all`].
    pub async fn peek_all(&self, rules: &Arc<RuleSet>, requests: &[Request<'_>]) -> Result<Decisions, CheckError> {
        self.act_all(rules, requests, Action::Peek).await
    }

    /// Gives the costs of all requests back, then answers as [`Limiter::peek_all`].
    ///
    /// # Errors
    /// As [`Limiter::refund`].
    pub async fn refund_all(
        &self,
        rules: &Arc<RuleSet>,
        requests: &[Request<'_>],
    ) -> Result<Decisions, CheckError> {
        self.act_all(rules, requests, Action::Refund).await
    }

    async fn act_all(
        &self,
        rules: &Arc<RuleSet>,
        requests: &[Request<'_>],
        action: Action,
    ) -> Result<Decisions, CheckError> {
        let began = self.clock.now();
        let joint = Joint::new(rules, requests, began)?;
        let now = if self.is_worth_measuring(rules) { self.clock.now() } else { began };
        // What no rule covers is denied without asking, and nothing is charged for the others then.
        let is_covered = rules.unmatched() == Unmatched::Allow || joint.is_covered();
        let done = if action == Action::Charge && !is_covered { Action::Peek } else { action };
        let asked = self.ask(&joint.charges, done, now, joint.deadline).await;
        let asked_store = !joint.charges.is_empty();
        let took = self.answered(done, &joint.charges, now, began);
        let operation = done.into();
        let question = Question { requests, operation, began, asked_at: now, asked_store, took };
        let decisions = match asked {
            Ok(reply) => {
                let decisions = joint.decisions(rules, reply.verdicts, reply.now);
                if joint.any_local && self.store.can_fail() {
                    self.fallback.follow(rules, &joint.charges, &decisions.joint, self.clock.now(), done);
                }
                decisions
            }
            Err(error) => {
                let failed = FailedAll { rules, requests, joint, error, is_observed: action == Action::Charge };
                let answered = self.without_store_all(failed, done, took);
                answered.inspect_err(|error| self.finished(question, Err(error)))?
            }
        };
        if action == Action::Charge {
            for (request, decision) in requests.iter().zip(&decisions.each) {
                self.observer.decided(&Decided { request, decision, asked_at: now, took });
            }
        }
        self.finished(question, Ok(&decisions.joint));
        Ok(decisions)
    }

    async fn ask(
        &self,
        charges: &[Charge<'_>],
        action: Action,
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        match action {
            _ if charges.is_empty() => Ok(Reply { now, verdicts: Verdicts::new() }),
            Action::Charge => self.store.charge(charges, now, deadline).await,
            Action::Peek => self.store.peek(charges, now, deadline).await,
            Action::Refund => self.store.refund(charges, now, deadline).await,
            Action::Reset => self.reset_own(charges, now, deadline).await,
        }
    }

    /// What the rules say where the store said nothing.
    #[cold]
    fn without_store_all(
        &self,
        failed: FailedAll<'_>,
        action: Action,
        took: Micros,
    ) -> Result<Decisions, CheckError> {
        let FailedAll { rules, requests, joint, error, is_observed } = failed;
        self.observer.store_failed(&error);
        if matches!(action, Action::Refund | Action::Reset) {
            return Err(error.into());
        }
        let now = self.clock.now();
        let answers = joint.answers(rules, &error);
        if answers.contains(&Some(OnStoreFailure::Closed)) {
            for (request, part) in requests.iter().zip(&joint.parts).filter(|_| is_observed) {
                let closed = joint.origins(part, |place| answers[place] == Some(OnStoreFailure::Closed));
                let (error, closed) = (&error, &*closed);
                self.observer.undecided(&Undecided { request, error, now, took, rules, closed });
            }
            return Err(error.into());
        }
        let local = joint.local(&answers);
        let verdicts = self.fallback.decide(rules, &local, now, action);
        Ok(joint.degraded(rules, &answers, &verdicts, now, &error))
    }
}

/// Requests that the store said nothing to.
struct FailedAll<'a> {
    rules: &'a Arc<RuleSet>,
    requests: &'a [Request<'a>],
    joint: Joint<'a>,
    error: StoreError,
    is_observed: bool,
}

/// What several requests are charged together.
struct Joint<'a> {
    /// One charge for each state.
    charges: Charges<'a>,
    /// The origin of each.
    applied: Origins,
    /// Which of them each request has.
    parts: Vec<Part>,
    any_local: bool,
    deadline: Duration,
}

/// What one of several requests is charged.
struct Part {
    /// The places of its charges.
    places: SmallVec<[usize; 2]>,
    /// Whether a rule covers it, or it needs none.
    is_covered: bool,
}

/// What every charge's rule says without the store, if it says anything.
type ByPlace = SmallVec<[Option<OnStoreFailure>; 4]>;

impl<'a> Joint<'a> {
    fn new(rules: &'a RuleSet, requests: &[Request<'a>], now: Timestamp) -> Result<Self, CheckError> {
        let mut joint = Self {
            charges: SmallVec::new(),
            applied: SmallVec::new(),
            parts: Vec::with_capacity(requests.len()),
            any_local: false,
            deadline: *DEADLINES.end(),
        };
        for request in requests {
            validate(rules, request)?;
            joint.add(rules, rules.matched(request, now), is_free(request))?;
        }
        Ok(joint)
    }

    fn add(&mut self, rules: &'a RuleSet, matched: Matched<'a>, is_free: bool) -> Result<(), CheckError> {
        let mut part = Part { places: SmallVec::new(), is_covered: matched.any || is_free };
        self.any_local |= matched.any_local;
        self.deadline = self.deadline.min(matched.deadline);
        let (charges, applied) = matched.into_parts();
        for (charge, applied) in charges.into_iter().zip(applied) {
            part.places.push(self.place_of(rules, charge, applied)?);
        }
        self.parts.push(part);
        Ok(())
    }

    /// Where the charge stands now: where there already is one to the same state, or at the end.
    fn place_of(&mut self, rules: &'a RuleSet, charge: Charge<'a>, applied: Applied) -> Result<usize, CheckError> {
        let is_same = |(before, origin): (&Charge<'_>, &Applied)| {
            let is_same_rule = || before.key.space.name() == charge.key.space.name();
            (origin.rule == applied.rule || is_same_rule()) && before.key.subject == charge.key.subject
        };
        let Some(place) = self.charges.iter().zip(&self.applied).position(is_same) else {
            self.charges.push(charge);
            self.applied.push(applied);
            return Ok(self.charges.len() - 1);
        };
        let before = &mut self.charges[place];
        let cost = before.cost.get().checked_add(charge.cost.get()).ok_or(CheckError::TooMuch)?;
        // Who shares a state may have other limits on it by an override; the smaller are right for both.
        if self.applied[place] != applied && least(rules, applied) < least(rules, self.applied[place]) {
            self.applied[place] = applied;
            before.quotas = charge.quotas;
        }
        before.cost = Cost::new(cost);
        Ok(place)
    }

    fn is_covered(&self) -> bool {
        self.parts.iter().all(|part| part.is_covered)
    }

    /// The decisions by these verdicts on all charges.
    fn decisions(&self, rules: &Arc<RuleSet>, verdicts: Verdicts, now: Timestamp) -> Decisions {
        let starts = self.starts(|_| true);
        let each = self.parts.iter().map(|part| {
            let applied = self.origins(part, |_| true);
            let said = self.verdicts_of(part, &starts, &verdicts);
            Decision::new(Arc::clone(rules), applied, said, now, part.is_covered)
        });
        let each = each.collect();
        let joint = Decision::new(Arc::clone(rules), self.applied.clone(), verdicts, now, self.is_covered());
        Decisions { joint, each }
    }

    /// The decisions where only local charges have verdicts.
    fn degraded(
        &self,
        rules: &Arc<RuleSet>,
        answers: &ByPlace,
        verdicts: &Verdicts,
        now: Timestamp,
        error: &StoreError,
    ) -> Decisions {
        let is_local = |place: usize| answers[place] == Some(OnStoreFailure::Local);
        let is_open = |place: usize| answers[place] == Some(OnStoreFailure::Open);
        let starts = self.starts(is_local);
        let decided = |part: &Part| {
            let said = self.verdicts_of(part, &starts, verdicts);
            let decision =
                Decision::new(Arc::clone(rules), self.origins(part, is_local), said, now, part.is_covered);
            let error = StoreError::new(error.class, error.message.clone());
            decision.degraded(Degradation { error, open: self.origins(part, is_open) })
        };
        let all = Part { places: (0..self.charges.len()).collect(), is_covered: self.is_covered() };
        Decisions { joint: decided(&all), each: self.parts.iter().map(decided).collect() }
    }

    fn answers(&self, rules: &RuleSet, error: &StoreError) -> ByPlace {
        let charges = self.charges.iter().zip(&self.applied);
        charges
            .map(|(charge, applied)| failure::answer(&rules.rules()[applied.rule], charge, error.class))
            .collect()
    }

    fn local(&self, answers: &ByPlace) -> Local<'a> {
        let mut local = Local::default();
        for (place, answer) in answers.iter().enumerate() {
            if *answer == Some(OnStoreFailure::Local) {
                local.charges.push(self.charges[place]);
                local.applied.push(self.applied[place]);
            }
        }
        local
    }

    /// The origins of a request's charges that `is_wanted`.
    fn origins(&self, part: &Part, is_wanted: impl Fn(usize) -> bool) -> Origins {
        part.places.iter().filter(|place| is_wanted(**place)).map(|place| self.applied[*place]).collect()
    }

    /// Where the verdicts of each charge begin, where only those that `is_asked` have any.
    fn starts(&self, is_asked: impl Fn(usize) -> bool) -> SmallVec<[Option<usize>; 4]> {
        let mut next = 0;
        let start = |(place, charge): (usize, &Charge<'_>)| {
            let start = is_asked(place).then_some(next);
            next += start.map_or(0, |_| charge.quotas.len());
            start
        };
        self.charges.iter().enumerate().map(start).collect()
    }

    fn verdicts_of(&self, part: &Part, starts: &[Option<usize>], verdicts: &Verdicts) -> Verdicts {
        let said =
            part.places.iter().filter_map(|place| Some((starts[*place]?, self.charges[*place].quotas.len())));
        said.flat_map(|(start, count)| verdicts.iter().skip(start).take(count).copied()).collect()
    }
}

/// The least that the limits let pass.
fn least(rules: &RuleSet, applied: Applied) -> Option<u64> {
    let limits = rules.rules()[applied.rule].limits_of(applied.source);
    limits.quotas().iter().map(|quota| quota.limit()).min()
}
