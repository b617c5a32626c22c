//! The limiter: one request in, one decision out.
//!
//! Each call matches the rules, reads the clock, asks the store once (a reset of what is only partly the
//! identity's own first forgets, then asks), and turns the verdicts into a [`Decision`]. Nothing is locked across an
//! `await`.
//!
//! A store that could not decide is not the end of it: `failure` has each rule answer by its policy, and `fallback`
//! keeps this instance's share of the limits of those that are `local`. Refunds and resets have no such way: one
//! that failed is an error.

mod at_once;
mod error;
mod failure;
mod fallback;
mod live;
mod several;

use crate::clock::{Clock, SystemClock};
use crate::decision::{Decision, Degradation};
use crate::identity::{Request, Stage};
use crate::instances::Instances;
use crate::observe::{Decided, Finished, NoObserver, Observer, Operation, Undecided};
use crate::rules::RuleSet;
use crate::rules::matching::Matched;
use crate::store::memory::MemoryOptions;
use crate::store::{Charge, MemoryStore, Reply, Store, StoreError, Verdicts};
pub use error::CheckError;
use failure::Answers;
use fallback::Fallback;
use live::LiveRules;
pub use several::Decisions;
use sluicegate_core::{Cost, Micros, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// Decides requests by rules, with state in a store.
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
/// // Others are not concerned.
/// assert!(limiter.check(&Request::new("api.read", "bob")).await?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Limiter<S, C = SystemClock, O = NoObserver> {
    rules: LiveRules,
    store: S,
    clock: C,
    observer: O,
    fallback: Fallback,
}

/// How many rules are matched within a microsecond.
const RULES_AT_ONCE: usize = 32;

/// What is done with the charges of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Charge,
    Peek,
    Refund,
    Reset,
}

impl From<Action> for Operation {
    fn from(action: Action) -> Self {
        match action {
            Action::Charge => Self::Charge,
            Action::Peek => Self::Peek,
            Action::Refund => Self::Refund,
            Action::Reset => Self::Reset,
        }
    }
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// A limiter that nobody observes.
    pub fn new(rules: RuleSet, store: S, clock: C) -> Self {
        let rules = LiveRules::new(for_store(rules, &store));
        let fallback = Fallback::new(MemoryOptions::default(), Instances::default());
        Self { rules, store, clock, observer: NoObserver, fallback }
    }

    /// The same limiter, observed.
    pub fn observed<O: Observer>(self, observer: O) -> Limiter<S, C, O> {
        let Self { rules, store, clock, observer: NoObserver, fallback } = self;
        Limiter { rules, store, clock, observer, fallback }
    }
}

impl<S: Store, C: Clock, O: Observer> Limiter<S, C, O> {
    /// The same limiter as one of `instances` that share its limits. `options` bounds what it keeps for the time
    /// without the store; nothing is kept unless the store can fail and a rule is
    /// [local](crate::rules::OnStoreFailure::Local).
    #[must_use]
    pub fn with_fallback(self, options: MemoryOptions, instances: Instances) -> Self {
        Self { fallback: Fallback::new(options, instances), ..self }
    }

    /// Decides, and charges all limits if the request is allowed.
    ///
    /// # Errors
    /// If the request is malformed, or the store could not decide and a rule is closed then.
    pub async fn check(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        let rules = self.rules.get();
        match self.store.at_once() {
            Some(store) => self.check_at_once(store, rules, request),
            None => self.act_by(rules, request, Action::Charge).await,
        }
    }

