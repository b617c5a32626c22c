//! States packed into one word. Nearly every state of a token bucket or a fixed window fits eight bytes. Other states
//! are stored beside the table, and the word holds their index.
//!
//! | kind | bits, from the highest |
//! |---|---|
//! | token bucket | 47 TAT in µs since the epoch of the store, 6 parts, 6 parts per µs − 1, 3 spare, 2 kind |
//! | fixed window | 38 end in ms since the epoch of the store, 24 count, 2 kind |
//! | wide | 62 index, 2 kind |
//! | mark | as a token bucket with the last valid instant of the mark as its TAT; the lowest spare bit is 1, and the next is 1 if that instant is a time of day |
//!
//! 47 bits of microseconds cover four and a half years, and 38 bits of milliseconds nearly nine. A state beyond that
//! range is wide. A bucket with credits is always wide, because it is kept beyond its TAT.

use super::instants::TimeScale;
use sluicegate_core::algorithm::fixed_window::FixedWindowState;
use sluicegate_core::algorithm::token_bucket::TokenBucketState;
use sluicegate_core::{State, Timestamp};
use std::num::NonZeroU64;

const KIND_BITS: u32 = 2;
/// No kind is zero, so no word is zero. Zero marks an empty cell.
const TOKEN_BUCKET: u64 = 1;
const FIXED_WINDOW: u64 = 2;
const WIDE: u64 = 3;

const SPARE_BITS: u32 = 3;
const PARTS_BITS: u32 = 6;
const TAT_BITS: u32 = 47;
const COUNT_BITS: u32 = 24;
const END_BITS: u32 = 38;

/// Flags in the spare bits: the word is a mark, and its instant is a time of day.
const MARK: u64 = 1 << KIND_BITS;
const MARK_BY_DATE: u64 = 1 << (KIND_BITS + 1);

/// A state in one word, or the index of a wide state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packed(NonZeroU64);

/// The content of a word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unpacked {
    /// A packed state.
    State(State),
    /// The index of a wide state beside the table.
    Wide(usize),
}

impl Packed {
    /// Packs a state; `None` if it does not fit.
    pub(super) fn new(state: &State, epoch: Timestamp) -> Option<Self> {
        match state {
            State::TokenBucket(state) => Self::token_bucket(state, epoch),
            State::FixedWindow(state) => Self::fixed_window(state, epoch),
            _ => None,
        }
    }

    /// A word with the index of a wide state.
    pub(super) const fn wide(index: usize) -> Self {
        Self::of_kind(WIDE, (index as u64) << KIND_BITS)
    }

    /// A word of this kind. The body occupies the bits above those of the kind.
    #[inline(always)]
    const fn of_kind(kind: u64, body: u64) -> Self {
        match NonZeroU64::new(body | kind) {
            Some(word) => Self(word),
            // Unreachable: no kind is zero.
            None => Self(NonZeroU64::MIN),
        }
    }

    /// A mark that is valid up to `until`. If the instant is out of range, the mark never expires.
    pub(super) fn mark(until: Timestamp, scale: TimeScale, epoch: Timestamp) -> Self {
        let micros = until.as_micros().saturating_sub(epoch.as_micros()).min(low_bits(TAT_BITS));
        let flags = if scale == TimeScale::Date { MARK | MARK_BY_DATE } else { MARK };
        Self::of_kind(TOKEN_BUCKET, micros << (2 * PARTS_BITS + SPARE_BITS + KIND_BITS) | flags)
    }

    /// True for a mark, which is not a state.
    pub(super) fn is_mark(self) -> bool {
        self.0.get() & low_bits(KIND_BITS) == TOKEN_BUCKET && self.0.get() & MARK != 0
    }

    /// The last instant at which a mark is valid.
    pub(super) fn mark_until(self, epoch: Timestamp) -> Timestamp {
        let micros = self.0.get() >> (2 * PARTS_BITS + SPARE_BITS + KIND_BITS);
        if micros == low_bits(TAT_BITS) {
            Timestamp::MAX
        } else {
            Timestamp::from_micros(epoch.as_micros() + micros)
        }
    }

    /// Unpacks the word.
    pub(super) fn unpack(self, epoch: Timestamp) -> Unpacked {
        if let Some(state) = self.as_token_bucket(epoch) {
            return Unpacked::State(State::TokenBucket(state));
        }
        if let Some(state) = self.as_fixed_window(epoch) {
            return Unpacked::State(State::FixedWindow(state));
        }
        Unpacked::Wide(self.wide_index().unwrap_or(usize::MAX))
    }

    /// The index of a wide state, if the word holds one.
    pub(super) fn wide_index(self) -> Option<usize> {
        let is_wide = self.0.get() & low_bits(KIND_BITS) == WIDE;
        is_wide.then(|| usize::try_from(self.0.get() >> KIND_BITS).unwrap_or(usize::MAX))
    }

    /// The state of a token bucket, if the word holds one.
    #[inline(always)]
    pub(super) fn as_token_bucket(self, epoch: Timestamp) -> Option<TokenBucketState> {
        if self.0.get() & low_bits(KIND_BITS) != TOKEN_BUCKET {
            return None;
        }
        let body = self.0.get() >> (SPARE_BITS + KIND_BITS);
        let parts_per_micro = (body & low_bits(PARTS_BITS)) + 1;
        let tat_parts = body >> PARTS_BITS & low_bits(PARTS_BITS);
        let tat_micros = epoch.as_micros() + (body >> (2 * PARTS_BITS));
        let kept_until_micros = tat_micros + u64::from(tat_parts > 0);
        Some(TokenBucketState { tat_micros, tat_parts, parts_per_micro, kept_until_micros })
    }

