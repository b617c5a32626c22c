//! A cache-line hash table from digests to packed states. Each 64-byte cell group holds three entries, so a lookup
//! usually costs one cache miss.
//!
//! The digest selects the home group of a key. If the home group is full, the key goes to the first group with a free
//! cell on its probe sequence. Each group counts the keys that overflowed past it. A probe stops at the first group
//! with a count of zero, and removal needs no tombstones. The probe steps grow (1, 2, 3 …), because full groups
//! cluster: a linear probe would become as long as the cluster. A lookup for a write moves a key back home if its
//! home group has a free cell by then.

use super::packed::Packed;
use crate::store::key::{Digest, Kind};
use smallvec::SmallVec;

/// The number of entries per cell group.
pub(super) const CELLS: usize = 3;

/// The number of neighbouring groups that one sweep step processes together.
const BLOCK_GROUPS: usize = 4;

/// One cell in four stays empty. At a higher load factor too many keys would be far from home.
const SPARE_ONE_IN: usize = 4;

/// The maximum length of a probe sequence, in groups. If all of them are full, the table grows.
const PROBE_GROUPS_MAX: u32 = 24;

/// A hash table. Its order follows the digests, so growing reads and writes memory from front to back.
#[derive(Debug, Default)]
pub(super) struct Table {
    groups: Box<[CellGroup]>,
    len: usize,
}

/// One cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct CellGroup {
    left: [u64; CELLS],
    words: [Option<Packed>; CELLS],
    right: [u32; CELLS],
    /// The number of keys that overflowed past this group because it was full.
    overflows: u32,
}

const _: () = assert!(size_of::<CellGroup>() == 64);

/// The part of a digest that a cell stores: 96 bits. The choice of the shard determines ten more.
#[derive(Clone, Copy)]
struct Tag {
    left: u64,
    right: u32,
}

/// The location of an entry. It is valid until an entry is inserted or removed.
#[derive(Clone, Copy)]
pub(super) struct CellIndex {
    group: usize,
    cell: usize,
}

/// The result of a lookup in the home group.
enum HomeLookup {
    Found(CellIndex),
    /// The home group has no overflow, so the key is not in the table.
    Absent,
    /// Keys have overflowed past the home group, perhaps this one.
    MayBeElsewhere,
}

/// All groups of a probe sequence are full.
#[derive(Debug)]
struct ProbeExhausted;

impl Table {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True if the next insertion grows the table.
    pub(super) fn is_full(&self) -> bool {
        let places = self.groups.len() * CELLS;
        self.len >= places - places / SPARE_ONE_IN
    }

    /// True if sweeping a part of the table before an insertion may pay off.
    pub(super) fn is_half_full(&self) -> bool {
        2 * self.len >= self.groups.len() * CELLS
    }

    /// The number of bytes allocated.
    pub(super) fn allocated_bytes(&self) -> usize {
        size_of_val(&*self.groups)
    }

    /// Finds a key.
    #[inline]
    pub(super) fn find(&self, digest: Digest) -> Option<CellIndex> {
        let tag = Tag::of(digest);
        match self.look_up_home(tag) {
            HomeLookup::Found(at) => Some(at),
            HomeLookup::Absent => None,
            HomeLookup::MayBeElsewhere => self.find_elsewhere(tag),
        }
    }

    /// Finds a key, and moves it to its home group if that has a free cell. Other keys stay where they are.
    #[inline]
    pub(super) fn find_and_move_home(&mut self, digest: Digest) -> Option<CellIndex> {
        let tag = Tag::of(digest);
        match self.look_up_home(tag) {
            HomeLookup::Found(at) => Some(at),
            HomeLookup::Absent => None,
            HomeLookup::MayBeElsewhere => self.move_home(tag),
        }
    }

