//! How many permits a decision may ask for: as many as its next requests will use, and few enough to leave to others
//! what they need.
//!
//! With demand λ here, `remaining` permits in the store and K instances, a pot is filled up to
//! max(1, min(⌈λ·h⌉, ⌊remaining/(2K)⌋, most)), where h is the time that a grant should last and `most` what
//! [`Lease::most_held`](crate::store::Lease::most_held) allows. No permits are asked for, and every request is decided
//! exactly, where it is not worth it or where it would keep from others what little is left: for decisions that are not
//! hot, when fewer than 2K remain, and for a while after a denial.
//!
//! Demand is a count that loses half of itself in 100 ms, in integers: it has to be neither exact nor smooth, only to
//! follow a burst quickly and to forget it soon.

use super::Moment;
use crate::instances::Instances;
use sluicegate_core::Micros;

/// From this many requests a second on, permits are worth it: below, hardly two requests would meet at the store.
pub const HOT_PER_SECOND: u64 = 200;
/// Below this many they are no longer. Half of the other, so that a decision in between does not change all the time.
pub const COLD_PER_SECOND: u64 = HOT_PER_SECOND / 2;
/// How many instances there are if nobody knows: rather too many, which makes pots smaller.
pub const INSTANCES_UNKNOWN: u32 = 16;

/// Demand is counted in steps of this length.
const STEP_MICROS: u64 = 25_000;
/// What is left of a count after a step, of 2¹⁶: the fourth root of a half.
const LEFT_AFTER_STEP: u64 = 55_109;
/// One request.
const ONE: u64 = 1 << 16;
/// What a steady demand of one request per microsecond amounts to: the sum of what is left of all steps, the current one
/// being half over on average.
const MEMORY_MICROS: u64 = 144_630;
/// After this many steps nothing is left of any count worth mentioning.
const STEPS_MAX: u64 = 128;

/// How long a grant should last: long enough to be worth a call, and no longer than the demand can be foreseen.
fn horizon(ttl: Micros) -> Micros {
    let half = ttl.as_micros() / 2;
    Micros::from_micros(half.clamp(20_000, 100_000).min(ttl.as_micros()))
}

/// What is known when a call is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// How long permits will count.
    pub ttl: Micros,
    /// The most permits that may be held, by the limits of the decision.
    pub most: u32,
    /// How many instances share the limits.
    pub instances: u32,
}

impl Asking {
    /// What may be asked for one of `instances`.
    #[must_use]
    pub fn new(ttl: Micros, most: u32, instances: &Instances) -> Self {
        let unknown = || instances.count().get().max(INSTANCES_UNKNOWN);
        let instances = instances.heard().map_or_else(unknown, |_| instances.count().get());
        Self { ttl, most, instances }
    }

    /// How large a pot may be where `wanted` permits would be used and `remaining` are left in the store.
    #[must_use]
    pub fn size(&self, wanted: u64, remaining: u64) -> u32 {
        let fewest = 2 * u64::from(self.instances);
        if remaining < fewest || self.most == 0 {
            return 0;
        }
        let size = wanted.min(remaining / fewest).min(self.most.into()).max(1);
        u32::try_from(size).unwrap_or(self.most)
    }
}

/// How often a decision is asked for, and what the store said last.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Requests, in parts of [`ONE`], fading.
    demand: u64,
    /// The number of the step in which that was right.
    step: u64,
    is_hot: bool,
    /// Permits that were left in the store.
    remaining: Option<u64>,
    denied_at: Option<Moment>,
}

impl Pace {
    /// A request has come.
    pub fn count(&mut self, now: Moment) {
        self.fade(now);
        self.demand += ONE;
    }

    /// The store has answered: so many permits are left, and something was denied or not.
    pub fn learn(&mut self, remaining: u64, is_denied: bool, now: Moment) {
        self.remaining = Some(remaining);
        if is_denied {
            self.denied_at = Some(now);
        }
    }

    /// How large a pot may be now.
    pub fn size(&mut self, asking: &Asking, now: Moment) -> u32 {
        self.fade(now);
        let threshold = if self.is_hot { COLD_PER_SECOND } else { HOT_PER_SECOND };
        self.is_hot = self.within(Micros::from_secs(1)) >= threshold;
        let is_scarce = self.denied_at.is_some_and(|denied_at| now.since(denied_at) < asking.ttl);
        match self.remaining {
            Some(remaining) if self.is_hot && !is_scarce => {
                asking.size(self.within(horizon(asking.ttl)), remaining)
            }
            _ => 0,
        }
    }

    /// True if nobody has asked for it for so long that it can be forgotten.
    pub fn is_over(&mut self, now: Moment) -> bool {
        self.fade(now);
        self.demand < ONE
    }

    /// How many requests come within `length` if things go on like this, rounded up.
    fn within(&self, length: Micros) -> u64 {
        let requests = u128::from(self.demand) * u128::from(length.as_micros());
        let per = u128::from(MEMORY_MICROS) * u128::from(ONE);
        u64::try_from(requests.div_ceil(per)).unwrap_or(u64::MAX)
    }

    fn fade(&mut self, now: Moment) {
        let step = now.as_micros() / STEP_MICROS;
        let passed = step.saturating_sub(self.step);
        self.step = self.step.max(step);
        if passed > STEPS_MAX {
            self.demand = 0;
            return;
        }
        for _ in 0..passed {
            self.demand = (self.demand * LEFT_AFTER_STEP) >> 16;
        }
    }
}

#[cfg(test)]
mod tests;
