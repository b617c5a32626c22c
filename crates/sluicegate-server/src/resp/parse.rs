//! From bytes to commands: pure, without a socket, and bounded by the bytes that have arrived, never by claimed lengths.
//!
//! A client sends a command as an array of bulk strings, or as one line of words (an inline command). The
//! parser returns the first command in the bytes so far, or nothing yet, or a
//! [`ProtocolError`], after which no further command can be recognised.
//!
//! A client that has not authenticated is parsed under stricter [bounds](Bounds): it needs only few and short
//! words.
//!
//! Error texts are those of Redis where it has one, because people search for them.

use std::borrow::Cow;
use std::fmt;

use smallvec::SmallVec;

/// The longest bulk string.
pub(super) const BULK_BYTES_MAX: usize = 64 * 1_024;
/// The longest line of words, without its end.
pub(super) const LINE_BYTES_MAX: usize = 64 * 1_024;
/// The most words of one command.
pub(super) const WORDS_MAX: usize = 1_024;
/// The most bytes of one command: room for 1,023 keys of maximum length.
pub(super) const COMMAND_BYTES_MAX: usize = 2 * 1_024 * 1_024;

/// The longest word and line before authentication, as in Redis.
pub(super) const STRANGER_BYTES_MAX: usize = 16 * 1_024;
/// The most words of a command before authentication. `HELLO 3 AUTH user password SETNAME name` has seven.
pub(super) const STRANGER_WORDS_MAX: usize = 10;

/// The longest line with a length: a sign, all digits of 64 bits, and the line's end.
const HEADER_BYTES_MAX: usize = 32;

/// The words of one command. Most are borrowed from the input, and most commands have few.
pub(super) type Words<'b> = SmallVec<[Cow<'b, [u8]>; 6]>;

/// The bounds of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Bounds {
    #[default]
    Usual,
    /// Before authentication.
    Stranger,
}

impl Bounds {
    fn words_max(self) -> usize {
        if self == Self::Usual { WORDS_MAX } else { STRANGER_WORDS_MAX }
    }

    fn bulk_bytes_max(self) -> usize {
        if self == Self::Usual { BULK_BYTES_MAX } else { STRANGER_BYTES_MAX }
    }

    fn line_bytes_max(self) -> usize {
        if self == Self::Usual { LINE_BYTES_MAX } else { STRANGER_BYTES_MAX }
    }

    fn command_bytes_max(self) -> usize {
        if self == Self::Usual { COMMAND_BYTES_MAX } else { 2 * STRANGER_BYTES_MAX }
    }

    /// The reported error in place of `error`.
    fn error(self, error: ProtocolError) -> ProtocolError {
        if self == Self::Usual { error } else { ProtocolError::Unauthenticated }
    }
}

/// Input that is not a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtocolError {
    /// The number of words is not a number, or too large.
    ArrayLength,
    /// The length of a word is not a number, negative or too large.
    BulkLength,
    /// A bulk string is expected.
    NotABulk(u8),
    /// A bulk string is longer than its length.
    BulkEnd,
    /// The words of one command are too long together.
    CommandLength,
    /// A line without an end.
    LineLength,
    /// A line with too many words.
    LineWords,
    /// A line with unbalanced quotes.
    Quotes,
    /// More than a client may send before authentication.
    Unauthenticated,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::ArrayLength => write!(f, "invalid multibulk length, the most is {WORDS_MAX}"),
            Self::BulkLength => write!(f, "invalid bulk length, the most is {BULK_BYTES_MAX}"),
            Self::NotABulk(byte) => write!(f, "expected '$', got '{}'", byte.escape_ascii()),
            Self::BulkEnd => f.write_str("a bulk string does not end where its length says"),
            Self::CommandLength => write!(f, "too big command, the most is {COMMAND_BYTES_MAX} bytes"),
            Self::LineLength => write!(f, "too big inline request, the most is {LINE_BYTES_MAX} bytes"),
            Self::LineWords => write!(f, "too many words in an inline request, the most is {WORDS_MAX}"),
            Self::Quotes => f.write_str("unbalanced quotes in request"),
            Self::Unauthenticated => write!(
                f,
                "unauthenticated multibulk or bulk length, the most is {STRANGER_WORDS_MAX} words of \
                 {STRANGER_BYTES_MAX} bytes; send AUTH first"
            ),
        }
    }
}

