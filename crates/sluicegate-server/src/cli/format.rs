//! Formatting for the command line: shares, numbers with three significant digits, durations, rates, and terminal-safe text.

use std::fmt::Write as _;

use sluicegate::rules::file::value::UNITS;
use unicode_width::UnicodeWidthChar as _;

use crate::telemetry::escape::{self, is_dangerous};

/// The most combining marks on one character, such as accents and vowels. No language needs more, and terminals draw more of
/// them over the lines above and below.
const MARKS_MAX: usize = 2;

/// The most characters of another party's text in a message.
const EXCERPT_CHARS_MAX: usize = 200;

/// A share with one decimal place, rounded down, so that only the whole is `100.0 %`.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let permille = (u128::from(part) * 1_000).checked_div(u128::from(whole)).unwrap_or_default();
    format!("{}.{} %", permille / 10, permille % 10)
}

/// A share with at most three characters of digits. A dash stands for a share of nothing.
pub(super) fn short_percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let tenths = u128::from(part) * 1_000 / u128::from(whole);
    match tenths {
        0 if part > 0 => "<0.1 %".to_owned(),
        ..100 => format!("{}.{} %", tenths / 10, tenths % 10),
        _ => format!("{} %", tenths / 10),
    }
}

/// A number with three significant digits and a unit, such as `12.3k`. The argument is in thousandths.
pub(super) fn short_number(millis: u64) -> String {
    let units = [(1_000_000_000_000, "G"), (1_000_000_000, "M"), (1_000_000, "k"), (1_000, "")];
    let (size, unit) = units.into_iter().find(|(least, _)| millis >= *least).unwrap_or((1_000, ""));
    let (whole, part) = (millis / size, millis % size);
    let digits = match whole {
        100.. => String::new(),
        10..=99 => format!(".{}", part * 10 / size),
        _ => format!(".{:02}", part * 100 / size),
    };
    let digits = if part == 0 { "" } else { &digits };
    format!("{whole}{digits}{unit}")
}

/// A count with three significant digits.
pub(super) fn short_count(count: u64) -> String {
    short_number(count.saturating_mul(1_000))
}

/// A duration in microseconds with three significant digits. A dash stands for an unknown duration.
pub(super) fn short_duration(micros: Option<u64>) -> String {
    match micros {
        None => "–".to_owned(),
        Some(micros @ ..1_000) => format!("{micros} µs"),
        Some(micros @ ..1_000_000) => format!("{} ms", short_number(micros)),
        Some(micros) => format!("{} s", short_number(micros / 1_000)),
    }
}

/// A rate per the shortest unit of time that has a whole number of tokens, as a configuration file writes it.
pub(super) fn rate(tokens: u64, micros: u64) -> String {
    let (length, tokens, micros) = (duration(micros), u128::from(tokens), u128::from(micros));
    let units = UNITS.iter().filter(|(name, _)| *name != "ms");
    let whole = |(name, millis): &(&'static str, u64)| {
        let within = tokens * u128::from(*millis) * 1_000;
        within.is_multiple_of(micros).then(|| format!("{}/{name}", within / micros))
    };
    units.into_iter().find_map(whole).unwrap_or_else(|| format!("{tokens}/{length}"))
}

/// A duration in the largest unit that divides it, as a configuration file writes it.
pub(super) fn duration(micros: u64) -> String {
    let whole = |(name, millis): &(&'static str, u64)| {
        let unit = millis * 1_000;
        (micros > 0 && micros.is_multiple_of(unit)).then(|| format!("{}{name}", micros / unit))
    };
    UNITS.iter().rev().find_map(whole).unwrap_or_else(|| format!("{micros}µs"))
}

/// The first 200 characters of another party's text, safe for a terminal. All characters without a visible form are escaped.
pub(super) fn excerpt(text: &str) -> String {
    let escape = |character: char| match character {
        '"' | '\'' => character.to_string(),
        _ => character.escape_debug().to_string(),
    };
    text.chars().take(EXCERPT_CHARS_MAX).map(escape).collect()
}

/// The whole text, with every character escaped that a terminal acts on.
pub(super) fn terminal_safe(text: &str) -> String {
    let escape = |character: char| -> String {
        if is_dangerous(character) { character.escape_debug().collect() } else { character.into() }
    };
    text.chars().map(escape).collect()
}

/// Another party's text in exactly `width` columns, left-aligned, cut if it is too long, and safe for a terminal.
pub(super) fn left(text: &str, width: usize) -> String {
    let (mut shown, used) = cut(text, width);
    shown.extend(std::iter::repeat_n(' ', width - used));
    shown
}

/// The same, right-aligned.
pub(super) fn right(text: &str, width: usize) -> String {
    let (shown, used) = cut(text, width);
    format!("{}{shown}", " ".repeat(width - used))
}

