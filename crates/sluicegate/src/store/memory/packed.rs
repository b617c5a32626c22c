//! States in one word. Nearly every state of a token bucket or a fixed window fits eight bytes; the rest is
//! kept beside the table, and the word says where.
//!
//! | kind | bits, from the highest |
//! |---|---|
//! | token bucket | 47 TAT in µs since the store was made, 6 parts, 6 parts per µs − 1, 3 spare, 2 kind |
//! | fixed window | 38 end in ms since the store was made, 24 count, 2 kind |
//! | wide | 62 index, 2 kind |
//!
//! 47 bits of microseconds are four and a half years, 38 bits of milliseconds nearly nine; a state beyond
//! them is simply wide. A bucket with credits is always wide, because it is kept beyond its TAT.

use sluicegate_core::algorithm::fixed_window::FixedWindowState;
use sluicegate_core::algorithm::token_bucket::TokenBucketState;
use sluicegate_core::{State, Timestamp};
use std::num::NonZeroU64;

const KIND_BITS: u32 = 2;
/// No kind is zero, so no word is: zero says that there is none.
const TOKEN_BUCKET: u64 = 1;
const FIXED_WINDOW: u64 = 2;
const WIDE: u64 = 3;

const SPARE_BITS: u32 = 3;
const PARTS_BITS: u32 = 6;
const TAT_BITS: u32 = 47;
const COUNT_BITS: u32 = 24;
const END_BITS: u32 = 38;

/// A state in one word, or where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed(NonZeroU64);

/// What a word says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unpacked {
    /// This state.
    State(State),
    /// The state at this place beside the table.
    Wide(usize),
}

impl Packed {
    /// The state in one word, if it fits.
    pub(super) fn new(state: &State, born: Timestamp) -> Option<Self> {
        match state {
            State::TokenBucket(state) => Self::token_bucket(state, born),
            State::FixedWindow(state) => Self::fixed_window(state, born),
            _ => None,
        }
    }

    /// A word that says the state is beside the table.
    pub(super) const fn wide(index: usize) -> Self {
        Self::of_kind(WIDE, (index as u64) << KIND_BITS)
    }

    /// A word of this kind, whose body stands above the bits of the kind.
    #[inline(always)]
    const fn of_kind(kind: u64, body: u64) -> Self {
        match NonZeroU64::new(body | kind) {
            Some(word) => Self(word),
            // Not with a kind that is one.
            None => Self(NonZeroU64::MIN),
        }
    }

    /// What the word says.
    pub(super) fn unpack(self, born: Timestamp) -> Unpacked {
        if let Some(state) = self.as_token_bucket(born) {
            return Unpacked::State(State::TokenBucket(state));
        }
        if let Some(state) = self.as_fixed_window(born) {
            return Unpacked::State(State::FixedWindow(state));
        }
        Unpacked::Wide(self.wide_index().unwrap_or(usize::MAX))
    }

    /// Where the state is beside the table, if it is there.
    pub(super) fn wide_index(self) -> Option<usize> {
        let is_wide = self.0.get() & low_bits(KIND_BITS) == WIDE;
        is_wide.then(|| usize::try_from(self.0.get() >> KIND_BITS).unwrap_or(usize::MAX))
    }

    /// The state of a token bucket, if it is one.
    #[inline(always)]
    pub(super) fn as_token_bucket(self, born: Timestamp) -> Option<TokenBucketState> {
        if self.0.get() & low_bits(KIND_BITS) != TOKEN_BUCKET {
            return None;
        }
        let body = self.0.get() >> (SPARE_BITS + KIND_BITS);
        let parts_per_micro = (body & low_bits(PARTS_BITS)) + 1;
        let tat_parts = body >> PARTS_BITS & low_bits(PARTS_BITS);
        let tat_micros = born.as_micros() + (body >> (2 * PARTS_BITS));
        let kept_until_micros = tat_micros + u64::from(tat_parts > 0);
        Some(TokenBucketState { tat_micros, tat_parts, parts_per_micro, kept_until_micros })
    }

    /// The state of a fixed window, if it is one.
    pub(super) fn as_fixed_window(self, born: Timestamp) -> Option<FixedWindowState> {
        if self.0.get() & low_bits(KIND_BITS) != FIXED_WINDOW {
            return None;
        }
        let body = self.0.get() >> KIND_BITS;
        let end_millis = born.as_micros() / 1_000 + (body >> COUNT_BITS);
        let end = Timestamp::from_micros(end_millis * 1_000);
        Some(FixedWindowState { count: body & low_bits(COUNT_BITS), end })
    }

