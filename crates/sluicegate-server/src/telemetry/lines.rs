//! Lines of the log on their way out, which nobody waits for.
//!
//! If whatever reads the log stands still, writing blocks, and a request that writes would stand still with it, and soon all
//! of them. So lines wait here, a bounded amount of them, and a thread of its own writes them, in their order. What finds no
//! room is lost and counted. Lines of the decision log, which anybody can bring about, are not even made while many wait:
//! they leave room for the others.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

/// The most lines that wait for one of the decision log to be added: what it may write within some seconds.
const WAITING_MAX: usize = 512;
/// The most bytes that wait: some ten thousand lines.
const BYTES_MAX: usize = 4 << 20;
/// How long the reader may stand still when all lines are waited for: long for somebody who reads, even on a busy machine …
const STILL_WITHIN: Duration = Duration::from_secs(1);
/// … and how long all lines may take.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);

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
    bytes: usize,
    is_writing: bool,
    /// Lines that found no room: all of them, and those of which the log does not tell yet.
    lost_total: u64,
    lost: u64,
}

impl State {
    /// A line is lost.
    fn lose(&mut self) {
        self.lost += 1;
        self.lost_total += 1;
    }
}

impl Lines {
    const fn new() -> Self {
        let state = State { waiting: VecDeque::new(), bytes: 0, is_writing: false, lost_total: 0, lost: 0 };
        Self { state: Mutex::new(state), came: Condvar::new(), written: Condvar::new() }
    }

    /// Whether one more of the decision log may wait. Ask before adding one: by then there may be as many more as there are
    /// threads.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().waiting.len() < WAITING_MAX
    }

    /// Adds a line, if there is room.
    pub(super) fn add(&self, line: Vec<u8>) {
        let mut state = self.state.lock();
        if state.bytes + line.len() > BYTES_MAX {
            return state.lose();
        }
        state.bytes += line.len();
        state.waiting.push_back(line);
        drop(state);
        self.came.notify_one();
    }

    /// How many lines were lost since the start.
    pub(super) fn lost_total(&self) -> u64 {
        self.state.lock().lost_total
    }

    /// How many lines were lost since this was last asked, if any were and somebody reads again.
    pub(super) fn take_lost(&self) -> Option<u64> {
        let mut state = self.state.lock();
        let is_read = state.bytes < BYTES_MAX / 2;
        (is_read && state.lost > 0).then(|| std::mem::take(&mut state.lost))
    }

    /// Waits until everything is written, but not for long. Whatever is left then is lost if the process ends: nobody reads
    /// it.
    pub(super) fn flush(&self) {
        let until = Instant::now() + FLUSH_WITHIN;
        let mut state = self.state.lock();
        let mut is_moving = true;
        while is_moving && Instant::now() < until && (state.is_writing || !state.waiting.is_empty()) {
            is_moving = !self.written.wait_for(&mut state, STILL_WITHIN).timed_out();
        }
    }

    /// Writes what comes, for ever.
    fn write_all(&self, output: &mut impl io::Write) {
        let mut state = self.state.lock();
        loop {
            self.came.wait_while(&mut state, |state| state.waiting.is_empty());
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

/// Starts the thread that writes. It has a handle of its own: whoever writes something else to stderr, such as which ports are
/// open, does not wait for it.
pub(super) fn start() -> io::Result<()> {
    let mut output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let writer = std::thread::Builder::new().name("log".to_owned());
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

    #[test]
    fn what_finds_no_room_is_lost_and_counted() {
        static LINES: Lines = Lines::new();
        let (line, rooms) = (vec![b'x'; BYTES_MAX / 8], 8);
        (0..rooms + 3).for_each(|_| LINES.add(line.clone()));
        assert_eq!(LINES.lost_total(), 3);
        assert_eq!(LINES.take_lost(), None, "nobody reads, so there is nobody to tell");
        let ((lines, written), (orders, told)) = (channel(), channel());
        drop(orders);
        std::thread::spawn(|| LINES.write_all(&mut Told { lines, orders: told }));
        assert_eq!(written.iter().take(rooms).filter(|read| *read == line).count(), rooms);
        assert_eq!((LINES.take_lost(), LINES.take_lost(), LINES.lost_total()), (Some(3), None, 3));
        LINES.add(b"again".to_vec());
        assert_eq!(written.recv(), Ok(b"again".to_vec()));
    }

    #[test]
    fn what_cannot_be_written_is_lost_and_counted() {
        struct Broken;
        impl io::Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::WouldBlock.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        static LINES: Lines = Lines::new();
        std::thread::spawn(|| LINES.write_all(&mut Broken));
        (0..3).for_each(|_| LINES.add(b"line".to_vec()));
        LINES.flush();
        assert_eq!(LINES.lost_total(), 3);
    }
}
