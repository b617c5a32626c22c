//! The algorithms, one file each, behind two enums: [`Quota`] is a limit, and [`State`] is the state of one identity
//! under it.
//!
//! To add an algorithm, write a file that implements [`Algorithm`] and add one line to the list at the end of this
//! file; `docs/custom-algorithm.md` describes the steps.

pub mod fixed_window;
pub mod sliding_counter;
pub mod sliding_window;
pub mod token_bucket;

use crate::quota::Cost;
use crate::time::{Micros, Timestamp};
use crate::verdict::{Outcome, Standing, Verdict};
use std::num::NonZeroU32;

/// The operations of an algorithm. All are pure, total and exact: no input may panic, and no rounding favours the
/// client.
///
/// An absent state belongs to a new identity, or to one with a state that was dropped after [`Algorithm::kept_until`].
pub trait Algorithm {
    /// The state of one identity between two requests.
    type State: Clone + std::fmt::Debug + PartialEq;

    /// The name in configuration, metrics and replies.
    const NAME: &'static str;

    /// The maximum number of units admitted at once, by a full limit.
    fn limit(&self) -> u64;

    /// The period of the limit: the window, or the fill time of a bucket. If windows differ, it is the longest one.
    fn window(&self) -> Micros;

    /// The length of the window that contains `now`, if windows differ.
    fn window_at(&self, now: Timestamp) -> Micros {
        let _ = now;
        self.window()
    }

    /// Repairs a state too far in the future (the clock stepped back, the limit shrank, or the bytes were damaged).
    /// Returns the fullest state that is possible now: it never adds tokens and bounds the wait. Too far means beyond
    /// that state by more than one [`Algorithm::window`] and more than a second, and beyond the largest debt. Returns `None` for any other state,
    /// which is used unchanged. A caller that stores the state must store the repair, even if the request is denied.
    /// Otherwise the promised wait would move with the clock.
    fn repair(&self, state: &Self::State, now: Timestamp) -> Option<Self::State>;

    /// Whether a non-zero `cost` fits.
    fn outcome(&self, state: Option<&Self::State>, cost: Cost, now: Timestamp) -> Outcome;

    /// The state after a charge of `cost`, which [`Algorithm::outcome`] must have allowed.
    fn charge(&self, state: Option<Self::State>, cost: Cost, now: Timestamp) -> Self::State;

    /// The state after a forced charge of a non-zero `cost`, whether or not it fits: usage that has already happened,
    /// or a request that was admitted elsewhere. The excess becomes a debt of at most [`DEBT_LIMITS_MAX`](crate::DEBT_LIMITS_MAX) full
    /// limits: nothing is admitted until it is paid. The default has no debts and takes the remaining quota; then the
    /// excess may be admitted here once more.
    fn force(&self, state: Option<Self::State>, cost: Cost, now: Timestamp) -> Option<Self::State> {
        let left = self.standing(state.as_ref(), now).remaining;
        let cost = Cost::new(u32::try_from(left).unwrap_or(u32::MAX).min(cost.get()));
        let fits = !cost.is_zero() && self.outcome(state.as_ref(), cost, now).is_allowed();
        if fits { Some(self.charge(state, cost, now)) } else { state }
    }

    /// The units that [`Algorithm::force`] would not charge, because of the bound on debt; parts of a unit are rounded
    /// up.
    fn cut_off(&self, state: Option<&Self::State>, cost: Cost, now: Timestamp) -> u64 {
        cost.units().saturating_sub(self.standing(state, now).remaining)
    }

    /// The state after a refund of `cost`, at most full. A debt is paid first.
    fn refund(&self, state: Self::State, cost: Cost, now: Timestamp) -> Self::State;

    /// The standing of the limit.
    fn standing(&self, state: Option<&Self::State>, now: Timestamp) -> Standing;

    /// The last instant at which the state is live. Later it is equivalent to no state.
    fn kept_until(&self, state: &Self::State) -> Timestamp;

    /// The limit that each of `parts` enforces alone so that all together stay within this limit, except for rounding
    /// that gives each at least one unit. `None` if there is no such limit, and then nothing is admitted: a quota
    /// that cannot be divided is not granted several times.
    #[must_use]
    fn share(&self, parts: NonZeroU32) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = parts;
        None
    }

    /// The limit for charges in advance: if permits are used up to `delay` after their charge, their admissions stay
    /// within this limit as if charged at admission. `None` if there is no such limit; then nothing may be charged in
    /// advance.
    #[must_use]
    fn prepaid(&self, delay: Micros) -> Option<Self>
    where
        Self: Sized,
    {
        let _ = delay;
        None
    }

    /// Decides one request under this limit alone. Returns the new state and the verdict. A cost of zero always fits
    /// and leaves the state unchanged.
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

/// The distance into the future up to which a state is accepted.
///
/// Clocks differ slightly, and requests that read the clock in one order are decided in another. If every late
/// request pulled the state back to its own `now`, the next timely request would receive the same time again, and so
/// on. So a state slightly ahead is accepted: the late request waits longer, and no time is granted twice. A second
/// is far more than that needs, and a window is no longer than the wait that a client must expect anyway.
///
/// A token bucket also accepts the largest debt beyond that, so that a repair never forgives a debt within the bound.
pub(crate) fn believed_ahead(window: Micros) -> Micros {
    window.max(Micros::from_secs(1))
}

