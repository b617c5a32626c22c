//! How many servers share the limits: what one of them takes for its share while it cannot reach the store.
//!
//! The number is the last one known. Whoever hears of the others (by heartbeats, from an orchestrator) sets it; a
//! number that is wrong by a factor makes what passes in all wrong by the same factor, and the floor is the least
//! that is ever believed, for a fleet whose size is known better than heartbeats can tell.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of servers that share the limits: at least one. Clones share it.
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
pub struct Instances(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    last_known: AtomicU32,
    floor: NonZeroU32,
}

impl Default for Instances {
    /// One server, alone until it hears of others.
    fn default() -> Self {
        Self::at_least(NonZeroU32::MIN)
    }
}

impl Instances {
    /// Nobody has been heard of yet, and fewer than `floor` are never believed.
    #[must_use]
    pub fn at_least(floor: NonZeroU32) -> Self {
        Self(Arc::new(Shared { last_known: AtomicU32::new(0), floor }))
    }

    /// Takes note that there are `count` servers, this one included.
    pub fn set(&self, count: u32) {
        self.0.last_known.store(count, Ordering::Relaxed);
    }

    /// The number that was last taken note of, if there was one, whatever the floor.
    #[must_use]
    pub fn heard(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0.last_known.load(Ordering::Relaxed))
    }

    /// The last known number of servers, this one included, or the floor if that is more.
    #[must_use]
    pub fn count(&self) -> NonZeroU32 {
        self.heard().map_or(self.0.floor, |count| count.max(self.0.floor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_than_the_floor_are_not_believed() {
        let instances = Instances::at_least(NonZeroU32::new(3).unwrap());
        assert_eq!(instances.count().get(), 3, "nobody has been heard of");
        for (heard, believed) in [(5, 5), (2, 3), (0, 3), (u32::MAX, u32::MAX)] {
            instances.set(heard);
            assert_eq!(instances.count().get(), believed, "{heard}");
        }
    }
}
