//! Values as the files of `envoyproxy/ratelimit` have them. They are read by YAML 1.1 there and stay what they are here: a
//! number may stand where a text is meant, `yes` and `on` are true, and `${NAME}` is no variable.

use crate::rules::file::tree::{Kind, Meaning};
use crate::rules::file::{Reader, Wrong};

/// What may stand for yes and no, in small letters.
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

/// The scalar as it is written, be it a text or not; `None` for nothing at all, and for what is reported.
pub(super) fn written<'d>(reader: &Reader<'d>) -> Option<&'d str> {
    match &reader.node().kind {
        Kind::Scalar(scalar) if scalar.meaning() == Meaning::Null => None,
        Kind::Scalar(scalar) => Some(&scalar.text),
        // Says that it is no text.
        Kind::List(_) | Kind::Mapping(_) | Kind::Broken => reader.text().and(None),
    }
}

/// A text that must be there; `wanted` says what to write.
pub(super) fn required<'d>(reader: &Reader<'d>, wanted: &str) -> Option<&'d str> {
    let text = if reader.node().is_null() { "" } else { written(reader)? };
    if text.is_empty() {
        reader.report_as(Wrong::new("empty", wanted), None);
        return None;
    }
    Some(text)
}

/// A name that a request could have as well: it is no longer than `max` and holds no control characters.
pub(super) fn name<'d>(reader: &Reader<'d>, text: &'d str, max: usize) -> Option<&'d str> {
    if text.contains(char::is_control) {
        return reader.refuse(Wrong::new("a control character, which no request can have", "leave it out"));
    }
    bounded(reader, text, max)
}

/// A text that a request could have as well: it is no longer than `max`.
pub(super) fn bounded<'d>(reader: &Reader<'d>, text: &'d str, max: usize) -> Option<&'d str> {
    if text.len() <= max {
        return Some(text);
    }
    let message = format!("a text of {} bytes, which no request can have", text.len());
    reader.refuse(Wrong::new(message, format!("use at most {max} bytes")))
}

/// Yes or no.
pub(super) fn flag(reader: &Reader<'_>) -> Option<bool> {
    if let Kind::Scalar(scalar) = &reader.node().kind {
        let word = scalar.text.to_ascii_lowercase();
        if let Some((_, flag)) = FLAGS.iter().find(|(known, _)| *known == word) {
            return Some(*flag);
        }
    }
    reader.boolean()
}
