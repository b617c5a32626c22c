//! A second parser of the values in Redis, written from the description in `lua/charge.lua` and independent of its
//! code.

use sluicegate::core::algorithm::fixed_window::FixedWindowState;
use sluicegate::core::algorithm::sliding_counter::SlidingCounterState;
use sluicegate::core::algorithm::sliding_window::{Entry, SlidingWindowState};
use sluicegate::core::algorithm::token_bucket::TokenBucketState;
use sluicegate::core::{State, Timestamp};
use std::collections::BTreeMap;

/// The letter of the algorithm, and the index of the limit.
pub(crate) type Place = (char, usize);

/// A state, and until when its record matters.
pub(crate) type Kept = (State, u64);

/// All states of a value. Panics if it is malformed.
pub(crate) fn decoded(value: &[u8]) -> BTreeMap<Place, Kept> {
    if value.iter().all(u8::is_ascii_digit) {
        let digits = std::str::from_utf8(value).unwrap();
        let tat = digits.strip_suffix('1').expect("the kind of a value of digits").parse().unwrap();
        let state = TokenBucketState { tat_micros: tat, tat_parts: 0, parts_per_micro: 1, kept_until_micros: tat };
        return BTreeMap::from([(('b', 0), (State::TokenBucket(state), tat))]);
    }
    let (b'a', mut rest) = value.split_first().unwrap() else { panic!("{}", value.escape_ascii()) };
    let mut states = BTreeMap::new();
    while let [letter, index, after @ ..] = rest {
        let (place, kept) = (char::from(*letter), (*index as char).to_digit(16).unwrap() as usize);
        let (state, next) = if *letter == b'l' { log(after) } else { record(place, after) };
        assert!(states.insert((place, kept), state).is_none(), "a place twice");
        rest = next;
    }
    assert!(rest.is_empty());
    if let (1, Some((State::TokenBucket(only), _))) = (states.len(), states.get(&('b', 0))) {
        let is_plain = (only.tat_parts, only.parts_per_micro, only.kept_until_micros) == (0, 1, only.tat_micros);
        assert!(!is_plain, "a value that fits an integer is stored as one");
    }
    states
}

fn record(letter: char, text: &[u8]) -> (Kept, &[u8]) {
    let (fields, rest) = cut(text, b';');
    let numbers = numbers(fields);
    let instant = Timestamp::from_micros;
    let kept = match (letter, numbers.as_slice()) {
        ('b', &[tat_micros, tat_parts, parts_per_micro, longer]) => {
            let kept_until_micros = tat_micros + longer;
            let state = TokenBucketState { tat_micros, tat_parts, parts_per_micro, kept_until_micros };
            (State::TokenBucket(state), kept_until_micros)
        }
        ('c', &[previous, current, end, window]) => {
            (State::SlidingCounter(SlidingCounterState { previous, current, end: instant(end) }), end + window)
        }
        ('f', &[count, end, phase]) => {
            (State::FixedWindow(FixedWindowState { count, end: instant(end) }), end.saturating_sub(phase))
        }
        other => panic!("{other:?}"),
    };
    (kept, rest)
}

fn log(text: &[u8]) -> (Kept, &[u8]) {
    let (head, rest) = cut(text, b':');
    let &[entries, base, window] = numbers(head).as_slice() else { panic!("{}", head.escape_ascii()) };
    let (bytes, rest) = rest.split_at(entries as usize * 13);
    let big_endian = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let mut before = base;
    let entries: Vec<Entry> = bytes
        .chunks(13)
        .map(|entry| {
            let (at, sum) = (big_endian(&entry[..7]), big_endian(&entry[7..]));
            let units = sum.wrapping_sub(before) & ((1 << 48) - 1);
            before = sum;
            Entry { at: Timestamp::from_micros(at), units: units.try_into().unwrap() }
        })
        .collect();
    assert!(entries.is_sorted_by(|one, next| one.at < next.at), "{entries:?}");
    let newest = entries.last().unwrap().at.as_micros();
    let state = State::SlidingWindow(SlidingWindowState::from_entries(entries));
    ((state, newest + window), rest.strip_prefix(b";").unwrap())
}

fn cut(text: &[u8], mark: u8) -> (&[u8], &[u8]) {
    let at = text.iter().position(|byte| *byte == mark).unwrap();
    (&text[..at], &text[at + 1..])
}

fn numbers(fields: &[u8]) -> Vec<u64> {
    let fields = std::str::from_utf8(fields).unwrap();
    fields.split(',').map(|digits| digits.parse().unwrap()).collect()
}
