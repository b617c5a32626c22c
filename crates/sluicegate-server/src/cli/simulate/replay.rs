//! A log against a configuration: one thread reads, this one decides what was read, in its order.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use sluicegate::core::Timestamp;

use super::batch::{Batch, Logged};
use super::compare::Comparison;
use super::faults::Faults;
use super::judge::{Judge, Judged, Who};
use super::progress::Progress;
use super::reader::{self, BATCHES, Circle, Logs, Read};
use super::source::{self, BytesRead};
use super::tally::Tally;
use crate::cli::Error;

/// What came of it.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) read: Read,
    pub(super) tally: Tally,
    pub(super) comparison: Option<Comparison>,
    /// Those lines that are requests, and are refused before anything is decided.
    pub(super) faults: Faults,
}

/// Who decides, made for the time of the first line.
#[derive(Debug)]
pub(super) struct Judges {
    pub(super) judge: Judge,
    pub(super) comparison: Option<Comparison>,
}

/// The judges and what is kept of their decisions.
struct Court {
    judges: Judges,
    tally: Tally,
    faults: Faults,
}

/// Replays the logs.
pub(super) fn replay(
    logs: &Logs,
    judges_at: impl FnOnce(Timestamp) -> Result<Judges, Error>,
) -> Result<Replayed, Error> {
    let (full_sender, full) = sync_channel(BATCHES);
    let (empty, empty_receiver) = sync_channel(BATCHES);
    let bytes_read = BytesRead::default();
    let mut progress = Progress::new(source::bytes_in_all(&logs.paths), bytes_read.clone());
    thread::scope(|scope| {
        let circle = Circle { full: full_sender, empty: empty_receiver };
        let reading = scope.spawn(|| reader::read(logs, &bytes_read, circle));
        let decided = decide_all(&full, &empty, judges_at, &mut progress);
        // Whatever came of it, the reader must not wait for us.
        drop((full, empty));
        let read = reading.join().map_err(|_| "the thread that reads the log ended early: this is a defect")?;
        progress.finish();
        let Court { tally, faults, judges } = decided?;
        Ok(Replayed { read: read?, tally, comparison: judges.comparison, faults })
    })
}

fn decide_all(
    full: &Receiver<Batch>,
    empty: &SyncSender<Batch>,
    judges_at: impl FnOnce(Timestamp) -> Result<Judges, Error>,
    progress: &mut Progress,
) -> Result<Court, Error> {
    for _ in 0..BATCHES {
        // The reader of a short log may be at its end already.
        let _ = empty.send(Batch::default());
    }
    let first = full.recv().unwrap_or_default();
    let now = first.requests().next().map_or(0, |logged| logged.at_micros);
    let judges = judges_at(Timestamp::now(now))?;
    let tally = Tally::new(&judges.judge.rules());
    let mut court = Court { judges, tally, faults: Faults::default() };
    let mut next = Some(first);
    while let Some(batch) = next {
        for logged in batch.requests() {
            court.decide(&logged)?;
        }
        progress.decided(court.tally.requests.total());
        // The reader has gone when it is at the end; what it left is still to be decided.
        let _ = empty.send(batch);
        next = full.recv().ok();
    }
    Ok(court)
}

impl Court {
    #[inline]
    fn decide(&mut self, logged: &Logged<'_>) -> Result<(), Error> {
        let first = match self.judges.judge.decide(logged)? {
            Judged::Decided(who, decision) => {
                self.tally.decided(logged, who, &decision);
                Some((who, decision.is_allowed()))
            }
            Judged::Exempt => {
                self.tally.exempt(logged);
                Some((Who::Address(logged.peer), true))
            }
            Judged::Unauthorized => {
                self.tally.unauthorized += 1;
                None
            }
            Judged::Refused(reason) => {
                self.faults.add(logged.log, logged.line, reason, logged.path.as_bytes());
                None
            }
        };
        if let Some(comparison) = &mut self.judges.comparison {
            comparison.decide(logged, first)?;
        }
        Ok(())
    }
}