/// The state, if this algorithm wrote it. A state of another algorithm counts as absent, so a rule that changes its
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
        /// A limit: an algorithm with its parameters.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Quota {
            $($(#[$doc])* $name($quota),)+
        }

        /// The state of one identity under one limit.
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

            /// The index of this limit's algorithm in [`Quota::ALGORITHMS`].
            #[must_use]
            pub fn algorithm_index(&self) -> usize {
                enum Index { $($name),+ }
                match self { $(Self::$name(_) => Index::$name as usize,)+ }
            }

            /// The maximum number of units admitted at once, by a full limit.
            #[must_use]
            pub fn limit(&self) -> u64 {
                match self { $(Self::$name(quota) => quota.limit(),)+ }
            }

            /// The window, or the fill time of a bucket. If windows differ, it is the longest one.
            #[must_use]
            pub fn window(&self) -> Micros {
                match self { $(Self::$name(quota) => quota.window(),)+ }
            }

            /// As [`Quota::window`], but the window that contains `now` if windows differ.
            #[must_use]
            pub fn window_at(&self, now: Timestamp) -> Micros {
                match self { $(Self::$name(quota) => quota.window_at(now),)+ }
            }

            /// As [`Algorithm::share`], but a limit that admits nothing if there is no share.
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

            /// Whether `cost` fits. A cost of zero always fits.
            #[must_use]
            pub fn outcome(&self, state: Option<&State>, cost: Cost, now: Timestamp) -> Outcome {
                if cost.is_zero() {
                    return Outcome::Allowed;
                }
                match self { $(Self::$name(quota) => quota.outcome(own!(state, $name), cost, now),)+ }
            }

            /// The state after a charge of `cost`. A cost of zero creates no state.
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

            /// As [`Algorithm::force`]. A cost of zero creates no state.
            #[must_use]
            pub fn force(&self, state: Option<State>, cost: Cost, now: Timestamp) -> Option<State> {
                if cost.is_zero() {
                    return state;
                }
                match self {
                    $(Self::$name(quota) => quota.force(own!(state, $name), cost, now).map(State::$name),)+
                }
            }

            /// See [`Algorithm::cut_off`].
            #[must_use]
            pub fn cut_off(&self, state: Option<&State>, cost: Cost, now: Timestamp) -> u64 {
                match self { $(Self::$name(quota) => quota.cut_off(own!(state, $name), cost, now),)+ }
            }

            /// The state after a refund of `cost`, at most full. An absent state stays absent.
            #[must_use]
            pub fn refund(&self, state: Option<State>, cost: Cost, now: Timestamp) -> Option<State> {
                match (self, state) {
                    $((Self::$name(quota), Some(State::$name(own))) => {
                        Some(State::$name(quota.refund(own, cost, now)))
                    })+
                    _ => None,
                }
            }

            /// The standing of the limit.
            #[must_use]
            pub fn standing(&self, state: Option<&State>, now: Timestamp) -> Standing {
                match self { $(Self::$name(quota) => quota.standing(own!(state, $name), now),)+ }
            }

            /// The last instant at which `state` is live; the beginning of time for a state of another algorithm.
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
    /// The state, repaired if it was out of range.
    #[must_use]
    pub fn repaired(&self, state: Option<State>, now: Timestamp) -> Option<State> {
        match state.as_ref().and_then(|state| self.repair(state, now)) {
            Some(repaired) => Some(repaired),
            None => state,
        }
    }

    /// Combines `outcome` with the standing of the limit.
    #[must_use]
    pub fn verdict(&self, outcome: Outcome, state: Option<&State>, now: Timestamp) -> Verdict {
        Verdict::new(outcome, self.limit(), self.standing(state, now))
    }

    /// The outcome of a request that another limit delays by `wait`. It is the `outcome` at `now`, unless the credits
    /// that the request needs expire during the wait. In that case no wait is ever enough.
    #[must_use]
    pub fn outcome_after_waiting(
        &self,
        outcome: Outcome,
        state: Option<&State>,
        cost: Cost,
        now: Timestamp,
        wait: Micros,
    ) -> Outcome {
        match self {
            Self::TokenBucket(bucket) if bucket.credits() > 0 => match self.outcome(state, cost, now.plus(wait)) {
                Outcome::NeverAdmissible => Outcome::NeverAdmissible,
                Outcome::Allowed | Outcome::Denied { .. } => outcome,
            },
            _ => outcome,
        }
    }

    /// The instant at which this limit decides at `now`. If the limit spreads its windows over keys, it is shifted by
    /// a part of the window that depends on `seed`, a digest of the key. Otherwise it is `now`.
    #[must_use]
    pub fn aligned(&self, now: Timestamp, seed: u64) -> Timestamp {
        match self {
            Self::FixedWindow(quota) => now.plus(quota.phase(seed)),
            _ => now,
        }
    }
}

algorithms! {
    /// Capacity that refills at a steady rate: it bounds bursts by the capacity, and the long-term rate.
    TokenBucket(token_bucket::TokenBucket),
    /// A log of charges: never more than the limit within any window.
    SlidingWindow(sliding_window::SlidingWindow),
    /// Two counters that approximate the sliding window in constant memory.
    SlidingCounter(sliding_counter::SlidingCounter),
    /// A counter that restarts with every window of the clock or calendar.
    FixedWindow(fixed_window::FixedWindow),
}
