//! Lines of whatever can be read, in a buffer that never grows: a line that is too long is passed over, however long it is.

use std::io::{self, Read};
use std::ops::Range;

use super::format::LINE_BYTES_MAX;

/// How much is read at once: several lines of the longest kind, and many of the usual one.
const BUFFER_BYTES: usize = 256 << 10;
const _: () = assert!(BUFFER_BYTES > LINE_BYTES_MAX);

/// Takes a source apart into lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: R,
    buffer: Box<[u8]>,
    /// What is in the buffer and not taken yet.
    start: usize,
    end: usize,
    is_at_end: bool,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A line without its line break, for [`Lines::bytes`].
    Line(Range<usize>),
    /// A line of more than [`LINE_BYTES_MAX`] bytes.
    TooLong,
    End,
}

impl<R: Read> Lines<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, is_at_end: false }
    }

    /// The bytes of a line; good until the next one is taken.
    pub(super) fn bytes(&self, line: Range<usize>) -> &[u8] {
        &self.buffer[line]
    }

    /// The next line. What comes after the last line break is a line, too, unless there is nothing.
    pub(super) fn next(&mut self) -> io::Result<Next> {
        let mut searched = 0;
        loop {
            let pending = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', &pending[searched..]) {
                let line = self.start..self.start + searched + at;
                self.start = line.end + 1;
                return Ok(if line.len() > LINE_BYTES_MAX { Next::TooLong } else { Next::Line(line) });
            }
            searched = pending.len();
            if searched > LINE_BYTES_MAX {
                return self.pass_over();
            }
            if self.is_at_end {
                let line = self.start..self.end;
                self.start = self.end;
                return Ok(if line.is_empty() { Next::End } else { Next::Line(line) });
            }
            self.fill()?;
        }
    }

    /// Leaves everything up to the next line break.
    fn pass_over(&mut self) -> io::Result<Next> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
                self.start += at + 1;
                return Ok(Next::TooLong);
            }
            self.start = self.end;
            if self.is_at_end {
                return Ok(Next::TooLong);
            }
            self.fill()?;
        }
    }

    /// Reads on, behind what is there already.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    self.is_at_end = count == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes in pieces of one size.
    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(place.len());
            let (piece, rest) = self.0.split_at(count);
            place[..count].copy_from_slice(piece);
            self.0 = rest;
            Ok(count)
        }
    }

    /// All lines; `None` for one that is too long.
    fn all(bytes: &[u8], piece: usize) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(Pieces(bytes, piece));
        let mut found = Vec::new();
        loop {
            match lines.next().unwrap() {
                Next::Line(line) => found.push(Some(lines.bytes(line).to_vec())),
                Next::TooLong => found.push(None),
                Next::End => return found,
            }
        }
    }

    #[test]
    fn lines_are_the_same_in_whatever_pieces_they_come() {
        let longest = vec![b'x'; LINE_BYTES_MAX];
        let mut bytes = b"a\n\nbc\r\n\0\xff\n".to_vec();
        bytes.extend_from_slice(&longest);
        bytes.push(b'\n');
        bytes.extend_from_slice(&vec![b'y'; LINE_BYTES_MAX + 1]);
        bytes.push(b'\n');
        bytes.extend_from_slice(&vec![b'z'; 3 * BUFFER_BYTES]);
        bytes.extend_from_slice(b"\nlast");
        let some = |line: &[u8]| Some(line.to_vec());
        let expected =
            [some(b"a"), some(b""), some(b"bc\r"), some(b"\0\xff"), some(&longest), None, None, some(b"last")];
        for piece in [7, 4_096, LINE_BYTES_MAX, usize::MAX] {
            assert!(all(&bytes, piece) == expected, "in pieces of {piece}");
        }
        assert_eq!(all(b"", 1), []);
        assert_eq!(all(b"\n", 1), [some(b"")]);
        bytes.truncate(bytes.len() - b"\nlast".len());
        assert_eq!(all(&bytes, 4_096).len(), expected.len() - 1);
    }
}
