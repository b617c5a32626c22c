//! The limiter: turns one request, or several that belong together, into one decision.
//!
//! A call matches the rules, reads the clock, calls the store once and turns the verdicts into a [`Decision`]. A reset of a
//! state that the client shares in part calls the store twice: it deletes the client's own states, then peeks. The limiter
//! holds no lock across an `await`.
//!
//! Every call has the same steps: match, call the store, fall back if that fails, report to the observer. A check against a
//! store in this process runs them without suspending (`check_now`). Everything else goes through `act_by`, or through
//! `batch` for several requests.
//!
//! If the store fails, `failure` applies the policy of each rule, and `fallback` enforces this instance's share of the
//! limits of `local` rules. Refunds and resets have no fallback: they return the error.

mod batch;
mod current_rules;
mod failure;
mod fallback;

use crate::clock::{Clock, SystemClock};
use crate::decision::{Decision, Degradation};
use crate::error::CheckError;
use crate::identity::{Request, Stage};
use crate::instances::Instances;
use crate::observe::{CompletionEvent, DecisionEvent, FailClosedEvent, NoObserver, Observer, Operation};
use crate::rules::RuleSet;
use crate::rules::matching::Matched;
use crate::store::memory::MemoryOptions;
use crate::store::{Charge, InProcessStore, MemoryStore, Reply, Store, StoreError, Verdicts};
pub use batch::Decisions;
use current_rules::CurrentRules;
use failure::{FailureAnswers, LocalCharges};
use fallback::Fallback;
use sluicegate_core::{Cost, Micros, Timestamp};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// Decides requests by the rules in force; the state lives in a store.
///
/// ```
/// use sluicegate::clock::SystemClock;
/// use sluicegate::core::{Micros, Quota, Rate, TokenBucket};
/// use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
/// use sluicegate::{Limiter, MemoryStore, Request};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let bucket = TokenBucket::new(2, Rate::new(1, Micros::from_secs(60))?)?;
/// let rule = Rule::new("api", Limits::all("api", [(None, Quota::from(bucket))]));
/// let rules = RuleSet::new(vec![rule], Vec::new(), Unmatched::Allow)?;
/// let limiter = Limiter::new(rules, MemoryStore::default(), SystemClock::new());
///
/// let request = Request::new("api.read", "alice");
/// assert!(limiter.check(&request).await?.is_allowed());
/// assert!(limiter.check(&request).await?.is_allowed());
/// assert!(!limiter.check(&request).await?.is_allowed());
/// // Other clients have limits of their own.
/// assert!(limiter.check(&Request::new("api.read", "bob")).await?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Limiter<S, C = SystemClock, O = NoObserver> {
    rules: CurrentRules,
    store: S,
    clock: C,
    observer: O,
    fallback: Fallback,
}

/// The limiter matches this many rules in less than a microsecond, the resolution of the clock.
const RULES_PER_MICROSECOND: usize = 32;

/// The operation on the charges of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Charge,
    Peek,
    Refund,
    Report,
    Reset,
}

impl From<Action> for Operation {
    fn from(action: Action) -> Self {
        match action {
            Action::Charge => Self::Charge,
            Action::Peek => Self::Peek,
            Action::Refund => Self::Refund,
            Action::Report => Self::Report,
            Action::Reset => Self::Reset,
        }
    }
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// A limiter without an observer.
    pub fn new(rules: RuleSet, store: S, clock: C) -> Self {
        let rules = CurrentRules::new(for_store(rules, &store));
        if let Some(store) = store.in_process() {
            store.follow(clock.correction());
        }
        let fallback = Fallback::new(MemoryOptions::default(), Instances::default());
        Self { rules, store, clock, observer: NoObserver, fallback }
    }

    /// Replaces the observer.
    pub fn observed<O: Observer>(self, observer: O) -> Limiter<S, C, O> {
        let Self { rules, store, clock, observer: NoObserver, fallback } = self;
        Limiter { rules, store, clock, observer, fallback }
    }
}

impl<S: Store, C: Clock, O: Observer> Limiter<S, C, O> {
    /// Makes the limiter one of `instances` that share its limits. `options` bounds the state of its fallback. The fallback
    /// allocates nothing until it is first used: after a charge under a [local](crate::rules::OnStoreFailure::Local) rule
    /// of a store that can fail, or when the store is overloaded.
    #[must_use]
    pub fn with_fallback(self, options: MemoryOptions, instances: Instances) -> Self {
        Self { fallback: Fallback::new(options, instances), ..self }
    }

