//! An asynchronous writer for log lines.
//!
//! If the reader of stderr stalls, a write blocks, and soon all requests that log would block. AsyncWriter therefore enter a bounded
//! queue, and a separate thread writes them in order. AsyncWriter that do not fit are lost and counted. Any client can cause lines of
//! the decision log, so these are not even formatted while many lines wait. This reserves room for other lines.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

/// The most queued lines for a line of the decision log to be added: a few seconds' worth of decision lines.
const WAITING_MAX: usize = 512;
/// The most queued bytes: about ten thousand lines.
const BYTES_MAX: usize = 4 << 20;
/// How long a flush waits for the next written line. A live reader is faster, even on a busy machine.
const STILL_WITHIN: Duration = Duration::from_secs(1);
/// How long a flush may take in total.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

/// The writer of this process's log.
pub(super) static LOG: AsyncWriter = AsyncWriter::new();

/// A bounded queue of lines for one writer thread.
#[derive(Debug)]
pub(super) struct AsyncWriter {
    state: Mutex<LineQueue>,
    added: Condvar,
    written: Condvar,
}

#[derive(Debug)]
struct LineQueue {
    waiting: VecDeque<Vec<u8>>,
    bytes: usize,
    is_writing: bool,
    /// Lost lines since the start, and since the last [`AsyncWriter::take_lost`].
    lost_total: u64,
    lost: u64,
}

impl LineQueue {
    /// Counts a lost line.
    fn lose(&mut self) {
        self.lost += 1;
        self.lost_total += 1;
    }
}

impl AsyncWriter {
    const fn new() -> Self {
        let state = LineQueue { waiting: VecDeque::new(), bytes: 0, is_writing: false, lost_total: 0, lost: 0 };
        Self { state: Mutex::new(state), added: Condvar::new(), written: Condvar::new() }
    }

    /// Whether there is room for a line of the decision log. Check before adding one. Concurrent threads may each add a line
    /// after this check, so the queue can exceed the bound by one line per thread.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().waiting.len() < WAITING_MAX
    }

    /// Queues a line, or counts it as lost if the queue is full.
    pub(super) fn add(&self, line: Vec<u8>) {
        let mut state = self.state.lock();
        if state.bytes + line.len() > BYTES_MAX {
            return state.lose();
        }
        state.bytes += line.len();
        state.waiting.push_back(line);
        drop(state);
        self.added.notify_one();
    }

    /// The number of lost lines since the start.
    pub(super) fn lost_total(&self) -> u64 {
        self.state.lock().lost_total
    }

    /// The number of lost lines since the last call, if there are any and the queue is half empty again.
    pub(super) fn take_lost(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let has_room = state.bytes < BYTES_MAX / 2;
        (has_room && state.lost > 0).then(|| std::mem::take(&mut state.lost))
    }

    /// Waits until the queue is written, but at most [`FLUSH_WITHIN`]. If the reader stalls, the rest is lost when the process
    /// ends.
    pub(super) fn flush(&self) {
        let until = Instant::now() + FLUSH_WITHIN;
        let mut state = self.state.lock();
        let mut is_progressing = true;
        while is_progressing && Instant::now() < until && (state.is_writing || !state.waiting.is_empty()) {
            is_progressing = !self.written.wait_for(&mut state, STILL_WITHIN).timed_out();
        }
    }

    /// Writes all lines, forever.
    fn write_all(&self, output: &mut impl io::Write) {
        let mut state = self.state.lock();
        loop {
            self.added.wait_while(&mut state, |state| state.waiting.is_empty());
            let Some(line) = state.waiting.pop_front() else { continue };
            state.bytes -= line.len();
            state.is_writing = true;
            drop(state);
            let is_written = output.write_all(&line).is_ok();
            state = self.state.lock();
            state.is_writing = false;
            if !is_written {
                state.lose();
            }
            self.written.notify_all();
        }
    }
}

/// Starts the writer thread. It has a separate handle of stderr, so other writes to stderr, such as the ports at the start, do
/// not wait for its lock.
pub(super) fn start() -> io::Result<()> {
    let mut output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let writer = std::thread::Builder::new().name("log".to_owned());
    writer.spawn(move || LOG.write_all(&mut output)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A writer that writes one line per signal, and all lines after the signals end.
    struct SteppedWriter {
        lines: Sender<Vec<u8>>,
        signals: Receiver<()>,
    }

    impl io::Write for SteppedWriter {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // After the sender is dropped, this returns at once.
            let _ = self.signals.recv();
            self.lines.send(line.to_vec()).expect("the test receives");
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn adding_a_line_never_blocks_and_lines_keep_their_order() {
        static LINES: AsyncWriter = AsyncWriter::new();
        let ((lines, written), (signals, receiver)) = (channel(), channel());
        std::thread::spawn(|| LINES.write_all(&mut SteppedWriter { lines, signals: receiver }));
        let mut added = 0_usize;
        while LINES.has_room() {
            LINES.add(added.to_string().into_bytes());
            added += 1;
        }
        // The thread may have taken one line from the queue.
        assert!((WAITING_MAX..=WAITING_MAX + 1).contains(&added), "{added}");
        // The writer is stalled: the flush returns nevertheless.
        LINES.flush();
        assert!(written.try_recv().is_err());
        drop(signals);
        let read: Vec<Vec<u8>> = written.iter().take(added).collect();
        assert!(read.iter().enumerate().all(|(index, line)| *line == index.to_string().into_bytes()));
        LINES.flush();
        assert!(LINES.has_room());
    }

    #[test]
    fn lines_beyond_the_bound_are_lost_and_counted() {
        static LINES: AsyncWriter = AsyncWriter::new();
        let (line, rooms) = (vec![b'x'; BYTES_MAX / 8], 8);
        (0..rooms + 3).for_each(|_| LINES.add(line.clone()));
        assert_eq!(LINES.lost_total(), 3);
        assert_eq!(LINES.take_lost(), None, "the queue is still full");
        let ((lines, written), (signals, receiver)) = (channel(), channel());
        drop(signals);
        std::thread::spawn(|| LINES.write_all(&mut SteppedWriter { lines, signals: receiver }));
        assert_eq!(written.iter().take(rooms).filter(|read| *read == line).count(), rooms);
        assert_eq!((LINES.take_lost(), LINES.take_lost(), LINES.lost_total()), (Some(3), None, 3));
        LINES.add(b"again".to_vec());
        assert_eq!(written.recv(), Ok(b"again".to_vec()));
    }

    #[test]
    fn lines_that_cannot_be_written_are_lost_and_counted() {
        struct Broken;
        impl io::Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::WouldBlock.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        static LINES: AsyncWriter = AsyncWriter::new();
        std::thread::spawn(|| LINES.write_all(&mut Broken));
        (0..3).for_each(|_| LINES.add(b"line".to_vec()));
        LINES.flush();
        assert_eq!(LINES.lost_total(), 3);
    }
}
