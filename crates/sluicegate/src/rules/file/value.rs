//! Values as text: durations, rates, names, labels, patterns. All are pure functions from text to a valid type, or to an
//! error with a remedy.

use super::problem::ValueError;
use crate::authority::HostPattern;
use crate::path::PathPattern;
use crate::pattern::Pattern;
use crate::rules::{DEADLINES, RULE_NAME_BYTES_MAX};
use sluicegate_core::quota::UNITS_MAX;
use sluicegate_core::{Micros, Rate, Timestamp};
use std::ops::RangeInclusive;
use std::time::Duration;

/// The longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 256;
/// The longest label of a limit, in bytes.
pub const LABEL_BYTES_MAX: usize = 64;
/// The longest name of an HTTP method, in bytes.
pub const METHOD_BYTES_MAX: usize = 32;
/// The longest name of a header field or claim in a rule.
pub const VALUE_NAME_BYTES_MAX: usize = 128;

/// The units of time with their length in milliseconds.
pub const UNITS: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Common misspellings of units, and the unit of each.
const SLIPS: &[(&[&str], &str)] = &[
    (&["msec", "msecs", "milli", "millis", "millisecond", "milliseconds"], "ms"),
    (&["sec", "secs", "second", "seconds"], "s"),
    (&["mins", "minute", "minutes"], "min"),
    (&["hr", "hrs", "hour", "hours"], "h"),
    (&["day", "days"], "d"),
];

const DURATION_EXAMPLES: &str = "250ms, 30s, 5min, 1h or 1d";
const RATE_EXAMPLES: &str = "100/60s, 5/s, 100/min, 1000/h or 5000/d";

