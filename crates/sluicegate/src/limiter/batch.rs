//! A batch of requests under one decision: the limiter allows and charges all of them, or none but the usage that has
//! already happened.
//!
//! The charges go to the store in one call. If several requests share a state, it is charged once, with the sum of their
//! costs. A store checks all limits before it writes, so two charges to one key would each find the room that only one of
//! them may take.

use super::failure::{self, LocalCharges};
use super::{Action, Limiter, needs_no_rule, validate};
use crate::clock::Clock;
use crate::decision::{Decision, Degradation};
use crate::error::CheckError;
use crate::identity::Request;
use crate::observe::{FailClosedEvent, Observer};
use crate::rules::matching::{Applied, Charges, Matched, Origins};
use crate::rules::{DEADLINES, OnStoreFailure, RuleSet, Unmatched};
use crate::store::key::Digest;
use crate::store::{Charge, Store, StoreError, Verdicts};
use hashbrown::HashMap;
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Cost, Micros, Timestamp};
use smallvec::SmallVec;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Rules per unit of work, and the units after which a batch yields: at most 8,192 rules, or one request.
const RULES_PER_UNIT: usize = 64;
const UNITS_PER_TURN: usize = 128;

/// The most charges among which a search for a state is faster than a hash table.
const SEARCHED_MAX: usize = 16;

/// The decision about a batch, with the verdicts for each of its requests.
#[derive(Clone, Debug)]
pub struct Decisions {
    joint: Decision,
    each: Vec<Decision>,
}

impl Decisions {
    /// True if the whole batch is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.joint.is_allowed()
    }

    /// The decision about the batch. Each limit that applies to any request appears once.
    #[must_use]
    pub fn joint(&self) -> &Decision {
        &self.joint
    }

    /// One decision per request, in the order of the requests. An allowed one passes only if the whole batch is allowed.
    #[must_use]
    pub fn each(&self) -> &[Decision] {
        &self.each
    }

    /// The same standing of all limits, as [allowed decisions](Decision::into_allowed).
    #[must_use]
    pub fn into_allowed(self) -> Self {
        let each = self.each.into_iter().map(Decision::into_allowed).collect();
        Self { joint: self.joint.into_allowed(), each }
    }

    /// Splits into the decision about the batch and the decisions per request.
    #[must_use]
    pub fn into_parts(self) -> (Decision, Vec<Decision>) {
        (self.joint, self.each)
    }
}

impl<S: Store, C: Clock, O: Observer> Limiter<S, C, O> {
    /// Decides a batch: if all limits of all requests have room, the limiter charges all of them, otherwise none. A state
    /// that several requests share must have room for the sum of their costs.
    ///
    /// Requests that are [charged always](crate::Charging::Always) take part in the decision and are charged in full
    /// whatever it is, in the same call of the store.
    ///
    /// `rules` come from [`Limiter::rules`]; a server passes them in so that indexes that it looked up in them stay valid.
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
    /// // Each client has one request left, so two of alice do not fit, and nothing is charged.
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
    /// If one of the requests is malformed, or if the store failed and a rule fails closed.
    pub async fn check_all(
        &self,
        rules: &Arc<RuleSet>,
        requests: &[Request<'_>],
    ) -> Result<Decisions, CheckError> {
        self.act_all(rules, requests, Action::Charge).await
    }

    /// Returns the decision that [`Limiter::check_all`] would make, without charging anything.
    ///
    /// # Errors
    /// As [`Limiter::check_all`].
    pub async fn peek_all(&self, rules: &Arc<RuleSet>, requests: &[Request<'_>]) -> Result<Decisions, CheckError> {
        self.act_all(rules, requests, Action::Peek).await
    }

    /// Refunds the costs of all requests, then answers as [`Limiter::peek_all`].
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
        let mut joint = JointCharges::new(rules, requests, self.date(began)).await?;
        let asked_at = self.time_of_call(rules, began);
        // A request that no rule covers is denied without the store. Then the rest of the batch is not charged either, but its
        // usage is.
        let is_covered = rules.unmatched() == Unmatched::Allow || joint.is_covered();
        let done = match action {
            Action::Charge if !is_covered && joint.has_usage() => {
                joint.charges.iter_mut().for_each(|charge| *charge = charge.usage_alone());
                Action::Charge
            }
            Action::Charge if !is_covered => Action::Peek,
            action => action,
        };
        let asked = self.call_store(&joint.charges, done, asked_at, joint.deadline).await;
        let call = self.call(requests, done, !joint.charges.is_empty(), asked_at, began);
        let decisions = match asked {
            Ok(reply) => {
                let decisions = joint.decisions(rules, reply.verdicts, reply.now);
                if joint.any_local && self.store.can_fail() {
                    self.fallback.follow(rules, &joint.charges, &decisions.joint, &self.clock, done);
                }
                decisions
            }
            Err(error) => {
                let failed = FailedBatch { rules, requests, joint, error, is_observed: action == Action::Charge };
                let answered = self.decide_all_without_store(failed, done, call.took);
                answered.inspect_err(|error| self.report_error(call, error))?
            }
        };
        self.observe(call, action, &decisions.each, &decisions.joint);
        Ok(decisions)
    }

    /// Applies the policies of the rules after the store has failed.
    #[cold]
    fn decide_all_without_store(
        &self,
        failed: FailedBatch<'_>,
        action: Action,
        took: Micros,
    ) -> Result<Decisions, CheckError> {
        let FailedBatch { rules, requests, joint, mut error, is_observed } = failed;
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
                self.observer.undecided(&FailClosedEvent { request, error, now, took, rules, closed });
            }
            self.keep_usage(joint.charges.iter(), action, &mut error);
            return Err(error.into());
        }
        let local = joint.local(&answers);
        let verdicts = self.fallback.decide(rules, &local, self.clock.correction(), now, action);
        let decisions = joint.degraded(rules, &answers, &verdicts, self.date(now), &error);
        self.charge_later(&local, &joint.other_usage(&answers), &decisions.joint, action, &mut error);
        Ok(decisions)
    }
}

