//! The terms on which decisions may be charged ahead of the requests that use them.

use sluicegate_core::{Micros, Quota};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

/// How long a permit may wait for its request. Less than a millisecond is no more than the way to the store and back, and
/// after ten seconds nobody would understand what the limit says.
pub const LEASE_TTLS: RangeInclusive<Micros> = Micros::from_millis(1)..=Micros::from_secs(10);

/// An instance holds at most this part of a limit's capacity ahead, or one unit where that is less.
const PART_HELD: u64 = 8;

/// How charges may be made ahead: a shared store may then charge several requests of one kind at once, before they
/// come, and let them pass where they come. A store in this process has no use for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// How long after its charge a request may pass. What was charged and not used by then is given back.
    pub ttl: Micros,
    /// What the delay may cost.
    pub mode: LeaseMode,
}

/// What it may cost that requests pass some time after they were charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseMode {
    /// Capacity: everybody charges a limit that is smaller by what comes back within the delay, so that no more passes
    /// than the whole limit allows.
    Strict,
    /// Exactness: in any interval more may pass, by what comes back within the delay at most.
    Bounded,
}

impl LeaseMode {
    /// The name in configuration and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Bounded => "bounded",
        }
    }
}

impl Lease {
    /// The most units of `quota` that one instance holds ahead.
    #[must_use]
    pub fn most_held(quota: &Quota) -> u64 {
        (quota.limit() / PART_HELD).max(1)
    }

    /// How many units more than capacity and rate allow may pass under `quota`, in any interval and through all of
    /// `instances` together. With strict terms `quota` is the reduced limit, and the number is beyond the whole one.
    #[must_use]
    pub fn extra(&self, quota: &Quota, instances: NonZeroU32) -> u64 {
        match (self.mode, quota) {
            (LeaseMode::Strict, _) => 0,
            (LeaseMode::Bounded, Quota::TokenBucket(bucket)) => {
                let held = Self::most_held(quota).saturating_mul(instances.get().into());
                bucket.refilled_within(self.ttl).min(held)
            }
            // Nothing else is ever charged ahead.
            (LeaseMode::Bounded, _) => 0,
        }
    }

    /// How many units at most sit unused with other instances when one denies a request for want of them.
    #[must_use]
    pub fn most_stranded(quota: &Quota, instances: NonZeroU32) -> u64 {
        Self::most_held(quota).saturating_mul(u64::from(instances.get()) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluicegate_core::{Rate, TokenBucket};

    fn bucket(capacity: u64, per_second: u64) -> Quota {
        TokenBucket::new(capacity, Rate::new(per_second, Micros::from_secs(1)).unwrap()).unwrap().into()
    }

    #[test]
    fn the_extra_is_what_comes_back_or_what_all_hold_whichever_is_less() {
        let bounded = |millis| Lease { ttl: Micros::from_millis(millis), mode: LeaseMode::Bounded };
        let strict = Lease { mode: LeaseMode::Strict, ..bounded(100) };
        let instances = |count| NonZeroU32::new(count).unwrap();
        for (capacity, rate, ttl, count, extra) in [
            (100, 100, 100, 4, 10),
            (100, 101, 100, 4, 11),
            (100, 1_000, 100, 4, 48),
            (100, 1_000, 100, 1, 12),
            (4, 1_000, 100, 3, 3),
            (4, 1, 1, 3, 1),
        ] {
            let quota = bucket(capacity, rate);
            assert_eq!(bounded(ttl).extra(&quota, instances(count)), extra, "{capacity} {rate} {ttl} {count}");
            assert_eq!(strict.extra(&quota, instances(count)), 0);
        }
        assert_eq!(Lease::most_stranded(&bucket(100, 1), instances(4)), 36);
        assert_eq!(Lease::most_stranded(&bucket(100, 1), instances(1)), 0);
    }
}
