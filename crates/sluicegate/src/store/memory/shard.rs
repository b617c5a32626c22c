//! One shard: a table from digests to states, swept a few entries at a time.

use super::lines::{Lines, Place};
use super::packed::{Packed, Unpacked};
use crate::store::key::Digest;
use sluicegate_core::{Micros, State, Timestamp};
use std::borrow::Cow;

/// How many keys a nearly empty shard may have for its memory to be given back at once: few enough to be
/// moved while it is locked.
const SHRINK_KEYS_MAX: usize = 32;

/// How long a state is kept beyond the last instant at which it matters: a request may have read the clock a
/// moment ago and still be waiting for the lock.
const LATE_MAX: Micros = Micros::from_secs(1);

/// A part of the table, behind one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: Lines,
    /// States that do not fit a word. Most stores have none, so they cost one pointer until they appear.
    wide: Option<Box<WideStates>>,
    /// The turn with which the next sweep goes on.
    cursor: u32,
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
        match self.table.word(self.table.find(digest)?)?.unpack(born) {
            Unpacked::State(state) => Some(Cow::Owned(state)),
            Unpacked::Wide(index) => self.wide(index).map(|wide| Cow::Borrowed(&wide.state)),
        }
    }

    /// The word under `digest`, to be replaced in place: the short way of nearly every decision.
    #[inline]
    pub(super) fn word(&mut self, digest: Digest) -> Option<&mut Packed> {
        let place = self.table.find_and_bring_home(digest)?;
        self.table.word_mut(place)
    }

    /// The word under `digest` and its place, which stays what it is while the shard is locked and no key comes or goes.
    #[inline]
    pub(super) fn place(&self, digest: Digest) -> Option<(Place, Packed)> {
        let place = self.table.find(digest)?;
        Some((place, self.table.word(place)?))
    }

    /// Replaces the word at a place.
    #[inline]
    pub(super) fn replace(&mut self, place: Place, packed: Packed) {
        if let Some(word) = self.table.word_mut(place) {
            *word = packed;
        }
    }

    /// Takes the state out for a change; [`Shard::put`] brings it back. The key keeps its place.
    pub(super) fn take(&mut self, digest: Digest, born: Timestamp) -> Option<State> {
        let (_, packed) = self.place(digest)?;
        match packed.unpack(born) {
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
        let old = self.place(digest);
        let old_wide = old.and_then(|(_, packed)| packed.wide_index());
        let packed = match (Packed::new(&state, born), old_wide) {
            (Some(packed), Some(index)) => {
                self.free(index);
                packed
            }
            (Some(packed), None) => packed,
            (None, index) => Packed::wide(self.keep_wide(index, Wide { state, kept_until })),
        };
        match old {
            Some((place, _)) => self.replace(place, packed),
            None => self.table.insert(digest, packed),
        }
    }

    /// Forgets the state under `digest`; returns how much room that gives.
    pub(super) fn remove(&mut self, digest: Digest) -> usize {
        self.table.find(digest).map_or(0, |place| self.forget(place))
    }

    /// Looks at the next `blocks` blocks of the table and forgets every state that matters no longer. Returns how much room
    /// that gives.
    pub(super) fn sweep(&mut self, now: Timestamp, blocks: usize, born: Timestamp) -> usize {
        let count = self.table.block_count();
        let start = self.cursor as usize;
        // Round to the first if need be, so that every block has its turn, however many the steps before looked at.
        let stop = start + blocks.min(count);
        let freed = (start..stop).map(|turn| self.sweep_block(turn, now, born)).sum();
        // Shards are bounded far below 2³² blocks.
        self.cursor = (stop % count.max(1)) as u32;
        if self.table.len() <= SHRINK_KEYS_MAX {
            self.table.shrink_to(SHRINK_KEYS_MAX);
        }
        freed
    }

    /// How many blocks the table has.
    pub(super) fn block_count(&self) -> usize {
        self.table.block_count()
    }

    /// True if the table has so many keys that it may soon grow.
    pub(super) fn is_half_full(&self) -> bool {
        self.table.is_half_full()
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
        self.table.allocated_bytes() + wide
    }

    fn sweep_block(&mut self, turn: usize, now: Timestamp, born: Timestamp) -> usize {
        let mut freed = 0;
        for (place, packed) in self.table.block_at(turn) {
            let kept_until = match packed.wide_index() {
                Some(index) => self.wide(index).map(|wide| wide.kept_until),
                None => packed.kept_until(born),
            };
            if kept_until.is_none_or(|kept_until| now > kept_until.plus(LATE_MAX)) {
                freed += self.forget(place);
            }
        }
        freed
    }

    /// Forgets the state at a place; returns how much room that gives, with that of a log.
    fn forget(&mut self, place: Place) -> usize {
        let Some(packed) = self.table.remove(place) else { return 0 };
        let wide = packed.wide_index().and_then(|index| self.free(index));
        1 + wide.map_or(0, |wide| log_entries(&wide.state))
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
        if free.len() == states.len() {
            self.wide = None;
        }
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
