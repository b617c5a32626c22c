//! Paths and path patterns. The input is a line with a pattern, followed by a path.
//!
//! Properties: a normalised path normalises to itself, has no dot segments and no empty ones, and is the same for
//! every spelling. Its second reading equals the path with its slashes decoded first. A pattern agrees with a slow,
//! obvious matcher.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate::path::{EncodedSlashes, Path, PathPattern};

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let (pattern, path) = text.split_once('\n').unwrap_or(("", text));
    let refused = Path::parse(path, EncodedSlashes::Refuse);
    let kept = Path::parse(path, EncodedSlashes::Keep);
    if let Ok(refused) = &refused {
        assert_eq!(kept.as_ref(), Ok(refused), "a path without encoded slashes is read in one way");
    }
    let Ok(read) = kept else { return };
    is_normal(&read);
    has_its_slashes_decoded(path, &read);
    is_the_same_written_otherwise(path, &read);
    if let Ok(parsed) = PathPattern::parse(pattern) {
        agrees_with_the_slow_matcher(&parsed, pattern, read.matched());
    }
});

fn is_normal(read: &Path<'_>) {
    let again = Path::parse(read.sent(), EncodedSlashes::Keep).expect("what was read can be read");
    assert_eq!((again.sent(), again.matched()), (read.sent(), read.matched()));
    assert_eq!(again.separated(), read.separated());
    for form in read.readings().take(2).chain([read.sent()]) {
        assert!(form.starts_with('/') && !form.contains("//"), "{form}");
        assert!(!form.split('/').any(|segment| matches!(segment, "." | "..")), "{form}");
    }
    let is_plain = |byte: u8| matches!(byte, b'!'..=b'~') && byte != b'\\';
    assert!(read.sent().bytes().all(is_plain), "{}", read.sent());
    assert!(!read.matched().bytes().any(|byte| byte.is_ascii_uppercase()), "{}", read.matched());
}

/// An application that decodes slashes first, in the original or the forwarded path, finds a path that rules match.
fn has_its_slashes_decoded(path: &str, read: &Path<'_>) {
    for text in [path, read.sent()] {
        let decoded = text.replace("%2f", "/").replace("%2F", "/");
        let decoded = Path::parse(&decoded, EncodedSlashes::Refuse).expect("both readings can be read");
        assert_eq!(Some(decoded.matched()), read.readings().take(2).last());
    }
}

/// Other spellings of the same path: more slashes, dot segments, other letter case, unnecessary escapes.
fn is_the_same_written_otherwise(path: &str, read: &Path<'_>) {
    let slashes = path.replace('/', "//");
    let dots = path.replace('/', "/./");
    let detour = path.replacen('/', "/x/../", 1);
    let escaped: String = path.split('%').enumerate().map(|(index, part)| escaped(part, index > 0)).collect();
    for other in [&slashes, &dots, &detour, &escaped] {
        let Ok(other) = Path::parse(other, EncodedSlashes::Keep) else {
            // It has become too long. No other error is possible.
            assert!(other.len() > sluicegate::path::PATH_BYTES_MAX, "{other}");
            continue;
        };
        assert_eq!((other.sent(), other.matched()), (read.sent(), read.matched()));
    }
    let loud = path.to_ascii_uppercase();
    let loud = Path::parse(&loud, EncodedSlashes::Keep).expect("letters are letters");
    assert_eq!(loud.matched(), read.matched());
}

/// Escapes every letter, except the two characters of an existing escape.
fn escaped(part: &str, follows_percent: bool) -> String {
    let (head, rest) = if follows_percent { part.split_at(2) } else { ("", part) };
    let percent = if follows_percent { "%" } else { "" };
    let each = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '.' | '~' | '-' => format!("%{:02x}", u32::from(character)),
        other => other.to_string(),
    };
    format!("{percent}{head}{}", rest.chars().map(each).collect::<String>())
}

/// Only patterns without special characters: this matcher does not reimplement the parser of patterns.
fn agrees_with_the_slow_matcher(parsed: &PathPattern, pattern: &str, path: &str) {
    let is_literal =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'/' | b'*' | b'-');
    if !pattern.bytes().all(is_literal) {
        let _ = parsed.matches(path);
        return;
    }
    let segments =
        |text: &str| text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let expected = covers(&segments(pattern), &segments(path), &|part| part == "**", &|part, segment| {
        let (part, segment): (Vec<char>, Vec<char>) = (part.chars().collect(), segment.chars().collect());
        covers(&part, &segment, &|each| *each == '*', &|one, other| one == other)
    });
    assert_eq!(parsed.matches(path), expected, "{pattern} on {path}");
}

/// Whether a list of patterns, some of which match any number of items, matches all items: by a table of
/// every prefix of the one against every prefix of the other.
fn covers<T>(patterns: &[T], things: &[T], is_any: &dyn Fn(&T) -> bool, is_one: &dyn Fn(&T, &T) -> bool) -> bool {
    let mut row = vec![false; things.len() + 1];
    row[0] = true;
    for pattern in patterns {
        let mut next = vec![false; things.len() + 1];
        for at in 0..=things.len() {
            next[at] = match at.checked_sub(1) {
                _ if is_any(pattern) => row[..=at].iter().any(|before| *before),
                Some(before) => row[before] && is_one(pattern, &things[before]),
                None => false,
            };
        }
        row = next;
    }
    row[things.len()]
}