/// Reads a duration, such as `250ms`: at least one millisecond, at most ten years.
///
/// # Errors
/// If the text is not such a duration.
pub fn duration(text: &str) -> Result<Micros, ValueError> {
    let unknown = |remedy: String| ValueError::new("not a duration", remedy);
    let (number, unit) = number_and_rest(text);
    if number.is_empty() {
        return Err(unknown(format!("write a whole number and a unit, for example {DURATION_EXAMPLES}")));
    }
    let Some(&(_, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(unknown(meant_duration(number, unit)));
    };
    if number.len() > 1 && number.starts_with('0') {
        return Err(unknown("write the number without leading zeros".to_owned()));
    }
    // A number that overflows is out of range, too.
    let length = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
    match length.map(Micros::from_millis) {
        Some(length) if (Micros::from_millis(1)..=Micros::PERIOD_MAX).contains(&length) => Ok(length),
        _ => Err(ValueError::new(OUT_OF_RANGE, "use at least 1ms and at most 3650d (ten years)")),
    }
}

/// Reads a deadline for store calls: from one millisecond to ten seconds.
///
/// # Errors
/// If the text is not such a duration.
pub fn deadline(text: &str) -> Result<Duration, ValueError> {
    let within = |length: &Duration| DEADLINES.contains(length);
    match duration(text).map(|length| Duration::from_micros(length.as_micros())) {
        Err(wrong) if wrong.message != OUT_OF_RANGE => Err(wrong),
        length => length
            .ok()
            .filter(within)
            .ok_or_else(|| ValueError::new(OUT_OF_RANGE, "use at least 1ms and at most 10s")),
    }
}

/// The remedy for a duration with an unknown unit.
fn meant_duration(number: &str, unit: &str) -> String {
    let word = unit.trim().to_ascii_lowercase();
    let known = UNITS.iter().find(|(name, _)| *name == word).map(|(name, _)| *name);
    let slip = SLIPS.iter().find(|(words, _)| words.contains(&word.as_str())).map(|(_, meant)| *meant);
    match (word.as_str(), known.or(slip)) {
        ("", _) => format!("add a unit, for example {number}s"),
        ("m", _) => format!("write {number}min for minutes or {number}ms for milliseconds"),
        (_, Some(meant)) => format!("write {number}{meant}"),
        _ if word.starts_with('.') => "use a whole number, for example 90min instead of 1.5h".to_owned(),
        _ if word.contains(|each: char| each.is_ascii_digit()) => {
            "use one number and one unit, for example 90min instead of 1h30min".to_owned()
        }
        _ => "use one of the units ms, s, min, h, d".to_owned(),
    }
}

/// Reads a rate: `N/DURATION`, or `N/s`, `N/min`, `N/h`, `N/d`.
///
/// # Errors
/// If the text is not a rate.
pub fn rate(text: &str) -> Result<Rate, ValueError> {
    let unknown = |remedy: String| ValueError::new("not a rate", remedy);
    let Some((amount, period)) = text.split_once('/') else {
        return Err(unknown(format!("write N/DURATION, for example {RATE_EXAMPLES}")));
    };
    if text.contains(char::is_whitespace) {
        return Err(unknown(format!("write it without spaces, for example {RATE_EXAMPLES}")));
    }
    let amount = whole_number(amount, 1..=UNITS_MAX)
        .map_err(|wrong| ValueError::new(format!("the amount before / is {}", wrong.message), wrong.remedy))?;
    let is_unit = period != "ms" && UNITS.iter().any(|(name, _)| *name == period);
    let length = if is_unit { duration(&format!("1{period}")) } else { duration(period) };
    let length = length.map_err(|wrong| {
        let remedy = match number_and_rest(period) {
            ("", unit) => meant_rate(amount, unit),
            _ => wrong.remedy,
        };
        ValueError::new(format!("the period after / is {}", wrong.message), remedy)
    })?;
    Rate::new(amount, length).map_err(|error| ValueError::new(OUT_OF_RANGE, error.remedy()))
}

/// The remedy for a rate with a word as its period.
fn meant_rate(amount: u64, unit: &str) -> String {
    match unit {
        "ms" => format!("write {amount}/1ms"),
        "m" => format!("write {amount}/min"),
        _ => {
            let word = unit.to_ascii_lowercase();
            let slip = SLIPS.iter().find(|(words, _)| words.contains(&word.as_str()));
            let known = UNITS.iter().map(|(name, _)| *name).find(|name| *name == word);
            match slip.map(|(_, meant)| *meant).or(known) {
                Some(meant) if meant != "ms" => format!("write {amount}/{meant}"),
                _ => format!("write N/DURATION, for example {RATE_EXAMPLES}"),
            }
        }
    }
}

/// The leading digits of a text, and the rest.
fn number_and_rest(text: &str) -> (&str, &str) {
    text.split_at(text.find(|each: char| !each.is_ascii_digit()).unwrap_or(text.len()))
}

/// Reads a whole number: digits only, without notations that YAML readers interpret differently.
///
/// # Errors
/// If the text is not such a number, or not within `range`.
pub fn whole_number(text: &str, range: RangeInclusive<u64>) -> Result<u64, ValueError> {
    let (low, high) = (range.start(), range.end());
    let within = format!("use a whole number from {low} to {high}");
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let plain: String = text.chars().filter(|each| !matches!(each, '_' | ',' | ' ' | '\'')).collect();
        return Err(match plain.parse::<u64>() {
            Ok(number) if plain.len() < text.len() => ValueError::new(NOT_WHOLE, format!("write {number}")),
            _ => ValueError::new(NOT_WHOLE, within),
        });
    }
    if digits.len() > 1 && digits.starts_with('0') {
        return Err(ValueError::new(NOT_WHOLE, "write it without leading zeros"));
    }
    match text.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(ValueError::new(OUT_OF_RANGE, within)),
    }
}

const NOT_WHOLE: &str = "not a whole number";
const OUT_OF_RANGE: &str = "out of range";

/// Reads the name of a rule or a tier.
///
/// # Errors
/// If the text is not such a name.
pub fn name(text: &str) -> Result<Box<str>, ValueError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=RULE_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_part) {
        return Ok(text.into());
    }
    let remedy = format!("use 1 to {RULE_NAME_BYTES_MAX} of A-Z a-z 0-9 . _ -");
    Err(ValueError::new("not a name", remedy))
}