/// The state of an incomplete command, so that bytes that arrive one by one are
/// not parsed again and again.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// Fewer bytes than this cannot be a complete command.
    needed: usize,
    /// The number of bytes without the end of a line.
    searched: usize,
    bounds: Bounds,
}

impl Parser {
    /// Applies these bounds from here on.
    pub(super) fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// The first command in `input` and the number of its bytes, or `None` if it is incomplete. It has no words
    /// if the client sent an empty line or array, which gets no reply.
    ///
    /// After `None` the next call must pass the same bytes and more.
    pub(super) fn next<'b>(&mut self, input: &'b [u8]) -> Result<Option<(Words<'b>, usize)>, ProtocolError> {
        if input.is_empty() || input.len() < self.needed {
            return Ok(None);
        }
        let parsed = if input[0] == b'*' { self.array(input) } else { self.line(input) }?;
        if parsed.is_some() {
            *self = Self { bounds: self.bounds, ..Self::default() };
        }
        Ok(parsed)
    }

    fn array<'b>(&mut self, input: &'b [u8]) -> Result<Option<(Words<'b>, usize)>, ProtocolError> {
        let Some((count, mut at)) = header(input, 0, ProtocolError::ArrayLength)? else {
            return Ok(None);
        };
        let bounds = self.bounds;
        let (bulk_bytes_max, command_bytes_max) = (bounds.bulk_bytes_max(), bounds.command_bytes_max());
        if count > bounds.words_max() as i64 {
            return Err(bounds.error(ProtocolError::ArrayLength));
        }
        let mut words = Words::new();
        for _ in 0..count {
            match input.get(at) {
                None => return Ok(None),
                Some(b'$') => {}
                Some(&other) => return Err(ProtocolError::NotABulk(other)),
            }
            let Some((length, start)) = header(input, at, ProtocolError::BulkLength)? else {
                return Ok(None);
            };
            let length = usize::try_from(length).map_err(|_| ProtocolError::BulkLength)?;
            if length > bulk_bytes_max {
                return Err(bounds.error(ProtocolError::BulkLength));
            }
            let end = start + length;
            if end > command_bytes_max {
                return Err(bounds.error(ProtocolError::CommandLength));
            }
            let Some(terminator) = input.get(end..end + 2) else {
                self.needed = end + 2;
                return Ok(None);
            };
            if terminator != b"\r\n" {
                return Err(ProtocolError::BulkEnd);
            }
            words.push(Cow::Borrowed(&input[start..end]));
            at = end + 2;
        }
        Ok(Some((words, at)))
    }

    fn line<'b>(&mut self, input: &'b [u8]) -> Result<Option<(Words<'b>, usize)>, ProtocolError> {
        let rest = &input[self.searched.min(input.len())..];
        let Some(found) = rest.iter().position(|&byte| byte == b'\n') else {
            self.searched = input.len();
            // One more byte may be the first half of the line's end.
            let is_too_long = input.len() > self.bounds.line_bytes_max() + 1;
            return if is_too_long { Err(self.bounds.error(ProtocolError::LineLength)) } else { Ok(None) };
        };
        let end = self.searched + found;
        let line = &input[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > self.bounds.line_bytes_max() {
            return Err(self.bounds.error(ProtocolError::LineLength));
        }
        Ok(Some((words_of(line, self.bounds)?, end + 1)))
    }
}

