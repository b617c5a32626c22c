//! A refund in flight: denials that were cached before it must not be valid after it.
//!
//! Until its client is answered, a refund may as well not have happened, and a cached denial is correct. So the
//! invalidation comes when the refund ends, with or without a reply. Without a reply, the server may still execute
//! the refund until its deadline, and the invalidation is repeated then.

use super::DenialCache;
use super::insert::CallStart;
use smallvec::SmallVec;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

/// Invalidates its partitions when it is dropped.
#[derive(Debug)]
#[must_use = "dropping it invalidates cached denials"]
pub(crate) struct PendingRefund {
    cache: Arc<DenialCache>,
    partitions: SmallVec<[u16; 2]>,
    deadline: Instant,
    is_answered: bool,
    /// Whether the partitions are invalidated already.
    is_invalidated: bool,
}

impl PendingRefund {
    /// A refund in these partitions that is executed by this deadline or not at all.
    pub(crate) fn new(
        cache: &Arc<DenialCache>,
        partitions: impl IntoIterator<Item = u16>,
        deadline: Instant,
    ) -> Self {
        let partitions = partitions.into_iter().collect();
        Self { cache: Arc::clone(cache), partitions, deadline, is_answered: false, is_invalidated: false }
    }

    /// The server has executed the refund.
    pub(crate) fn confirm(mut self) {
        self.is_answered = true;
    }

    /// The server has executed the refund. Returns the call start as of now, if no other refund was made since: then
    /// the state in the reply may be cached.
    pub(crate) fn confirm_if_sole(mut self, call_start: CallStart) -> Option<CallStart> {
        self.is_answered = true;
        self.is_invalidated = true;
        let [partition] = self.partitions[..] else {
            self.cache.refunded(&self.partitions);
            return None;
        };
        let now = self.cache.refunded_in(partition);
        (now == call_start.since + 1).then_some(CallStart { since: now, ..call_start })
    }
}

impl Drop for PendingRefund {
    fn drop(&mut self) {
        if !self.is_invalidated {
            self.cache.refunded(&self.partitions);
        }
        if self.is_answered {
            return;
        }
        let (cache, partitions, deadline) = (Arc::clone(&self.cache), self.partitions.clone(), self.deadline);
        // Without a runtime there are no requests that could be denied.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                sleep_until(deadline).await;
                cache.refunded(&partitions);
            });
        }
    }
}

impl DenialCache {
    /// Invalidates these partitions, here and in the other instances.
    fn refunded(&self, partitions: &[u16]) {
        for partition in partitions {
            self.refunded_in(*partition);
        }
    }

    fn refunded_in(&self, partition: u16) -> u64 {
        let now = self.invalidations.invalidate(partition);
        self.unsent.add(partition);
        now
    }
}
