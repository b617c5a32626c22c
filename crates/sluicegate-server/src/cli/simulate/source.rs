//! The sources of logs: files and standard input, plain or gzip, split into lines. The first bytes select the decompression.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use super::format::LINE_BYTES_MAX;
use crate::config::load::shown;

/// The path that means standard input.
const STANDARD_INPUT: &str = "-";
/// The first bytes of every gzip file (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The size of the read buffer: several lines of the maximum length, and many of the usual length.
const BUFFER_BYTES: usize = 256 << 10;
const _: () = assert!(BUFFER_BYTES > LINE_BYTES_MAX);

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("cannot open the log {name}: {source}; check the path and its permissions")]
    Open { name: String, source: io::Error },
    #[error("cannot read the log {name} after line {line}: {source}; check that the file is complete")]
    Read { name: String, line: u64, source: io::Error },
}

/// The number of bytes read so far, before decompression.
#[derive(Clone, Debug, Default)]
pub(super) struct BytesRead(Arc<AtomicU64>);

impl BytesRead {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The name of a log in messages.
pub(super) fn name(path: &Path) -> String {
    if is_standard_input(path) { "standard input".to_owned() } else { shown(path) }
}

/// Opens a log.
pub(super) fn open(path: &Path, bytes_read: &BytesRead) -> Result<Box<dyn Read>, SourceError> {
    let failed = |source| SourceError::Open { name: name(path), source };
    let plain: Box<dyn Read> =
        if is_standard_input(path) { Box::new(io::stdin()) } else { Box::new(File::open(path).map_err(failed)?) };
    unpacked(CountingReader { inner: plain, bytes_read: bytes_read.clone() }).map_err(failed)
}

/// The total size of the logs; `None` if the size of one is unknown.
pub(super) fn total_bytes(paths: &[PathBuf]) -> Option<u64> {
    let bytes = |path: &PathBuf| {
        if is_standard_input(path) {
            return None;
        }
        std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
    };
    paths.iter().map(bytes).sum()
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == STANDARD_INPUT
}

/// Decompresses a source if it starts like gzip: all members of the file, through a buffer of fixed size.
fn unpacked(mut plain: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut first = Vec::with_capacity(GZIP.len());
    plain.by_ref().take(GZIP.len() as u64).read_to_end(&mut first)?;
    let is_compressed = first == GZIP;
    let whole = Cursor::new(first).chain(plain);
    Ok(if is_compressed { Box::new(MultiGzDecoder::new(io::BufReader::new(whole))) } else { Box::new(whole) })
}

/// Counts the bytes of its inner reader.
struct CountingReader {
    inner: Box<dyn Read>,
    bytes_read: BytesRead,
}

impl Read for CountingReader {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(place)?;
        self.bytes_read.0.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Splits a source into lines with a buffer of fixed size. It skips lines that are too long.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    source: R,
    buffer: Box<[u8]>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    is_at_end: bool,
}

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NextLine {
    /// A line without its line feed, for [`LineReader::bytes`].
    Line(Range<usize>),
    /// A line of more than [`LINE_BYTES_MAX`] bytes.
    TooLong,
    End,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, is_at_end: false }
    }

    /// The bytes of a line, valid until the next call of [`LineReader::next`].
    pub(super) fn bytes(&self, line: Range<usize>) -> &[u8] {
        &self.buffer[line]
    }

    /// Reads the next line. Text after the last line feed counts as a line.
    pub(super) fn next(&mut self) -> io::Result<NextLine> {
        let mut searched = 0;
        loop {
            let pending = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', &pending[searched..]) {
                let line = self.start..self.start + searched + at;
                self.start = line.end + 1;
                return Ok(if line.len() > LINE_BYTES_MAX { NextLine::TooLong } else { NextLine::Line(line) });
            }
            searched = pending.len();
            if searched > LINE_BYTES_MAX {
                return self.skip_line();
            }
            if self.is_at_end {
                let line = self.start..self.end;
                self.start = self.end;
                return Ok(if line.is_empty() { NextLine::End } else { NextLine::Line(line) });
            }
            self.fill()?;
        }
    }

    /// Skips to the next line feed.
    fn skip_line(&mut self) -> io::Result<NextLine> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.start..self.end]) {
                self.start += at + 1;
                return Ok(NextLine::TooLong);
            }
            self.start = self.end;
            if self.is_at_end {
                return Ok(NextLine::TooLong);
            }
            self.fill()?;
        }
    }

    /// Reads more bytes after the unread part of the buffer.
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

    /// A source that returns its bytes in pieces of one size.
    struct ChunkedSource<'a>(&'a [u8], usize);

    impl Read for ChunkedSource<'_> {
        fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(place.len());
            let (piece, rest) = self.0.split_at(count);
            place[..count].copy_from_slice(piece);
            self.0 = rest;
            Ok(count)
        }
    }

    /// All lines; `None` for a line that is too long.
    fn all(bytes: &[u8], piece: usize) -> Vec<Option<Vec<u8>>> {
        let mut lines = LineReader::new(ChunkedSource(bytes, piece));
        let mut found = Vec::new();
        loop {
            match lines.next().unwrap() {
                NextLine::Line(line) => found.push(Some(lines.bytes(line).to_vec())),
                NextLine::TooLong => found.push(None),
                NextLine::End => return found,
            }
        }
    }

    #[test]
    fn lines_do_not_depend_on_the_sizes_of_reads() {
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
