//! Words under digests, in a table where a look-up waits for memory once: three keys and their words share a line of cache.
//!
//! A key stands in the line that its digest names, its home, or else in the first one with a place on its way from there.
//! Every line counts the keys that had to pass it, so that a search ends where nobody went on, and who leaves needs no
//! tombstone. The steps of the way grow: where lines are crowded, their neighbours are, too, and a way from one to the
//! next would become as long as the crowd. Whoever is asked for and finds a place at home meanwhile moves there.

use super::packed::Packed;
use crate::store::key::Digest;
use smallvec::SmallVec;

/// How many keys share a line.
pub(super) const SLOTS: usize = 3;

/// How many neighbouring lines are swept together.
const BLOCK_LINES: usize = 4;

/// One place in so many stays empty: with fewer, too many keys would stand far from home.
const SPARE: usize = 4;

/// How many lines lie on the way of a key. If all of them are full, the table grows.
const WAY_LINES: u32 = 24;

/// A table. Its order is that of the digests, so growing reads and writes from front to back.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: Box<[Line]>,
    len: usize,
}

/// What a core fetches at once.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Line {
    left: [u64; SLOTS],
    words: [Option<Packed>; SLOTS],
    right: [u32; SLOTS],
    /// How many keys that are elsewhere had this line on their way and found it full.
    passed: u32,
}

const _: () = assert!(size_of::<Line>() == 64);

/// What a line keeps of a digest: 96 bits. Which shard it is in says ten more.
#[derive(Clone, Copy)]
struct Mark {
    left: u64,
    right: u32,
}

/// Where a key stands. It stays what it is until a key comes or goes.
#[derive(Clone, Copy)]
pub(super) struct Place {
    line: usize,
    slot: usize,
}

/// Where a key is, as far as its home tells.
enum Seen {
    Here(Place),
    /// At home nobody has gone on from, so nowhere else either.
    Nowhere,
    /// Some have gone on, perhaps this one, too.
    Beyond,
}

/// Every line on the way of a key is full.
#[derive(Debug)]
struct Crowded;

impl Lines {
    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True if the next new key makes the table grow.
    pub(super) fn is_full(&self) -> bool {
        let places = self.lines.len() * SLOTS;
        self.len >= places - places / SPARE
    }

    /// True if a part of it may be worth to be swept before a key is added.
    pub(super) fn is_half_full(&self) -> bool {
        2 * self.len >= self.lines.len() * SLOTS
    }

