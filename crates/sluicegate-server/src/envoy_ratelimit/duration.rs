//! Durations and decimal fractions in the notation of Go: `10s`, `1m30s`, `1.5s`, `0.5`.

use std::time::Duration;

/// The units with their nanoseconds. Longer names come before their beginnings.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A duration of one or more numbers, each with its unit. `None` if it is not one.
pub(super) fn parse(written: &str) -> Option<Duration> {
    let (mut rest, mut nanos) = (written, 0_u64);
    while !rest.is_empty() {
        let end = rest.find(|next: char| !next.is_ascii_digit() && next != '.')?;
        let (number, after) = rest.split_at(end);
        let (unit, length) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        nanos = nanos.checked_add(decimal(number, *length)?)?;
        rest = &after[unit.len()..];
    }
    (!written.is_empty()).then(|| Duration::from_nanos(nanos))
}

/// A decimal fraction times `whole`, rounded down.
pub(super) fn decimal(written: &str, whole: u64) -> Option<u64> {
    let (integer, fraction) = written.split_once('.').unwrap_or((written, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (integer.is_empty() && fraction.is_empty()) || !is_digits(integer) || !is_digits(fraction) {
        return None;
    }
    let integer: u64 = if integer.is_empty() { 0 } else { integer.parse().ok()? };
    let mut total = integer.checked_mul(whole)?;
    let mut unit = whole;
    for digit in fraction.bytes() {
        unit /= 10;
        total = total.checked_add(unit * u64::from(digit - b'0'))?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_notation_of_go() {
        for (written, nanos) in [
            ("10s", 10_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5h", 1_800_000_000_000),
            ("250ms", 250_000_000),
            ("3us4ns", 3_004),
        ] {
            assert_eq!(parse(written), Some(Duration::from_nanos(nanos)), "{written}");
        }
        for written in ["", "10", "s", "-1s", "1d", "1 s", "1.s.", "99999999999999h", ".s"] {
            assert_eq!(parse(written), None, "{written}");
        }
    }
}