    /// Decides a request, and charges all limits if it is allowed. A request that is [charged
    /// always](crate::Charging::Always) is charged in any case; its verdicts tell whether it fitted, and the quota after
    /// the charge.
    ///
    /// # Errors
    /// If the request is malformed, or if the store failed and a rule fails closed.
    pub async fn check(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        let rules = self.rules.get();
        match self.store.in_process() {
            Some(store) => self.check_now(store, rules, request),
            None => self.act_by(rules, request, Action::Charge).await,
        }
    }

    /// Returns the decision that [`Limiter::check`] would make, without charging anything. The verdicts show the quota
    /// before a charge.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn peek(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act_by(self.rules.get(), request, Action::Peek).await
    }

    /// Refunds the cost under all rules that match, at most up to the full quota, then answers as a peek.
    ///
    /// # Errors
    /// If the request is malformed or the store failed. The store may have refunded nevertheless, so the limiter does not
    /// retry: a retry could refund twice.
    pub async fn refund(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act_by(self.rules.get(), request, Action::Refund).await
    }

    /// Charges the cost in full under all rules that match, whether or not it fits, because the usage has already happened,
    /// then answers as a peek. A limit may be in [debt](sluicegate_core::Verdict::debt) afterwards, up to
    /// [`sluicegate_core::DEBT_LIMITS_MAX`] times itself.
    ///
    /// # Errors
    /// If the request is malformed, or if the store failed and a rule fails closed. The store may have charged
    /// nevertheless.
    pub async fn report(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act_by(self.rules.get(), &request.charged_always(), Action::Report).await
    }

    /// Deletes the state of the identity under all rules that match, then answers as a peek. State that other clients share,
    /// such as that of a tenant or of all clients, stays.
    ///
    /// # Errors
    /// If the request is malformed or the store failed.
    pub async fn reset(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act_by(self.rules.get(), request, Action::Reset).await
    }

    /// Validates a request without deciding it, so that a server can reject a whole batch before it charges anything.
    ///
    /// # Errors
    /// If the request is malformed.
    pub fn validate(&self, rules: &RuleSet, request: &Request<'_>) -> Result<(), CheckError> {
        validate(rules, request)
    }

    /// As [`Limiter::check`], but under the given rules, which come from [`Limiter::rules`]. A server uses this to decide
    /// several related requests under one rule set, or to keep an index that it looked up in that set valid.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn check_by(&self, rules: &Arc<RuleSet>, request: &Request<'_>) -> Result<Decision, CheckError> {
        let rules = Arc::clone(rules);
        match self.store.in_process() {
            Some(store) => self.check_now(store, rules, request),
            None => self.act_by(rules, request, Action::Charge).await,
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.get()
    }

    /// Replaces the rules for all requests that start from now on. Requests in flight keep the rules that they started with.
    /// State survives by the name of the rule. If the limits of a rule change, each algorithm keeps as much of its state as
    /// fits the new limits.
    ///
    /// ```
    /// use sluicegate::clock::SystemClock;
    /// use sluicegate::core::{Align, FixedWindow, Micros, Quota};
    /// use sluicegate::rules::{Limits, Rule, RuleSet, Unmatched};
    /// use sluicegate::{Limiter, MemoryStore, Request};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let daily = |limit| -> Result<RuleSet, Box<dyn std::error::Error>> {
    ///     let quota = Quota::from(FixedWindow::new(limit, Micros::from_secs(86_400), Align::Epoch)?);
    ///     let rule = Rule::new("daily", Limits::all("daily", [(None, quota)]));
    ///     Ok(RuleSet::new(vec![rule], vec![], Unmatched::Allow)?)
    /// };
    /// let limiter = Limiter::new(daily(1)?, MemoryStore::default(), SystemClock::new());
    /// let request = Request::new("reports", "alice");
    /// assert!(limiter.check(&request).await?.is_allowed());
    /// assert!(!limiter.check(&request).await?.is_allowed());
    ///
    /// limiter.replace_rules(daily(2)?);
    /// assert!(limiter.check(&request).await?.is_allowed(), "one of two is left");
    /// assert!(!limiter.check(&request).await?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn replace_rules(&self, rules: RuleSet) {
        self.rules.replace(for_store(rules, &self.store), |rules| self.observer.rules_replaced(rules));
    }

    /// The store that holds the state.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The clock that the limiter reads once or twice per request.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The observer of all calls.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// The number of instances that share the limits.
    pub fn instances(&self) -> &Instances {
        self.fallback.instances()
    }

    /// The state of the fallback, if there is any yet. The task that sweeps the store must sweep this as well.
    pub fn local_store(&self) -> Option<&MemoryStore> {
        self.fallback.store()
    }

    /// The fast path of a check, for a store in this process: the same steps as [`Limiter::act_by`], without an `await` and
    /// without failure.
    fn check_now(
        &self,
        store: &dyn InProcessStore,
        rules: Arc<RuleSet>,
        request: &Request<'_>,
    ) -> Result<Decision, CheckError> {
        let began = self.clock.now();
        validate(&rules, request)?;
        let (mut matched, began_date) = (Matched::nothing(), self.date(began));
        matched.consider_all(&rules, request, began_date);
        let asked_at = self.time_of_call(&rules, began);
        // A request without limits needs no store.
        let asked_store = !matched.charges.is_empty();
        let verdicts = if asked_store { store.charge_now(&matched.charges, asked_at) } else { Verdicts::new() };
        let took = self.report_store_time(Action::Charge, asked_store, asked_at, began);
        let (applied, is_covered) = (std::mem::take(&mut matched.applied), matched.any || needs_no_rule(request));
        // `matched` borrows the rules, which move into the decision.
        drop(matched);
        let asked_date = if asked_at == began { began_date } else { self.date(asked_at) };
        let answer = Ok(Decision::new(rules, applied, verdicts, asked_date, is_covered));
        if let Ok(decision) = &answer {
            let (requests, operation) = (std::slice::from_ref(request), Operation::Charge);
            let call =
                CallFacts { requests, operation, began: began_date, asked_at, asked_date, asked_store, took };
            self.observe(call, Action::Charge, std::slice::from_ref(decision), decision);
        }
        answer
    }

    async fn act_by(
        &self,
        rules: Arc<RuleSet>,
        request: &Request<'_>,
        action: Action,
    ) -> Result<Decision, CheckError> {
        let began = self.clock.now();
        validate(&rules, request)?;
        let mut matched = rules.matched(request, self.date(began));
        let asked_at = self.time_of_call(&rules, began);
        let (charges, deadline) = (&*matched.charges, matched.deadline);
        let asked = match action {
            // A client may have states to delete even if its current limits are none.
            Action::Reset => self.reset_client(&rules, request, charges, asked_at, deadline).await,
            _ => self.call_store(charges, action, asked_at, deadline).await,
        };
        let call = self.call(std::slice::from_ref(request), action, !charges.is_empty(), asked_at, began);
        let is_covered = matched.any || needs_no_rule(request);
        let decision = match asked {
            Ok(reply) => {
                let is_followed = matched.any_local && self.store.can_fail();
                let applied = std::mem::take(&mut matched.applied);
                let Reply { now, verdicts } = reply;
                if is_followed {
                    let decision = Decision::new(Arc::clone(&rules), applied, verdicts, now, is_covered);
                    self.fallback.follow(&rules, &matched.charges, &decision, &self.clock, action);
                    decision
                } else {
                    // The rules move into the decision. A clone would write to a reference count that all threads share.
                    drop(matched);
                    Decision::new(rules, applied, verdicts, now, is_covered)
                }
            }
            Err(error) => {
                let failed = FailedCall { rules: &rules, request, matched, error, is_covered };
                let answered = self.decide_without_store(failed, action, call.took);
                answered.inspect_err(|error| self.report_error(call, error))?
            }
        };
        self.observe(call, action, std::slice::from_ref(&decision), &decision);
        Ok(decision)
    }

    /// The time of day at the instant `now` of the clock. Observers, replies and the ends of overrides use the time of day.
    #[inline]
    fn date(&self, now: Timestamp) -> Timestamp {
        self.clock.correction().apply(now)
    }

    /// The instant at which the store is called. Matching a few rules takes less time than the clock can resolve, so the clock
    /// is read again only for many rules and an observer that wants durations.
    #[inline]
    fn time_of_call(&self, rules: &RuleSet, began: Timestamp) -> Timestamp {
        let is_worth_measuring = rules.rules().len() > RULES_PER_MICROSECOND && self.observer.wants_durations();
        if is_worth_measuring { self.clock.now() } else { began }
    }

    /// The instant `now` in the time scale of the store. A store in this process uses the steady clock of the limiter and
    /// knows its correction; a shared store uses the time of day.
    fn store_time(&self, now: Timestamp) -> Timestamp {
        if self.store.in_process().is_some() { now } else { self.date(now) }
    }

    /// Calls the store at the instant `now` of the clock.
    async fn call_store(
        &self,
        charges: &[Charge<'_>],
        action: Action,
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        if charges.is_empty() {
            // A request without limits needs no store, so a store failure does not affect it.
            return Ok(Reply { now: self.date(now), verdicts: Verdicts::new() });
        }
        let now = self.store_time(now);
        match action {
            Action::Charge => self.store.charge(charges, now, deadline).await,
            Action::Peek => self.store.peek(charges, now, deadline).await,
            Action::Refund => self.store.refund(charges, now, deadline).await,
            Action::Report => self.store.report(charges, now, deadline).await,
            Action::Reset => self.store.reset(charges, now, deadline).await,
        }
    }

    /// The facts of a call after the store has answered.
    fn call<'r>(
        &self,
        requests: &'r [Request<'r>],
        action: Action,
        asked_store: bool,
        asked_at: Timestamp,
        began: Timestamp,
    ) -> CallFacts<'r> {
        let took = self.report_store_time(action, asked_store, asked_at, began);
        let (began, asked_date) = (self.date(began), self.date(asked_at));
        CallFacts { requests, operation: action.into(), began, asked_at, asked_date, asked_store, took }
    }

    /// Reports the duration of the store call and returns that of the whole call. The steps that follow take less time than
    /// the clock can resolve.
    fn report_store_time(
        &self,
        action: Action,
        asked_store: bool,
        asked_at: Timestamp,
        began: Timestamp,
    ) -> Micros {
        if !self.observer.wants_durations() {
            return Micros::ZERO;
        }
        let now = self.clock.now();
        if asked_store {
            self.observer.store_took(action.into(), now.since(asked_at));
        }
        now.since(began)
    }

    /// Reports a call that ended with a decision. `action` is the requested action: a batch that cannot be charged only peeks.
    /// `each` has one decision per request, and `joint` is the one for all of them.
    #[inline]
    fn observe(&self, call: CallFacts<'_>, action: Action, each: &[Decision], joint: &Decision) {
        if action == Action::Charge {
            let CallFacts { requests, asked_at, took, .. } = call;
            for (request, decision) in requests.iter().zip(each) {
                self.observer.decided(&DecisionEvent { request, decision, asked_at, took });
            }
        }
        self.observer.finished(&call.completed(Ok(joint)));
    }

    /// Reports a call that ended with an error.
    fn report_error(&self, call: CallFacts<'_>, error: &CheckError) {
        self.observer.finished(&call.completed(Err(error)));
    }

    /// Deletes the states that belong to the client alone, in every limit set of the matching rules, then answers as a peek.
    /// States that other clients share stay.
    async fn reset_client(
        &self,
        rules: &RuleSet,
        request: &Request<'_>,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        let states = rules.states_of_client(request);
        if !states.is_empty() {
            let is_answer =
                |(state, charge): (&Charge<'_>, &Charge<'_>)| state.key.space.is_same(charge.key.space);
            let answers = states.len() == charges.len() && states.iter().zip(charges).all(is_answer);
            let reply = self.call_store(&states, Action::Reset, now, deadline).await?;
            if let Some(local) = self.fallback.store() {
                local.reset_now(&states, self.clock.now());
            }
            if answers {
                return Ok(reply);
            }
        }
        let spent = Duration::from_micros(self.clock.now().since(now).as_micros());
        self.call_store(charges, Action::Peek, now, deadline.saturating_sub(spent)).await
    }

    /// Applies the policies of the rules after the store has failed. Reads the clock again, because the call may have waited
    /// up to its deadline.
    #[cold]
    fn decide_without_store(
        &self,
        failed: FailedCall<'_>,
        action: Action,
        took: Micros,
    ) -> Result<Decision, CheckError> {
        let FailedCall { rules, request, matched, mut error, is_covered } = failed;
        self.observer.store_failed(&error);
        let now = self.clock.now();
        let FailureAnswers { local, open, closed, other_usage } = match action {
            Action::Charge | Action::Peek | Action::Report => failure::answers(rules, matched, error.class),
            Action::Refund | Action::Reset => return Err(error.into()),
        };
        if !closed.is_empty() {
            if action == Action::Charge {
                let (error, closed) = (&error, &*closed);
                self.observer.undecided(&FailClosedEvent { request, error, now, took, rules, closed });
            }
            self.keep_usage(local.charges.iter().chain(&other_usage), action, &mut error);
            return Err(error.into());
        }
        let verdicts = self.fallback.decide(rules, &local, self.clock.correction(), now, action);
        let applied = local.applied.clone();
        let decision = Decision::new(Arc::clone(rules), applied, verdicts, self.date(now), is_covered);
        self.charge_later(&local, &other_usage, &decision, action, &mut error);
        Ok(decision.degraded(Degradation { error, open }))
    }

    /// Sends the charges that the fallback has admitted during an overload to the store, which charges them as soon as it
    /// can, and all usage: it has happened, whatever the fallback decides.
    fn charge_later(
        &self,
        local: &LocalCharges<'_>,
        other_usage: &[Charge<'_>],
        decision: &Decision,
        action: Action,
        error: &mut StoreError,
    ) {
        let is_charge = matches!(action, Action::Charge | Action::Report);
        let is_admitted = action == Action::Charge && error.class.is_overload() && decision.is_allowed();
        let mut outcomes = decision.limits().map(|report| report.verdict.outcome);
        let mut due: SmallVec<[Charge<'_>; 2]> = SmallVec::new();
        for charge in local.charges.iter().filter(|_| is_charge) {
            // The fallback charged a rule in shadow mode only if all its limits had room.
            let denials = outcomes.by_ref().take(charge.quotas.len()).filter(|outcome| !outcome.is_allowed());
            due.push(if denials.count() == 0 && is_admitted { *charge } else { charge.usage_alone() });
        }
        due.extend(other_usage.iter().filter(|_| is_charge).copied());
        due.retain(|charge| !charge.cost.is_zero());
        if due.is_empty() {
            error.forget_fate();
        } else {
            self.store.charge_later(&due, error);
        }
    }

    /// Sends the usage of a check that a rule rejects, because it fails closed, to the store. It has happened all the same. A
    /// report alone is not kept: its client gets the error, and can repeat it.
    fn keep_usage<'c>(
        &self,
        charges: impl Iterator<Item = &'c Charge<'c>>,
        action: Action,
        error: &mut StoreError,
    ) {
        let usage = charges.map(Charge::usage_alone).filter(|charge| !charge.cost.is_zero());
        let usage: SmallVec<[Charge<'_>; 2]> = usage.filter(|_| action == Action::Charge).collect();
        if !usage.is_empty() {
            self.store.charge_later(&usage, error);
        }
    }

    /// Decides charges without a rule, after an overloaded store has failed to decide them in time, by this instance's share
    /// of their limits. A cost of zero only peeks. Returns `None` if the store has failed for another reason: then these
    /// charges have no fallback.
    pub fn decide_in_overload(&self, charges: &[Charge<'_>], error: &mut StoreError) -> Option<Verdicts> {
        if !error.class.is_overload() {
            return None;
        }
        let verdicts = self.fallback.decide_without_rule(charges, &self.clock);
        let is_peek = charges.iter().all(|charge| charge.cost.is_zero());
        if !is_peek && verdicts.iter().all(|verdict| verdict.outcome.is_allowed()) {
            self.store.charge_later(charges, error);
        }
        error.forget_fate();
        Some(verdicts)
    }
}

/// The facts of one call, for the observer.
#[derive(Clone, Copy)]
struct CallFacts<'a> {
    requests: &'a [Request<'a>],
    operation: Operation,
    /// The time of day at the start.
    began: Timestamp,
    /// When the store was called, by the steady clock of the limiter.
    asked_at: Timestamp,
    /// The same as a time of day.
    asked_date: Timestamp,
    asked_store: bool,
    took: Micros,
}

