//! Log lines without control over the terminal that shows them.
//!
//! The subscriber formats one event into one buffer and writes it in one call, ending with a line
//! feed. Here everything in between that a terminal or a log reader would act on (control
//! characters, line breaks, and the characters that change the direction of text) is replaced by
//! `\uXXXX`. In JSON that is the same string again, so the escape loses nothing there; elsewhere it
//! is merely visible.

use std::fmt::Write as _;
use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use super::lines::LINES;

/// Makes writers that escape each event on its way to stderr.
#[derive(Clone, Copy, Debug)]
pub(super) struct EscapedStderr;

impl MakeWriter<'_> for EscapedStderr {
    type Writer = EscapedWriter<Waiting>;

    fn make_writer(&self) -> Self::Writer {
        EscapedWriter(Waiting)
    }
}

/// Where events wait for the thread that writes them.
#[derive(Debug)]
pub(super) struct Waiting;

impl Write for Waiting {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        LINES.add(event.to_vec());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes whole events, escaped.
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

/// A text without anything that a terminal would act on.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if is_dangerous(character) {
            // Every dangerous character is in the basic plane, so four digits are always enough.
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Control characters, Unicode line breaks, and marks that reorder or hide text.
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
    fn ordinary_text_is_untouched() {
        check("INFO naïve → 日本語 🚦\n", "INFO naïve → 日本語 🚦\n");
    }

    #[test]
    fn nothing_can_forge_a_line() {
        check("id=a\r\nERROR forged\n", "id=a\\u000d\\u000aERROR forged\n");
        check("id=a\u{2028}b\u{85}c\n", "id=a\\u2028b\\u0085c\n");
    }

    #[test]
    fn nothing_reaches_the_terminal() {
        check("\u{1b}[2J\u{9b}1m\u{7f}\0\n", "\\u001b[2J\\u009b1m\\u007f\\u0000\n");
    }

    #[test]
    fn nothing_reorders_the_text() {
        check("a\u{202e}b\u{2066}c\u{200f}\n", "a\\u202eb\\u2066c\\u200f\n");
    }

    #[test]
    fn escaped_json_is_the_same_json() {
        let value = serde_json::json!({ "id": "a\u{202e}\r\n\u{9b}b" });
        let line = escape_event(format!("{value}\n").as_bytes());
        let parsed: serde_json::Value = serde_json::from_str(&line).expect("still JSON");
        assert_eq!(parsed, value);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(escape_event(b"a\xffb\n"), "a\u{fffd}b\n");
    }
}
