//! Independent reference models: every algorithm again, slow and obvious, in exact fractions.
//!
//! The core stores instants and counts fractions of microseconds. The model stores the quantities of the documentation:
//! tokens in a bucket, a list of charges, a number per window. The two share no code and no representation, so only an
//! error made twice goes undetected. Everything follows from one number per limit, the units that are *free* at an
//! instant: a cost passes if it does not exceed that number.
//!
//! Times and lengths are microseconds, costs are units, all plain `u64`. Nothing here is fast, and state is dropped
//! only where the core guarantees to have forgotten it.

pub mod bucket;
pub mod counter;
pub mod fixed;
pub mod log;
pub mod monitor;
pub mod uneven;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};

pub use bucket::Bucket;
pub use counter::Counter;
pub use fixed::Fixed;
pub use log::Log;
pub use uneven::Uneven;

/// A fraction of arbitrary precision, without rounding or overflow.
pub type Exact = BigRational;

/// A whole number as a fraction.
#[must_use]
pub fn whole(number: u64) -> Exact {
    Exact::from_integer(BigInt::from(number))
}

/// A limit of one of the algorithms, in plain numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// Tokens in a bucket.
    Bucket(Bucket),
    /// A list of charges.
    Log(Log),
    /// Two numbers, of which the older one decays.
    Counter(Counter),
    /// A number per window, all windows of one length.
    Fixed(Fixed),
    /// A number per window of a calendar.
    Uneven(Uneven),
}

/// Whether a cost passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cost passes.
    Allowed,
    /// The cost passes after this many microseconds.
    Denied {
        /// The smallest sufficient wait.
        retry_after: u64,
    },
    /// The cost never passes, however long the client waits.
    Never,
}

/// The model's answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the cost passes.
    pub outcome: Outcome,
    /// Whole units that are free after the decision.
    pub remaining: u64,
    /// Units charged beyond the limit, rounded up.
    pub debt: u64,
    /// Microseconds until the limit is fully restored if nothing more is charged.
    pub reset_after: u64,
}

/// One identity under one limit.
#[derive(Clone, Debug)]
pub struct Model {
    limit: Limit,
    memory: Option<Memory>,
}

/// The state of the identity. State of another algorithm counts as no state, and the next check drops it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    Bucket(bucket::Level),
    Log(log::Charges),
    Counter(counter::Windows),
    Fixed(fixed::Count),
}

/// One algorithm in its most obvious form.
pub(crate) trait Rules {
    /// The state of an identity.
    type Memory: Clone;

    fn wrap(memory: Self::Memory) -> Memory;
    fn own(memory: &Memory) -> Option<&Self::Memory>;

    /// Units free at `now`, including fractions; negative after a limit was lowered.
    fn free(&self, memory: Option<&Self::Memory>, now: u64) -> Exact;

    /// The first instant from `now` on at which `cost` is free, or `None` if there is none.
    fn free_at(&self, memory: Option<&Self::Memory>, cost: u64, now: u64) -> Option<u64>;

    /// The first instant from `now` on at which the limit is fully restored.
    fn whole_at(&self, memory: Option<&Self::Memory>, now: u64) -> u64;

    /// The state at `now`, pulled back into range if it lies too far ahead because the clock stepped back or the limit
    /// shrank.
    fn settled(&self, memory: Self::Memory, now: u64) -> Self::Memory;

    fn taken(&self, memory: Option<Self::Memory>, cost: u64, now: u64) -> Self::Memory;

    /// The state after `cost` units were charged, whether or not they are free, but with no more debt than ten limits.
    fn reported(&self, memory: Option<Self::Memory>, cost: u64, now: u64) -> Option<Self::Memory>;

    /// The state after a refund of `cost`, and the part of it that could be refunded.
    fn given_back(&self, memory: Self::Memory, cost: u64, now: u64) -> (Self::Memory, Exact);
}

/// Runs `$body` with `$rules` bound to the parameters of the algorithm of `$limit`.
macro_rules! with_rules {
    ($limit:expr, $rules:ident => $body:expr) => {
        match $limit {
            Limit::Bucket($rules) => $body,
            Limit::Log($rules) => $body,
            Limit::Counter($rules) => $body,
            Limit::Fixed($rules) => $body,
            Limit::Uneven($rules) => $body,
        }
    };
}

