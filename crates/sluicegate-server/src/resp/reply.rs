//! From replies to bytes, in the protocol version of the client.
//!
//! RESP2 and RESP3 differ here only in nulls and maps.

use std::fmt;
use std::io::Write as _;

/// The longest line of a number: its type, a sign, nineteen digits and the line's end.
const NUMBER_BYTES_MAX: usize = 23;

/// The version of the protocol that a client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    /// The initial version of every connection.
    #[default]
    Resp2,
    /// The version that a client may select with HELLO.
    Resp3,
}

impl Version {
    /// Its number in HELLO.
    pub(super) fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Encoded replies that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    version: Version,
}

impl Replies {
    /// The current version.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Switches to another version.
    pub(super) fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    /// The bytes to send.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Clears the sent bytes, and frees the memory of an unusually long reply.
    pub(super) fn clear(&mut self, bytes_kept_max: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(bytes_kept_max);
    }

    /// A simple string, such as `+OK`.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text);
    }

    /// An error. Its first word is its code; control characters are replaced.
    pub(super) fn error(&mut self, text: impl fmt::Display) {
        self.bytes.push(b'-');
        let start = self.bytes.len();
        // Writing to memory cannot fail.
        let _ = write!(self.bytes, "{text}");
        for byte in &mut self.bytes[start..] {
            if byte.is_ascii_control() {
                *byte = b' ';
            }
        }
        self.end();
    }

    /// An integer.
    pub(super) fn integer(&mut self, value: i64) {
        self.number(b':', value);
    }

    /// A non-negative integer; one too large for the protocol becomes its maximum.
    pub(super) fn unsigned(&mut self, value: u64) {
        self.integer(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// A bulk string.
    pub(super) fn bulk(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        self.length(b'$', bytes.len());
        self.bytes.extend_from_slice(bytes);
        self.end();
    }

    /// Null.
    pub(super) fn null(&mut self) {
        self.bytes.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// The start of an array of `length` replies.
    pub(super) fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// The start of a map of `pairs` keys, each followed by its value.
    pub(super) fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Resp2 => self.length(b'*', pairs * 2),
            Version::Resp3 => self.length(b'%', pairs),
        }
    }

    fn line(&mut self, kind: u8, text: &str) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text.as_bytes());
        self.end();
    }

    fn length(&mut self, kind: u8, length: usize) {
        self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
    }

    fn number(&mut self, kind: u8, number: i64) {
        // Most numbers of a reply have one digit.
        if let Ok(digit @ 0..=9) = u8::try_from(number) {
            return self.bytes.extend_from_slice(&[kind, b'0' + digit, b'\r', b'\n']);
        }
        let (mut line, mut buffer) = ([kind; NUMBER_BYTES_MAX], itoa::Buffer::new());
        let digits = buffer.format(number).as_bytes();
        let end = 1 + digits.len();
        line[1..end].copy_from_slice(digits);
        line[end..end + 2].copy_from_slice(b"\r\n");
        self.bytes.extend_from_slice(&line[..end + 2]);
    }

    fn end(&mut self) {
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(version: Version, write: impl Fn(&mut Replies)) -> String {
        let mut replies = Replies::default();
        replies.set_version(version);
        write(&mut replies);
        String::from_utf8(replies.as_bytes().to_vec()).expect("text")
    }

    #[test]
    fn both_versions_write_most_things_alike() {
        for version in [Version::Resp2, Version::Resp3] {
            assert_eq!(written(version, |replies| replies.simple("OK")), "+OK\r\n");
            assert_eq!(written(version, |replies| replies.integer(-1)), ":-1\r\n");
            assert_eq!(written(version, |replies| replies.unsigned(u64::MAX)), ":9223372036854775807\r\n");
            assert_eq!(written(version, |replies| replies.bulk("a\r\n")), "$3\r\na\r\n\r\n");
            assert_eq!(written(version, |replies| replies.array(3)), "*3\r\n");
        }
    }

    #[test]
    fn nothing_and_maps_differ() {
        assert_eq!(written(Version::Resp2, Replies::null), "$-1\r\n");
        assert_eq!(written(Version::Resp3, Replies::null), "_\r\n");
        assert_eq!(written(Version::Resp2, |replies| replies.map(7)), "*14\r\n");
        assert_eq!(written(Version::Resp3, |replies| replies.map(7)), "%7\r\n");
    }

    #[test]
    fn an_error_stays_on_its_line() {
        let error = written(Version::Resp2, |replies| replies.error("ERR a\r\n+OK\r\n\0b"));
        assert_eq!(error, "-ERR a  +OK   b\r\n");
    }

    #[test]
    fn the_memory_of_a_long_answer_is_given_back() {
        let mut replies = Replies::default();
        replies.bulk(vec![0; 1_000_000]);
        replies.clear(1_024);
        assert!(replies.as_bytes().is_empty() && replies.bytes.capacity() <= 1_024);
    }
}
