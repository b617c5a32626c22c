//! Escapes log lines, so that logged values cannot act on a terminal or forge lines.
//!
//! The subscriber formats an event into one buffer and writes it in one call, with a line feed at the end. The escape replaces
//! control characters, line breaks and bidirectional controls inside the event by `\uXXXX`. In JSON, this is the same string.
//! In text, the escape is visible.

use std::fmt::Write as _;
use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use super::async_writer::LOG;

/// Creates writers that escape events and pass them to the log thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct EscapedStderr;

impl MakeWriter<'_> for EscapedStderr {
    type Writer = EscapedWriter<QueueWriter>;

    fn make_writer(&self) -> Self::Writer {
        EscapedWriter(QueueWriter)
    }
}

/// A writer into the queue of the log thread.
#[derive(Debug)]
pub(super) struct QueueWriter;

impl Write for QueueWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        LOG.add(event.to_vec());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes whole events on the way to another writer.
#[derive(Debug)]
pub(super) struct EscapedWriter<W>(W);

impl<W: Write> Write for EscapedWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.0.write_all(escape_event(event).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn escape_event(event: &[u8]) -> String {
    let text = String::from_utf8_lossy(event);
    let mut escaped = escape(text.strip_suffix('\n').unwrap_or(&text));
    escaped.push('\n');
    escaped
}

/// Replaces all characters that a terminal acts on by `\uXXXX`.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if is_dangerous(character) {
            // All dangerous characters are in the Basic Multilingual Plane, so four digits suffice.
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// True for control characters, Unicode line breaks, and characters that reorder or hide text.
pub(crate) fn is_dangerous(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(event: &str, expected: &str) {
        assert_eq!(escape_event(event.as_bytes()), expected);
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        check("INFO naïve → 日本語 🚦\n", "INFO naïve → 日本語 🚦\n");
    }

    #[test]
    fn line_breaks_are_escaped() {
        check("id=a\r\nERROR forged\n", "id=a\\u000d\\u000aERROR forged\n");
        check("id=a\u{2028}b\u{85}c\n", "id=a\\u2028b\\u0085c\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        check("\u{1b}[2J\u{9b}1m\u{7f}\0\n", "\\u001b[2J\\u009b1m\\u007f\\u0000\n");
    }

    #[test]
    fn bidirectional_controls_are_escaped() {
        check("a\u{202e}b\u{2066}c\u{200f}\n", "a\\u202eb\\u2066c\\u200f\n");
    }

    #[test]
    fn escaped_json_parses_to_the_same_value() {
        let value = serde_json::json!({ "id": "a\u{202e}\r\n\u{9b}b" });
        let line = escape_event(format!("{value}\n").as_bytes());
        let parsed: serde_json::Value = serde_json::from_str(&line).expect("still JSON");
        assert_eq!(parsed, value);
    }

    #[test]
    fn invalid_utf_8_is_replaced() {
        assert_eq!(escape_event(b"a\xffb\n"), "a\u{fffd}b\n");
    }
}
