//! The limiter: one request in, one decision out.
//!
//! Each call matches the rules, reads the clock once, asks the store once (a reset first forgets, then asks), and
//! turns the verdicts into a [`Decision`]. Nothing is locked across an `await`.

use crate::clock::{Clock, SystemClock};
use crate::decision::Decision;
use crate::identity::{InvalidText, Request};
use crate::observe::{NoObserver, Observer};
use crate::rules::RuleSet;
use crate::rules::matching::{Matched, UnknownTier};
use crate::store::{Charge, Reply, Store, StoreError};
use sluicegate_core::Cost;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a store may take to answer unless a rule says otherwise: inside Envoy's default of 20 ms.
pub const DEADLINE_DEFAULT: Duration = Duration::from_millis(15);

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
}

/// What is done with the charges of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Charge,
    Peek,
    Refund,
    Reset,
}

impl<S: Store, C: Clock> Limiter<S, C> {
    /// A limiter that nobody observes.
    pub fn new(rules: RuleSet, store: S, clock: C) -> Self {
        Self { rules: Arc::new(rules), store, clock, observer: NoObserver }
    }

    /// The same limiter, observed.
    pub fn observed<O: Observer>(self, observer: O) -> Limiter<S, C, O> {
        Limiter { rules: self.rules, store: self.store, clock: self.clock, observer }
    }
}

impl<S: Store, C: Clock, O: Observer> Limiter<S, C, O> {
    /// Decides, and charges all limits if the request is allowed.
    ///
    /// # Errors
    /// If the request is malformed or the store could not decide.
    pub async fn check(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        let decision = self.act(request, Action::Charge).await;
        match &decision {
            Ok(decision) => self.observer.decided(decision),
            Err(CheckError::Store(error)) => self.observer.store_failed(error),
            Err(_) => {}
        }
        decision
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
    /// As [`Limiter::check`].
    pub async fn refund(&self, request: &Request<'_>) -> Result<Decision, CheckError> {
        self.act(request, Action::Refund).await
    }

    /// Forgets the identity's state under all rules that match, then answers as a peek. State that it shares
    /// with others, of its tenant or of everybody, is left alone.
    ///
    /// # Errors
    /// As [`Limiter::check`].
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

    async fn act(&self, request: &Request<'_>, action: Action) -> Result<Decision, CheckError> {
        let Matched { charges, applied, any } = self.matched(request)?;
        let now = self.clock.now();
        let Reply { now, verdicts } = match action {
            Action::Charge => self.store.charge(&charges, now, DEADLINE_DEFAULT).await?,
            Action::Peek => self.store.peek(&charges, now, DEADLINE_DEFAULT).await?,
            Action::Refund => self.store.refund(&charges, now, DEADLINE_DEFAULT).await?,
            Action::Reset => self.reset_own(&charges, now).await?,
        };
        // A cost of nothing is always allowed, even where no rule matches.
        let matched = any || request.cost.is_some_and(Cost::is_zero);
        Ok(Decision::new(Arc::clone(&self.rules), applied, verdicts, now, matched))
    }

    async fn reset_own(
        &self,
        charges: &[Charge<'_>],
        now: sluicegate_core::Timestamp,
    ) -> Result<Reply, StoreError> {
        let is_own = |charge: &&Charge<'_>| charge.key.subject.identity.is_some();
        let own: Vec<Charge<'_>> = charges.iter().filter(is_own).copied().collect();
        self.store.reset(&own, now, DEADLINE_DEFAULT).await?;
        self.store.peek(charges, now, DEADLINE_DEFAULT).await
    }

    fn matched<'a>(&'a self, request: &Request<'a>) -> Result<Matched<'a>, CheckError> {
        request.validate()?;
        Ok(self.rules.charges(request)?)
    }
}

/// Why a request got no decision.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckError {
    /// The request names something that cannot be a name.
    InvalidText(InvalidText),
    /// The request names a tier that does not exist.
    UnknownTier(UnknownTier),
    /// The store could not decide.
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