/// Reads the name of a limit, which header fields contain in quotes.
///
/// # Errors
/// If the text is not such a name.
pub fn label(text: &str) -> Result<Box<str>, ValueError> {
    let is_part = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if (1..=LABEL_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_part) {
        return Ok(text.into());
    }
    let remedy = format!("use 1 to {LABEL_BYTES_MAX} printable ASCII characters without \" and \\");
    Err(ValueError::new("not a name for header fields", remedy))
}

/// Reads a pattern for names.
///
/// # Errors
/// If the pattern is empty, too long, or contains a control character, and so matches nothing.
pub fn pattern(text: &str) -> Result<Pattern, ValueError> {
    if text.is_empty() {
        return Err(ValueError::new("matches nothing", "write a pattern, for example api.*, or * for everything"));
    }
    if text.len() > PATTERN_BYTES_MAX {
        let message = format!("a pattern of {} bytes", text.len());
        return Err(ValueError::new(message, format!("use at most {PATTERN_BYTES_MAX} bytes")));
    }
    if text.contains(char::is_control) {
        return Err(ValueError::new("matches nothing", "leave out control characters: no name holds them"));
    }
    Ok(Pattern::new(text))
}

/// Reads a pattern for paths.
///
/// # Errors
/// If no path could match it.
pub fn path(text: &str) -> Result<PathPattern, ValueError> {
    PathPattern::parse(text).map_err(|error| ValueError::new(error.message, error.remedy))
}

/// Reads an instant in the form of RFC 3339.
///
/// # Errors
/// If the text is not such an instant, or out of the range of timestamps.
pub fn instant(text: &str) -> Result<Timestamp, ValueError> {
    let remedy = "write date, time and offset, for example 2026-12-31T00:00:00Z";
    // Rejects a time zone name in brackets: its meaning changes with the rules of the zone.
    let parsed = if text.contains('[') { None } else { text.parse::<jiff::Timestamp>().ok() };
    let instant = parsed.ok_or_else(|| ValueError::new("not an instant", remedy))?;
    let micros = u64::try_from(instant.as_microsecond()).ok().map(Timestamp::from_micros);
    let known = micros.filter(|instant| *instant <= Timestamp::NOW_MAX);
    known.ok_or_else(|| ValueError::new("out of range", "use an instant from 1970 to 2112"))
}

/// Reads a pattern for hosts.
///
/// # Errors
/// If no host could match it.
pub fn host(text: &str) -> Result<Pattern, ValueError> {
    let remedy = "write a name or an address without a port, for example api.example.com or *.example.com";
    HostPattern::parse(text).map(Pattern::from).ok_or_else(|| ValueError::new("not a host", remedy))
}

/// Reads the name of a header field.
///
/// # Errors
/// If the text is not such a name.
pub fn header_name(text: &str) -> Result<Box<str>, ValueError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if (1..=VALUE_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_part) {
        return Ok(text.to_ascii_lowercase().into());
    }
    Err(ValueError::new("not the name of a header field", "write one as HTTP has it, for example X-Plan"))
}

/// Reads the name of a claim.
///
/// # Errors
/// If the text is not such a name.
pub fn claim_name(text: &str) -> Result<Box<str>, ValueError> {
    if (1..=VALUE_NAME_BYTES_MAX).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(text.into());
    }
    let remedy = format!("use 1 to {VALUE_NAME_BYTES_MAX} bytes without control characters, for example plan");
    Err(ValueError::new("not the name of a claim", remedy))
}

