//! Sweeping: forgetting states that matter no longer, in steps too small for any decision to notice.
//!
//! Nothing depends on it: a state that is no longer looked at answers like none, whether it was swept or not.
//! It only gives memory back.

use super::MemoryStore;
use crate::sync::Ordering;
use sluicegate_core::Timestamp;

/// How many blocks of a shard, of a dozen places each, one step looks at while it holds the lock.
///
/// A new key in a shard that is half full looks at one block. So all are looked at before a twelfth of the places was taken, or
/// a quarter if keys come sixteen at a time, and a store that nobody sweeps grows hardly beyond what matters.
pub(super) const BLOCKS_PER_STEP: usize = 5;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Steps taken; each held one lock for at most a few dozen entries.
    pub steps: usize,
    /// Keys and log entries forgotten.
    pub freed: usize,
}

impl MemoryStore {
    /// Takes up to `steps` steps, each a few dozen keys of one shard, and goes on next time where it
    /// stopped.
    pub fn sweep(&self, now: Timestamp, steps: usize) -> Swept {
        let mut swept = Swept::default();
        for _ in 0..steps {
            let index = self.sweep_cursor.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            let freed = self.shards[index].0.lock().sweep(now, BLOCKS_PER_STEP, self.born);
            self.release(freed);
            swept.steps += 1;
            swept.freed += freed;
        }
        swept
    }

    /// How many steps look at every key once.
    #[must_use]
    pub fn steps_per_round(&self) -> usize {
        let steps = |blocks: usize| blocks.div_ceil(BLOCKS_PER_STEP).max(1);
        // The fullest shard decides, since steps go round the shards.
        let most = self.shards.iter().map(|shard| steps(shard.0.lock().block_count())).max();
        most.unwrap_or(1) * self.shards.len()
    }
}