    #[inline]
    fn look_up_home(&self, tag: Tag) -> HomeLookup {
        let group = self.home(tag);
        let Some(home) = self.groups.get(group) else { return HomeLookup::Absent };
        match home.cell_of(tag) {
            Some(cell) => HomeLookup::Found(CellIndex { group, cell }),
            None if home.overflows == 0 => HomeLookup::Absent,
            None => HomeLookup::MayBeElsewhere,
        }
    }

    #[inline(never)]
    fn move_home(&mut self, tag: Tag) -> Option<CellIndex> {
        let (found, group) = (self.find_elsewhere(tag)?, self.home(tag));
        let Some(cell) = self.groups[group].free_cell() else { return Some(found) };
        let word = self.remove(found)?;
        self.groups[group].put(cell, tag, word);
        self.len += 1;
        Some(CellIndex { group, cell })
    }

    #[inline(never)]
    fn find_elsewhere(&self, tag: Tag) -> Option<CellIndex> {
        for group in self.probe(tag).skip(1) {
            let here = self.groups.get(group)?;
            if let Some(cell) = here.cell_of(tag) {
                return Some(CellIndex { group, cell });
            }
            if here.overflows == 0 {
                return None;
            }
        }
        None
    }

    /// The word of an entry.
    #[inline]
    pub(super) fn word(&self, at: CellIndex) -> Option<Packed> {
        *self.groups.get(at.group)?.words.get(at.cell)?
    }

    /// The word of an entry, for replacement.
    #[inline]
    pub(super) fn word_mut(&mut self, at: CellIndex) -> Option<&mut Packed> {
        self.groups.get_mut(at.group)?.words.get_mut(at.cell)?.as_mut()
    }

    /// The kind of the key of an entry.
    pub(super) fn kind(&self, at: CellIndex) -> Option<Kind> {
        let right = self.groups.get(at.group)?.right.get(at.cell)?;
        Some(Digest(0, u64::from(*right)).kind())
    }

    /// The number of blocks of neighbouring groups.
    pub(super) fn block_count(&self) -> usize {
        self.groups.len().div_ceil(BLOCK_GROUPS)
    }

    /// The entries of the block of this turn. Each block has one turn per round. Consecutive turns visit distant
    /// blocks: neighbouring turns would leave one part of the table empty and the rest crowded.
    pub(super) fn block_at(&self, turn: usize) -> SmallVec<[(CellIndex, Packed); BLOCK_GROUPS * CELLS]> {
        /// A prime larger than any number of blocks, so no two turns of a round visit the same block. Its neighbours
        /// have few small factors, so for hardly any number of blocks it reduces to a step of one.
        const STRIDE: u64 = 6_949_350_016_067;
        let count = self.block_count().max(1) as u64;
        // The remainder is less than the number of blocks.
        let first = (turn as u64 % count * (STRIDE % count) % count) as usize * BLOCK_GROUPS;
        let groups = self.groups.iter().enumerate().skip(first).take(BLOCK_GROUPS);
        let entries_of = |(group, here): (usize, &CellGroup)| {
            here.words
                .into_iter()
                .enumerate()
                .filter_map(move |(cell, word)| Some((CellIndex { group, cell }, word?)))
        };
        groups.flat_map(entries_of).collect()
    }

