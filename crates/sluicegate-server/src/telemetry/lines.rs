//! Lines of the log that nobody waits for.
//!
//! Whoever is denied makes a line of the decision log. If whatever reads the log stands still, writing blocks, and a request
//! that writes would stand still with it, and soon all of them. So these lines wait here, a bounded number of them, and a
//! thread of its own writes them. All other lines are written by whoever has them: they are few, and none may be lost.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The most lines that wait: what the decision log may write within some seconds.
const WAITING_MAX: usize = 512;
/// How long the last lines may take when the server stops.
const FLUSH_WITHIN: Duration = Duration::from_millis(200);

/// The lines of this process, as the log is the process's.
pub(super) static LINES: Lines = Lines::new();

/// Lines that wait to be written.
#[derive(Debug)]
pub(super) struct Lines {
    state: Mutex<State>,
    came: Condvar,
    written: Condvar,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    is_writing: bool,
}

impl Lines {
    const fn new() -> Self {
        let state = State { waiting: VecDeque::new(), is_writing: false };
        Self { state: Mutex::new(state), came: Condvar::new(), written: Condvar::new() }
    }

    /// Whether one more may wait. Ask before adding one: by then there may be as many more as there are threads.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().waiting.len() < WAITING_MAX
    }

    /// Adds a line.
    pub(super) fn add(&self, line: Vec<u8>) {
        self.state.lock().waiting.push_back(line);
        self.came.notify_one();
    }

    /// Waits until everything is written, but not for long.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        // Whatever is left then is lost: nobody reads it.
        let _ = self.written.wait_while_for(&mut state, is_busy, FLUSH_WITHIN);
    }

    /// Writes what comes, for ever.
    fn write_all(&self, output: &mut impl io::Write) {
        let mut state = self.state.lock();
        loop {
            self.came.wait_while(&mut state, |state| state.waiting.is_empty());
            let Some(line) = state.waiting.pop_front() else { continue };
            state.is_writing = true;
            drop(state);
            // There is nowhere to say that the log cannot be written.
            let _ = output.write_all(&line);
            state = self.state.lock();
            state.is_writing = false;
            self.written.notify_all();
        }
    }
}

/// Starts the thread that writes. It has a handle of its own, because the usual one is locked while somebody writes.
pub(super) fn start() -> io::Result<()> {
    let mut output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let writer = std::thread::Builder::new().name("decision-log".to_owned());
    writer.spawn(move || LINES.write_all(&mut output)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Writes a line when it is told to.
    struct Told {
        lines: Sender<Vec<u8>>,
        orders: Receiver<()>,
    }

    impl io::Write for Told {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // Without anybody who tells, it writes at once.
            let _ = self.orders.recv();
            self.lines.send(line.to_vec()).expect("somebody reads");
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_adds_a_line_never_waits_and_all_are_written_in_their_order() {
        static LINES: Lines = Lines::new();
        let ((lines, written), (orders, told)) = (channel(), channel());
        std::thread::spawn(|| LINES.write_all(&mut Told { lines, orders: told }));
        let mut added = 0_usize;
        while LINES.has_room() {
            LINES.add(added.to_string().into_bytes());
            added += 1;
        }
        // One may be on its way.
        assert!((WAITING_MAX..=WAITING_MAX + 1).contains(&added), "{added}");
        // Nobody reads: it ends all the same.
        LINES.flush();
        assert!(written.try_recv().is_err());
        drop(orders);
        let read: Vec<Vec<u8>> = written.iter().take(added).collect();
        assert!(read.iter().enumerate().all(|(place, line)| *line == place.to_string().into_bytes()));
        LINES.flush();
        assert!(LINES.has_room());
    }
}
