//! Stores: where state is kept, and how it is charged.
//!
//! A store takes a list of [`Charge`]s, one per rule, and treats it as one: it looks at every limit first and
//! writes last, and writes nothing when an enforced limit denies. It knows no rules, identities or headers,
//! only keys, quotas and costs. Every store passes the same conformance suite.

pub mod key;
mod lease;
#[doc(hidden)]
pub mod leases;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

pub use key::{Key, KeySpace, Subject};
pub use lease::{LEASE_TTLS, Lease, LeaseMode};
pub use memory::MemoryStore;

use sluicegate_core::decision::Group;
use sluicegate_core::{Cost, Quota, Timestamp, Verdict};
use smallvec::SmallVec;
use std::fmt;
use std::future::Future;
use std::time::Duration;

/// The most limits that one key may have.
pub const LIMITS_PER_KEY_MAX: usize = 16;

/// What one rule asks of one subject: all limits of one key.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// Where the state lives.
    pub key: Key<'a>,
    /// The limits, each with a state of its own under the key.
    pub quotas: &'a [Quota],
    /// How much is asked for.
    pub cost: Cost,
    /// Whether the limits decide, and which are charged together.
    pub group: Group,
    /// Whether the charge may be made ahead, and on which terms.
    pub lease: Option<Lease>,
}

/// Verdicts of all limits of all charges, in their order. Most requests meet few limits, so few are held
/// without an allocation.
pub type Verdicts = SmallVec<[Verdict; 2]>;

/// What a store answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The instant of the decision on the store's clock.
    pub now: Timestamp,
    /// The verdict of every limit.
    pub verdicts: Verdicts,
}

/// Somewhere to keep state.
///
/// `now` is the caller's clock. A store that is shared by several servers has a clock of its own and decides
/// by that; either way the reply says which instant was meant.
///
/// `deadline` is how long the answer may take. A store that cannot answer in time says so, and then does its best
/// that nothing is charged later either.
pub trait Store: Send + Sync {
    /// Charges all enforced limits, or none: see [`sluicegate_core::decision`] for what is charged when.
    fn charge(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// What [`Store::charge`] would say, without writing anything: what remains is what is left now.
    fn peek(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Gives the costs back, never above whole, then answers as [`Store::peek`].
    fn refund(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// Forgets the state of all keys, then answers as [`Store::peek`].
    fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Timestamp,
        deadline: Duration,
    ) -> impl Future<Output = Result<Reply, StoreError>> + Send;

    /// How many keys the store holds, as far as it can tell cheaply.
    fn tracked_keys(&self) -> Option<u64> {
        None
    }

    /// The store in this process that this one is, if it is one: it answers at once, so nobody has to wait for it.
    fn at_once(&self) -> Option<&MemoryStore> {
        None
    }

    /// True if the store can be out of reach, so that it is worth keeping what it takes to do without it. A store
    /// in this process cannot.
    fn can_fail(&self) -> bool {
        false
    }

    /// True if the store may charge ahead where a [`Lease`] allows it. Then everybody must charge the limits that strict
    /// terms ask for.
    fn charges_ahead(&self) -> bool {
        false
    }

    /// Whether the store answers, as far as it knows without asking.
    fn health(&self) -> Health {
        Health::Up
    }

    /// What it did so far without asking its servers, as far as it counts that.
    fn savings(&self) -> Savings {
        Savings::default()
    }
}

/// What a store did without asking its servers. What a store does not do is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Savings {
    /// Requests that were decided together with another one, in one call.
    pub coalesced_requests: Option<u64>,
    /// Requests that were denied without a call, because it was known that they would be.
    pub denied_from_cache: Option<u64>,
    /// Tokens that are held for requests to come, by the rule's name.
    pub leased_tokens: Vec<(Box<str>, u64)>,
}

/// Whether a store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does, for all that is known.
    Up,
    /// It does for some keys, and for others it does not: one of its servers cannot be used.
    Partial {
        /// Why.
        class: ErrorClass,
    },
    /// It does not, and is not asked until it is known to be back.
    Down {
        /// Why.
        class: ErrorClass,
    },
}

/// A store that could not decide. What that means for the request is up to the rules, not to the store.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreError {
    /// What kind of trouble it is.
    pub class: ErrorClass,
    /// What happened.
    pub message: String,
}

/// Kinds of trouble with a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// No answer within the deadline. Whether anything was charged is unknown.
    Timeout,
    /// No connection, or it broke.
    Connection,
    /// The server is up but cannot serve: it loads, has lost its primary or its replicas, or cannot save.
    Unusable,
    /// The server is a replica now.
    ReadOnly,
    /// The server is busy with a script of somebody's.
    Busy,
    /// The server has no memory left.
    Full,
    /// The server refuses our name, password or rights.
    Refused,
    /// The circuit breaker is open: the server failed a moment ago and was not asked.
    Open,
    /// Too many calls are under way already.
    Overloaded,
    /// The server said something that makes no sense here.
    Protocol,
}

impl ErrorClass {
    /// All classes.
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

    /// True if the trouble is with what was asked or answered, not with reaching the store. Whoever can bring such
    /// an error about must not gain by it, so it never lets a request pass.
    #[must_use]
    pub const fn is_about_the_request(self) -> bool {
        matches!(self, Self::Protocol)
    }

    /// The name in logs and metrics.
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
    /// An error that says what happened.
    #[must_use]
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the store could not decide ({}): {}", self.class.name(), self.message)
    }
}

impl std::error::Error for StoreError {}
