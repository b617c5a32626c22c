//! How many permits a decision may request: as many as its next requests will use, and few enough to leave the rest
//! to other instances.
//!
//! With demand λ here, `remaining` permits in the store and K instances, a pool is filled up to max(1, min(⌈λ·h⌉,
//! ⌊remaining/(2K)⌋, most)). Here h is the time that a grant should last, and
//! [`Lease::most_held`](crate::store::Lease::most_held) is `most`. No permits are requested, and every request is
//! decided exactly, where permits are not worth it or would withhold the scarce rest from other instances: for
//! decisions that are not hot, when fewer than 2K remain, and for a while after a denial.
//!
//! Demand is an integer count that halves every 100 ms. It need not be exact or smooth, only follow a burst quickly
//! and forget it soon.

use super::Uptime;
use crate::instances::Instances;
use sluicegate_core::Micros;

/// The request rate from which on permits are worth it. Below, hardly two requests would share a call.
pub const HOT_PER_SECOND: u64 = 200;
/// The rate below which they are no longer worth it. Half of the other, so that a decision in between does not flap.
pub const COLD_PER_SECOND: u64 = HOT_PER_SECOND / 2;
/// The assumed number of instances while it is unknown: rather too many, which makes pools smaller.
pub const INSTANCES_UNKNOWN: u32 = 16;

/// The length of a counting step.
const STEP_MICROS: u64 = 25_000;
/// The remainder of a count after a step, in parts of 2¹⁶: the fourth root of a half.
const LEFT_AFTER_STEP: u64 = 55_109;
/// One request.
const ONE: u64 = 1 << 16;
/// The sum of all steps at a steady demand of one request per microsecond, with the current step half over on
/// average.
const MEMORY_MICROS: u64 = 144_630;
/// After this many steps a count is negligible.
const STEPS_MAX: u64 = 128;

/// How long a grant should last: long enough to be worth a call, and no longer than demand can be predicted.
fn horizon(ttl: Micros) -> Micros {
    let half = ttl.as_micros() / 2;
    Micros::from_micros(half.clamp(20_000, 100_000).min(ttl.as_micros()))
}

/// The conditions of a call that may request permits.
#[derive(Clone, Copy, Debug)]
pub struct PermitRequest {
    /// The lifetime of permits.
    pub ttl: Micros,
    /// The most permits that may be held, by the limits of the decision.
    pub most: u32,
    /// The number of instances that share the limits.
    pub instances: u32,
}

impl PermitRequest {
    /// The conditions for one of `instances`.
    #[must_use]
    pub fn new(ttl: Micros, most: u32, instances: &Instances) -> Self {
        let unknown = || instances.count().get().max(INSTANCES_UNKNOWN);
        let instances = instances.last_known_count().map_or_else(unknown, |_| instances.count().get());
        Self { ttl, most, instances }
    }

    /// The size of a pool if `wanted` permits would be used and `remaining` are left in the store.
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

/// The request rate of a decision, and the last reply of the store.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// Requests, in parts of [`ONE`], decaying.
    requests: u64,
    /// The step of the last decay.
    step: u64,
    is_hot: bool,
    /// The permits that were left in the store.
    remaining: Option<u64>,
    denied_at: Option<Uptime>,
}

impl Demand {
    /// Counts a request.
    pub fn count(&mut self, now: Uptime) {
        self.fade(now);
        self.requests += ONE;
    }

    /// Records a reply of the store: the permits left, and whether it denied a request.
    pub fn learn(&mut self, remaining: u64, is_denied: bool, now: Uptime) {
        self.remaining = Some(remaining);
        if is_denied {
            self.denied_at = Some(now);
        }
    }

    /// The size of the pool now.
    pub fn size(&mut self, request: &PermitRequest, now: Uptime) -> u32 {
        self.fade(now);
        let threshold = if self.is_hot { COLD_PER_SECOND } else { HOT_PER_SECOND };
        self.is_hot = self.within(Micros::from_secs(1)) >= threshold;
        let is_scarce = self.denied_at.is_some_and(|denied_at| now.since(denied_at) < request.ttl);
        match self.remaining {
            Some(remaining) if self.is_hot && !is_scarce => {
                request.size(self.within(horizon(request.ttl)), remaining)
            }
            _ => 0,
        }
    }

    /// Whether the demand is so low that the decision can be dropped.
    pub fn is_over(&mut self, now: Uptime) -> bool {
        self.fade(now);
        self.requests < ONE
    }

    /// The requests expected within `length`, rounded up.
    fn within(&self, length: Micros) -> u64 {
        let requests = u128::from(self.requests) * u128::from(length.as_micros());
        let per = u128::from(MEMORY_MICROS) * u128::from(ONE);
        u64::try_from(requests.div_ceil(per)).unwrap_or(u64::MAX)
    }

    fn fade(&mut self, now: Uptime) {
        let step = now.as_micros() / STEP_MICROS;
        let passed = step.saturating_sub(self.step);
        self.step = self.step.max(step);
        if passed > STEPS_MAX {
            self.requests = 0;
            return;
        }
        for _ in 0..passed {
            self.requests = (self.requests * LEFT_AFTER_STEP) >> 16;
        }
    }
}

#[cfg(test)]
mod tests;
