//! The limiter: one request in, one decision out.
//!
//! Each call matches the rules, reads the clock, asks the store once (a reset of what is only partly the
//! identity's own first forgets, then asks), and turns the verdicts into a [`Decision`]. Nothing is locked across an
//! `await`.
//!
//! A store that could not decide is not the end of it: `failure` has each rule answer by its policy, and `fallback`
//! keeps this instance's share of the limits of those that are `local`. Refunds and resets have no such way: one
//! that failed is an error.

mod failure;
mod fallback;

use crate::clock::{Clock, SystemClock};
use crate::decision::{Decision, Degradation};
use crate::identity::{InvalidText, Request, Stage};
use crate::instances::Instances;
use crate::observe::{Decided, NoObserver, Observer, Operation, Undecided};
use crate::rules::RuleSet;
use crate::rules::matching::{Matched, UnknownTier};
use crate::store::memory::MemoryOptions;
use crate::store::{Charge, MemoryStore, Reply, Store, StoreError, Verdicts};
use failure::Answers;
use fallback::Fallback;
use sluicegate_core::{Cost, Micros, Timestamp};
use std::fmt;
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
    rules: Arc<RuleSet>,
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
        let rules = if store.charges_ahead() { rules.charged_ahead() } else { rules };
        let fallback = Fallback::new(MemoryOptions::default(), Instances::default());
        Self { rules: Arc::new(rules), store, clock, observer: NoObserver, fallback }
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
        self.act(request, Action::Charge).await
    }

    /// What [`Limiter::check`] would decide, without charging anything: what remains is what is left now.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn peek(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act(request, Action::Peek).await
    }

    /// Gives the cost back under all rules that match, never above whole, then answers as a peek.
    ///
    /// # Errors
    /// If the request is malformed or the store could not do it. Whether it did something then is unknown, and
    /// nobody tries again: that could give back twice.
    pub async fn refund(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act(request, Action::Refund).await
    }

    /// Forgets the identity's state under all rules that match, then answers as a peek. State that it shares
    /// with others, of its tenant or of everybody, is left alone.
    ///
    /// # Errors
    /// If the request is malformed or the store could not do it.
    pub async fn reset(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act(request, Action::Reset).await
    }

    /// Checks a request without deciding it, so that a batch can be refused whole before anything is charged.
    ///
    /// # Errors
    /// If the request is malformed.
    pub fn validate(&self, request: &Request<'_>) -> Result<(), CheckError> {
        self.matched(request).map(|_| ())
    }

    /// The rules.
    pub fn rules(&self) -> &RuleSet {
        &self.rules
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

    async fn act(&self, request: &Request<'_>, action: Action) -> Result<Decision, CheckError> {
        let began = self.began();
        let matched = self.matched(request)?;
        let now = self.clock.now();
        let began = began.unwrap_or(now);
        let (charges, deadline) = (&*matched.charges, matched.deadline);
        let asked = match action {
            // What nothing limits needs no store, and does not suffer from one that is away.
            _ if charges.is_empty() => Ok(Reply { now, verdicts: Verdicts::new() }),
            Action::Charge => self.store.charge(charges, now, deadline).await,
            Action::Peek => self.store.peek(charges, now, deadline).await,
            Action::Refund => self.store.refund(charges, now, deadline).await,
            Action::Reset => self.reset_own(charges, now, deadline).await,
        };
        let took = self.answered(action, charges, now, began);
        // A cost of nothing is always allowed, even where no rule matches.
        // So is looking at a credential: what it asks for is decided afterwards.
        let is_free = request.cost.is_some_and(Cost::is_zero) || request.stage == Stage::Credential;
        let is_covered = matched.any || is_free;
        let decision = match asked {
            Ok(reply) => {
                let rules = Arc::clone(&self.rules);
                let decision = Decision::new(rules, matched.applied, reply.verdicts, reply.now, is_covered);
                if matched.any_local && self.store.can_fail() {
                    self.fallback.follow(&self.rules, &matched.charges, &decision, self.clock.now(), action);
                }
                decision
            }
            Err(error) => self.without_store(request, matched, error, is_covered, action, took)?,
        };
        if action == Action::Charge {
            self.observer.decided(&Decided { request, decision: &decision, asked_at: now, took });
        }
        Ok(decision)
    }

    /// The instant before the rules are matched, where that is worth knowing: a few are matched in less time than the
    /// clock can tell.
    fn began(&self) -> Option<Timestamp> {
        let is_long = self.rules.rules().len() > RULES_AT_ONCE;
        (is_long && self.observer.wants_durations()).then(|| self.clock.now())
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
    fn without_store(
        &self,
        request: &Request<'_>,
        matched: Matched<'_>,
        error: StoreError,
        is_covered: bool,
        action: Action,
        took: Micros,
    ) -> Result<Decision, CheckError> {
        self.observer.store_failed(&error);
        let now = self.clock.now();
        let Answers { local, open, closed } = match action {
            Action::Charge | Action::Peek => failure::answers(&self.rules, matched, error.class),
            Action::Refund | Action::Reset => return Err(error.into()),
        };
        if !closed.is_empty() {
            if action == Action::Charge {
                let (error, rules, closed) = (&error, &*self.rules, &*closed);
                self.observer.undecided(&Undecided { request, error, now, took, rules, closed });
            }
            return Err(error.into());
        }
        let verdicts = self.fallback.decide(&self.rules, &local, now, action);
        let decision = Decision::new(Arc::clone(&self.rules), local.applied, verdicts, now, is_covered);
        Ok(decision.degraded(Degradation { error, open }))
    }

    fn matched<'a>(&'a self, request: &Request<'a>) -> Result<Matched<'a>, CheckError> {
        request.validate()?;
        Ok(self.rules.charges(request)?)
    }
}

/// True if the state is the identity's alone.
fn is_own(charge: &Charge<'_>) -> bool {
    charge.key.subject.identity.is_some()
}

/// Why a request got no decision.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The request names something that cannot be a name.
    InvalidText(InvalidText),
    /// The request names a tier that does not exist.
    UnknownTier(UnknownTier),
    /// The store could not decide, and no policy decided in its stead.
    Store(StoreError),
}

impl CheckError {
    /// The field of the request that is wrong, if it is the request's fault.
    #[must_use]
    pub fn field(&self) -> Option<&'static str> {
        match self {
            Self::InvalidText(error) => Some(error.field),
            Self::UnknownTier(_) => Some("tier"),
            Self::Store(_) => None,
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidText(error) => error.fmt(formatter),
            Self::UnknownTier(error) => error.fmt(formatter),
            Self::Store(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for CheckError {}

impl From<InvalidText> for CheckError {
    fn from(error: InvalidText) -> Self {
        Self::InvalidText(error)
    }
}

impl From<UnknownTier> for CheckError {
    fn from(error: UnknownTier) -> Self {
        Self::UnknownTier(error)
    }
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
