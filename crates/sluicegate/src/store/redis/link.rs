//! One connection that many calls share.
//!
//! Servers answer in order, so an answer to one call proves that all calls before it were answered too, even those
//! whose callers have gone. That is how the calls in flight are counted without anybody having to stay and count.

use super::super::ErrorClass;
use super::error::{Blame, Ran, Trouble};
use super::server_clock::ServerClock;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

/// A connection that was opened and answers.
pub(super) struct Link {
    connection: MultiplexedConnection,
    /// What time it is at the other end.
    pub(super) clock: ServerClock,
    sent: AtomicU64,
    answered: AtomicU64,
    opened: Instant,
    /// When a call was last answered that was still waited for, in microseconds since it was opened.
    in_time: AtomicU64,
    /// Probes in a row that were not answered.
    silences: AtomicU32,
    broken: Notify,
}

/// One command, or one that is allowed on a slot that is still moving here.
pub(super) enum Message {
    /// A command.
    Plain(Cmd),
    /// A command right after `ASKING`, which holds for one command only.
    Asking(Pipeline),
}

impl Message {
    /// The command by itself, or after `ASKING`.
    pub(super) fn new(command: Cmd, asking: bool) -> Self {
        if !asking {
            return Self::Plain(command);
        }
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command);
        Self::Asking(pipeline)
    }
}

impl Link {
    /// Takes a connection into use.
    pub(super) fn new(connection: MultiplexedConnection, clock: ServerClock) -> Self {
        Self {
            connection,
            clock,
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            opened: Instant::now(),
            in_time: AtomicU64::new(0),
            silences: AtomicU32::new(0),
            broken: Notify::new(),
        }
    }

    /// Takes note of an answer, if it came in its time.
    pub(super) fn note_answer(&self, at: Instant, deadline: Instant) {
        if at <= deadline {
            self.in_time.fetch_max(self.micros(at), Ordering::Relaxed);
        }
    }

    /// Whom it speaks against that a call which was first sent then was not answered in its time. While others are, the
    /// server is well, and the call stood behind too many of ours.
    pub(super) fn blame_since(&self, first_sent: Instant) -> Blame {
        let others_are_answered = self.in_time.load(Ordering::Relaxed) > self.micros(first_sent);
        if others_are_answered { Blame::Call } else { Blame::Server }
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.opened).as_micros()).unwrap_or(u64::MAX)
    }

    /// Takes note of whether a probe was answered, and returns how many in a row were not.
    pub(super) fn heard(&self, answered: bool) -> u32 {
        if answered {
            self.silences.store(0, Ordering::Relaxed);
            return 0;
        }
        self.silences.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether the last probe was not answered.
    pub(super) fn is_silent(&self) -> bool {
        self.silences.load(Ordering::Relaxed) > 0
    }

    /// How many calls have no answer yet.
    pub(super) fn in_flight(&self) -> u64 {
        let answered = self.answered.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(answered)
    }

    /// Sends and waits for the answer until the deadline. An error reply is an answer, too. The call may have been sent
    /// before.
    pub(super) async fn ask(
        &self,
        message: &Message,
        first_sent: Instant,
        deadline: Instant,
    ) -> Result<Value, Trouble> {
        match timeout_at(deadline, self.exchange(message)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Trouble::broken(&error)),
            Err(_) => {
                let message = "no answer within the deadline".to_owned();
                let blame = self.blame_since(first_sent);
                Err(Trouble { class: ErrorClass::Timeout, message, ran: Ran::Unknown, blame })
            }
        }
    }

    /// Sends a command that no caller waits for.
    pub(super) async fn ask_within(&self, command: Cmd, within: Duration) -> Result<Value, Trouble> {
        match timeout(within, self.exchange(&Message::Plain(command))).await {
            Ok(Ok(Value::ServerError(error))) => Err(Trouble::reported(&error)),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Trouble::broken(&error)),
            Err(_) => {
                let message = format!("no answer within {} ms", within.as_millis());
                Err(Trouble::with_server(ErrorClass::Timeout, Ran::Unknown, message))
            }
        }
    }

    async fn exchange(&self, message: &Message) -> Result<Value, RedisError> {
        let ticket = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        let mut connection = self.connection.clone();
        let value = match message {
            Message::Plain(command) => connection.send_packed_command(command).await?,
            Message::Asking(pipeline) => {
                let mut values = connection.send_packed_commands(pipeline, 0, 2).await?;
                values.pop().unwrap_or(Value::Nil)
            }
        };
        self.answered.fetch_max(ticket, Ordering::Relaxed);
        Ok(value)
    }

    /// Ends the connection: everybody who waits for an answer on it fails.
    pub(super) fn break_off(&self) {
        self.broken.notify_one();
    }

    /// Returns when somebody ends the connection.
    pub(super) async fn broken_off(&self) {
        self.broken.notified().await;
    }
}
