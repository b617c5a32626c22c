//! Stores hold the state of limits and charge it.
//!
//! A store receives a batch of [`Charge`]s, one per rule, and processes it atomically: it checks every limit before it writes,
//! and writes nothing if an enforced limit denies. It knows keys, quotas and costs, but no rules, identities or headers.
//! Every store passes the same conformance suite.

pub mod key;
mod lease;
#[doc(hidden)]
pub mod leases;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

pub use key::{Key, KeySpace, LimitSet, Subject};
pub use lease::{LEASE_TTLS, Lease, LeaseMode};
pub use memory::MemoryStore;

use crate::clock::Correction;
use sluicegate_core::decision::ChargeMode;
use sluicegate_core::{Cost, Quota, Timestamp, Verdict};
use smallvec::SmallVec;
use std::fmt;
use std::future::Future;
use std::time::Duration;

/// The maximum number of limits per key.
pub const LIMITS_PER_KEY_MAX: usize = 16;

/// The charge of one rule to one subject: all limits of one key.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The key that holds the state.
    pub key: Key<'a>,
    /// The limits, each with a state of its own under the key.
    pub quotas: &'a [Quota],
    /// The cost of the request; zero only peeks.
    pub cost: Cost,
    /// The part of the cost that is charged even if the request is denied, because it is usage that has already
    /// happened; at most `cost`. It may put the limits in debt.
    pub usage: Cost,
    /// Whether the limits are enforced or in shadow mode, and which of them are charged together.
    pub mode: ChargeMode,
    /// The terms on which the store may charge permits in advance; `None` if it may not.
    pub lease: Option<Lease>,
}

impl Charge<'_> {
    /// The charge of its usage alone.
    pub(crate) fn usage_alone(&self) -> Self {
        Self { cost: self.usage, ..*self }
    }
}

/// The verdicts of all limits of all charges, in their order. Most requests have one or two limits, so two verdicts need no
/// allocation.
pub type Verdicts = SmallVec<[Verdict; 2]>;

/// The reply of a store to a batch of charges.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The instant of the decision, by the store's clock.
    pub now: Timestamp,
    /// The verdict of every limit, in the order of the charges.
    pub verdicts: Verdicts,
}

/// A store of limit state.
///
/// `now` comes from the clock of the caller. A store in this process decides by it and receives instants that never step
/// ([`Clock::now`](crate::clock::Clock::now)). A store that several servers share decides by its own clock, and `now` is the
/// time of day. The reply contains the time of day of the decision in both cases.
///
/// `deadline` bounds the duration of the call. A store that misses it returns an error and then makes its best effort that the
/// charge does not happen later.
pub trait Store: Send + Sync {
    /// Charges all enforced limits, or none but their usage. [`sluicegate_core::decision`] defines which limits are charged
    /// when.
    fn charge(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Returns the reply that [`Store::charge`] would give, without writing. The verdicts show the quota before a charge.
    fn peek(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Refunds the costs, at most up to the full quota, then answers as [`Store::peek`].
    fn refund(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Charges the costs in full, whether or not they fit, then answers as [`Store::peek`].
    fn report(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Deletes the state of all keys, then answers as [`Store::peek`].
    fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Takes charges that the fallback has admitted after the overloaded store returned `error` for them, and usage for
    /// which the store returned any error. A shared store charges them as soon as it can, whether or not they fit, unless
    /// its late reply shows that it has already charged them.
    fn charge_later(&self, charges: &[Charge<'_>], error: &mut StoreError) {
        let _ = (charges, error);
    }

    /// The number of keys in the store; `None` if counting them is expensive.
    fn tracked_keys(&self) -> Option<u64> {
        None
    }

    /// The synchronous interface of a store in this process; `None` if calls to the store must be awaited.
    fn in_process(&self) -> Option<&dyn InProcessStore> {
        None
    }

    /// True if the store can be unreachable, so that the limiter must keep state for a fallback. A store in this process is
    /// always reachable.
    fn can_fail(&self) -> bool {
        false
    }

    /// True if the store may charge permits in advance where a [`Lease`] allows it. Then every instance must also charge the
    /// limits that strict leases require.
    fn charges_ahead(&self) -> bool {
        false
    }

    /// The health of the store, from the calls so far; this does not call the store.
    fn health(&self) -> Health {
        Health::Up
    }

    /// The usage that was reported and not charged so far.
    fn uncharged_usage(&self) -> UnchargedUsage {
        UnchargedUsage::default()
    }

    /// The number of store calls saved so far.
    fn savings(&self) -> Savings {
        Savings::default()
    }
}

/// A store in this process, which answers without waiting.
pub trait InProcessStore: Send + Sync {
    /// As [`Store::charge`], synchronously. The reply belongs to the instant `now`.
    fn charge_now(&self, charges: &[Charge<'_>], now: Timestamp) -> Verdicts;

    /// Takes the time of day from `correction`, which belongs to the clock of the limiter.
    fn follow(&self, correction: &Correction);

    /// Removes all expired states.
    fn sweep_all(&self, now: Timestamp);
}

/// The calls that a store saved. A field is `None` or empty if the store has no such optimisation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Savings {
    /// Requests that shared a coalesced call with another request.
    pub coalesced_requests: Option<u64>,
    /// Requests that the denial cache denied without a call.
    pub denied_from_cache: Option<u64>,
    /// Permits held for future requests, in tokens, by the name of the rule.
    pub leased_tokens: Vec<(Box<str>, u64)>,
}

/// The units of usage that were reported and not charged, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnchargedUsage {
    /// Beyond the bound on debt.
    pub debt: u64,
    /// The store did not answer again in time, or too much usage waited for it.
    pub store: u64,
    /// The connection failed while the store may have been charging it, and it was not charged again.
    pub unknown: u64,
}

/// The health of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// No failure is known.
    Up,
    /// Calls for some keys fail, because one of the servers is unusable.
    Partial {
        /// The class of the last error.
        class: ErrorClass,
    },
    /// All calls fail. The circuit breaker is open until a probe succeeds.
    Down {
        /// The class of the last error.
        class: ErrorClass,
    },
}

/// The error of a store that could not decide. The policies of the rules, not the store, define the outcome of the request.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreError {
    /// The class of the error.
    pub class: ErrorClass,
    /// The description for logs.
    pub message: String,
    /// The later outcome of a charge that is still in flight.
    #[cfg(feature = "redis")]
    pub(crate) fate: Option<Fate>,
    /// Whether the store may have charged, if that will never be known.
    #[cfg(feature = "redis")]
    pub(crate) may_have_charged: bool,
}

/// The outcome of a charge after its caller has stopped waiting for the reply.
#[cfg(feature = "redis")]
pub(crate) struct Fate(Box<dyn FnMut() -> Option<LateOutcome> + Send + Sync>);

/// The part of a charge that the store has made.
#[cfg(feature = "redis")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateOutcome {
    /// All costs.
    Charged,
    /// The usage alone: the request was denied.
    Denied,
    /// Nothing: the call has failed.
    Failed,
}

#[cfg(feature = "redis")]
impl Fate {
    /// `look` returns the part that the store has charged, and `None` while that is unknown.
    pub(crate) fn new(look: impl FnMut() -> Option<LateOutcome> + Send + Sync + 'static) -> Self {
        Self(Box::new(look))
    }

    /// The part that the store has charged; `None` while that is unknown.
    pub(crate) fn look(&mut self) -> Option<LateOutcome> {
        (self.0)()
    }
}

#[cfg(feature = "redis")]
impl fmt::Debug for Fate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fate").finish_non_exhaustive()
    }
}