    /// What [`Limiter::check`] would decide, without charging anything: what remains is what is left now.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn peek(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act_by(self.rules.get(), request, Action::Peek).await
    }

    /// Gives the cost back under all rules that match, never above whole, then answers as a peek.
    ///
    /// # Errors
    /// If the request is malformed or the store could not do it. Whether it did something then is unknown, and
    /// nobody tries again: that could give back twice.
    pub async fn refund(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act_by(self.rules.get(), request, Action::Refund).await
    }

    /// Forgets the identity's state under all rules that match, then answers as a peek. State that it shares
    /// with others, of its tenant or of everybody, is left alone.
    ///
    /// # Errors
    /// If the request is malformed or the store could not do it.
    pub async fn reset(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act_by(self.rules.get(), request, Action::Reset).await
    }

    /// Checks a request without deciding it, so that a batch can be refused whole before anything is charged.
    ///
    /// # Errors
    /// If the request is malformed.
    pub fn validate(&self, rules: &RuleSet, request: &Request<'_>) -> Result<(), CheckError> {
        validate(rules, request)
    }

    /// As [`Limiter::check`], by rules that are in force or were when they were [asked for](Limiter::rules): for several
    /// requests that belong together, or whatever was looked up in them before.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn check_by(&self, rules: &Arc<RuleSet>, request: &Request<'_>) -> Result<Decision, CheckError> {
        let rules = Arc::clone(rules);
        match self.store.at_once() {
            Some(store) => self.check_at_once(store, rules, request),
            None => self.act_by(rules, request, Action::Charge).await,
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.get()
    }

    /// Puts other rules in force, for all requests that come from now on; those under way are decided by the rules that
    /// they came under. State is kept, by the names of the rules: of a rule that stays under other limits each algorithm
    /// keeps what it can.
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

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// The observer.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// How many share the limits.
    pub fn instances(&self) -> &Instances {
        self.fallback.instances()
    }

    /// What is kept for the time without the store, if anything is; whoever sweeps the store sweeps this, too.
    pub fn local_store(&self) -> Option<&MemoryStore> {
        self.fallback.store()
    }

    async fn act_by(
        &self,
        rules: Arc<RuleSet>,
        request: &Request<'_>,
        action: Action,
    ) -> Result<Decision, CheckError> {
        let began = self.clock.now();
        validate(&rules, request)?;
        let mut matched = rules.matched(request, began);
        let now = if self.is_worth_measuring(&rules) { self.clock.now() } else { began };
        let (charges, deadline) = (&*matched.charges, matched.deadline);
        let asked = match action {
            // What nothing limits needs no store, and does not suffer from one that is away.
            _ if charges.is_empty() => Ok(Reply { now, verdicts: Verdicts::new() }),
            Action::Charge => self.store.charge(charges, now, deadline).await,
            Action::Peek => self.store.peek(charges, now, deadline).await,
            Action::Refund => self.store.refund(charges, now, deadline).await,
            Action::Reset => self.reset_own(charges, now, deadline).await,
        };
        let asked_store = !charges.is_empty();
        let took = self.answered(action, charges, now, began);
        let (requests, operation) = (std::slice::from_ref(request), action.into());
        let question = Question { requests, operation, began, asked_at: now, asked_store, took };
        let is_covered = matched.any || is_free(request);
        let decision = match asked {
            Ok(reply) => {
                let is_followed = matched.any_local && self.store.can_fail();
                let applied = std::mem::take(&mut matched.applied);
                let Reply { now, verdicts } = reply;
                if is_followed {
                    let decision = Decision::new(Arc::clone(&rules), applied, verdicts, now, is_covered);
                    self.fallback.follow(&rules, &matched.charges, &decision, self.clock.now(), action);
                    decision
                } else {
                    // The rules go with the decision: a second reference would be counted where all threads count.
                    drop(matched);
                    Decision::new(rules, applied, verdicts, now, is_covered)
                }
            }
            Err(error) => {
                let failed = Failed { rules: &rules, request, matched, error, is_covered };
                let answered = self.without_store(failed, action, took);
                answered.inspect_err(|error| self.finished(question, Err(error)))?
            }
        };
        if action == Action::Charge {
            self.observer.decided(&Decided { request, decision: &decision, asked_at: now, took });
        }
        self.finished(question, Ok(&decision));
        Ok(decision)
    }

    /// Tells that something is done.
    fn finished(&self, question: Question<'_>, answer: Result<&Decision, &CheckError>) {
        let Question { requests, operation, began, asked_at, asked_store, took } = question;
        self.observer.finished(&Finished { requests, operation, began, asked_at, asked_store, took, answer });
    }

    /// Whether it matters how long it takes to match these rules: a few are matched in less time than the clock can tell.
    fn is_worth_measuring(&self, rules: &RuleSet) -> bool {
        rules.rules().len() > RULES_AT_ONCE && self.observer.wants_durations()
    }

    /// Tells how long the store took, and says how long it took in all; what is left to do takes less than the clock can
    /// tell.
    fn answered(&self, action: Action, charges: &[Charge<'_>], asked: Timestamp, began: Timestamp) -> Micros {
        if !self.observer.wants_durations() {
            return Micros::ZERO;
        }
        let now = self.clock.now();
        if !charges.is_empty() {
            self.observer.store_took(action.into(), now.since(asked));
        }
        now.since(began)
    }

    async fn reset_own(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> Result<Reply, StoreError> {
        let own: Vec<Charge<'_>> = charges.iter().filter(|charge| is_own(charge)).copied().collect();
        if own.len() == charges.len() {
            return self.store.reset(&own, now, deadline).await;
        }
        if !own.is_empty() {
            self.store.reset(&own, now, deadline).await?;
        }
        let spent = Duration::from_micros(self.clock.now().since(now).as_micros());
        self.store.peek(charges, now, deadline.saturating_sub(spent)).await
    }

    /// What the rules say where the store said nothing, at the time it is now: the store may have been waited for.
    #[cold]
    fn without_store(&self, failed: Failed<'_>, action: Action, took: Micros) -> Result<Decision, CheckError> {
        let Failed { rules, request, matched, error, is_covered } = failed;
        self.observer.store_failed(&error);
        let now = self.clock.now();
        let Answers { local, open, closed } = match action {
            Action::Charge | Action::Peek => failure::answers(rules, matched, error.class),
            Action::Refund | Action::Reset => return Err(error.into()),
        };
        if !closed.is_empty() {
            if action == Action::Charge {
                let (error, closed) = (&error, &*closed);
                self.observer.undecided(&Undecided { request, error, now, took, rules, closed });
            }
            return Err(error.into());
        }
        let verdicts = self.fallback.decide(rules, &local, now, action);
        let decision = Decision::new(Arc::clone(rules), local.applied, verdicts, now, is_covered);
        Ok(decision.degraded(Degradation { error, open }))
    }
}

/// Something that was asked, up to its answer.
#[derive(Clone, Copy)]
struct Question<'a> {
    requests: &'a [Request<'a>],
    operation: Operation,
    began: Timestamp,
    asked_at: Timestamp,
    asked_store: bool,
    took: Micros,
}

/// A request that the store said nothing to.
struct Failed<'a> {
    rules: &'a Arc<RuleSet>,
    request: &'a Request<'a>,
    matched: Matched<'a>,
    error: StoreError,
    is_covered: bool,
}

/// The rules as a limiter on this store charges them.
fn for_store(rules: RuleSet, store: &impl Store) -> RuleSet {
    if store.charges_ahead() { rules.charged_ahead() } else { rules }
}

#[inline]
fn validate(rules: &RuleSet, request: &Request<'_>) -> Result<(), CheckError> {
    request.validate()?;
    Ok(rules.check_tier(request.tier)?)
}

/// True if nobody needs a rule for this. A cost of nothing is always allowed, and so is looking at a credential: what it asks
/// for is decided afterwards.
#[inline]
fn is_free(request: &Request<'_>) -> bool {
    request.cost.is_some_and(Cost::is_zero) || request.stage == Stage::Credential
}

/// True if the state is the identity's alone.
fn is_own(charge: &Charge<'_>) -> bool {
    charge.key.subject.identity.is_some()
}
