//! How far a replay is, on a terminal; elsewhere nothing is shown.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::source::BytesRead;

/// How often a second it is drawn.
const DRAWN_PER_SECOND: u8 = 5;

/// A bar where the end is known, a count where it is not.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    bytes_read: BytesRead,
}

impl Progress {
    pub(super) fn new(bytes_in_all: Option<u64>, bytes_read: BytesRead) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(DRAWN_PER_SECOND);
        let bar = ProgressBar::with_draw_target(bytes_in_all, target);
        let template = match bytes_in_all {
            Some(_) => "{bar:32} {percent:>3} %  {bytes_per_sec}  {msg}  {eta} left",
            None => "{spinner} {bytes} read  {bytes_per_sec}  {msg}",
        };
        // The templates are part of the program; were one wrong, the usual one is shown.
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style);
        Self { bar, bytes_read }
    }

    /// Says how many requests were decided so far.
    pub(super) fn decided(&mut self, requests: u64) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_message(format!("{requests} requests"));
        self.bar.set_position(self.bytes_read.get());
    }

    /// Takes it off the terminal.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
