//! One shard: a table from digests to states, swept a few entries at a time.

use super::packed::{Packed, Unpacked};
use crate::store::key::Digest;
use hashbrown::HashTable;
use sluicegate_core::{Micros, State, Timestamp};
use std::borrow::Cow;

/// How many entries a nearly empty shard may have for its memory to be given back at once: few enough to be
/// moved while it is locked.
const SHRINK_ENTRIES_MAX: usize = 32;

/// How long a state is kept beyond the last instant at which it matters: a request may have read the clock a
/// moment ago and still be waiting for the lock.
const LATE_MAX: Micros = Micros::from_secs(1);

/// A part of the table, behind one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: HashTable<Entry>,
    /// States that do not fit a word. Most stores have none, so they cost one pointer until they appear.
    wide: Option<Box<WideStates>>,
    /// Where the next sweep goes on.
    cursor: u32,
}

/// 24 bytes: what a key costs in the table.
#[derive(Debug)]
struct Entry {
    digest: Digest,
    packed: Packed,
}

#[derive(Debug, Default)]
struct WideStates {
    states: Vec<Option<Wide>>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Wide {
    state: State,
    kept_until: Timestamp,
}

impl Shard {
    /// The state under `digest`.
    pub(super) fn state(&self, digest: Digest, born: Timestamp) -> Option<Cow<'_, State>> {
        let entry = self.table.find(digest.0, |entry| entry.digest == digest)?;
        match entry.packed.unpack(born) {
            Unpacked::State(state) => Some(Cow::Owned(state)),
            Unpacked::Wide(index) => self.wide(index).map(|wide| Cow::Borrowed(&wide.state)),
        }
    }

    /// The word under `digest`, to be replaced in place: the short way of nearly every decision.
    pub(super) fn word(&mut self, digest: Digest) -> Option<&mut Packed> {
        self.table.find_mut(digest.0, |entry| entry.digest == digest).map(|entry| &mut entry.packed)
    }

    /// The word under `digest` and its place, which stays what it is while the shard is locked and no key comes or goes.
    #[inline]
    pub(super) fn bucket(&self, digest: Digest) -> Option<(usize, Packed)> {
        let bucket = self.table.find_bucket_index(digest.0, |entry| entry.digest == digest)?;
        self.table.get_bucket(bucket).map(|entry| (bucket, entry.packed))
    }

    /// Replaces the word at a place.
    #[inline]
    pub(super) fn replace(&mut self, bucket: usize, packed: Packed) {
        if let Some(entry) = self.table.get_bucket_mut(bucket) {
            entry.packed = packed;
        }
    }

    /// Takes the state out for a change; [`Shard::put`] brings it back. The key keeps its place.
    pub(super) fn take(&mut self, digest: Digest, born: Timestamp) -> Option<State> {
        let entry = self.table.find(digest.0, |entry| entry.digest == digest)?;
        match entry.packed.unpack(born) {
            Unpacked::State(state) => Some(state),
            Unpacked::Wide(index) => {
                let slot = self.wide.as_mut()?.states.get_mut(index)?;
                // What stays behind is replaced by `put` before the lock is given back.
                slot.as_mut().map(|wide| std::mem::replace(&mut wide.state, empty_state()))
            }
        }
    }

    /// Keeps `state` under `digest`.
    pub(super) fn put(&mut self, digest: Digest, state: State, kept_until: Timestamp, born: Timestamp) {
        let packed = Packed::new(&state, born);
        let old = self.table.find(digest.0, |entry| entry.digest == digest).map(|entry| entry.packed);
        let old_place = old.and_then(|old| match old.unpack(born) {
            Unpacked::Wide(index) => Some(index),
            Unpacked::State(_) => None,
        });
        let packed = match (packed, old_place) {
            (Some(packed), Some(index)) => {
                self.free(index);
                packed
            }
            (Some(packed), None) => packed,
            (None, place) => Packed::wide(self.keep_wide(place, Wide { state, kept_until })),
        };
        match self.table.find_mut(digest.0, |entry| entry.digest == digest) {
            Some(entry) => entry.packed = packed,
            None => {
                self.table.insert_unique(digest.0, Entry { digest, packed }, |entry| entry.digest.0);
            }
        }
    }

