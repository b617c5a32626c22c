//! The terminal while something is shown on all of it: as it was before when this ends, however it ends.

use std::io::{self, IsTerminal as _, Read as _, Write as _};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::mpsc;

use super::frame::Line;

/// Another screen, so that this one stays as it is; no cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
/// The cursor, and the screen that was there before.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
/// To the upper left.
const HOME: &str = "\u{1b}[H";
/// Nothing on the rest of the line.
const CLEAR_LINE: &str = "\u{1b}[K";
/// Nothing below.
const CLEAR_BELOW: &str = "\u{1b}[J";

/// What a terminal is taken for that does not tell its size.
pub(super) const SIZE_DEFAULT: (usize, usize) = (80, 24);

/// The screen of a terminal.
#[derive(Debug)]
pub(super) struct Screen {
    /// How the terminal was, if keys come from one.
    before: Option<Termios>,
    is_coloured: bool,
}

impl Screen {
    /// Takes the screen over.
    pub(super) fn enter(is_coloured: bool) -> io::Result<Self> {
        let before = io::stdin().is_terminal().then(|| tcgetattr(io::stdin())).transpose()?;
        // From here on it is put back, also if the next line fails.
        let screen = Self { before, is_coloured };
        if let Some(before) = &screen.before {
            let mut quiet = before.clone();
            // Keys are neither shown nor waited for, and nobody is left alone on a strange screen by Ctrl-Z.
            quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON;
            quiet.special_codes[SpecialCodeIndex::VSUSP] = 0;
            tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        }
        write(ENTER)?;
        Ok(screen)
    }

    /// Its columns and rows.
    pub(super) fn size() -> (usize, usize) {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => SIZE_DEFAULT,
        }
    }

    /// Shows these lines in place of what was there.
    pub(super) fn show(&self, lines: &[Line], width: usize) -> io::Result<()> {
        let painted: Vec<String> =
            lines.iter().map(|line| format!("{}{CLEAR_LINE}", line.paint(width, self.is_coloured))).collect();
        write(&format!("{HOME}{}{CLEAR_BELOW}", painted.join("\n")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone away needs nothing any more.
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

/// Tells when somebody presses `q`. The thread waits for keys until the process ends.
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
