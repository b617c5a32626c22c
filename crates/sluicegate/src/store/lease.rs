//! The terms on which permits may be charged in advance of the requests that spend them.

use sluicegate_core::{Micros, Quota};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

/// The lifetimes that a permit may have. Below a millisecond it would hardly outlive the round trip to the store.
/// Above ten seconds the effective limit would be hard to understand.
pub const LEASE_TTLS: RangeInclusive<Micros> = Micros::from_millis(1)..=Micros::from_secs(10);

/// An instance holds at most this fraction of a limit's capacity in advance, or one unit if that is less.
const PART_HELD: u64 = 8;

/// Terms on which a shared store may charge several requests of one kind in advance, and admit them locally when
/// they arrive. A store in this process does not need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// How long after its charge a permit may be spent. Permits that are unused by then are given back.
    pub ttl: Micros,
    /// The price of the delay.
    pub mode: LeaseMode,
}

/// The price of admitting requests some time after their charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseMode {
    /// Capacity: all instances charge a limit that is reduced by its refill within the delay, so that no more passes
    /// than the whole limit allows.
    Strict,
    /// Exactness: in any interval more may pass, by at most the refill within the delay.
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
    /// The most units of `quota` that one instance holds in advance.
    #[must_use]
    pub fn most_held(quota: &Quota) -> u64 {
        (quota.limit() / PART_HELD).max(1)
    }

    /// How many units beyond capacity and rate may pass under `quota`, in any interval and through all of
    /// `instances` together. With strict terms `quota` is the reduced limit, and the number counts beyond the whole
    /// one.
    #[must_use]
    pub fn extra(&self, quota: &Quota, instances: NonZeroU32) -> u64 {
        match (self.mode, quota) {
            (LeaseMode::Strict, _) => 0,
            (LeaseMode::Bounded, Quota::TokenBucket(bucket)) => {
                let held = Self::most_held(quota).saturating_mul(instances.get().into());
                bucket.refilled_within(self.ttl).min(held)
            }
            // No other algorithm is charged in advance.
            (LeaseMode::Bounded, _) => 0,
        }
    }

    /// How many units at most are held unused by other instances while one denies a request for want of them.
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
    fn the_extra_is_the_refill_or_all_held_permits_whichever_is_less() {
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