    /// Bytes allocated.
    pub(super) fn allocated_bytes(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// Where the key is.
    #[inline]
    pub(super) fn find(&self, digest: Digest) -> Option<Place> {
        let mark = Mark::of(digest);
        match self.look_home(mark) {
            Seen::Here(place) => Some(place),
            Seen::Nowhere => None,
            Seen::Beyond => self.find_beyond_home(mark),
        }
    }

    /// Where the key is, which from now on is at home if there is a place. Other keys stay where they are.
    #[inline]
    pub(super) fn find_and_bring_home(&mut self, digest: Digest) -> Option<Place> {
        let mark = Mark::of(digest);
        match self.look_home(mark) {
            Seen::Here(place) => Some(place),
            Seen::Nowhere => None,
            Seen::Beyond => self.bring_home(mark),
        }
    }

    #[inline]
    fn look_home(&self, mark: Mark) -> Seen {
        let line = self.home(mark);
        let Some(home) = self.lines.get(line) else { return Seen::Nowhere };
        match home.slot_of(mark) {
            Some(slot) => Seen::Here(Place { line, slot }),
            None if home.passed == 0 => Seen::Nowhere,
            None => Seen::Beyond,
        }
    }

    #[inline(never)]
    fn bring_home(&mut self, mark: Mark) -> Option<Place> {
        let (found, line) = (self.find_beyond_home(mark)?, self.home(mark));
        let Some(slot) = self.lines[line].free_slot() else { return Some(found) };
        let word = self.remove(found)?;
        self.lines[line].put(slot, mark, word);
        self.len += 1;
        Some(Place { line, slot })
    }

    #[inline(never)]
    fn find_beyond_home(&self, mark: Mark) -> Option<Place> {
        for line in self.way(mark).skip(1) {
            let here = self.lines.get(line)?;
            if let Some(slot) = here.slot_of(mark) {
                return Some(Place { line, slot });
            }
            if here.passed == 0 {
                return None;
            }
        }
        None
    }

    /// The word at a place.
    #[inline]
    pub(super) fn word(&self, place: Place) -> Option<Packed> {
        *self.lines.get(place.line)?.words.get(place.slot)?
    }

    /// The word at a place, to be replaced.
    #[inline]
    pub(super) fn word_mut(&mut self, place: Place) -> Option<&mut Packed> {
        self.lines.get_mut(place.line)?.words.get_mut(place.slot)?.as_mut()
    }

    /// How many blocks of neighbouring lines there are.
    pub(super) fn block_count(&self) -> usize {
        self.lines.len().div_ceil(BLOCK_LINES)
    }

    /// The keys of one block, whose turn this is: every one comes once in as many turns as there are blocks. Those of turns
    /// that follow each other lie far apart: were they neighbours, a sweep would leave a part of the table empty and the
    /// rest crowded.
    pub(super) fn block_at(&self, turn: usize) -> SmallVec<[(Place, Packed); BLOCK_LINES * SLOTS]> {
        /// A prime beyond any number of blocks, so no two turns meet in one. Its neighbours have hardly any small factors, so
        /// for hardly any number of blocks it comes down to a step of one.
        const STRIDE: u64 = 6_949_350_016_067;
        let count = self.block_count().max(1) as u64;
        // A remainder is less than the number of blocks.
        let first = (turn as u64 % count * (STRIDE % count) % count) as usize * BLOCK_LINES;
        let lines = self.lines.iter().enumerate().skip(first).take(BLOCK_LINES);
        let keys_of = |(line, here): (usize, &Line)| {
            here.words.into_iter().enumerate().filter_map(move |(slot, word)| Some((Place { line, slot }, word?)))
        };
        lines.flat_map(keys_of).collect()
    }

    /// Adds a key that is not there.
    pub(super) fn insert(&mut self, digest: Digest, word: Packed) {
        let mark = Mark::of(digest);
        while self.is_full() || self.place(mark, word).is_err() {
            self.grow(digest);
        }
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, place: Place) -> Option<Packed> {
        let here = self.lines.get_mut(place.line)?;
        let mark = here.mark(place.slot);
        let word = here.words.get_mut(place.slot)?.take()?;
        for line in self.way(mark).take_while(|line| *line != place.line) {
            self.lines[line].passed -= 1;
        }
        self.len -= 1;
        Some(word)
    }

    /// Gives back what more than `line_count` lines take, if that is more than half and all keys still fit.
    pub(super) fn shrink_to(&mut self, line_count: usize) {
        if 2 * line_count < self.lines.len() && self.len < line_count * (SLOTS - 1) {
            self.rebuild(line_count);
        }
    }

    /// By a quarter or a little more, so that hardly any memory is empty. How much more is left to chance: were all
    /// shards alike, they would all grow at once.
    fn grow(&mut self, digest: Digest) {
        let lines = self.lines.len();
        let chance = (digest.0 % (lines as u64 / 8 + 1)) as usize;
        self.rebuild(lines + lines / 4 + 1 + chance);
    }

    /// Into so many lines, or the next number of them where every key finds a place.
    fn rebuild(&mut self, mut line_count: usize) {
        let mut new = Self::of_lines(line_count);
        while self.keys().try_for_each(|(mark, word)| new.place(mark, word)).is_err() {
            line_count += line_count / 8 + 1;
            new = Self::of_lines(line_count);
        }
        *self = new;
    }

    fn of_lines(count: usize) -> Self {
        Self { lines: vec![Line::default(); count].into_boxed_slice(), len: 0 }
    }

    fn keys(&self) -> impl Iterator<Item = (Mark, Packed)> + '_ {
        self.lines.iter().flat_map(Line::keys)
    }

    /// Puts a key into the first place on its way.
    fn place(&mut self, mark: Mark, word: Packed) -> Result<(), Crowded> {
        let free = self.way(mark).position(|line| self.lines[line].free_slot().is_some()).ok_or(Crowded)?;
        for line in self.way(mark).take(free + 1) {
            let here = &mut self.lines[line];
            match here.free_slot() {
                Some(slot) => here.put(slot, mark, word),
                None => here.passed += 1,
            }
        }
        self.len += 1;
        Ok(())
    }

    /// The lines where a key may be: its home, and from there on by one, three, six, ten and so forth.
    fn way(&self, mark: Mark) -> impl Iterator<Item = usize> + use<> {
        let (home, count) = (self.home(mark), self.lines.len().max(1));
        (0..WAY_LINES).map(move |step| (home + (step * (step + 1) / 2) as usize) % count)
    }

