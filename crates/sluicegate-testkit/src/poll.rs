//! Polling another process: repeat a query until it succeeds, or panic with the name of the missing event.
//!
//! The limit is counted in polls instead of read from a clock, so a paused or manual clock in the waiting test changes
//! nothing here.

use std::thread;
use std::time::Duration;

/// The pause between two polls: short compared with any action of a server, long enough to leave it a core.
const PAUSE: Duration = Duration::from_millis(5);

/// Returns the first result of `ask`, or panics with the message that `what` did not happen within about `limit`.
pub fn until<T>(what: &str, limit: Duration, ask: impl FnMut() -> Option<T>) -> T {
    answer(limit, ask).unwrap_or_else(|| panic!("{what}: not within {limit:?}"))
}

/// The first result, or `None` after about `limit`.
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

/// Like [`until`], for a condition.
pub fn until_true(what: &str, limit: Duration, mut ask: impl FnMut() -> bool) {
    until(what, limit, || ask().then_some(()));
}
