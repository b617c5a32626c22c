//! Where denials are kept: at most [`BUCKETS`] times [`WAYS`], each found by its digest in one small bucket.
//!
//! A bucket has a lock of its own, which is held for a few comparisons and the computation of one answer. It grows with
//! what it holds, so a server where nobody is denied keeps the empty buckets only, 256 KiB. Full, it drops the denial
//! that ends first. So whoever floods it with denials of his own makes others ask the server, and nothing else.

use crate::store::key::Digest;
use crate::sync::{AtomicUsize, Mutex, Ordering};
use sluicegate_core::{State, Timestamp};
use smallvec::SmallVec;

/// How many buckets there are.
pub(super) const BUCKETS: usize = 8192;
/// How many denials a bucket holds.
pub(super) const WAYS: usize = 8;

/// Denials by their digests.
#[derive(Debug)]
pub(super) struct Table {
    buckets: Box<[Mutex<Vec<Entry>>]>,
    entries: AtomicUsize,
}

/// One denied decision: what its limits were found to be, and when.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) identity: Digest,
    /// Before the server was asked.
    pub(super) asked: super::Local,
    /// After it had answered.
    pub(super) answered: super::Local,
    /// When the decision may pass, if nothing more is charged: from then on this says nothing.
    pub(super) ends: super::Local,
    pub(super) era: u64,
    /// What had been forgotten before the server was asked.
    pub(super) since: u64,
    /// The server's time.
    pub(super) now: Timestamp,
    pub(super) limits: SmallVec<[Limit; 1]>,
}

/// What one limit was found to be.
#[derive(Debug)]
pub(super) struct Limit {
    pub(super) state: Option<State>,
    /// The time by which the limit saw now.
    pub(super) at: Timestamp,
    /// The slot of its key, if it was one of those that denied: only these can deny again.
    pub(super) slot: Option<u16>,
}

impl Table {
    /// An empty table of so many buckets.
    pub(super) fn new(buckets: usize) -> Self {
        Self { buckets: (0..buckets).map(|_| Mutex::default()).collect(), entries: AtomicUsize::new(0) }
    }

    /// How many denials it holds.
    pub(super) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// What `answer` makes of the denial of this decision, if there is one that is not over by `now`.
    pub(super) fn find<T>(
        &self,
        identity: Digest,
        now: super::Local,
        answer: impl FnOnce(&Entry) -> Option<T>,
    ) -> Option<T> {
        let mut bucket = self.bucket(identity).lock();
        let index = bucket.iter().position(|entry| entry.identity == identity)?;
        if bucket[index].ends <= now {
            bucket.swap_remove(index);
            self.entries.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        answer(&bucket[index])
    }

    /// Keeps a denial, in place of an older one of the same decision. What is over by `now` or is not `believed` makes
    /// room first.
    pub(super) fn keep(&self, entry: Entry, now: super::Local, believed: impl Fn(&Entry) -> bool) {
        let mut bucket = self.bucket(entry.identity).lock();
        let before = bucket.len();
        bucket.retain(|old| old.identity != entry.identity && old.ends > now && believed(old));
        if bucket.len() == WAYS
            && let Some(first) = (0..WAYS).min_by_key(|index| bucket[*index].ends)
        {
            bucket.swap_remove(first);
        }
        bucket.push(entry);
        // Adds what may be negative: counters wrap around.
        self.entries.fetch_add(bucket.len().wrapping_sub(before), Ordering::Relaxed);
    }

    fn bucket(&self, identity: Digest) -> &Mutex<Vec<Entry>> {
        &self.buckets[identity.1 as usize % self.buckets.len()]
    }
}