    #[inline]
    fn home(&self, mark: Mark) -> usize {
        // Both factors are below 2³²: so many lines would be 256 GiB. All limits of a subject are in one shard; they differ
        // in this half of the digest, and which shard it is says nothing about it.
        (((mark.left >> u32::BITS) * self.lines.len() as u64) >> u32::BITS) as usize
    }
}

impl Line {
    /// Where a key is. All slots are looked at and none is jumped over: which one it is cannot be foreseen, and guessing
    /// wrong takes longer than looking.
    #[inline]
    fn slot_of(&self, mark: Mark) -> Option<usize> {
        let is_at = |slot: usize| {
            (self.left[slot] == mark.left) & (self.right[slot] == mark.right) & self.words[slot].is_some()
        };
        let (first, second, third) = (is_at(0), is_at(1), is_at(2));
        (first | second | third).then_some(usize::from(second) + 2 * usize::from(third))
    }

    fn free_slot(&self) -> Option<usize> {
        self.words.iter().position(Option::is_none)
    }

    fn put(&mut self, slot: usize, mark: Mark, word: Packed) {
        (self.left[slot], self.right[slot], self.words[slot]) = (mark.left, mark.right, Some(word));
    }

    fn keys(&self) -> impl Iterator<Item = (Mark, Packed)> + '_ {
        (0..SLOTS).filter_map(|slot| Some((self.mark(slot), self.words[slot]?)))
    }

    fn mark(&self, slot: usize) -> Mark {
        Mark { left: self.left[slot], right: self.right[slot] }
    }
}

impl Mark {
    /// Of a digest's second half what does not choose the shard.
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

    /// What happens to a table.
    #[derive(Clone, Debug)]
    enum Step {
        Put(Digest, u32),
        Remove(Digest),
        Shrink(usize),
    }

    /// Few homes and few keys, so that lines run over, wrap around and meet again.
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

