//! The thread that reads: from logs to batches of requests in the order of their lines, each with the time at which it is
//! decided.
//!
//! Batches go round in a circle, so that their memory is allocated once. Whoever decides may stop early: then this stops.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender};

use super::batch::{Batch, Origin};
use super::faults::{Faults, Reason};
use super::format::fields::FieldMap;
use super::format::{Fault, Format, Parser};
use super::lines::{Lines, Next};
use super::order::{Late, Order, Placed};
use super::source::{self, BytesRead, SourceError};

/// How many batches go round: enough to even out both sides.
pub(super) const BATCHES: usize = 16;

/// What is read.
#[derive(Clone, Debug)]
pub(super) struct Logs {
    pub(super) paths: Vec<PathBuf>,
    pub(super) format: Format,
    pub(super) fields: FieldMap,
    /// How far lines may be out of order.
    pub(super) window_micros: u64,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) lines: u64,
    pub(super) faults: Faults,
    pub(super) late: Late,
}

/// Both ends of the circle at the side that reads.
#[derive(Debug)]
pub(super) struct Circle {
    pub(super) full: SyncSender<Batch>,
    pub(super) empty: Receiver<Batch>,
}

/// Reads all logs.
pub(super) fn read(logs: &Logs, bytes_read: &BytesRead, circle: Circle) -> Result<Read, SourceError> {
    let mut reader = Reader {
        parser: Parser::new(logs.format, &logs.fields),
        order: Order::new(logs.window_micros),
        batch: Batch::default(),
        faults: Faults::default(),
        lines: 0,
        circle,
    };
    for (log, path) in logs.paths.iter().enumerate() {
        if reader.read_one(log, path, bytes_read)? == Flow::Stop {
            break;
        }
    }
    // Twice, because a line in doubt stays behind the first time.
    reader.hand_over();
    reader.order.believe();
    reader.hand_over();
    Ok(Read { lines: reader.lines, faults: reader.faults, late: reader.order.late() })
}

struct Reader {
    parser: Parser,
    order: Order,
    batch: Batch,
    faults: Faults,
    lines: u64,
    circle: Circle,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    On,
    Stop,
}

impl Reader {
    fn read_one(&mut self, log: usize, path: &Path, bytes_read: &BytesRead) -> Result<Flow, SourceError> {
        let mut lines = Lines::new(source::open(path, bytes_read)?);
        let mut line = 0;
        loop {
            let next = lines.next();
            let next = next.map_err(|source| SourceError::Read { name: source::name(path), line, source })?;
            line += 1;
            let origin = Origin { log, line };
            match next {
                Next::End => return Ok(Flow::On),
                Next::TooLong => self.faults.add(log, line, Reason::Fault(Fault::TooLong), b""),
                Next::Line(range) => self.take(origin, lines.bytes(range)),
            }
            self.lines += 1;
            if self.batch.is_full() && self.hand_over() == Flow::Stop {
                return Ok(Flow::Stop);
            }
        }
    }

    /// Takes a line into the batch, or counts why not.
    #[inline]
    fn take(&mut self, origin: Origin, bytes: &[u8]) {
        let Self { parser, batch, .. } = self;
        let pushed = parser.parse(bytes).and_then(|line| {
            batch.push(origin, &line)?;
            Ok(line.at_micros)
        });
        match pushed {
            Err(fault) => self.faults.add(origin.log, origin.line, Reason::Fault(fault), bytes),
            Ok(at_micros) => self.place(origin, at_micros, bytes),
        }
    }

    /// Puts the last request of the batch into time.
    fn place(&mut self, origin: Origin, at_micros: u64, bytes: &[u8]) {
        match self.order.place(at_micros) {
            Placed::At(at_micros) => self.batch.set_time(at_micros),
            Placed::TooLate => {
                self.batch.pop();
                self.faults.add(origin.log, origin.line, Reason::TooLate, bytes);
            }
            Placed::WithoutLast(at_micros) => {
                if let Some(ahead) = self.batch.pop_before_last() {
                    self.faults.add(ahead.log, ahead.line, Reason::Ahead, b"");
                }
                self.batch.set_time(at_micros);
            }
        }
    }

    fn hand_over(&mut self) -> Flow {
        if self.batch.is_empty() {
            return Flow::On;
        }
        let Ok(mut empty) = self.circle.empty.recv() else { return Flow::Stop };
        empty.clear();
        if self.order.is_last_in_doubt() {
            self.batch.move_last_to(&mut empty);
        }
        match self.circle.full.send(std::mem::replace(&mut self.batch, empty)) {
            Ok(()) => Flow::On,
            Err(_) => Flow::Stop,
        }
    }
}
