//! A program in a pseudo-terminal, with a screen that a test can read.
//!
//! The terminal is a real one of the kernel (a pseudo-terminal) and the controlling terminal of the program: it
//! receives keys, signals and size changes. The output is stored as raw bytes and also interpreted as a terminal would.
//! The program ends with the [`Terminal`].
#![allow(clippy::expect_used, reason = "a terminal that does not do as it is told ends the test")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::poll;

/// The time limit of any operation, generous enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with a program in it.
pub struct Terminal {
    child: Child,
    keys: File,
    /// Kept open so that the terminal survives the end of the program.
    inside: OwnedFd,
    seen: Arc<Mutex<Seen>>,
}

struct Seen {
    bytes: Vec<u8>,
    parser: vt100::Parser,
}

impl Terminal {
    /// Starts a command in a terminal of this size. Its arguments and variables are used; its standard streams are
    /// replaced.
    #[must_use]
    pub fn start(command: &Command, columns: u16, rows: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let outside = openpt(flags).expect("a terminal");
        grantpt(&outside).and_then(|()| unlockpt(&outside)).expect("a terminal that can be used");
        let inside = ioctl_tiocgptpeer(&outside, flags).expect("its other end");
        resize(&outside, columns, rows);
        // `setsid` makes the terminal the controlling one, and then executes the program.
        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        let end = || Stdio::from(inside.try_clone().expect("a copy"));
        let child =
            session.stdin(end()).stdout(end()).stderr(end()).spawn().expect("setsid is part of util-linux");
        let parser = vt100::Parser::new(size(rows), size(columns), 0);
        let seen = Arc::new(Mutex::new(Seen { bytes: Vec::new(), parser }));
        let keys = File::from(outside);
        let (mut output, reader) = (keys.try_clone().expect("a copy"), Arc::clone(&seen));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the last descriptor of the inner end is closed.
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                let mut seen = reader.lock();
                seen.bytes.extend_from_slice(&bytes[..length]);
                seen.parser.process(&bytes[..length]);
            }
        });
        Self { child, keys, inside, seen }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    /// Resizes the terminal, which sends the program a signal.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.seen.lock().parser.set_size(size(rows), size(columns));
        resize(&self.inside, columns, rows);
    }

    /// The text on the screen.
    #[must_use]
    pub fn text(&self) -> String {
        self.seen.lock().parser.screen().contents()
    }

    /// Waits until the text on the screen fulfils the condition.
    pub fn wait_for(&self, mut wanted: impl FnMut(&str) -> bool) {
        let is_so = poll::answer(PATIENCE, || wanted(&self.text()).then_some(()));
        assert!(is_so.is_some(), "the screen is not as wanted within {PATIENCE:?}:\n{}", self.text());
    }

    /// All output bytes so far.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.seen.lock().bytes.clone()
    }

    /// Whether the main screen is active and the cursor visible.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        let seen = self.seen.lock();
        !seen.parser.screen().alternate_screen() && !seen.parser.screen().hide_cursor()
    }

    /// Whether echo and line mode are on, as in a shell.
    #[must_use]
    pub fn shows_keys(&self) -> bool {
        let modes = tcgetattr(&self.inside).expect("a terminal").local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// Sends a signal, given by its name.
    pub fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([&format!("-{signal}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits until the program has exited and all its output was read.
    pub fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        poll::until_true("the program ends", PATIENCE, || {
            ended = self.child.try_wait().expect("a child");
            ended.is_some()
        });
        poll::until_true("the screen is left", PATIENCE, || self.is_ordinary());
        ended.expect("it has ended")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program may already have exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl std::fmt::Debug for Terminal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Terminal of {}", self.child.id())
    }
}

fn size(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).expect("a terminal has rows and columns")
}

fn resize(terminal: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).expect("a terminal takes a size");
}
