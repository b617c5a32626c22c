//! The algorithms, one file each, behind two enums: [`Quota`] is a limit, [`State`] what is remembered of one
//! identity under it.
//!
//! To add an algorithm, write a file that implements [`Algorithm`] and add one line to the list at the end of
//! this one; `docs/custom-algorithm.md` walks through it.

pub mod fixed_window;
pub mod sliding_counter;
pub mod sliding_window;
pub mod token_bucket;

use crate::quota::Cost;
use crate::time::{Micros, Timestamp};
use crate::verdict::{Outcome, Standing, Verdict};
use std::num::NonZeroU32;

/// What every algorithm answers. All of it is pure, total and exact: no input may panic, and nothing rounds
/// in favour of the caller.
///
/// A state that is absent means an identity never seen, or one whose state was dropped after
/// [`Algorithm::kept_until`].
pub trait Algorithm {
    /// What is remembered between two requests.
    type State: Clone + std::fmt::Debug + PartialEq;

    /// The name in configuration, metrics and answers.
    const NAME: &'static str;

    /// The most units that pass at once when the limit is whole.
    fn limit(&self) -> u64;

    /// The length that the limit speaks of: the window, or the time a bucket takes to fill. Of windows that differ it is
    /// the longest.
    fn window(&self) -> Micros;

    /// How long the window is that `now` lies in, where windows differ.
    fn window_at(&self, now: Timestamp) -> Micros {
        let _ = now;
        self.window()
    }

    /// A state from too far ahead (the clock stepped back, the limit shrank, the bytes were damaged), pulled
    /// back to the fullest that could come from now: it never adds tokens, and bounds the wait. Too far is more
    /// than one [`Algorithm::window`], and more than a second, beyond that; `None` for any other state, which
    /// is believed as it is. A caller that keeps the state must keep the repair, even when the request is
    /// denied, or the wait it promised would move away with the clock.
    fn repair(&self, state: &Self::State, now: Timestamp) -> Option<Self::State>;

    /// Whether `cost`, which is not zero, fits.
    fn outcome(&self, state: Option<&Self::State>, cost: Cost, now: Timestamp) -> Outcome;

    /// The state after `cost` was taken; only for a cost that [`Algorithm::outcome`] allowed.
    fn charge(&self, state: Option<Self::State>, cost: Cost, now: Timestamp) -> Self::State;

    /// The state after `cost`, which is not zero, was taken by a decision made elsewhere, whether or not it fits here.
    /// What does not fit is owed: nothing passes until it is made good. The default knows no debts and takes what is
    /// left; then what was beyond it may pass here once more.
    fn force(&self, state: Option<Self::State>, cost: Cost, now: Timestamp) -> Option<Self::State> {
        let left = self.standing(state.as_ref(), now).remaining;
        let cost = Cost::new(u32::try_from(left).unwrap_or(u32::MAX).min(cost.get()));
        let fits = !cost.is_zero() && self.outcome(state.as_ref(), cost, now).is_allowed();
        if fits { Some(self.charge(state, cost, now)) } else { state }
    }

    /// The state after `cost` was given back: never more than whole.
    fn refund(&self, state: Self::State, cost: Cost, now: Timestamp) -> Self::State;

    /// How the limit stands.
    fn standing(&self, state: Option<&Self::State>, now: Timestamp) -> Standing;

    /// The last instant at which the state matters: at any later one it means the same as no state.
    fn kept_until(&self, state: &Self::State) -> Timestamp;

    /// What one of `parts` enforces alone so that all together stay within this limit, up to the rounding that
    /// leaves each at least one unit. `None` if there is no such limit, which lets nothing pass: what cannot be
    /// shared is not handed out several times.
    #[must_use]
    fn share(&self, parts: NonZeroU32) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = parts;
        None
    }

    /// What to charge by so that charges that pass up to `delay` after they were made stay within this limit, as if
    /// they had passed at once. `None` if there is no such limit; then nothing may be charged ahead.
    #[must_use]
    fn prepaid(&self, delay: Micros) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = delay;
        None
    }

    /// Decides one request under this limit alone: the state to remember from now on, and the verdict. A cost
    /// of nothing always fits and leaves the state as it is.
    fn decide(&self, state: Option<Self::State>, cost: Cost, now: Timestamp) -> (Option<Self::State>, Verdict) {
        let repaired = state.as_ref().and_then(|state| self.repair(state, now));
        let state = repaired.or(state);
        if cost.is_zero() {
            let standing = self.standing(state.as_ref(), now);
            return (state, Verdict::new(Outcome::Allowed, self.limit(), standing));
        }
        let outcome = self.outcome(state.as_ref(), cost, now);
        let state = if outcome.is_allowed() { Some(self.charge(state, cost, now)) } else { state };
        let standing = self.standing(state.as_ref(), now);
        (state, Verdict::new(outcome, self.limit(), standing))
    }
}

