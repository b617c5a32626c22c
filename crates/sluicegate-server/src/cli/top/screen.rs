//! Full-screen mode of the terminal. Dropping [`Screen`] restores the terminal, on every path.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

use super::frame::StyledLine;

/// Switches to the alternate screen, and hides the cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
/// Shows the cursor, and switches back to the main screen.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// Moves the cursor to the upper left.
const HOME: &str = "\u{1b}[H";
/// Clears the rest of the line.
const CLEAR_LINE: &str = "\u{1b}[K";
/// Clears the screen below the cursor.
const CLEAR_BELOW: &str = "\u{1b}[J";

/// The size of a terminal that does not report one.
pub(super) const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// A terminal in full-screen mode.
#[derive(Debug)]
pub(super) struct Screen {
    /// The former modes, if standard input is a terminal.
    before: Option<Termios>,
    is_coloured: bool,
}

impl Screen {
    /// Enters full-screen mode.
    pub(super) fn enter(is_coloured: bool) -> io::Result<Self> {
        let before = io::stdin().is_terminal().then(|| tcgetattr(io::stdin())).transpose()?;
        // From here on, dropping `screen` restores the terminal, even if a later call fails.
        let screen = Self { before, is_coloured };
        if let Some(before) = &screen.before {
            let mut quiet = before.clone();
            // No echo and no line buffering. Ctrl-Z is off, because it would leave the shell on the alternate screen.
            quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
            quiet.special_codes[SpecialCodeIndex::VSUSP] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        }
        write(ENTER)?;
        Ok(screen)
    }

    /// The columns and rows.
    pub(super) fn size() -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => SIZE_DEFAULT,
        }
    }

    /// Replaces the contents of the screen.
    pub(super) fn show(&self, lines: &[StyledLine], width: usize) -> io::Result<()> {
        let painted: Vec<String> =
            lines.iter().map(|line| format!("{}{CLEAR_LINE}", line.paint(width, self.is_coloured))).collect();
        write(&format!("{HOME}{}{CLEAR_BELOW}", painted.join("\n")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, errors do not matter.
        let _ = write(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// Receives a message when `q` is pressed. The thread reads keys until the process ends.
pub(super) fn quit_key() -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel(1);
    if io::stdin().is_terminal() {
        std::thread::spawn(move || {
            let keys = io::stdin().lock().bytes().map_while(Result::ok);
            for key in keys {
                if matches!(key, b'q' | b'Q') && sender.blocking_send(()).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}
