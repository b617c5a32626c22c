//! The reader thread: parses logs into batches of requests, in the order of their lines, each with its decision time.
//!
//! A fixed number of batches circulates between the two threads, so their memory is allocated once. The reader stops when the
//! deciding thread closes the channels.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};

use super::batch::{LinePosition, RequestBatch};
use super::format::json::FieldMap;
use super::format::{Format, LineError, LineParser};
use super::rejected_lines::{LineRejection, RejectedLines};
use super::source::{self, BytesRead, LineReader, NextLine, SourceError};
use super::time_order::{LateLines, Placement, TimeOrder};

/// The number of batches: enough to smooth out the speeds of both threads.
pub(super) const BATCHES: usize = 16;

/// The logs to read.
#[derive(Clone, Debug)]
pub(super) struct LogFiles {
    pub(super) paths: Vec<PathBuf>,
    pub(super) format: Format,
    pub(super) fields: FieldMap,
    /// How far lines may be out of order.
    pub(super) window_micros: u64,
}

/// The reader's counts at the end of the logs.
#[derive(Debug)]
pub(super) struct ReadResult {
    pub(super) lines: u64,
    pub(super) rejected: RejectedLines,
    pub(super) late: LateLines,
}

/// The reader's ends of both channels: full batches out, empty batches in.
#[derive(Debug)]
pub(super) struct BatchRing {
    pub(super) full: SyncSender<RequestBatch>,
    pub(super) empty: Receiver<RequestBatch>,
}

/// Reads all logs.
pub(super) fn read(logs: &LogFiles, bytes_read: &BytesRead, ring: BatchRing) -> Result<ReadResult, SourceError> {
    let mut reader = LogReader {
        parser: LineParser::new(logs.format, &logs.fields),
        order: TimeOrder::new(logs.window_micros),
        batch: RequestBatch::default(),
        rejected: RejectedLines::default(),
        lines: 0,
        ring,
    };
    for (log, path) in logs.paths.iter().enumerate() {
        if reader.read_one(log, path, bytes_read)? == ReadFlow::Stop {
            break;
        }
    }
    // The first call keeps back a line in doubt. After `accept_last`, the second call sends it.
    reader.send_batch();
    reader.order.accept_last();
    reader.send_batch();
    Ok(ReadResult { lines: reader.lines, rejected: reader.rejected, late: reader.order.late() })
}

struct LogReader {
    parser: LineParser,
    order: TimeOrder,
    batch: RequestBatch,
    rejected: RejectedLines,
    lines: u64,
    ring: BatchRing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadFlow {
    Continue,
    Stop,
}

impl LogReader {
    fn read_one(&mut self, log: usize, path: &Path, bytes_read: &BytesRead) -> Result<ReadFlow, SourceError> {
        let mut lines = LineReader::new(source::open(path, bytes_read)?);
        let mut line = 0;
        loop {
            let next = lines.next();
            let next = next.map_err(|source| SourceError::Read { name: source::name(path), line, source })?;
            line += 1;
            let position = LinePosition { log, line };
            match next {
                NextLine::End => return Ok(ReadFlow::Continue),
                NextLine::TooLong => self.rejected.add(log, line, LineRejection::Line(LineError::TooLong), b""),
                NextLine::Line(range) => self.add_line(position, lines.bytes(range)),
            }
            self.lines += 1;
            if self.batch.is_full() && self.send_batch() == ReadFlow::Stop {
                return Ok(ReadFlow::Stop);
            }
        }
    }

    /// Adds a line to the batch, or counts the reason for its rejection.
    #[inline]
    fn add_line(&mut self, position: LinePosition, bytes: &[u8]) {
        let Self { parser, batch, .. } = self;
        let pushed = parser.parse(bytes).and_then(|line| {
            batch.push(position, &line)?;
            Ok(line.at_micros)
        });
        match pushed {
            Err(error) => self.rejected.add(position.log, position.line, LineRejection::Line(error), bytes),
            Ok(at_micros) => self.set_decision_time(position, at_micros, bytes),
        }
    }

    /// Sets the decision time of the last request of the batch, or removes a request with an implausible time.
    fn set_decision_time(&mut self, position: LinePosition, at_micros: u64, bytes: &[u8]) {
        match self.order.place(at_micros) {
            Placement::At(at_micros) => self.batch.set_time(at_micros),
            Placement::TooLate => {
                self.batch.pop();
                self.rejected.add(position.log, position.line, LineRejection::TooLate, bytes);
            }
            Placement::WithoutLast(at_micros) => {
                if let Some(ahead) = self.batch.pop_before_last() {
                    self.rejected.add(ahead.log, ahead.line, LineRejection::Ahead, b"");
                }
                self.batch.set_time(at_micros);
            }
        }
    }

    fn send_batch(&mut self) -> ReadFlow {
        if self.batch.is_empty() {
            return ReadFlow::Continue;
        }
        let Ok(mut empty) = self.ring.empty.recv() else { return ReadFlow::Stop };
        empty.clear();
        if self.order.is_last_in_doubt() {
            self.batch.move_last_to(&mut empty);
        }
        match self.ring.full.send(std::mem::replace(&mut self.batch, empty)) {
            Ok(()) => ReadFlow::Continue,
            Err(_) => ReadFlow::Stop,
        }
    }
}
