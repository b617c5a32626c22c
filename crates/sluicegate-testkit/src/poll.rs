//! Waiting for another process: ask again and again until it is so, and say what never came.
//!
//! The limit is counted in questions instead of read from a clock, so a paused or manual clock in the test
//! that waits changes nothing here.

use std::thread;
use std::time::Duration;

/// Between two questions. Short against everything a server does, long enough to leave it a core.
const PAUSE: Duration = Duration::from_millis(5);

/// The first answer that is there, or a panic saying `what` did not happen within about `limit`.
pub fn until<T>(what: &str, limit: Duration, ask: impl FnMut() -> Option<T>) -> T {
    answer(limit, ask).unwrap_or_else(|| panic!("{what}: not within {limit:?}"))
}

/// The first answer that is there, or none within about `limit`.
pub(crate) fn answer<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let questions = limit.as_millis().div_ceil(PAUSE.as_millis()).max(1);
    for _ in 0..questions {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        thread::sleep(PAUSE);
    }
    None
}

/// Like [`until`], for a question with yes and no as its answers.
pub fn until_true(what: &str, limit: Duration, mut ask: impl FnMut() -> bool) {
    until(what, limit, || ask().then_some(()));
}
