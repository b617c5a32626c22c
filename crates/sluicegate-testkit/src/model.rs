//! A second opinion: every algorithm again, slow and obvious, in exact fractions.
//!
//! The core keeps instants and counts parts of microseconds. The model keeps what the words of the
//! documentation say: tokens in a bucket, a list of charges, a number per window. The two share no code and no
//! representation, so a mistake has to be made twice to go unseen. Everything follows from one number per
//! limit, the units that are *free* at an instant: a cost passes if it is not more than that.
//!
//! Times and lengths are microseconds, costs are units, all plain `u64`. Nothing here is fast, and nothing is
//! dropped to save memory except where the core promises to have forgotten.

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

/// A fraction of any size: never rounded, never out of range.
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
    /// Two numbers, the older one fading.
    Counter(Counter),
    /// A number per window, all windows of one length.
    Fixed(Fixed),
    /// A number per window of a calendar.
    Uneven(Uneven),
}

/// Whether a cost passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It does.
    Allowed,
    /// Not before so many microseconds have gone by.
    Denied {
        /// The smallest wait that is enough.
        retry_after: u64,
    },
    /// Not ever, however long one waits.
    Never,
}

/// What the model says to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the cost passes.
    pub outcome: Outcome,
    /// Whole units that are free after the answer.
    pub remaining: u64,
    /// Microseconds until the limit is whole again if nothing more is charged.
    pub reset_after: u64,
}

/// One identity under one limit.
#[derive(Clone, Debug)]
pub struct Model {
    limit: Limit,
    memory: Option<Memory>,
}

/// What is remembered of the identity. A memory of another algorithm counts as none, and is forgotten with
/// the first question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    Bucket(bucket::Level),
    Log(log::Charges),
    Counter(counter::Windows),
    Fixed(fixed::Count),
}

/// One algorithm, told the obvious way.
pub(crate) trait Rules {
    /// What it remembers.
    type Memory: Clone;

    fn wrap(memory: Self::Memory) -> Memory;
    fn own(memory: &Memory) -> Option<&Self::Memory>;

    /// Units free at `now`, fractions included; less than nothing after a limit was lowered.
    fn free(&self, memory: Option<&Self::Memory>, now: u64) -> Exact;

    /// The first instant from `now` on at which `cost` is free, if there ever is one.
    fn free_at(&self, memory: Option<&Self::Memory>, cost: u64, now: u64) -> Option<u64>;

    /// The first instant from `now` on at which the limit is whole.
    fn whole_at(&self, memory: Option<&Self::Memory>, now: u64) -> u64;

    /// What a memory from beyond reach becomes at `now`: after the clock went back, or the limit shrank.
    fn settled(&self, memory: Self::Memory, now: u64) -> Self::Memory;

    fn taken(&self, memory: Option<Self::Memory>, cost: u64, now: u64) -> Self::Memory;

    /// The memory after `cost` was given back, and how much of it there was to give back.
    fn given_back(&self, memory: Self::Memory, cost: u64, now: u64) -> (Self::Memory, Exact);
}

/// Runs `$body` with `$rules` bound to the numbers of whichever algorithm `$limit` is.
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
    /// An identity never seen.
    #[must_use]
    pub fn new(limit: Limit) -> Self {
        Self { limit, memory: None }
    }

    /// The limit in force.
    #[must_use]
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Another limit for the same identity, from now on.
    pub fn change(&mut self, limit: Limit) {
        self.limit = limit;
    }

    /// Forgets the identity, as if it had never been seen.
    pub fn forget(&mut self) {
        self.memory = None;
    }

    /// Asks for `cost` units, and takes them if they are free.
    pub fn check(&mut self, cost: u64, now: u64) -> Answer {
        with_rules!(&self.limit, rules => check(rules, &mut self.memory, cost, now))
    }

    /// Gives `cost` units back: never more than whole, nothing where nothing is remembered. Returns how much
    /// of it there was to give back.
    pub fn refund(&mut self, cost: u64, now: u64) -> Exact {
        with_rules!(&self.limit, rules => refund(rules, &mut self.memory, cost, now))
    }

    /// A value that is equal for two models that remember the same.
    #[must_use]
    pub fn fingerprint(&self) -> impl Eq + std::hash::Hash + Clone + use<> {
        self.memory.clone()
    }
}

fn check<R: Rules>(rules: &R, memory: &mut Option<Memory>, cost: u64, now: u64) -> Answer {
    let own = memory.as_ref().and_then(R::own).cloned();
    *memory = own.map(|own| R::wrap(rules.settled(own, now)));
    let own = memory.as_ref().and_then(R::own);
    let outcome = if cost == 0 || whole(cost) <= rules.free(own, now) {
        Outcome::Allowed
    } else {
        match rules.free_at(own, cost, now) {
            Some(at) => Outcome::Denied { retry_after: at - now },
            None => Outcome::Never,
        }
    };
    if outcome == Outcome::Allowed && cost > 0 {
        *memory = Some(R::wrap(rules.taken(own.cloned(), cost, now)));
    }
    let own = memory.as_ref().and_then(R::own);
    Answer {
        outcome,
        remaining: floor(&rules.free(own, now)),
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

/// Rounded down to a whole number, and nothing instead of less than nothing.
fn floor(exact: &Exact) -> u64 {
    if exact.is_negative() {
        return 0;
    }
    exact.to_integer().to_u64().unwrap_or(u64::MAX)
}

/// Rounded up to a whole number, and nothing instead of less than nothing.
fn ceil(exact: &Exact) -> u64 {
    floor(&exact.ceil())
}

/// How far beyond what could come from now a memory is believed: a window, and at least a second.
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