impl<'a> CallFacts<'a> {
    fn completed(self, answer: Result<&'a Decision, &'a CheckError>) -> CompletionEvent<'a> {
        let Self { requests, operation, began, asked_date: asked_at, asked_store, took, .. } = self;
        CompletionEvent { requests, operation, began, asked_at, asked_store, took, answer }
    }
}

/// A request after its store call has failed.
struct FailedCall<'a> {
    rules: &'a Arc<RuleSet>,
    request: &'a Request<'a>,
    matched: Matched<'a>,
    error: StoreError,
    is_covered: bool,
}

/// Prepares rules for the store: a store that issues permits in advance needs leases in the charges.
fn for_store(rules: RuleSet, store: &impl Store) -> RuleSet {
    if store.charges_ahead() { rules.charged_ahead() } else { rules }
}

#[inline]
fn validate(rules: &RuleSet, request: &Request<'_>) -> Result<(), CheckError> {
    request.validate()?;
    Ok(rules.check_tier(request.tier)?)
}

/// True if the request is allowed even if no rule matches. A cost of zero is always allowed. So is the stage that looks at a
/// credential: the request itself is decided afterwards.
#[inline]
fn needs_no_rule(request: &Request<'_>) -> bool {
    request.cost.is_some_and(Cost::is_zero) || request.stage == Stage::Credential
}