    /// The state of a fixed window, if the word holds one.
    pub(super) fn as_fixed_window(self, epoch: Timestamp) -> Option<FixedWindowState> {
        if self.0.get() & low_bits(KIND_BITS) != FIXED_WINDOW {
            return None;
        }
        let body = self.0.get() >> KIND_BITS;
        let end_millis = epoch.as_micros() / 1_000 + (body >> COUNT_BITS);
        let end = Timestamp::from_micros(end_millis * 1_000);
        Some(FixedWindowState { count: body & low_bits(COUNT_BITS), end })
    }

    /// The last microsecond at which a packed state or mark is live, with its time scale; `None` for a wide state.
    pub(super) fn kept_until(self, epoch: Timestamp) -> Option<(Timestamp, TimeScale)> {
        if self.is_mark() {
            let is_date = self.0.get() & MARK_BY_DATE != 0;
            return Some((self.mark_until(epoch), if is_date { TimeScale::Date } else { TimeScale::Steady }));
        }
        if let Some(state) = self.as_token_bucket(epoch) {
            return Some((Timestamp::from_micros(state.kept_until_micros), TimeScale::Steady));
        }
        self.as_fixed_window(epoch).map(|state| (state.end, TimeScale::Date))
    }

    /// Packs the state of a token bucket; `None` if it does not fit.
    #[inline(always)]
    pub(super) fn token_bucket(state: &TokenBucketState, epoch: Timestamp) -> Option<Self> {
        let whole_at = state.tat_micros.checked_add(u64::from(state.tat_parts > 0))?;
        let tat = state.tat_micros.checked_sub(epoch.as_micros())?;
        let divisions = state.parts_per_micro.checked_sub(1)?;
        let fits = tat <= low_bits(TAT_BITS)
            && divisions <= low_bits(PARTS_BITS)
            && state.tat_parts <= divisions
            // A state that is kept beyond the instant at which it is full does not fit.
            && state.kept_until_micros == whole_at;
        fits.then(|| {
            let body = (tat << PARTS_BITS | state.tat_parts) << PARTS_BITS | divisions;
            Self::of_kind(TOKEN_BUCKET, body << (SPARE_BITS + KIND_BITS))
        })
    }

    /// Packs the state of a fixed window; `None` if it does not fit.
    pub(super) fn fixed_window(state: &FixedWindowState, epoch: Timestamp) -> Option<Self> {
        let end = (state.end.as_micros() / 1_000).checked_sub(epoch.as_micros() / 1_000)?;
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

    const EPOCH: Timestamp = Timestamp::now(1_705_312_800_123_456);

    fn check(state: State, fits: bool) {
        let packed = Packed::new(&state, EPOCH);
        assert_eq!(packed.is_some(), fits, "{state:?}");
        if let Some(packed) = packed {
            assert_eq!(packed.unpack(EPOCH), Unpacked::State(state));
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
    fn packed_states_unpack_to_the_same_state() {
        let epoch = EPOCH.as_micros();
        for tat in [0, 1, 59_000_000, (1 << 47) - 1] {
            check(bucket(epoch + tat, 0, 1), true);
            check(bucket(epoch + tat, 2, 3), true);
            check(bucket(epoch + tat, 63, 64), true);
            check(bucket(epoch + tat, 64, 65), false);
        }
        check(bucket(epoch + (1 << 47), 0, 1), false);
        check(bucket(epoch - 1, 0, 1), false);
        check(bucket(epoch, 5, 3), false);
        for end in [0, 1, 60_000, (1 << 38) - 1] {
            check(window(0, (epoch / 1_000 + end) * 1_000), true);
            check(window((1 << 24) - 1, (epoch / 1_000 + end) * 1_000), true);
            check(window(1 << 24, (epoch / 1_000 + end) * 1_000), false);
        }
        check(window(1, (epoch / 1_000 + (1 << 38)) * 1_000), false);
        check(window(1, epoch + 1), false);
    }

    #[test]
    fn bucket_kept_beyond_its_fill_time_is_not_packed() {
        let epoch = EPOCH.as_micros();
        let state = TokenBucketState {
            tat_micros: epoch + 5,
            tat_parts: 0,
            parts_per_micro: 1,
            kept_until_micros: epoch + 6,
        };
        check(State::TokenBucket(state), false);
    }

    #[test]
    fn mark_expires_at_its_instant_and_never_beyond_the_range() {
        let epoch = EPOCH.as_micros();
        for scale in [TimeScale::Steady, TimeScale::Date] {
            for (until, read) in [
                (epoch - 1, EPOCH),
                (epoch, EPOCH),
                (epoch + 59_000_000, Timestamp::from_micros(epoch + 59_000_000)),
                (epoch + (1 << 47) - 2, Timestamp::from_micros(epoch + (1 << 47) - 2)),
                (epoch + (1 << 47) - 1, Timestamp::MAX),
                (epoch + (1 << 48), Timestamp::MAX),
            ] {
                let mark = Packed::mark(Timestamp::from_micros(until), scale, EPOCH);
                assert!(mark.is_mark());
                assert_eq!(mark.kept_until(EPOCH), Some((read, scale)));
                assert_eq!(mark.wide_index(), None);
            }
        }
        for state in [bucket(epoch + 5, 2, 3), window(1, (epoch / 1_000 + 5) * 1_000)] {
            assert!(!Packed::new(&state, EPOCH).unwrap().is_mark());
        }
        assert!(!Packed::wide(usize::MAX >> 2).is_mark());
    }

    #[test]
    fn index_of_a_wide_state_survives_packing() {
        assert_eq!(Packed::wide(12_345).unpack(EPOCH), Unpacked::Wide(12_345));
        assert_eq!(Packed::wide(12_345).kept_until(EPOCH), None);
    }
}