    fn put(table: &mut Lines, digest: Digest, number: u32) {
        match table.find_and_bring_home(digest) {
            Some(place) => *table.word_mut(place).unwrap() = word(number),
            None => table.insert(digest, word(number)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn it_holds_what_was_put_and_nothing_else(steps in prop::collection::vec(step(), 1..200)) {
            let (mut table, mut model) = (Lines::default(), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Put(digest, number) => {
                        put(&mut table, digest, number);
                        model.insert(digest, number);
                    }
                    Step::Remove(digest) => {
                        let removed = table.find(digest).and_then(|place| table.remove(place));
                        prop_assert_eq!(removed, model.remove(&digest).map(word));
                    }
                    Step::Shrink(lines) => table.shrink_to(lines),
                }
                prop_assert_eq!(table.len(), model.len());
                for (digest, number) in &model {
                    let found = table.find(*digest).and_then(|place| table.word(place));
                    prop_assert_eq!(found, Some(word(*number)));
                }
                let seen: BTreeSet<(u64, u32)> = all_places(&table).map(|place| table.mark_at(place)).collect();
                prop_assert_eq!(seen, model.keys().map(|digest| (digest.0, digest.1 as u32)).collect());
                prop_assert_eq!(all_places(&table).count(), model.len());
                prop_assert_eq!(table.passed(), table.passed_by_counting());
            }
            let left: Vec<Digest> = model.into_keys().collect();
            for digest in left {
                let place = table.find(digest).unwrap();
                table.remove(place);
                prop_assert!(table.find(digest).is_none());
            }
            prop_assert!(table.passed().iter().all(|passed| *passed == 0), "nobody is left who passed a line");
        }
    }

    #[test]
    fn a_digest_of_zeros_is_a_key_like_any_other() {
        let mut table = Lines::default();
        assert!(table.find(Digest(0, 0)).is_none());
        for left in 1..=9 {
            put(&mut table, Digest(left, 0), 7);
        }
        assert!(table.find(Digest(0, 0)).is_none());
        put(&mut table, Digest(0, 0), 5);
        let place = table.find(Digest(0, 0)).unwrap();
        assert_eq!(table.word(place), Some(word(5)));
        assert_eq!(table.remove(place), Some(word(5)));
        assert!(table.find(Digest(0, 0)).is_none());
    }

    #[test]
    fn however_many_keys_there_are_they_take_little_more_room_than_they_need() {
        let mut table = Lines::default();
        for number in 1..=20_000 {
            table.insert(random(number), word(1));
            let bytes_per_key = table.allocated_bytes() / table.len();
            assert!(number < 200 || bytes_per_key <= 41, "{bytes_per_key} bytes for each of {number} keys");
        }
    }

    #[test]
    fn nobody_has_to_go_far_from_home_however_often_all_others_leave() {
        for lines in [300, 1_000, 3_000, 4_000, 5_000] {
            let mut table = Lines::default();
            let mut newcomers = (1_u64..).map(random);
            while table.lines.len() < lines || !table.is_full() {
                table.insert(newcomers.next().unwrap(), word(1));
            }
            let bytes_before = table.allocated_bytes();
            // Ten times round, a few lines each time, and whoever leaves is replaced by somebody from anywhere.
            let mut cursor = 0;
            for _ in 0..2 * table.block_count() {
                let keys: Vec<_> = (cursor..cursor + 5).flat_map(|turn| table.block_at(turn)).collect();
                for (place, _) in &keys {
                    table.remove(*place);
                }
                for digest in newcomers.by_ref().take(keys.len()) {
                    table.insert(digest, word(1));
                }
                cursor = (cursor + 5) % table.block_count();
            }
            let steps: usize = all_places(&table).map(|place| table.steps_to(place)).sum();
            assert!(steps < 3 * table.len(), "{steps} steps from home for {} keys", table.len());
            assert!(
                2 * table.allocated_bytes() <= 3 * bytes_before,
                "{bytes_before} bytes became {}",
                table.allocated_bytes()
            );
        }
    }

    #[test]
    fn whoever_is_asked_for_moves_home_once_there_is_a_place() {
        let mut table = Lines::of_lines(64);
        let key = |left| Digest(left, 0);
        (1..=4).for_each(|left| table.insert(key(left), word(1)));
        let last = table.find(key(4)).unwrap();
        assert_eq!(table.steps_to(last), 1);
        assert_eq!(table.steps_to(table.find(key(4)).unwrap()), 1, "looking alone moves nobody");
        let place = table.find_and_bring_home(key(4)).unwrap();
        assert_eq!(table.steps_to(place), 1, "there is no place yet");
        let first = table.find(key(1)).unwrap();
        table.remove(first);
        let place = table.find_and_bring_home(key(4)).unwrap();
        assert_eq!(table.steps_to(place), 0);
        assert_eq!((table.word(place), table.len()), (Some(word(1)), 3));
        assert!(table.passed().iter().all(|passed| *passed == 0));
    }

    #[test]
    fn hardly_two_turns_in_a_row_sweep_neighbours() {
        let first_line = |table: &Lines, turn| table.block_at(turn).first().map_or(0, |(place, _)| place.line);
        let mut near = 0;
        for blocks in 100..1_000_usize {
            let mut table = Lines::of_lines(blocks * BLOCK_LINES);
            table.lines.iter_mut().for_each(|line| line.put(0, Mark { left: 1, right: 1 }, word(1)));
            near += usize::from(first_line(&table, 0).abs_diff(first_line(&table, 1)) <= 3 * BLOCK_LINES);
        }
        assert!(near < 20, "with {near} of 900 numbers of blocks");
    }

    impl Lines {
        fn mark_at(&self, place: Place) -> (u64, u32) {
            let mark = self.lines[place.line].mark(place.slot);
            (mark.left, mark.right)
        }

        fn passed(&self) -> Vec<u32> {
            self.lines.iter().map(|line| line.passed).collect()
        }

        /// What every line ought to have counted, by the ways of all keys.
        fn passed_by_counting(&self) -> Vec<u32> {
            let mut passed = vec![0; self.lines.len()];
            for place in all_places(self) {
                let mark = self.lines[place.line].mark(place.slot);
                self.way(mark).take_while(|line| *line != place.line).for_each(|line| passed[line] += 1);
            }
            passed
        }

        fn steps_to(&self, place: Place) -> usize {
            let mark = self.lines[place.line].mark(place.slot);
            self.way(mark).position(|line| line == place.line).unwrap()
        }
    }

    fn all_places(table: &Lines) -> impl Iterator<Item = Place> + '_ {
        (0..table.block_count()).flat_map(|turn| table.block_at(turn)).map(|(place, _)| place)
    }

    fn random(number: u64) -> Digest {
        Digest(foldhash::fast::FixedState::default().hash_one(number), number)
    }
}
