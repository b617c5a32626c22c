//! Scalars in the files of `envoyproxy/ratelimit`. That project parses them as YAML 1.1, and they keep that meaning here: a
//! number may stand for a text, `yes` and `on` are true, and `${NAME}` is not a variable.

use crate::rules::file::tree::{Kind, Meaning};
use crate::rules::file::{Reader, ValueError};

/// The spellings of booleans, in lower case.
const FLAGS: &[(&str, bool)] = &[
    ("true", true),
    ("yes", true),
    ("on", true),
    ("y", true),
    ("false", false),
    ("no", false),
    ("off", false),
    ("n", false),
];

/// The scalar as written, whatever its type; `None` if it is absent or was reported as an error.
pub(super) fn written<'d>(reader: &Reader<'d>) -> Option<&'d str> {
    match &reader.node().kind {
        Kind::Scalar(scalar) if scalar.meaning() == Meaning::Null => None,
        Kind::Scalar(scalar) => Some(&scalar.text),
        // Reports that it is not a text.
        Kind::List(_) | Kind::Mapping(_) | Kind::Broken => reader.text().and(None),
    }
}

/// A required text; `wanted` is the remedy.
pub(super) fn required<'d>(reader: &Reader<'d>, wanted: &str) -> Option<&'d str> {
    let text = if reader.node().is_null() { "" } else { written(reader)? };
    if text.is_empty() {
        reader.report_as(ValueError::new("empty", wanted), None);
        return None;
    }
    Some(text)
}

/// A name that a request could contain: at most `max` bytes without control characters.
pub(super) fn name<'d>(reader: &Reader<'d>, text: &'d str, max: usize) -> Option<&'d str> {
    if text.contains(char::is_control) {
        return reader.refuse(ValueError::new("a control character, which no request can have", "leave it out"));
    }
    bounded(reader, text, max)
}

/// A text that a request could contain: at most `max` bytes.
pub(super) fn bounded<'d>(reader: &Reader<'d>, text: &'d str, max: usize) -> Option<&'d str> {
    if text.len() <= max {
        return Some(text);
    }
    let message = format!("a text of {} bytes, which no request can have", text.len());
    reader.refuse(ValueError::new(message, format!("use at most {max} bytes")))
}

/// A boolean.
pub(super) fn flag(reader: &Reader<'_>) -> Option<bool> {
    if let Kind::Scalar(scalar) = &reader.node().kind {
        let word = scalar.text.to_ascii_lowercase();
        if let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == word) {
            return Some(*flag);
        }
    }
    reader.boolean()
}
