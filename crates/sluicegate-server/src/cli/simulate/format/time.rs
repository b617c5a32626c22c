//! Parsers for the times in logs: the common format, RFC 3339, and numbers since 1970.
//!
//! Most lines have the same time as the line before them, so each parser caches the last text and its meaning.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::Offset;

/// The last instant that the core can represent, in the year 2112: 2⁵² µs.
pub(crate) const AT_MICROS_MAX: u64 = (1 << 52) - 1;

/// The longest text that is cached, in bytes; longer ones are parsed each time.
const TEXT_BYTES_MAX: usize = 32;

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// A cache of one entry: the last text and its meaning.
#[derive(Debug, Default)]
struct Last {
    text: [u8; TEXT_BYTES_MAX],
    length: usize,
    at_micros: u64,
}

impl Last {
    #[inline]
    fn get_or_parse(&mut self, text: &[u8], read: impl FnOnce(&[u8]) -> Option<u64>) -> Option<u64> {
        if self.length > 0 && text == &self.text[..self.length] {
            return Some(self.at_micros);
        }
        let at_micros = read(text)?;
        if let Some(place) = self.text.get_mut(..text.len()) {
            place.copy_from_slice(text);
            (self.length, self.at_micros) = (text.len(), at_micros);
        }
        Some(at_micros)
    }
}

/// Parses `10/Oct/2000:13:55:36 -0700`.
#[derive(Debug, Default)]
pub(crate) struct CommonTime(Last);

impl CommonTime {
    /// Microseconds since 1970, or `None` for an invalid time and for one after [`AT_MICROS_MAX`].
    #[inline]
    pub(crate) fn read(&mut self, text: &[u8]) -> Option<u64> {
        self.0.get_or_parse(text, common)
    }
}

/// Parses `2016-04-15T20:17:00.310Z` and the other forms of RFC 3339.
#[derive(Debug, Default)]
pub(crate) struct InternetTime(Last);

impl InternetTime {
    /// Microseconds since 1970, or `None` for an invalid time and for one after [`AT_MICROS_MAX`].
    pub(crate) fn read(&mut self, text: &[u8]) -> Option<u64> {
        self.0.get_or_parse(text, |text| since_epoch(std::str::from_utf8(text).ok()?.parse().ok()?))
    }
}

/// Parses a time in any of the formats: the two above, or a number.
pub(crate) fn any(text: &[u8]) -> Option<u64> {
    let internet = || since_epoch(std::str::from_utf8(text).ok()?.parse().ok()?);
    number(text).or_else(|| common(text)).or_else(internet)
}

fn common(text: &[u8]) -> Option<u64> {
    let (date, rest) = text.split_at_checked(11)?;
    let (time, offset) = rest.split_at_checked(9)?;
    let [d1, d0, b'/', m2, m1, m0, b'/', year @ ..] = date else { return None };
    let month = MONTHS.iter().position(|month| *month == [*m2, *m1, *m0])?;
    let [b':', h1, h0, b':', n1, n0, b':', s1, s0] = time else { return None };
    let [b' ', sign @ (b'+' | b'-'), o3, o2, o1, o0] = offset else { return None };
    let pair = |tens: &u8, ones: &u8| i8::try_from(digits(&[*tens, *ones])?).ok();
    let date = Date::new(i16::try_from(digits(year)?).ok()?, i8::try_from(month + 1).ok()?, pair(d1, d0)?).ok()?;
    // Logs write a leap second as second 60. The clock shows second 59 again.
    let time = Time::new(pair(h1, h0)?, pair(n1, n0)?, pair(s1, s0)?.min(59), 0).ok()?;
    let ahead = i32::from(pair(o3, o2)?) * 3_600 + i32::from(pair(o1, o0)?) * 60;
    let offset = Offset::from_seconds(if *sign == b'-' { -ahead } else { ahead }).ok()?;
    since_epoch(offset.to_timestamp(DateTime::from_parts(date, time)).ok()?)
}

fn since_epoch(timestamp: Timestamp) -> Option<u64> {
    u64::try_from(timestamp.as_microsecond()).ok().filter(|at_micros| *at_micros <= AT_MICROS_MAX)
}

fn digits(text: &[u8]) -> Option<u64> {
    let digit = |number: u64, byte: &u8| {
        byte.is_ascii_digit().then(|| number.checked_mul(10)?.checked_add(u64::from(byte - b'0')))?
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}

/// Parses seconds, milliseconds, microseconds or nanoseconds since 1970. The magnitude selects the unit that gives a time of
/// these centuries. A fraction is read digit by digit, never as a float.
fn number(text: &[u8]) -> Option<u64> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    let whole = digits(whole)?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Microseconds per unit, as a power of ten.
    let power: i32 = match whole {
        0..=99_999_999_999 => 6,
        100_000_000_000..=99_999_999_999_999 => 3,
        100_000_000_000_000..=99_999_999_999_999_999 => 0,
        _ => -3,
    };
    let Ok(places) = u32::try_from(power) else { return Some(whole / 1_000).filter(|at| *at <= AT_MICROS_MAX) };
    let mut at_micros = whole.checked_mul(10_u64.pow(places))?;
    let mut worth = 10_u64.pow(places);
    for digit in fraction {
        worth /= 10;
        at_micros = at_micros.checked_add(worth * u64::from(digit - b'0'))?;
    }
    Some(at_micros).filter(|at_micros| *at_micros <= AT_MICROS_MAX)
}
