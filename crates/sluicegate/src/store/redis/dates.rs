//! About what time it is where a calendar is read.
//!
//! The server's clock decides in which window of a calendar a request falls, and the script knows no calendar. So it is
//! told the boundaries around the time that it is there, as far as is known here: by our own clock at first, and by what
//! the server said from then on. They are good for a whole window to both sides. A script that finds them to be of another
//! time does nothing and says so, with its time, and is asked once more.

use super::call::Answer;
use super::server_clock::ServerClock;
use sluicegate_core::Timestamp;
use std::sync::OnceLock;
use tokio::time::Instant;

/// The time of the server that answered last, if any has.
#[derive(Debug, Default)]
pub(super) struct Dates(OnceLock<ServerClock>);

impl Dates {
    /// About what time it is there, if it is `ours` here.
    pub(super) fn about(&self, ours: Timestamp) -> Timestamp {
        self.0.get().map_or(ours, |clock| Timestamp::now(clock.at(Instant::now())))
    }

    /// Learns from an answer to what was sent at this instant.
    pub(super) fn learn(&self, answer: &Answer, sent: Instant) {
        let (micros, received) = (answer.now.as_micros(), Instant::now());
        self.0.get_or_init(|| ServerClock::new(micros, received)).learn(micros, sent, received);
    }
}

impl Answer {
    /// True if the script did nothing, because the boundaries it was told are of another time.
    pub(super) fn is_outdated(&self) -> bool {
        self.body == b"outdated"
    }
}