    /// Inserts a key that is not in the table.
    pub(super) fn insert(&mut self, digest: Digest, word: Packed) {
        let tag = Tag::of(digest);
        while self.is_full() || self.place(tag, word).is_err() {
            self.grow(digest);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, at: CellIndex) -> Option<Packed> {
        let here = self.groups.get_mut(at.group)?;
        let tag = here.tag(at.cell);
        let word = here.words.get_mut(at.cell)?.take()?;
        for group in self.probe(tag).take_while(|group| *group != at.group) {
            self.groups[group].overflows -= 1;
        }
        self.len -= 1;
        Some(word)
    }

    /// Shrinks the table to `group_count` groups, if that frees more than half of it and all entries fit.
    pub(super) fn shrink_to(&mut self, group_count: usize) {
        if 2 * group_count < self.groups.len() && self.len < group_count * (CELLS - 1) {
            self.rebuild(group_count);
        }
    }

    /// Grows by a quarter or a little more, so that little memory is unused. The digest randomises the size:
    /// otherwise all shards, which are alike, would grow at the same time.
    fn grow(&mut self, digest: Digest) {
        let groups = self.groups.len();
        let chance = (digest.0 % (groups as u64 / 8 + 1)) as usize;
        self.rebuild(groups + groups / 4 + 1 + chance);
    }

    /// Rebuilds the table with this number of groups, or more if an entry does not find a cell.
    fn rebuild(&mut self, mut group_count: usize) {
        let mut new = Self::of_groups(group_count);
        while self.keys().try_for_each(|(tag, word)| new.place(tag, word)).is_err() {
            group_count += group_count / 8 + 1;
            new = Self::of_groups(group_count);
        }
        *self = new;
    }

    fn of_groups(count: usize) -> Self {
        Self { groups: vec![CellGroup::default(); count].into_boxed_slice(), len: 0 }
    }

    fn keys(&self) -> impl Iterator<Item = (Tag, Packed)> + '_ {
        self.groups.iter().flat_map(CellGroup::keys)
    }

    /// Stores an entry in the first free cell of its probe sequence.
    fn place(&mut self, tag: Tag, word: Packed) -> Result<(), ProbeExhausted> {
        let free =
            self.probe(tag).position(|group| self.groups[group].free_cell().is_some()).ok_or(ProbeExhausted)?;
        for group in self.probe(tag).take(free + 1) {
            let here = &mut self.groups[group];
            match here.free_cell() {
                Some(cell) => here.put(cell, tag, word),
                None => here.overflows += 1,
            }
        }
        self.len += 1;
        Ok(())
    }

    /// The probe sequence of a key: its home group, then the groups 1, 3, 6, 10 … further on.
    fn probe(&self, tag: Tag) -> impl Iterator<Item = usize> + use<> {
        let (home, count) = (self.home(tag), self.groups.len().max(1));
        (0..PROBE_GROUPS_MAX).map(move |step| (home + (step * (step + 1) / 2) as usize) % count)
    }

    #[inline]
    fn home(&self, tag: Tag) -> usize {
        // Both factors are below 2³²: that many groups would take 256 GiB. All limits of a subject are in one shard.
        // They differ in this half of the digest, which is independent of the shard.
        (((tag.left >> u32::BITS) * self.groups.len() as u64) >> u32::BITS) as usize
    }
}

impl CellGroup {
    /// Finds a key in the group. Compares all cells without branches, because the position is unpredictable and a
    /// branch miss costs more than the comparison.
    #[inline]
    fn cell_of(&self, tag: Tag) -> Option<usize> {
        let is_at = |cell: usize| {
            (self.left[cell] == tag.left) & (self.right[cell] == tag.right) & self.words[cell].is_some()
        };
        let (first, second, third) = (is_at(0), is_at(1), is_at(2));
        (first | second | third).then_some(usize::from(second) + 2 * usize::from(third))
    }

    fn free_cell(&self) -> Option<usize> {
        self.words.iter().position(Option::is_none)
    }

    fn put(&mut self, cell: usize, tag: Tag, word: Packed) {
        (self.left[cell], self.right[cell], self.words[cell]) = (tag.left, tag.right, Some(word));
    }

    fn keys(&self) -> impl Iterator<Item = (Tag, Packed)> + '_ {
        (0..CELLS).filter_map(|cell| Some((self.tag(cell), self.words[cell]?)))
    }

    fn tag(&self, cell: usize) -> Tag {
        Tag { left: self.left[cell], right: self.right[cell] }
    }
}

