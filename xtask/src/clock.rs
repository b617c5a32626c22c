//! The one place of the task runner that reads the clock: how long did that take?

use std::time::{Duration, Instant};

/// Does the work and says how long it took.
#[expect(clippy::disallowed_methods, reason = "this is the task runner's clock")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}
