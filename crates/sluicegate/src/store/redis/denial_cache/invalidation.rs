//! The invalidation clock of the denial cache.
//!
//! Every refund, undo or reset advances a logical clock and stamps its partition. A cached denial has the clock's
//! time from before its call, and is valid only while no partition it depends on has a later stamp. So it does not
//! matter whether the reply or the refund arrives first.
//!
//! A key belongs to the partition of its hash slot, the same on every server. Several slots share a partition, so a
//! refund may invalidate the denials of an unrelated subject, which costs one call. A single stamp for all keys
//! would let one client with constant refunds disable the whole cache.

use crate::sync::{AtomicU64, Ordering};

/// The number of partitions. Four Cluster slots share one.
pub(crate) const PARTITIONS: usize = 4096;

/// The last invalidation of each partition.
#[derive(Debug)]
pub(crate) struct InvalidationClock {
    clock: AtomicU64,
    all_invalidated_at: AtomicU64,
    partitions: Box<[AtomicU64]>,
}

impl InvalidationClock {
    /// No invalidations yet.
    pub(crate) fn new(partitions: usize) -> Self {
        let partitions = (0..partitions).map(|_| AtomicU64::new(0)).collect();
        Self { clock: AtomicU64::new(0), all_invalidated_at: AtomicU64::new(0), partitions }
    }

    /// The current time of the clock.
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Ordering::Acquire)
    }

    /// Stamps this partition, once a refund in it has been answered. Returns the new time.
    pub(crate) fn invalidate(&self, partition: u16) -> u64 {
        // A call that starts after this increment finds the refund on the server.
        let now = self.clock.fetch_add(1, Ordering::AcqRel) + 1;
        self.stamp(partition).fetch_max(now, Ordering::AcqRel);
        now
    }

    /// Invalidates everything.
    pub(crate) fn invalidate_all(&self) {
        let now = self.clock.fetch_add(1, Ordering::AcqRel) + 1;
        self.all_invalidated_at.fetch_max(now, Ordering::AcqRel);
    }

    /// When everything was last invalidated.
    pub(crate) fn all_invalidated_at(&self) -> u64 {
        self.all_invalidated_at.load(Ordering::Acquire)
    }

    /// Whether none of these partitions was invalidated after `since`.
    pub(crate) fn is_valid_since(&self, since: u64, partitions: impl IntoIterator<Item = u16>) -> bool {
        self.all_invalidated_at.load(Ordering::Acquire) <= since
            && partitions.into_iter().all(|partition| self.stamp(partition).load(Ordering::Acquire) <= since)
    }

    fn stamp(&self, partition: u16) -> &AtomicU64 {
        &self.partitions[usize::from(partition) % self.partitions.len()]
    }
}