    /// Forgets the state under `digest`; returns how much room that gives.
    pub(super) fn remove(&mut self, digest: Digest, born: Timestamp) -> usize {
        let Ok(entry) = self.table.find_entry(digest.0, |entry| entry.digest == digest) else { return 0 };
        let (entry, _) = entry.remove();
        1 + self.release(entry.packed, born)
    }

    /// Looks at the next `buckets` places of the table and forgets every state that matters no longer.
    /// Returns how much room that gives.
    pub(super) fn sweep(&mut self, now: Timestamp, buckets: usize, born: Timestamp) -> usize {
        let end = self.table.num_buckets();
        let start = self.cursor as usize;
        let stop = start.saturating_add(buckets).min(end);
        let mut freed = 0;
        for bucket in start..stop {
            freed += self.sweep_bucket(bucket, now, born);
        }
        // Shards are bounded far below 2³² places.
        self.cursor = if stop >= end { 0 } else { stop as u32 };
        if self.cursor == 0 && self.table.len() <= SHRINK_ENTRIES_MAX && end > 4 * SHRINK_ENTRIES_MAX {
            self.table.shrink_to(2 * SHRINK_ENTRIES_MAX, |entry| entry.digest.0);
        }
        freed
    }

    /// How many places the table has, free ones included.
    pub(super) fn bucket_count(&self) -> usize {
        self.table.num_buckets()
    }

    /// True if the next new key makes the table grow.
    pub(super) fn is_about_to_grow(&self) -> bool {
        self.table.len() == self.table.capacity()
    }

    /// Bytes allocated, as far as they can be told.
    pub(super) fn allocated_bytes(&self) -> usize {
        let log = |wide: &Wide| match &wide.state {
            State::SlidingWindow(log) => log.allocated_bytes(),
            _ => 0,
        };
        let wide = self.wide.as_ref().map_or(0, |wide| {
            let logs: usize = wide.states.iter().flatten().map(log).sum();
            logs + wide.states.capacity() * size_of::<Option<Wide>>() + wide.free.capacity() * size_of::<usize>()
        });
        self.table.allocation_size() + wide
    }

    fn sweep_bucket(&mut self, bucket: usize, now: Timestamp, born: Timestamp) -> usize {
        let Some(packed) = self.table.get_bucket(bucket).map(|entry| entry.packed) else { return 0 };
        let kept_until = match packed.unpack(born) {
            Unpacked::Wide(index) => self.wide(index).map(|wide| wide.kept_until),
            Unpacked::State(_) => packed.kept_until(born),
        };
        if kept_until.is_some_and(|kept_until| now <= kept_until.plus(LATE_MAX)) {
            return 0;
        }
        let Ok(entry) = self.table.get_bucket_entry(bucket) else { return 0 };
        entry.remove();
        1 + self.release(packed, born)
    }

    /// Frees what a word points at; returns the room of a log.
    fn release(&mut self, packed: Packed, born: Timestamp) -> usize {
        match packed.unpack(born) {
            Unpacked::Wide(index) => self.free(index).map_or(0, |wide| log_entries(&wide.state)),
            Unpacked::State(_) => 0,
        }
    }

    fn wide(&self, index: usize) -> Option<&Wide> {
        self.wide.as_ref()?.states.get(index)?.as_ref()
    }

    fn keep_wide(&mut self, place: Option<usize>, wide: Wide) -> usize {
        let WideStates { states, free } = &mut **self.wide.get_or_insert_default();
        let index = place.or_else(|| free.pop()).unwrap_or(states.len());
        match states.get_mut(index) {
            Some(slot) => *slot = Some(wide),
            None => states.push(Some(wide)),
        }
        index
    }

    fn free(&mut self, index: usize) -> Option<Wide> {
        let WideStates { states, free } = &mut **self.wide.as_mut()?;
        let wide = states.get_mut(index)?.take()?;
        free.push(index);
        Some(wide)
    }
}

/// How many entries the log of a sliding window holds: each counts as much as a key.
pub(super) fn log_entries(state: &State) -> usize {
    match state {
        State::SlidingWindow(log) => log.entry_count(),
        _ => 0,
    }
}

fn empty_state() -> State {
    State::SlidingWindow(Default::default())
}
