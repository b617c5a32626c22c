//! One shard: a table from digests to states. Sweeping processes a few entries at a time.

use super::capacity::Amounts;
use super::instants::{Instants, TimeScale};
use super::packed::{Packed, Unpacked};
use super::table::{CellIndex, Table};
use crate::store::key::{Digest, Kind};
use sluicegate_core::{Micros, State, Timestamp};
use std::borrow::Cow;

/// A shard with at most this many keys returns its memory: few enough to move under the lock.
const SHRINK_KEYS_MAX: usize = 32;

/// A state is kept this long beyond its expiry, because a request may have read the clock before it waited for the
/// lock.
const LATE_MAX: Micros = Micros::from_secs(1);

/// A part of the store, behind one lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    table: Table,
    /// States that do not fit a word. Most stores have none, and then they cost one pointer.
    wide: Option<Box<WideStates>>,
    /// The marks of clients charged in the overflow; `None` until the store was full for the first time.
    marks: Option<Box<Marks>>,
    /// The turn at which the next sweep continues.
    cursor: u32,
}

/// The bookkeeping of marks, by the kind of their keys. The marks themselves are words in the table.
#[derive(Debug, Default)]
struct Marks([MarksOfKind; Kind::ALL.len()]);

#[derive(Debug, Default)]
struct MarksOfKind {
    count: usize,
    /// Every client of the kind counts as marked up to these instants, because the shard was out of marks.
    all_until: Instants,
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
    pub(super) fn state(&self, digest: Digest, epoch: Timestamp) -> Option<Cow<'_, State>> {
        match self.table.word(self.table.find(digest)?)?.unpack(epoch) {
            Unpacked::State(state) => Some(Cow::Owned(state)),
            Unpacked::Wide(index) => self.wide(index).map(|wide| Cow::Borrowed(&wide.state)),
        }
    }

    /// The word under `digest`, for replacement in place: the fast path of most decisions.
    #[inline]
    pub(super) fn word(&mut self, digest: Digest) -> Option<&mut Packed> {
        let cell = self.table.find_and_move_home(digest)?;
        self.table.word_mut(cell)
    }

    /// The word under `digest` and its cell. The cell is valid while the shard is locked and no key is inserted or
    /// removed.
    #[inline]
    pub(super) fn cell(&self, digest: Digest) -> Option<(CellIndex, Packed)> {
        let cell = self.table.find(digest)?;
        Some((cell, self.table.word(cell)?))
    }

    /// Replaces the word of a cell.
    #[inline]
    pub(super) fn replace(&mut self, cell: CellIndex, packed: Packed) {
        if let Some(word) = self.table.word_mut(cell) {
            *word = packed;
        }
    }

    /// Takes the state out for a change; [`Shard::put`] stores it again. The key keeps its cell.
    pub(super) fn take(&mut self, digest: Digest, epoch: Timestamp) -> Option<State> {
        let (_, packed) = self.cell(digest)?;
        match packed.unpack(epoch) {
            Unpacked::State(state) => Some(state),
            Unpacked::Wide(index) => {
                let slot = self.wide.as_mut()?.states.get_mut(index)?;
                // `put` replaces this placeholder before the lock is released.
                slot.as_mut().map(|wide| std::mem::replace(&mut wide.state, empty_state()))
            }
        }
    }

    /// Stores `state` under `digest`.
    pub(super) fn put(&mut self, digest: Digest, state: State, kept_until: Timestamp, epoch: Timestamp) {
        let old = self.cell(digest);
        let old_wide = old.and_then(|(_, packed)| packed.wide_index());
        let packed = match (Packed::new(&state, epoch), old_wide) {
            (Some(packed), Some(index)) => {
                self.free(index);
                packed
            }
            (Some(packed), None) => packed,
            (None, index) => Packed::wide(self.keep_wide(index, Wide { state, kept_until })),
        };
        match old {
            Some((cell, _)) => self.replace(cell, packed),
            None => self.table.insert(digest, packed),
        }
    }

    /// True if the shard may contain marks, which requires that the store was full before.
    #[inline]
    pub(super) fn has_marks(&self) -> bool {
        self.marks.is_some()
    }

    /// True if the mark under `digest` is still valid at the instant `at` of its time scale.
    pub(super) fn is_marked(&self, digest: Digest, at: Timestamp, scale: TimeScale, epoch: Timestamp) -> bool {
        let Some(marks) = self.marks.as_ref().map(|marks| &marks.0[digest.kind() as usize]) else { return false };
        let until = || Some(self.cell(digest)?.1.mark_until(epoch));
        at <= marks.all_until.on(scale) || until().is_some_and(|until| at <= until)
    }

    /// Sets or extends the mark under `digest` to `until`. If the shard already holds `marks_max` marks of the kind,
    /// every client of that kind counts as marked instead.
    pub(super) fn mark(
        &mut self,
        digest: Digest,
        until: Timestamp,
        scale: TimeScale,
        marks_max: usize,
        epoch: Timestamp,
    ) {
        let old = self.cell(digest);
        let marks = &mut self.marks.get_or_insert_default().0[digest.kind() as usize];
        match old {
            Some((cell, mark)) => {
                let until = until.max(mark.mark_until(epoch));
                self.replace(cell, Packed::mark(until, scale, epoch));
            }
            None if marks.count < marks_max => {
                marks.count += 1;
                self.table.insert(digest, Packed::mark(until, scale, epoch));
            }
            None => {
                let all_until = marks.all_until.on_mut(scale);
                *all_until = until.max(*all_until);
            }
        }
    }

    /// Deletes the state under `digest` and returns the freed amounts.
    pub(super) fn remove(&mut self, digest: Digest) -> Amounts {
        self.table.find(digest).map_or_else(Amounts::default, |cell| self.forget(cell))
    }

    /// Processes the next `blocks` blocks of the table, deletes every expired state, and returns the freed amounts.
    pub(super) fn sweep(&mut self, now: Instants, blocks: usize, epoch: Timestamp) -> Amounts {
        let count = self.table.block_count();
        let start = self.cursor as usize;
        // Wraps around to the first block if necessary, so every block has its turn whatever the number of blocks per
        // step.
        let stop = start + blocks.min(count);
        let freed =
            (start..stop).fold(Amounts::default(), |sum, turn| sum.plus(self.sweep_block(turn, now, epoch)));
        // Shards are bounded far below 2³² blocks.
        self.cursor = (stop % count.max(1)) as u32;
        let is_over = |marks: &MarksOfKind| {
            marks.count == 0 && now.steady > marks.all_until.steady && now.date > marks.all_until.date
        };
        if self.marks.as_deref().is_some_and(|marks| marks.0.iter().all(is_over)) {
            self.marks = None;
        }
        if self.table.len() <= SHRINK_KEYS_MAX {
            self.table.shrink_to(SHRINK_KEYS_MAX);
        }
        freed
    }

    /// The number of blocks of the table.
    pub(super) fn block_count(&self) -> usize {
        self.table.block_count()
    }

    /// True if the table has so many keys that it may soon grow.
    pub(super) fn is_half_full(&self) -> bool {
        self.table.is_half_full()
    }

    /// The number of bytes allocated, as far as they are known.
    pub(super) fn allocated_bytes(&self) -> usize {
        let log = |wide: &Wide| match &wide.state {
            State::SlidingWindow(log) => log.allocated_bytes(),
            _ => 0,
        };
        let wide = self.wide.as_ref().map_or(0, |wide| {
            let logs: usize = wide.states.iter().flatten().map(log).sum();
            logs + wide.states.capacity() * size_of::<Option<Wide>>() + wide.free.capacity() * size_of::<usize>()
        });
        let marks = self.marks.as_ref().map_or(0, |_| size_of::<Marks>());
        self.table.allocated_bytes() + wide + marks
    }

    fn sweep_block(&mut self, turn: usize, now: Instants, epoch: Timestamp) -> Amounts {
        let mut freed = Amounts::default();
        for (cell, packed) in self.table.block_at(turn) {
            let kept_until = match packed.wide_index() {
                Some(index) => self.wide(index).map(|wide| (wide.kept_until, TimeScale::of_state(&wide.state))),
                None => packed.kept_until(epoch),
            };
            let is_over = |(until, scale): (Timestamp, TimeScale)| now.on(scale) > until.plus(LATE_MAX);
            if kept_until.is_none_or(is_over) {
                freed = freed.plus(self.forget(cell));
            }
        }
        freed
    }

    /// Deletes the entry of a cell and returns the freed amounts, including those of a log. A mark frees nothing.
    fn forget(&mut self, cell: CellIndex) -> Amounts {
        let kind = self.table.kind(cell).unwrap_or(Kind::Verified);
        let Some(packed) = self.table.remove(cell) else { return Amounts::default() };
        if packed.is_mark() {
            if let Some(marks) = &mut self.marks {
                marks.0[kind as usize].count -= 1;
            }
            return Amounts::default();
        }
        let wide = packed.wide_index().and_then(|index| self.free(index));
        Amounts::of(kind, 1 + wide.map_or(0, |wide| log_entries(&wide.state)))
    }

    fn wide(&self, index: usize) -> Option<&Wide> {
        self.wide.as_ref()?.states.get(index)?.as_ref()
    }

    fn keep_wide(&mut self, cell: Option<usize>, wide: Wide) -> usize {
        let WideStates { states, free } = &mut **self.wide.get_or_insert_default();
        let index = cell.or_else(|| free.pop()).unwrap_or(states.len());
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

/// The number of entries in the log of a sliding window. Each uses the capacity of one key.
pub(super) fn log_entries(state: &State) -> usize {
    match state {
        State::SlidingWindow(log) => log.entry_count(),
        _ => 0,
    }
}

fn empty_state() -> State {
    State::SlidingWindow(Default::default())
}