/// How far beyond what could come from now a state is believed.
///
/// Clocks differ a little, and requests that read the clock in one order are decided in another. Would each
/// that comes late pull the state back to its own `now`, the next in time would be given the same moments
/// again, as often as that happens. So a state that is a little ahead is taken as it is: who comes late waits
/// longer, nobody gets anything twice. A second is far more than that takes, and a window no more than the
/// wait that an identity must expect anyway.
pub(crate) fn believed_ahead(window: Micros) -> Micros {
    window.max(Micros::from_secs(1))
}

/// The state if this algorithm left it. A state of another algorithm counts as none: a rule that changes its
/// algorithm starts fresh instead of failing.
macro_rules! own {
    ($state:expr, $name:ident) => {
        match $state {
            Some(State::$name(own)) => Some(own),
            _ => None,
        }
    };
}

macro_rules! algorithms {
    ($($(#[$doc:meta])* $name:ident($quota:ty)),+ $(,)?) => {
        /// A limit: one of the algorithms with its numbers.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Quota {
            $($(#[$doc])* $name($quota),)+
        }

        /// What is remembered of one identity under one limit.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum State {
            $($(#[$doc])* $name(<$quota as Algorithm>::State),)+
        }

        $(
            impl From<$quota> for Quota {
                fn from(quota: $quota) -> Self {
                    Self::$name(quota)
                }
            }
        )+

        impl Quota {
            /// The names of all algorithms, as configuration spells them.
            pub const ALGORITHMS: &'static [&'static str] = &[$(<$quota as Algorithm>::NAME),+];

            /// The name of this limit's algorithm.
            #[must_use]
            pub fn algorithm(&self) -> &'static str {
                match self { $(Self::$name(_) => <$quota as Algorithm>::NAME,)+ }
            }

            /// The place of this limit's algorithm in [`Quota::ALGORITHMS`].
            #[must_use]
            pub fn algorithm_index(&self) -> usize {
                enum Index { $($name),+ }
                match self { $(Self::$name(_) => Index::$name as usize,)+ }
            }

            /// The most units that pass at once when the limit is whole.
            #[must_use]
            pub fn limit(&self) -> u64 {
                match self { $(Self::$name(quota) => quota.limit(),)+ }
            }

            /// The window, or the time a bucket takes to fill. Of windows that differ it is the longest.
            #[must_use]
            pub fn window(&self) -> Micros {
                match self { $(Self::$name(quota) => quota.window(),)+ }
            }

            /// The same, but where windows differ it is the one that `now` lies in.
            #[must_use]
            pub fn window_at(&self, now: Timestamp) -> Micros {
                match self { $(Self::$name(quota) => quota.window_at(now),)+ }
            }

            /// See [`Algorithm::share`]; a limit that lets nothing pass where there is no share.
            #[must_use]
            pub fn share(&self, parts: NonZeroU32) -> Self {
                let share = match self { $(Self::$name(quota) => quota.share(parts).map(Self::$name),)+ };
                share.unwrap_or(Self::FixedWindow(fixed_window::FixedWindow::NOTHING))
            }

            /// See [`Algorithm::prepaid`].
            #[must_use]
            pub fn prepaid(&self, delay: Micros) -> Option<Self> {
                match self { $(Self::$name(quota) => quota.prepaid(delay).map(Self::$name),)+ }
            }

            /// See [`Algorithm::decide`].
            #[must_use]
            pub fn decide(&self, state: Option<State>, cost: Cost, now: Timestamp) -> (Option<State>, Verdict) {
                match self {
                    $(Self::$name(quota) => {
                        let (state, verdict) = quota.decide(own!(state, $name), cost, now);
                        (state.map(State::$name), verdict)
                    })+
                }
            }

            /// See [`Algorithm::repair`].
            #[must_use]
            pub fn repair(&self, state: &State, now: Timestamp) -> Option<State> {
                match self {
                    $(Self::$name(quota) => match state {
                        State::$name(own) => quota.repair(own, now).map(State::$name),
                        _ => None,
                    },)+
                }
            }

            /// Whether `cost` fits. A cost of nothing always does.
            #[must_use]
            pub fn outcome(&self, state: Option<&State>, cost: Cost, now: Timestamp) -> Outcome {
                if cost.is_zero() {
                    return Outcome::Allowed;
                }
                match self { $(Self::$name(quota) => quota.outcome(own!(state, $name), cost, now),)+ }
            }

            /// The state after `cost` was taken. A cost of nothing creates no state.
            #[must_use]
            pub fn charge(&self, state: Option<State>, cost: Cost, now: Timestamp) -> Option<State> {
                if cost.is_zero() {
                    return state;
                }
                Some(match self {
                    $(Self::$name(quota) => {
                        State::$name(quota.charge(own!(state, $name), cost, now))
                    })+
                })
            }

            /// See [`Algorithm::force`]. A cost of nothing creates no state.
            #[must_use]
            pub fn force(&self, state: Option<State>, cost: Cost, now: Timestamp) -> Option<State> {
                if cost.is_zero() {
                    return state;
                }
                match self {
                    $(Self::$name(quota) => quota.force(own!(state, $name), cost, now).map(State::$name),)+
                }
            }

            /// The state after `cost` was given back: never more than whole, and nothing where nothing is
            /// remembered.
            #[must_use]
            pub fn refund(&self, state: Option<State>, cost: Cost, now: Timestamp) -> Option<State> {
                match (self, state) {
                    $((Self::$name(quota), Some(State::$name(own))) => {
                        Some(State::$name(quota.refund(own, cost, now)))
                    })+
                    _ => None,
                }
            }

            /// How the limit stands.
            #[must_use]
            pub fn standing(&self, state: Option<&State>, now: Timestamp) -> Standing {
                match self { $(Self::$name(quota) => quota.standing(own!(state, $name), now),)+ }
            }

            /// The last instant at which `state` matters; the beginning of time for another algorithm's.
            #[must_use]
            pub fn kept_until(&self, state: &State) -> Timestamp {
                match (self, state) {
                    $((Self::$name(quota), State::$name(own)) => quota.kept_until(own),)+
                    _ => Timestamp::default(),
                }
            }
        }
    };
}

impl Quota {
    /// The state, pulled back into range if it was not.
    #[must_use]
    pub fn repaired(&self, state: Option<State>, now: Timestamp) -> Option<State> {
        match state.as_ref().and_then(|state| self.repair(state, now)) {
            Some(repaired) => Some(repaired),
            None => state,
        }
    }

    /// `outcome` together with how the limit stands.
    #[must_use]
    pub fn verdict(&self, outcome: Outcome, state: Option<&State>, now: Timestamp) -> Verdict {
        Verdict::new(outcome, self.limit(), self.standing(state, now))
    }

    /// The time by which this limit sees `now`: shifted by a part of its window that `seed`, a digest of the
    /// key, picks, when the limit spreads its windows over keys. Everything else sees `now` as it is.
    #[must_use]
    pub fn aligned(&self, now: Timestamp, seed: u64) -> Timestamp {
        match self {
            Self::FixedWindow(quota) => now.plus(quota.phase(seed)),
            _ => now,
        }
    }
}

algorithms! {
    /// Capacity that refills at a steady rate: bursts up to the capacity, the rate in the long run.
    TokenBucket(token_bucket::TokenBucket),
    /// A log of what was charged when: never more than the limit within any window.
    SlidingWindow(sliding_window::SlidingWindow),
    /// Two counters that approximate the sliding window in constant memory.
    SlidingCounter(sliding_counter::SlidingCounter),
    /// A counter that starts anew with every window of the calendar.
    FixedWindow(fixed_window::FixedWindow),
}