impl Model {
    /// An identity without history.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self { limit, memory: None }
    }

    /// The limit in force.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Puts the identity under another limit from now on.
    pub fn change(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// Drops the state of the identity, as if it had no history.
    pub fn forget(&mut self) {
        self.memory = None;
    }

    /// Charges `cost` units if they are free.
    pub fn check(&mut self, cost: u64, now: u64) -> Answer {
        with_rules!(&self.limit, rules => check(rules, &mut self.memory, cost, now))
    }

    /// Charges `cost` units, whether or not they are free, and then asks for them.
    pub fn report(&mut self, cost: u64, now: u64) -> Answer {
        with_rules!(&self.limit, rules => report(rules, &mut self.memory, cost, now));
        with_rules!(&self.limit, rules => answer(rules, self.memory.as_ref(), cost, now))
    }

    /// Refunds `cost` units, at most until the limit is fully restored. An identity without state gets no refund.
    /// Returns the part that could be refunded.
    pub fn refund(&mut self, cost: u64, now: u64) -> Exact {
        with_rules!(&self.limit, rules => refund(rules, &mut self.memory, cost, now))
    }

    /// A value that is equal for two models with the same state.
    #[must_use]
    pub fn fingerprint(&self) -> impl Eq + std::hash::Hash + Clone + use<> {
        self.memory.clone()
    }
}

fn settle<R: Rules>(rules: &R, memory: &mut Option<Memory>, now: u64) {
    let own = memory.as_ref().and_then(R::own).cloned();
    *memory = own.map(|own| R::wrap(rules.settled(own, now)));
}

fn check<R: Rules>(rules: &R, memory: &mut Option<Memory>, cost: u64, now: u64) -> Answer {
    settle(rules, memory, now);
    let outcome = answer(rules, memory.as_ref(), cost, now).outcome;
    if outcome == Outcome::Allowed && cost > 0 {
        let own = memory.as_ref().and_then(R::own).cloned();
        *memory = Some(R::wrap(rules.taken(own, cost, now)));
    }
    Answer { outcome, ..answer(rules, memory.as_ref(), 0, now) }
}

fn report<R: Rules>(rules: &R, memory: &mut Option<Memory>, cost: u64, now: u64) {
    settle(rules, memory, now);
    if cost > 0 {
        let own = memory.as_ref().and_then(R::own).cloned();
        *memory = rules.reported(own, cost, now).map(R::wrap);
    }
}

/// The answer to a request that charges nothing.
fn answer<R: Rules>(rules: &R, memory: Option<&Memory>, cost: u64, now: u64) -> Answer {
    let own = memory.and_then(R::own);
    let outcome = if cost == 0 || whole(cost) <= rules.free(own, now) {
        Outcome::Allowed
    } else {
        match rules.free_at(own, cost, now) {
            Some(at) => Outcome::Denied { retry_after: at - now },
            None => Outcome::Never,
        }
    };
    Answer {
        outcome,
        remaining: floor(&rules.free(own, now)),
        debt: ceil(&-rules.free(own, now)),
        reset_after: rules.whole_at(own, now).saturating_sub(now),
    }
}

fn refund<R: Rules>(rules: &R, memory: &mut Option<Memory>, cost: u64, now: u64) -> Exact {
    let Some(own) = memory.as_ref().and_then(R::own).cloned() else {
        *memory = None;
        return Exact::zero();
    };
    let (own, given_back) = rules.given_back(own, cost, now);
    *memory = Some(R::wrap(own));
    given_back
}

/// The most units of a limit and its debt: ten limits more, and what a double holds exactly.
fn with_debt(limit: u64) -> u64 {
    (11 * limit).min(9_007_199_254_740_991)
}

/// Rounds down to a whole number; negative values become 0.
fn floor(exact: &Exact) -> u64 {
    if exact.is_negative() {
        return 0;
    }
    exact.to_integer().to_u64().unwrap_or(u64::MAX)
}

/// Rounds up to a whole number; negative values become 0.
fn ceil(exact: &Exact) -> u64 {
    floor(&exact.ceil())
}

/// How far state may lie ahead of the furthest instant possible from now before it is discarded: a window, and at least
/// a second.
fn believed_ahead(window: u64) -> u64 {
    window.max(1_000_000)
}

/// The end of the calendar window of this length that `now` lies in.
fn calendar_end(now: u64, window: u64) -> u64 {
    (now / window + 1) * window
}

/// The first end of a calendar window at or after `instant`.
fn next_boundary(instant: u64, window: u64) -> u64 {
    instant.div_ceil(window) * window
}