impl Tag {
    /// Drops the bits of the second half that select the shard.
    #[inline]
    fn of(digest: Digest) -> Self {
        Self { left: digest.0, right: digest.1 as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::hash::BuildHasher as _;

    /// An operation on the table.
    #[derive(Clone, Debug)]
    enum Step {
        Put(Digest, u32),
        Remove(Digest),
        Shrink(usize),
    }

    /// Few home groups and few keys, so that groups overflow, wrap around and meet again.
    fn digest() -> impl Strategy<Value = Digest> {
        let home =
            prop_oneof![0_u64..3, 0xFFFF_FFFD..=0xFFFF_FFFF_u64, (0_u64..4).prop_map(|quarter| quarter << 30)];
        (home, 0_u64..12, 0_u64..2).prop_map(|(home, left, right)| Digest(home << 32 | left, right))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (digest(), any::<u32>()).prop_map(|(digest, word)| Step::Put(digest, word)),
            4 => digest().prop_map(Step::Remove),
            1 => (0_usize..8).prop_map(Step::Shrink),
        ]
    }

    fn word(number: u32) -> Packed {
        Packed::wide(number as usize)
    }

    fn put(table: &mut Table, digest: Digest, number: u32) {
        match table.find_and_move_home(digest) {
            Some(at) => *table.word_mut(at).unwrap() = word(number),
            None => table.insert(digest, word(number)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn table_agrees_with_a_map_after_random_operations(steps in prop::collection::vec(step(), 1..200)) {
            let (mut table, mut model) = (Table::default(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Put(digest, number) => {
                        put(&mut table, digest, number);
                        model.insert(digest, number);
                    }
                    Step::Remove(digest) => {
                        let removed = table.find(digest).and_then(|at| table.remove(at));
                        prop_assert_eq!(removed, model.remove(&digest).map(word));
                    }
                    Step::Shrink(groups) => table.shrink_to(groups),
                }
                prop_assert_eq!(table.len(), model.len());
                for (digest, number) in &model {
                    let found = table.find(*digest).and_then(|at| table.word(at));
                    prop_assert_eq!(found, Some(word(*number)));
                }
                let seen: BTreeSet<(u64, u32)> = all_cells(&table).map(|at| table.tag_at(at)).collect();
                prop_assert_eq!(seen, model.keys().map(|digest| (digest.0, digest.1 as u32)).collect());
                prop_assert_eq!(all_cells(&table).count(), model.len());
                prop_assert_eq!(table.overflows(), table.overflows_recounted());
            }
            let left: Vec<Digest> = model.into_keys().collect();
            for digest in left {
                let at = table.find(digest).unwrap();
                table.remove(at);
                prop_assert!(table.find(digest).is_none());
            }
            prop_assert!(table.overflows().iter().all(|overflows| *overflows == 0), "an empty table has no overflows");
        }
    }

    #[test]
    fn zero_digest_is_a_valid_key() {
        let mut table = Table::default();
        assert!(table.find(Digest(0, 0)).is_none());
        for left in 1..=9 {
            put(&mut table, Digest(left, 0), 7);
        }
        assert!(table.find(Digest(0, 0)).is_none());
        put(&mut table, Digest(0, 0), 5);
        let at = table.find(Digest(0, 0)).unwrap();
        assert_eq!(table.word(at), Some(word(5)));
        assert_eq!(table.remove(at), Some(word(5)));
        assert!(table.find(Digest(0, 0)).is_none());
    }

    #[test]
    fn memory_per_key_stays_below_41_bytes() {
        let mut table = Table::default();
        for number in 1..=20_000 {
            table.insert(random(number), word(1));
            let bytes_per_key = table.allocated_bytes() / table.len();
            assert!(number < 200 || bytes_per_key <= 41, "{bytes_per_key} bytes for each of {number} keys");
        }
    }

    #[test]
    fn probes_stay_short_while_all_keys_are_replaced() {
        for groups in [300, 1_000, 3_000, 4_000, 5_000] {
            let mut table = Table::default();
            let mut new_keys = (1_u64..).map(random);
            while table.groups.len() < groups || !table.is_full() {
                table.insert(new_keys.next().unwrap(), word(1));
            }
            let bytes_before = table.allocated_bytes();
            // Ten rounds of a few groups each. Random new keys replace the removed ones.
            let mut cursor = 0;
            for _ in 0..2 * table.block_count() {
                let keys: Vec<_> = (cursor..cursor + 5).flat_map(|turn| table.block_at(turn)).collect();
                for (at, _) in &keys {
                    table.remove(*at);
                }
                for digest in new_keys.by_ref().take(keys.len()) {
                    table.insert(digest, word(1));
                }
                cursor = (cursor + 5) % table.block_count();
            }
            let steps: usize = all_cells(&table).map(|at| table.steps_to(at)).sum();
            assert!(steps < 3 * table.len(), "{steps} steps from home for {} keys", table.len());
            assert!(
                2 * table.allocated_bytes() <= 3 * bytes_before,
                "{bytes_before} bytes became {}",
                table.allocated_bytes()
            );
        }
    }

    #[test]
    fn lookup_for_write_moves_a_key_home_once_a_cell_is_free() {
        let mut table = Table::of_groups(64);
        let key = |left| Digest(left, 0);
        (1..=4).for_each(|left| table.insert(key(left), word(1)));
        let last = table.find(key(4)).unwrap();
        assert_eq!(table.steps_to(last), 1);
        assert_eq!(table.steps_to(table.find(key(4)).unwrap()), 1, "a lookup for reading moves no key");
        let at = table.find_and_move_home(key(4)).unwrap();
        assert_eq!(table.steps_to(at), 1, "the home group is still full");
        let first = table.find(key(1)).unwrap();
        table.remove(first);
        let at = table.find_and_move_home(key(4)).unwrap();
        assert_eq!(table.steps_to(at), 0);
        assert_eq!((table.word(at), table.len()), (Some(word(1)), 3));
        assert!(table.overflows().iter().all(|overflows| *overflows == 0));
    }

    #[test]
    fn consecutive_turns_rarely_sweep_neighbouring_blocks() {
        let first_group = |table: &Table, turn| table.block_at(turn).first().map_or(0, |(at, _)| at.group);
        let mut near = 0;
        for blocks in 100..1_000_usize {
            let mut table = Table::of_groups(blocks * BLOCK_GROUPS);
            table.groups.iter_mut().for_each(|group| group.put(0, Tag { left: 1, right: 1 }, word(1)));
            near += usize::from(first_group(&table, 0).abs_diff(first_group(&table, 1)) <= 3 * BLOCK_GROUPS);
        }
        assert!(near < 20, "with {near} of 900 numbers of blocks");
    }

    impl Table {
        fn tag_at(&self, at: CellIndex) -> (u64, u32) {
            let tag = self.groups[at.group].tag(at.cell);
            (tag.left, tag.right)
        }

        fn overflows(&self) -> Vec<u32> {
            self.groups.iter().map(|group| group.overflows).collect()
        }

        /// The expected count of every group, from the probe sequences of all keys.
        fn overflows_recounted(&self) -> Vec<u32> {
            let mut overflows = vec![0; self.groups.len()];
            for at in all_cells(self) {
                let tag = self.groups[at.group].tag(at.cell);
                self.probe(tag).take_while(|group| *group != at.group).for_each(|group| overflows[group] += 1);
            }
            overflows
        }

        fn steps_to(&self, at: CellIndex) -> usize {
            let tag = self.groups[at.group].tag(at.cell);
            self.probe(tag).position(|group| group == at.group).unwrap()
        }
    }

    fn all_cells(table: &Table) -> impl Iterator<Item = CellIndex> + '_ {
        (0..table.block_count()).flat_map(|turn| table.block_at(turn)).map(|(at, _)| at)
    }

    fn random(number: u64) -> Digest {
        Digest(foldhash::fast::FixedState::default().hash_one(number), number)
    }
}