/// A batch after its store call has failed.
struct FailedBatch<'a> {
    rules: &'a Arc<RuleSet>,
    requests: &'a [Request<'a>],
    joint: JointCharges<'a>,
    error: StoreError,
    is_observed: bool,
}

/// The charges of a batch.
struct JointCharges<'a> {
    /// One charge for each state.
    charges: Charges<'a>,
    /// The rule and limit set of each charge.
    applied: Origins,
    /// The charges of each request.
    parts: Vec<RequestCharges>,
    /// The places of all charges by their keys, once there are more than a search is made through.
    places: HashMap<Digest, usize, foldhash::fast::RandomState>,
    any_local: bool,
    deadline: Duration,
}

/// The charges of one request of a batch.
struct RequestCharges {
    /// The indexes of its charges in the batch.
    places: SmallVec<[usize; 2]>,
    /// Whether a rule matches the request, or it needs none.
    is_covered: bool,
}

/// The answer of each charge's rule to a store failure, by the index of the charge.
type AnswersByCharge = SmallVec<[Option<OnStoreFailure>; 4]>;

impl<'a> JointCharges<'a> {
    /// Matches thousands of rules at most before other tasks of the thread have a turn.
    async fn new(rules: &'a RuleSet, requests: &[Request<'a>], now: Timestamp) -> Result<Self, CheckError> {
        let (units, mut spent) = (1 + rules.rules().len() / RULES_PER_UNIT, 0);
        let mut joint = Self {
            charges: SmallVec::new(),
            applied: SmallVec::new(),
            parts: Vec::with_capacity(requests.len()),
            places: HashMap::default(),
            any_local: false,
            deadline: *DEADLINES.end(),
        };
        for request in requests {
            spent += units;
            if spent > UNITS_PER_TURN {
                spent = 0;
                yield_now().await;
            }
            validate(rules, request)?;
            joint.add(rules, rules.matched(request, now), needs_no_rule(request))?;
        }
        Ok(joint)
    }

    fn add(&mut self, rules: &'a RuleSet, matched: Matched<'a>, needs_no_rule: bool) -> Result<(), CheckError> {
        let mut part = RequestCharges { places: SmallVec::new(), is_covered: matched.any || needs_no_rule };
        self.any_local |= matched.any_local;
        self.deadline = self.deadline.min(matched.deadline);
        let (charges, applied) = matched.into_parts();
        for (charge, applied) in charges.into_iter().zip(applied) {
            part.places.push(self.place_of(rules, charge, applied)?);
        }
        self.parts.push(part);
        Ok(())
    }

    /// The index of the charge in the batch. A charge to a state that is already there is added to that one.
    fn place_of(&mut self, rules: &'a RuleSet, charge: Charge<'a>, applied: Applied) -> Result<usize, CheckError> {
        let Some(place) = self.find(&charge) else { return Ok(self.push(charge, applied)) };
        let before = &mut self.charges[place];
        let cost = before.cost.get().checked_add(charge.cost.get()).ok_or(CheckError::TooMuch)?;
        // Two descriptors may carry different limits for the same unit of time. They share one counter, and both must fit
        // the smaller limit. Limits of different window lengths never share a state.
        // An enforced one also counts where another is in shadow mode.
        let is_enforced = |mode| mode == ChargeMode::Enforced;
        let is_tighter = match (is_enforced(before.mode), is_enforced(charge.mode)) {
            (false, true) => true,
            (true, false) => false,
            _ => least(rules, applied) < least(rules, self.applied[place]),
        };
        if self.applied[place] != applied && is_tighter {
            self.applied[place] = applied;
            (before.quotas, before.mode) = (charge.quotas, charge.mode);
        }
        before.cost = Cost::new(cost);
        // At most the cost.
        before.usage = Cost::new(before.usage.get().saturating_add(charge.usage.get()));
        Ok(place)
    }

    /// The place of a charge to the same state.
    fn find(&self, charge: &Charge<'_>) -> Option<usize> {
        if self.charges.len() > SEARCHED_MAX {
            return self.places.get(&charge.key.digest()).copied();
        }
        let key = &charge.key;
        self.charges
            .iter()
            .position(|before| before.key.space.is_same(key.space) && before.key.subject == key.subject)
    }

    /// Adds a charge to a state that no other has, and returns its place.
    fn push(&mut self, charge: Charge<'a>, applied: Applied) -> usize {
        self.charges.push(charge);
        self.applied.push(applied);
        let place = self.charges.len() - 1;
        match place {
            ..SEARCHED_MAX => {}
            SEARCHED_MAX => {
                let places = self.charges.iter().enumerate();
                self.places = places.map(|(place, charge)| (charge.key.digest(), place)).collect();
            }
            _ => _ = self.places.insert(charge.key.digest(), place),
        }
        place
    }

    fn has_usage(&self) -> bool {
        self.charges.iter().any(|charge| !charge.usage.is_zero())
    }

    fn is_covered(&self) -> bool {
        self.parts.iter().all(|part| part.is_covered)
    }

    /// The decisions that follow from the verdicts on all charges.
    fn decisions(&self, rules: &Arc<RuleSet>, verdicts: Verdicts, now: Timestamp) -> Decisions {
        let starts = self.starts(|_| true);
        let each = self.parts.iter().map(|part| {
            let applied = self.origins(part, |_| true);
            let verdicts = self.verdicts_of(part, &starts, &verdicts);
            Decision::new(Arc::clone(rules), applied, verdicts, now, part.is_covered)
        });
        let each = each.collect();
        let joint = Decision::new(Arc::clone(rules), self.applied.clone(), verdicts, now, self.is_covered());
        Decisions { joint, each }
    }

    /// The decisions of the fallback: only charges of local rules have verdicts.
    fn degraded(
        &self,
        rules: &Arc<RuleSet>,
        answers: &AnswersByCharge,
        verdicts: &Verdicts,
        now: Timestamp,
        error: &StoreError,
    ) -> Decisions {
        let is_local = |place: usize| answers[place] == Some(OnStoreFailure::Local);
        let is_open = |place: usize| answers[place] == Some(OnStoreFailure::Open);
        let starts = self.starts(is_local);
        let decided = |part: &RequestCharges| {
            let verdicts = self.verdicts_of(part, &starts, verdicts);
            let decision =
                Decision::new(Arc::clone(rules), self.origins(part, is_local), verdicts, now, part.is_covered);
            let error = StoreError::new(error.class, error.message.clone());
            decision.degraded(Degradation { error, open: self.origins(part, is_open) })
        };
        let all = RequestCharges { places: (0..self.charges.len()).collect(), is_covered: self.is_covered() };
        Decisions { joint: decided(&all), each: self.parts.iter().map(decided).collect() }
    }

    fn answers(&self, rules: &RuleSet, error: &StoreError) -> AnswersByCharge {
        let charges = self.charges.iter().zip(&self.applied);
        charges
            .map(|(charge, applied)| failure::answer(&rules.rules()[applied.rule], charge, error.class))
            .collect()
    }

    fn local(&self, answers: &AnswersByCharge) -> LocalCharges<'a> {
        let mut local = LocalCharges::default();
        for (place, answer) in answers.iter().enumerate() {
            if *answer == Some(OnStoreFailure::Local) {
                local.charges.push(self.charges[place]);
                local.applied.push(self.applied[place]);
            }
        }
        local
    }

    /// The usage under rules that the fallback does not decide.
    fn other_usage(&self, answers: &AnswersByCharge) -> Charges<'a> {
        let is_other =
            |(_, answer): &(&Charge<'_>, &Option<OnStoreFailure>)| **answer != Some(OnStoreFailure::Local);
        self.charges.iter().zip(answers).filter(is_other).map(|(charge, _)| charge.usage_alone()).collect()
    }

    /// The rules and limit sets of those charges of a request that `is_wanted` selects.
    fn origins(&self, part: &RequestCharges, is_wanted: impl Fn(usize) -> bool) -> Origins {
        part.places.iter().filter(|place| is_wanted(**place)).map(|place| self.applied[*place]).collect()
    }

    /// The index of the first verdict of each charge. Only charges that `is_asked` selects have verdicts.
    fn starts(&self, is_asked: impl Fn(usize) -> bool) -> SmallVec<[Option<usize>; 4]> {
        let mut next = 0;
        let start = |(place, charge): (usize, &Charge<'_>)| {
            let start = is_asked(place).then_some(next);
            next += start.map_or(0, |_| charge.quotas.len());
            start
        };
        self.charges.iter().enumerate().map(start).collect()
    }

    fn verdicts_of(&self, part: &RequestCharges, starts: &[Option<usize>], verdicts: &Verdicts) -> Verdicts {
        let ranges =
            part.places.iter().filter_map(|place| Some((starts[*place]?, self.charges[*place].quotas.len())));
        ranges.flat_map(|(start, count)| verdicts.iter().skip(start).take(count).copied()).collect()
    }
}

/// Lets other tasks of the thread run, whatever the runtime is.
async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The smallest limit of a limit set.
fn least(rules: &RuleSet, applied: Applied) -> Option<u64> {
    let limits = rules.rules()[applied.rule].limits_of(applied.source);
    limits.quotas().iter().map(|quota| quota.limit()).min()
}