/// Reads the name of an HTTP method.
///
/// # Errors
/// If the text is not such a name.
pub fn method(text: &str) -> Result<Box<str>, ValueError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if (1..=METHOD_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_part) {
        return Ok(text.to_ascii_uppercase().into());
    }
    Err(ValueError::new("not a method", "write one as HTTP names it, for example GET or POST"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_exact_and_have_an_offset() {
        let micros = |text: &str| instant(text).map(Timestamp::as_micros).map_err(|wrong| wrong.message);
        assert_eq!(micros("2026-12-31T00:00:00Z"), Ok(1_798_675_200_000_000));
        assert_eq!(micros("2026-12-31T01:00:00+01:00"), Ok(1_798_675_200_000_000));
        assert_eq!(micros("1970-01-01T00:00:00.000001Z"), Ok(1));
        for text in [
            "",
            "2026-12-31",
            "2026-12-31T00:00:00",
            "2026-02-30T00:00:00Z",
            "tomorrow",
            "1798675200",
            "2026-12-31T00:00:00+01:00[Europe/Berlin]",
        ] {
            assert_eq!(micros(text), Err("not an instant".to_owned()), "{text}");
        }
        for text in ["1969-12-31T23:59:59Z", "2200-01-01T00:00:00Z"] {
            assert_eq!(micros(text), Err("out of range".to_owned()), "{text}");
        }
    }

    #[test]
    fn durations_are_exact() {
        let cases = [
            ("1ms", 1_000),
            ("250ms", 250_000),
            ("30s", 30_000_000),
            ("5min", 300_000_000),
            ("1h", 3_600_000_000),
            ("24h", 86_400_000_000),
            ("1d", 86_400_000_000),
            ("3650d", 315_360_000_000_000),
        ];
        for (text, micros) in cases {
            assert_eq!(duration(text).map(Micros::as_micros), Ok(micros), "{text}");
        }
    }

    #[test]
    fn an_invalid_duration_comes_with_a_suggestion() {
        let cases = [
            ("", "not a duration: write a whole number and a unit, for example 250ms, 30s, 5min, 1h or 1d"),
            ("s", "not a duration: write a whole number and a unit, for example 250ms, 30s, 5min, 1h or 1d"),
            ("-5s", "not a duration: write a whole number and a unit, for example 250ms, 30s, 5min, 1h or 1d"),
            ("60", "not a duration: add a unit, for example 60s"),
            ("5m", "not a duration: write 5min for minutes or 5ms for milliseconds"),
            ("5 min", "not a duration: write 5min"),
            ("5Min", "not a duration: write 5min"),
            ("10sec", "not a duration: write 10s"),
            ("2 hours", "not a duration: write 2h"),
            ("1.5h", "not a duration: use a whole number, for example 90min instead of 1.5h"),
            ("1h30min", "not a duration: use one number and one unit, for example 90min instead of 1h30min"),
            ("5us", "not a duration: use one of the units ms, s, min, h, d"),
            ("1w", "not a duration: use one of the units ms, s, min, h, d"),
            ("5µs", "not a duration: use one of the units ms, s, min, h, d"),
            ("05s", "not a duration: write the number without leading zeros"),
            ("0s", "out of range: use at least 1ms and at most 3650d (ten years)"),
            ("3651d", "out of range: use at least 1ms and at most 3650d (ten years)"),
            ("18446744073709551615d", "out of range: use at least 1ms and at most 3650d (ten years)"),
            ("99999999999999999999s", "out of range: use at least 1ms and at most 3650d (ten years)"),
        ];
        for (text, expected) in cases {
            let wrong = duration(text).unwrap_err();
            assert_eq!(format!("{}: {}", wrong.message, wrong.remedy), expected, "{text}");
        }
    }

    #[test]
    fn rates_keep_their_amount_and_period() {
        let cases = [
            ("100/60s", 100, 60_000_000),
            ("5/s", 5, 1_000_000),
            ("100/min", 100, 60_000_000),
            ("7/h", 7, 3_600_000_000),
            ("1/d", 1, 86_400_000_000),
            ("3/250ms", 3, 250_000),
            ("999999999999999/1ms", 999_999_999_999_999, 1_000),
        ];
        for (text, amount, period) in cases {
            let rate = rate(text).unwrap();
            assert_eq!((rate.amount(), rate.period().as_micros()), (amount, period), "{text}");
        }
    }

    #[test]
    fn an_invalid_rate_comes_with_a_suggestion() {
        let example = "for example 100/60s, 5/s, 100/min, 1000/h or 5000/d";
        let amounts = "use a whole number from 1 to 999999999999999";
        let cases = [
            ("", format!("not a rate: write N/DURATION, {example}")),
            ("100", format!("not a rate: write N/DURATION, {example}")),
            ("100 per second", format!("not a rate: write N/DURATION, {example}")),
            ("100 / 60s", format!("not a rate: write it without spaces, {example}")),
            ("0/s", format!("the amount before / is out of range: {amounts}")),
            ("-5/s", format!("the amount before / is out of range: {amounts}")),
            ("1.5/s", format!("the amount before / is not a whole number: {amounts}")),
            ("/s", format!("the amount before / is not a whole number: {amounts}")),
            ("1_000/s", "the amount before / is not a whole number: write 1000".to_owned()),
            ("1000000000000000/s", format!("the amount before / is out of range: {amounts}")),
            ("5/", format!("the period after / is not a duration: write N/DURATION, {example}")),
            ("5/m", "the period after / is not a duration: write 5/min".to_owned()),
            ("5/ms", "the period after / is not a duration: write 5/1ms".to_owned()),
            ("5/sec", "the period after / is not a duration: write 5/s".to_owned()),
            ("5/Hour", "the period after / is not a duration: write 5/h".to_owned()),
            ("5/week", format!("the period after / is not a duration: write N/DURATION, {example}")),
            ("5/60", "the period after / is not a duration: add a unit, for example 60s".to_owned()),
            (
                "5/1m",
                "the period after / is not a duration: write 1min for minutes or 1ms for milliseconds".to_owned(),
            ),
            (
                "5/0s",
                "the period after / is out of range: use at least 1ms and at most 3650d (ten years)".to_owned(),
            ),
            ("5/s/s", format!("the period after / is not a duration: write N/DURATION, {example}")),
        ];
        for (text, expected) in cases {
            let wrong = rate(text).unwrap_err();
            assert_eq!(format!("{}: {}", wrong.message, wrong.remedy), expected, "{text}");
        }
    }

    #[test]
    fn only_plain_digits_are_whole_numbers() {
        assert_eq!(whole_number("0", 0..=9), Ok(0));
        assert_eq!(whole_number("18446744073709551615", 0..=u64::MAX), Ok(u64::MAX));
        let within = "use a whole number from 1 to 9";
        let cases = [
            ("0", "out of range", within),
            ("10", "out of range", within),
            ("-1", "out of range", within),
            ("-0", "out of range", within),
            ("99999999999999999999", "out of range", within),
            ("1.0", "not a whole number", within),
            ("1e3", "not a whole number", within),
            ("0x10", "not a whole number", within),
            ("0o7", "not a whole number", within),
            ("+5", "not a whole number", within),
            (".inf", "not a whole number", within),
            (".nan", "not a whole number", within),
            ("", "not a whole number", within),
            ("-", "not a whole number", within),
            ("five", "not a whole number", within),
            ("٣", "not a whole number", within),
            ("1_000", "not a whole number", "write 1000"),
            ("1,000", "not a whole number", "write 1000"),
            ("007", "not a whole number", "write it without leading zeros"),
        ];
        for (text, message, remedy) in cases {
            assert_eq!(whole_number(text, 1..=9), Err(ValueError::new(message, remedy)), "{text}");
        }
    }

    #[test]
    fn names_labels_and_patterns_are_bounded() {
        let at_most = |count: usize, more: usize| ("n".repeat(count), "n".repeat(count + more));
        let (longest, longer) = at_most(64, 1);
        assert!(name(&longest).is_ok() && name("A-z.0_9").is_ok());
        for text in ["", &longer, "a b", "ü", "a/b", "a\n"] {
            assert!(name(text).is_err(), "{text:?}");
        }
        assert!(label(&longest).is_ok() && label("per hour (50%)").is_ok());
        for text in ["", &longer, "a\"b", "a\\b", "ü", "a\tb", "a\u{7f}"] {
            assert!(label(text).is_err(), "{text:?}");
        }
        let (longest, longer) = at_most(256, 1);
        assert!(pattern(&longest).is_ok() && pattern("ü *").is_ok());
        for text in ["", &longer, "a\u{0}", "a\u{1b}[31m"] {
            assert!(pattern(text).is_err(), "{text:?}");
        }
    }
}
