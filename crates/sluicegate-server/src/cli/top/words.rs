//! Numbers with three digits that count, and texts that cannot act on a terminal.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

use crate::telemetry::escape;

/// The most marks on one character, such as accents and vowels: what languages need. Terminals draw more of them over the
/// lines above and below, or give up.
const MARKS_MAX: usize = 2;

/// A number that is given in thousandths: `12.3k`.
pub(super) fn short(millis: u64) -> String {
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

/// A count.
pub(super) fn count(count: u64) -> String {
    short(count.saturating_mul(1_000))
}

/// A length of time in microseconds.
pub(super) fn duration(micros: Option<u64>) -> String {
    match micros {
        None => "–".to_owned(),
        Some(micros @ ..1_000) => format!("{micros} µs"),
        Some(micros @ ..1_000_000) => format!("{} ms", short(micros)),
        Some(micros) => format!("{} s", short(micros / 1_000)),
    }
}

/// A share.
pub(super) fn percent(part: u64, whole: u64) -> String {
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

/// Somebody else's text in `width` columns: cut if it is longer, filled up if it is shorter, and without anything that
/// acts on a terminal.
pub(super) fn left(text: &str, width: usize) -> String {
    let (mut shown, used) = cut(text, width);
    shown.extend(std::iter::repeat_n(' ', width - used));
    shown
}

/// The same at the right edge.
pub(super) fn right(text: &str, width: usize) -> String {
    let (shown, used) = cut(text, width);
    format!("{}{shown}", " ".repeat(width - used))
}

/// As much of a text as fits, and how wide that is. An ellipsis stands for the rest.
pub(super) fn cut(text: &str, width: usize) -> (String, usize) {
    let safe = plain(&escape::escape(text));
    // Of every character by itself, as terminals count.
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

/// A text that is as wide as its characters are: what has no width is shown as `\uXXXX`, except for a few marks on a
/// character that can have them.
fn plain(text: &str) -> String {
    let (mut shown, mut room_for_marks) = (String::with_capacity(text.len()), 0);
    for character in text.chars() {
        let is_mark = character.width() == Some(0);
        if is_unseen(character) || is_mark && room_for_marks == 0 {
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

/// Characters that show nothing themselves and may change what stands before them, and how wide that is: those that Unicode
/// says to ignore by default, as far as they are not escaped already, and the shades of emoji.
fn is_unseen(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
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
            assert_eq!(short(millis), text, "{millis}");
        }
        assert_eq!([Some(7), Some(1_500), Some(2_000_000), None].map(duration), ["7 µs", "1.50 ms", "2 s", "–"]);
        assert_eq!(
            [(0, 0), (1, 3), (1, 10_000), (1, 1)].map(|(part, whole)| percent(part, whole)),
            ["–", "33 %", "<0.1 %", "100 %"]
        );
    }

    #[test]
    fn texts_fit_their_columns_and_do_nothing() {
        assert_eq!(left("abc", 5), "abc  ");
        assert_eq!(right("abc", 5), "  abc");
        assert_eq!(left("abcdef", 4), "abc…");
        assert_eq!(left("日本語", 4), "日… ", "a wide character is not halved");
        assert_eq!(left("a\u{1b}[2Jb\n", 24), "a\\u001b[2Jb\\u000a       ");
        assert_eq!(left("abc", 0), "");
    }

    #[test]
    fn characters_without_a_width_cannot_move_a_column() {
        assert_eq!(left("nai\u{308}ve", 6), "nai\u{308}ve ", "an accent is drawn where it belongs");
        assert_eq!(left("\u{301}a", 9), "\\u0301a  ", "and nowhere else");
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
