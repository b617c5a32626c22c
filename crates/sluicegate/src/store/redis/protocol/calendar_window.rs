//! The estimate of the server's time for calendar limits.
//!
//! The server's clock selects the window of a calendar, but the script knows no calendar. So its arguments contain
//! the boundaries of the windows around the expected time. The local clock provides that time at first, and the
//! server's replies correct it. The boundaries cover a whole window in both directions. A script whose time lies
//! outside does nothing and returns `outdated` with its time, and the call is repeated once.

use crate::store::redis::client::call::ScriptReply;
use crate::store::redis::client::server_clock::ServerClock;
use sluicegate_core::Timestamp;
use std::sync::OnceLock;
use tokio::time::Instant;

/// The clock of the server that answered last, if any has.
#[derive(Debug, Default)]
pub(crate) struct CalendarClock(OnceLock<ServerClock>);

impl CalendarClock {
    /// The expected time on the server. It is `local_now` until a reply has arrived.
    pub(crate) fn estimate(&self, local_now: Timestamp) -> Timestamp {
        self.0.get().map_or(local_now, |clock| Timestamp::now(clock.at(Instant::now())))
    }

    /// Adds the server's time from the reply to a call that was sent at `sent`.
    pub(crate) fn learn(&self, answer: &ScriptReply, sent: Instant) {
        let (micros, received) = (answer.now.as_micros(), Instant::now());
        self.0.get_or_init(|| ServerClock::new(micros, received)).learn(micros, sent, received);
    }
}
