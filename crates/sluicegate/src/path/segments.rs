//! One segment of a path, and the fast path for paths in normal form.

use super::{EncodedSlashes, PathError};

/// A segment in the forms for applications and for rules.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) sent: String,
    pub(super) matched: String,
    /// True if it contains a `%2F`.
    pub(super) has_encoded_slash: bool,
}

impl Segment {
    pub(super) fn parse(text: &str, slashes: EncodedSlashes) -> Result<Self, PathError> {
        let (sent, matched) = (String::with_capacity(text.len()), String::new());
        let mut segment = Self { sent, matched, has_encoded_slash: false };
        let mut is_parameter = false;
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            let (byte, is_escaped) = match byte {
                b'%' => (escaped(&mut bytes)?, true),
                _ => (byte, false),
            };
            if is_escaped && byte == b'/' {
                if slashes == EncodedSlashes::Refuse {
                    return Err(PathError::EncodedSlash);
                }
                if is_parameter {
                    return Err(PathError::EncodedSlashInParameter);
                }
                let digits_at = text.len() - bytes.len() - 2;
                segment.push_encoded_slash(&text[digits_at..digits_at + 2]);
                continue;
            }
            is_parameter |= byte == b';' && !is_escaped;
            segment.push(byte, is_escaped, is_parameter)?;
        }
        segment.finish()
    }

    /// The escape keeps its case: an application may compare bytes.
    fn push_encoded_slash(&mut self, digits: &str) {
        self.has_encoded_slash = true;
        self.sent.push('%');
        self.sent.push_str(digits);
        push_escape(&mut self.matched, b'/');
    }

    fn push(&mut self, byte: u8, is_escaped: bool, is_parameter: bool) -> Result<(), PathError> {
        match (is_escaped, byte) {
            (true, b'\\') => return Err(PathError::EncodedBackslash),
            (_, 0..=0x1F | 0x7F) | (false, b' ' | b'\\' | 0x80..) => return Err(PathError::Character),
            _ => {}
        }
        match byte {
            _ if !is_escaped || is_unreserved(byte) => self.sent.push(char::from(byte)),
            _ => push_escape(&mut self.sent, byte),
        }
        match byte {
            _ if is_parameter => {}
            // Decoding these would change the structure, or would not give a character.
            b'%' | b';' | b'?' | b'#' | 0x80.. => push_escape(&mut self.matched, byte),
            _ => self.matched.push(char::from(byte)),
        }
        Ok(())
    }

    /// Some applications ignore dots and spaces at the end of a segment; none may see a dot segment where others see
    /// a name.
    fn finish(mut self) -> Result<Self, PathError> {
        self.matched.make_ascii_lowercase();
        if matches!(&*self.sent, "" | "." | "..") {
            return Ok(self);
        }
        let kept = self.matched.trim_end_matches(['.', ' ']).len();
        match kept {
            // Three dots are an ordinary name.
            0 if self.matched == self.sent => {}
            0 => return Err(PathError::HiddenDots),
            _ => self.matched.truncate(kept),
        }
        Ok(self)
    }
}

/// Characters that never need an escape in a URI.
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// The byte of the next two hexadecimal digits.
fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Result<u8, PathError> {
    let mut digit = || {
        let digit = bytes.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or(PathError::BrokenEscape)?;
        u8::try_from(digit).map_err(|_| PathError::BrokenEscape)
    };
    Ok(digit()? << 4 | digit()?)
}

fn push_escape(text: &mut String, byte: u8) {
    const DIGITS: [u8; 16] = *b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 0xF)]));
}

/// True if the path is its own normal form, as nearly all are: lower-case letters, digits and a few marks, no dot
/// beside a slash, no two slashes in a row and none at the end.
pub(super) fn is_plain(path: &str) -> bool {
    let mut before = b'/';
    let (mut segments, mut is_first) = (0, true);
    for byte in path.bytes() {
        let is_fine = match byte {
            b'/' if is_first => true,
            b'/' => !matches!(before, b'/' | b'.'),
            b'.' => before != b'/',
            b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => true,
            _ => false,
        };
        if !is_fine {
            return false;
        }
        segments += usize::from(byte == b'/');
        is_first = false;
        before = byte;
    }
    (!matches!(before, b'/' | b'.') || path == "/") && segments <= super::PATH_SEGMENTS_MAX
}