/// The number after the type byte at `at`, and the start of the next line; `None` if the line is incomplete.
#[inline]
fn header(input: &[u8], at: usize, error: ProtocolError) -> Result<Option<(i64, usize)>, ProtocolError> {
    let line = &input[at + 1..];
    match short_header(line) {
        Some((number, bytes)) => Ok(Some((number, at + 1 + bytes))),
        None => long_header(line, at, error),
    }
}

/// [`header`] for any length, out of line, so that the common path stays short.
#[inline(never)]
fn long_header(line: &[u8], at: usize, error: ProtocolError) -> Result<Option<(i64, usize)>, ProtocolError> {
    let line = &line[..line.len().min(HEADER_BYTES_MAX)];
    let Some(end) = line.iter().position(|&byte| byte == b'\n') else {
        return if line.len() < HEADER_BYTES_MAX { Ok(None) } else { Err(error) };
    };
    let digits = line[..end].strip_suffix(b"\r").ok_or(error)?;
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    // Rust accepts a plus sign where the protocol does not.
    let number = number.filter(|_| !digits.starts_with(b"+")).ok_or(error)?;
    Ok(Some((number, at + 1 + end + 1)))
}

/// The common header of one or two digits and the end of the line, with its length.
/// `None` means any other header.
#[inline]
fn short_header(line: &[u8]) -> Option<(i64, usize)> {
    let digit = |byte: u8| i64::from(byte - b'0');
    match *line {
        [one @ b'0'..=b'9', b'\r', b'\n', ..] => Some((digit(one), 3)),
        [ten @ b'0'..=b'9', one @ b'0'..=b'9', b'\r', b'\n', ..] => Some((digit(ten) * 10 + digit(one), 4)),
        _ => None,
    }
}

/// Splits a line at its spaces, as a shell does: `"…"` with escapes, `'…'` without, and a word ends after its
/// closing quote.
fn words_of(line: &[u8], bounds: Bounds) -> Result<Words<'_>, ProtocolError> {
    let mut words = Words::new();
    let mut rest = trim_start(line);
    while !rest.is_empty() {
        if words.len() == bounds.words_max() {
            return Err(bounds.error(ProtocolError::LineWords));
        }
        let end = rest.iter().position(|byte| is_space(*byte) || matches!(byte, b'"' | b'\''));
        let (plain, after) = rest.split_at(end.unwrap_or(rest.len()));
        match after.first() {
            Some(&quote @ (b'"' | b'\'')) => {
                let (mut word, after) = (plain.to_vec(), &after[1..]);
                let taken = unquote(after, quote, &mut word).ok_or(ProtocolError::Quotes)?;
                rest = &after[taken..];
                if rest.first().is_some_and(|byte| !is_space(*byte)) {
                    return Err(ProtocolError::Quotes);
                }
                words.push(Cow::Owned(word));
            }
            _ => {
                words.push(Cow::Borrowed(plain));
                rest = after;
            }
        }
        rest = trim_start(rest);
    }
    Ok(words)
}

fn is_space(byte: u8) -> bool {
    // C's definition of space, which includes the vertical tab.
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn trim_start(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|byte| !is_space(*byte));
    &text[start.unwrap_or(text.len())..]
}

/// Appends the text before the closing `quote` to `word`, and returns its length including the quote.
fn unquote(text: &[u8], quote: u8, word: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0;
    loop {
        match (quote, &text[at..]) {
            (_, [first, ..]) if *first == quote => return Some(at + 1),
            (b'"', [b'\\', b'x', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(nibble(*high) << 4 | nibble(*low));
                at += 4;
            }
            (b'"', [b'\\', escaped, ..]) => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                at += 2;
            }
            (b'\'', [b'\\', b'\'', ..]) => {
                word.push(b'\'');
                at += 2;
            }
            (_, [plain, ..]) => {
                word.push(*plain);
                at += 1;
            }
            (_, []) => return None,
        }
    }
}

/// The value of a hexadecimal digit.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests;