/// The classes of store errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// No reply within the deadline. The store may or may not have charged.
    Timeout,
    /// The connection failed or was lost.
    Connection,
    /// The server is up but cannot serve: it is loading, has lost its primary or its replicas, or cannot save.
    Unusable,
    /// The server has become a replica.
    ReadOnly,
    /// The server is busy with a slow script.
    Busy,
    /// The server is out of memory.
    Full,
    /// The server rejects the user name, the password or the permissions.
    Refused,
    /// The circuit breaker is open after recent failures, and no call was made.
    Open,
    /// The server works, but not fast enough for all calls. This is no failure.
    Overloaded,
    /// The server sent a reply that violates the protocol.
    Protocol,
}

impl ErrorClass {
    /// All classes, in the order of the metrics.
    pub const ALL: [Self; 10] = [
        Self::Timeout,
        Self::Connection,
        Self::Unusable,
        Self::ReadOnly,
        Self::Busy,
        Self::Full,
        Self::Refused,
        Self::Open,
        Self::Overloaded,
        Self::Protocol,
    ];

    /// True if the error is about the request or the reply, not about reaching the store. A client may be able to provoke such
    /// an error, so it never allows a request.
    #[must_use]
    pub const fn is_about_the_request(self) -> bool {
        matches!(self, Self::Protocol)
    }

    /// True if the store works but receives more calls than it can answer in time. A client that causes a flood must neither
    /// gain quota nor take any from other clients.
    #[must_use]
    pub const fn is_overload(self) -> bool {
        matches!(self, Self::Overloaded)
    }

    /// The stable name in logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Unusable => "unusable",
            Self::ReadOnly => "read_only",
            Self::Busy => "busy",
            Self::Full => "full",
            Self::Refused => "refused",
            Self::Open => "open",
            Self::Overloaded => "overloaded",
            Self::Protocol => "protocol",
        }
    }
}

impl StoreError {
    /// An error of this class with a description.
    #[must_use]
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            #[cfg(feature = "redis")]
            fate: None,
            #[cfg(feature = "redis")]
            may_have_charged: false,
        }
    }

    /// Drops the interest in the outcome of the charge, so that its permits may go to other requests.
    pub(crate) fn forget_fate(&mut self) {
        #[cfg(feature = "redis")]
        drop(self.fate.take());
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the store could not decide ({}): {}", self.class.name(), self.message)
    }
}

impl std::error::Error for StoreError {}