    /// The last microsecond at which a packed state matters; `None` if the state is beside the table.
    pub(super) fn kept_until(self, born: Timestamp) -> Option<Timestamp> {
        if let Some(state) = self.as_token_bucket(born) {
            return Some(Timestamp::from_micros(state.kept_until_micros));
        }
        self.as_fixed_window(born).map(|state| state.end)
    }

    /// The state of a token bucket in one word, if it fits.
    #[inline(always)]
    pub(super) fn token_bucket(state: &TokenBucketState, born: Timestamp) -> Option<Self> {
        let whole_at = state.tat_micros.checked_add(u64::from(state.tat_parts > 0))?;
        let tat = state.tat_micros.checked_sub(born.as_micros())?;
        let divisions = state.parts_per_micro.checked_sub(1)?;
        let fits = tat <= low_bits(TAT_BITS)
            && divisions <= low_bits(PARTS_BITS)
            && state.tat_parts <= divisions
            // Kept for longer than until whole: that takes more than a word.
            && state.kept_until_micros == whole_at;
        fits.then(|| {
            let body = (tat << PARTS_BITS | state.tat_parts) << PARTS_BITS | divisions;
            Self::of_kind(TOKEN_BUCKET, body << (SPARE_BITS + KIND_BITS))
        })
    }

    /// The state of a fixed window in one word, if it fits.
    pub(super) fn fixed_window(state: &FixedWindowState, born: Timestamp) -> Option<Self> {
        let end = (state.end.as_micros() / 1_000).checked_sub(born.as_micros() / 1_000)?;
        let fits = end <= low_bits(END_BITS)
            && state.count <= low_bits(COUNT_BITS)
            && state.end.as_micros().is_multiple_of(1_000);
        fits.then(|| Self::of_kind(FIXED_WINDOW, (end << COUNT_BITS | state.count) << KIND_BITS))
    }
}

const fn low_bits(count: u32) -> u64 {
    (1 << count) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const BORN: Timestamp = Timestamp::now(1_705_312_800_123_456);

    fn check(state: State, fits: bool) {
        let packed = Packed::new(&state, BORN);
        assert_eq!(packed.is_some(), fits, "{state:?}");
        if let Some(packed) = packed {
            assert_eq!(packed.unpack(BORN), Unpacked::State(state));
        }
    }

    fn bucket(tat_micros: u64, tat_parts: u64, parts_per_micro: u64) -> State {
        let kept_until_micros = tat_micros + u64::from(tat_parts > 0);
        State::TokenBucket(TokenBucketState { tat_micros, tat_parts, parts_per_micro, kept_until_micros })
    }

    fn window(count: u64, end_micros: u64) -> State {
        State::FixedWindow(FixedWindowState { count, end: Timestamp::from_micros(end_micros) })
    }

    #[test]
    fn a_state_comes_back_as_it_was_or_is_not_packed_at_all() {
        let born = BORN.as_micros();
        for tat in [0, 1, 59_000_000, (1 << 47) - 1] {
            check(bucket(born + tat, 0, 1), true);
            check(bucket(born + tat, 2, 3), true);
            check(bucket(born + tat, 63, 64), true);
            check(bucket(born + tat, 64, 65), false);
        }
        check(bucket(born + (1 << 47), 0, 1), false);
        check(bucket(born - 1, 0, 1), false);
        check(bucket(born, 5, 3), false);
        for end in [0, 1, 60_000, (1 << 38) - 1] {
            check(window(0, (born / 1_000 + end) * 1_000), true);
            check(window((1 << 24) - 1, (born / 1_000 + end) * 1_000), true);
            check(window(1 << 24, (born / 1_000 + end) * 1_000), false);
        }
        check(window(1, (born / 1_000 + (1 << 38)) * 1_000), false);
        check(window(1, born + 1), false);
    }

    #[test]
    fn a_bucket_that_is_kept_beyond_its_fill_time_does_not_fit() {
        let born = BORN.as_micros();
        let state = TokenBucketState {
            tat_micros: born + 5,
            tat_parts: 0,
            parts_per_micro: 1,
            kept_until_micros: born + 6,
        };
        check(State::TokenBucket(state), false);
    }

    #[test]
    fn a_place_beside_the_table_comes_back() {
        assert_eq!(Packed::wide(12_345).unpack(BORN), Unpacked::Wide(12_345));
        assert_eq!(Packed::wide(12_345).kept_until(BORN), None);
    }
}
