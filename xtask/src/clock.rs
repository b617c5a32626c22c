//! The one place of the task runner that reads the clock, to time its steps.

use std::time::{Duration, Instant};

/// Runs the closure and returns its result and duration.
#[expect(clippy::disallowed_methods, reason = "this is the task runner's clock")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
