//! Where a log comes from: files and standard input, plain or compressed by gzip, which their first bytes tell.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

use crate::config::load::shown;

/// Stands for standard input.
const STANDARD_INPUT: &str = "-";
/// What every gzip file begins with (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("cannot open the log {name}: {source}; check the path and its permissions")]
    Open { name: String, source: io::Error },
    #[error("cannot read the log {name} after line {line}: {source}; check that the file is whole")]
    Read { name: String, line: u64, source: io::Error },
}

/// How many bytes were read so far, as they lie in the files.
#[derive(Clone, Debug, Default)]
pub(super) struct BytesRead(Arc<AtomicU64>);

impl BytesRead {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What messages call a log.
pub(super) fn name(path: &Path) -> String {
    if is_standard_input(path) { "standard input".to_owned() } else { shown(path) }
}

/// Opens a log.
pub(super) fn open(path: &Path, bytes_read: &BytesRead) -> Result<Box<dyn Read>, SourceError> {
    let failed = |source| SourceError::Open { name: name(path), source };
    let plain: Box<dyn Read> =
        if is_standard_input(path) { Box::new(io::stdin()) } else { Box::new(File::open(path).map_err(failed)?) };
    unpacked(Counted { inner: plain, bytes_read: bytes_read.clone() }).map_err(failed)
}

/// The size of all logs together; nothing if one of them has no end that is known.
pub(super) fn bytes_in_all(paths: &[PathBuf]) -> Option<u64> {
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

/// The same bytes, decompressed if they are compressed: all members of the file, one after the other, never more than a
/// buffer of them at a time.
fn unpacked(mut plain: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut first = Vec::with_capacity(GZIP.len());
    plain.by_ref().take(GZIP.len() as u64).read_to_end(&mut first)?;
    let is_compressed = first == GZIP;
    let whole = Cursor::new(first).chain(plain);
    Ok(if is_compressed { Box::new(MultiGzDecoder::new(io::BufReader::new(whole))) } else { Box::new(whole) })
}

/// Counts what is read.
struct Counted {
    inner: Box<dyn Read>,
    bytes_read: BytesRead,
}

impl Read for Counted {
    fn read(&mut self, place: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(place)?;
        self.bytes_read.0.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