/// As much of a text as fits into `width` columns, with an ellipsis for the rest, and the width of the result.
pub(super) fn cut(text: &str, width: usize) -> (String, usize) {
    let safe = plain(&escape::escape(text));
    // Terminals add up the widths of single characters.
    let wide = |character: char| character.width().unwrap_or(0);
    let whole = safe.chars().map(wide).sum();
    if whole <= width {
        return (safe, whole);
    }
    let (mut shown, mut used) = (String::new(), 0);
    for character in safe.chars() {
        if used + wide(character) + 1 > width {
            break;
        }
        shown.push(character);
        used += wide(character);
    }
    if width > 0 {
        shown.push('…');
        used += 1;
    }
    (shown, used)
}

/// A text whose width is the sum of its characters' widths. Characters without a width become `\uXXXX`, except for at most
/// [`MARKS_MAX`] combining marks after a character.
fn plain(text: &str) -> String {
    let (mut shown, mut room_for_marks) = (String::with_capacity(text.len()), 0);
    for character in text.chars() {
        let is_mark = character.width() == Some(0);
        if is_invisible(character) || is_mark && room_for_marks == 0 {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(character));
            room_for_marks = 0;
        } else {
            shown.push(character);
            room_for_marks = if is_mark { room_for_marks - 1 } else { MARKS_MAX };
        }
    }
    shown
}

/// True for invisible characters that may change the shape and the width of the character before them: Unicode's
/// default-ignorable characters that [`escape::escape`] leaves alone, and the skin tones of emoji.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_have_three_significant_digits() {
        for (millis, text) in [
            (0, "0"),
            (500, "0.50"),
            (1_000, "1"),
            (1_250, "1.25"),
            (12_340, "12.3"),
            (999_999, "999"),
            (1_000_000, "1k"),
            (12_345_000, "12.3k"),
            (1_234_567_000, "1.23M"),
        ] {
            assert_eq!(short_number(millis), text, "{millis}");
        }
        assert_eq!(
            [Some(7), Some(1_500), Some(2_000_000), None].map(short_duration),
            ["7 µs", "1.50 ms", "2 s", "–"]
        );
        assert_eq!(
            [(0, 0), (1, 3), (1, 10_000), (1, 1)].map(|(part, whole)| short_percent(part, whole)),
            ["–", "33 %", "<0.1 %", "100 %"]
        );
    }

    #[test]
    fn durations_and_rates_are_written_as_in_a_configuration_file() {
        for (micros, expected) in [
            (250_000, "250ms"),
            (60_000_000, "1min"),
            (90_000_000, "90s"),
            (86_400_000_000, "1d"),
            (1_500, "1500µs"),
        ] {
            assert_eq!(duration(micros), expected);
        }
        for (tokens, micros, expected) in [
            (1, 600_000, "100/min"),
            (1, 10_000, "100/s"),
            (1, 3_600_000_000, "1/h"),
            (1, 7 * 86_400_000_000, "1/7d"),
            (3, 7_000_000, "3/7s"),
            (u64::MAX, 1, "18446744073709551615000000/s"),
        ] {
            assert_eq!(rate(tokens, micros), expected);
        }
    }

    #[test]
    fn texts_fit_their_columns_and_are_escaped() {
        assert_eq!(left("abc", 5), "abc  ");
        assert_eq!(right("abc", 5), "  abc");
        assert_eq!(left("abcdef", 4), "abc…");
        assert_eq!(left("日本語", 4), "日… ", "a wide character is not halved");
        assert_eq!(left("a\u{1b}[2Jb\n", 24), "a\\u001b[2Jb\\u000a       ");
        assert_eq!(left("abc", 0), "");
    }

    #[test]
    fn characters_without_a_width_cannot_move_a_column() {
        assert_eq!(left("nai\u{308}ve", 6), "nai\u{308}ve ", "an accent after its letter is drawn");
        assert_eq!(left("\u{301}a", 9), "\\u0301a  ", "an accent without a letter is escaped");
        assert_eq!(left("a\u{301}\u{302}\u{303}b", 9), "a\u{301}\u{302}\\u0303b ");
        assert_eq!(left("\u{2764}\u{fe0f}", 8), "\u{2764}\\ufe0f ");
        assert_eq!(left("\u{1f44d}\u{1f3fd}", 10), "\u{1f44d}\\u1f3fd ");
        assert_eq!(left("a\u{ad}b\u{3164}", 15), "a\\u00adb\\u3164 ");
        assert_eq!(left("\u{1f468}\u{200d}\u{1f469}", 11), "\u{1f468}\\u200d\u{1f469} ");
        let tower = format!("a{}", "\u{301}".repeat(1_000));
        let (shown, used) = cut(&tower, 20);
        assert_eq!((used, shown.chars().count()), (20, 22), "{shown}");
    }
}
