//! The number of servers that share the limits. It determines the share of one server while the store is unreachable.
//!
//! The number is the last known one; heartbeats or an orchestrator set it. If it is wrong by a factor, the total
//! admissions are wrong by the same factor. The floor is a lower bound, for fleets with a size that is known better than by
//! heartbeats.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of servers that share the limits, at least one. Clones share the number.
///
/// ```
/// use sluicegate::Instances;
///
/// let instances = Instances::default();
/// assert_eq!(instances.count().get(), 1);
/// instances.set(3);
/// assert_eq!(instances.clone().count().get(), 3);
/// ```
#[derive(Clone, Debug)]
pub struct Instances(Arc<InstanceCount>);

#[derive(Debug)]
struct InstanceCount {
    last_known: AtomicU32,
    floor: NonZeroU32,
}

impl Default for Instances {
    /// One server, until others are known.
    fn default() -> Self {
        Self::at_least(NonZeroU32::MIN)
    }
}

impl Instances {
    /// No server is known yet, and the number is never below `floor`.
    #[must_use]
    pub fn at_least(floor: NonZeroU32) -> Self {
        Self(Arc::new(InstanceCount { last_known: AtomicU32::new(0), floor }))
    }

    /// Sets the number of servers, this one included.
    pub fn set(&self, count: u32) {
        self.0.last_known.store(count, Ordering::Relaxed);
    }

    /// The last number that was set, regardless of the floor; `None` before the first.
    #[must_use]
    pub fn last_known_count(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0.last_known.load(Ordering::Relaxed))
    }

    /// The last known number of servers, this one included, or the floor if that is larger.
    #[must_use]
    pub fn count(&self) -> NonZeroU32 {
        self.last_known_count().map_or(self.0.floor, |count| count.max(self.0.floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_never_below_the_floor() {
        let instances = Instances::at_least(NonZeroU32::new(3).unwrap());
        assert_eq!(instances.count().get(), 3, "no server is known yet");
        for (known, expected) in [(5, 5), (2, 3), (0, 3), (u32::MAX, u32::MAX)] {
            instances.set(known);
            assert_eq!(instances.count().get(), expected, "{known}");
        }
    }
}
