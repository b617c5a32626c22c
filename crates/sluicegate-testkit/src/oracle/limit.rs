//! One limit: its parameters, and the usage of one subject under it.
//!
//! Each algorithm states the contract in its own terms: tokens in a bucket, a list of charges, two counters, one
//! counter. All arithmetic is on integers, so nothing is rounded unless the contract rounds it. No arithmetic is shared
//! with the product.

mod bucket;
mod fixed_window;
mod sliding_counter;
mod sliding_window;
#[cfg(test)]
mod tests;

pub use bucket::Bucket;
pub(super) use bucket::Level;
pub(super) use fixed_window::date_of;
pub use fixed_window::{FixedWindow, Windows};
pub use sliding_counter::SlidingCounter;
pub use sliding_window::SlidingWindow;

/// A store accepts usage that lies ahead of the clock by up to this much, or by a window if that is longer. Usage
/// further ahead means that the clock stepped back or that the limit was changed.
const SECOND: u64 = 1_000_000;

/// The largest debt, in limits.
const DEBT: u64 = 10;

/// The parameters of one limit. Times and lengths are microseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Limit {
    /// `token_bucket`
    Bucket(Bucket),
    /// `sliding_window`
    SlidingWindow(SlidingWindow),
    /// `sliding_counter`
    SlidingCounter(SlidingCounter),
    /// `fixed_window`
    FixedWindow(FixedWindow),
}

/// The usage of one subject under one limit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Usage {
    Bucket(Level),
    SlidingWindow(sliding_window::Charges),
    SlidingCounter(sliding_counter::Counts),
    FixedWindow(fixed_window::Count),
}

/// The contract of an algorithm for the usage of a subject; `None` is a subject without history.
trait Algorithm {
    type Usage: Clone;

    /// The usage, if it belongs to this algorithm.
    fn own(usage: &Usage) -> Option<&Self::Usage>;
    fn wrap(usage: Self::Usage) -> Usage;

    /// The most units that pass at once.
    fn limit(&self) -> u64;

    /// How many single units would pass at `now`.
    fn remaining(&self, usage: Option<&Self::Usage>, now: u64) -> u64;

    /// The units beyond the limit, rounded up.
    fn debt(&self, usage: Option<&Self::Usage>, now: u64) -> u64;

    /// True if `cost`, which is not zero, passes at `now`.
    fn fits(&self, usage: Option<&Self::Usage>, cost: u64, now: u64) -> bool;

    /// The first instant from `now` on at which `cost` passes if nothing else is charged; `None` if it never does.
    fn fits_at(&self, usage: Option<&Self::Usage>, cost: u64, now: u64) -> Option<u64>;

    /// The first instant from `now` on at which the limit is fully restored.
    fn restored_at(&self, usage: Option<&Self::Usage>, now: u64) -> u64;

    fn charged(&self, usage: Option<&Self::Usage>, cost: u64, now: u64) -> Self::Usage;

    /// The usage after a charge of a `cost` that has already happened: the debt is at most [`DEBT`] limits.
    fn reported(&self, usage: Option<&Self::Usage>, cost: u64, now: u64) -> Self::Usage;

    fn refunded(&self, usage: &Self::Usage, cost: u64, now: u64) -> Self::Usage;

    /// The usage pulled back into range if it lies too far ahead of `now`; `None` if it does not.
    fn repaired(&self, usage: &Self::Usage, now: u64) -> Option<Self::Usage>;

    /// The last instant at which the usage makes a difference. A store may forget it afterwards.
    fn matters_until(&self, usage: &Self::Usage) -> u64;
}

macro_rules! by_algorithm {
    ($limit:expr, $numbers:ident => $body:expr) => {
        match $limit {
            Limit::Bucket($numbers) => $body,
            Limit::SlidingWindow($numbers) => $body,
            Limit::SlidingCounter($numbers) => $body,
            Limit::FixedWindow($numbers) => $body,
        }
    };
}

impl Limit {
    /// The name of the algorithm in configuration.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Bucket(_) => "token_bucket",
            Self::SlidingWindow(_) => "sliding_window",
            Self::SlidingCounter(_) => "sliding_counter",
            Self::FixedWindow(_) => "fixed_window",
        }
    }

    pub(super) fn limit(&self) -> u64 {
        by_algorithm!(self, numbers => numbers.limit())
    }

    pub(super) fn remaining(&self, usage: Option<&Usage>, now: u64) -> u64 {
        by_algorithm!(self, numbers => numbers.remaining(own(numbers, usage), now))
    }

    pub(super) fn debt(&self, usage: Option<&Usage>, now: u64) -> u64 {
        by_algorithm!(self, numbers => numbers.debt(own(numbers, usage), now))
    }

    /// A cost of zero always passes.
    pub(super) fn fits(&self, usage: Option<&Usage>, cost: u64, now: u64) -> bool {
        cost == 0 || by_algorithm!(self, numbers => numbers.fits(own(numbers, usage), cost, now))
    }

    pub(super) fn fits_at(&self, usage: Option<&Usage>, cost: u64, now: u64) -> Option<u64> {
        if self.fits(usage, cost, now) {
            return Some(now);
        }
        by_algorithm!(self, numbers => numbers.fits_at(own(numbers, usage), cost, now))
    }

    pub(super) fn restored_at(&self, usage: Option<&Usage>, now: u64) -> u64 {
        by_algorithm!(self, numbers => numbers.restored_at(own(numbers, usage), now)).max(now)
    }

    pub(super) fn charged(&self, usage: Option<&Usage>, cost: u64, now: u64) -> Usage {
        by_algorithm!(self, numbers => wrap(numbers, numbers.charged(own(numbers, usage), cost, now)))
    }

    /// A cost of zero, and a limit of zero, change nothing.
    pub(super) fn reported(&self, usage: Option<&Usage>, cost: u64, now: u64) -> Option<Usage> {
        if cost == 0 || self.limit() == 0 {
            return usage.cloned();
        }
        Some(by_algorithm!(self, numbers => wrap(numbers, numbers.reported(own(numbers, usage), cost, now))))
    }

    pub(super) fn refunded(&self, usage: &Usage, cost: u64, now: u64) -> Option<Usage> {
        by_algorithm!(self, numbers => {
            own(numbers, Some(usage)).map(|usage| wrap(numbers, numbers.refunded(usage, cost, now)))
        })
    }

    pub(super) fn repaired(&self, usage: &Usage, now: u64) -> Option<Usage> {
        by_algorithm!(self, numbers => {
            own(numbers, Some(usage)).and_then(|usage| numbers.repaired(usage, now)).map(|usage| wrap(numbers, usage))
        })
    }

    pub(super) fn matters_until(&self, usage: &Usage) -> u64 {
        by_algorithm!(self, numbers => own(numbers, Some(usage)).map_or(0, |usage| numbers.matters_until(usage)))
    }
}

fn own<'u, A: Algorithm>(_: &A, usage: Option<&'u Usage>) -> Option<&'u A::Usage> {
    usage.and_then(A::own)
}

fn wrap<A: Algorithm>(_: &A, usage: A::Usage) -> Usage {
    A::wrap(usage)
}

/// Gives an algorithm the usage that belongs to it.
macro_rules! usage {
    ($name:ident($usage:ty)) => {
        type Usage = $usage;

        fn own(usage: &super::Usage) -> Option<&$usage> {
            match usage {
                super::Usage::$name(usage) => Some(usage),
                _ => None,
            }
        }

        fn wrap(usage: $usage) -> super::Usage {
            super::Usage::$name(usage)
        }
    };
}
use usage;
