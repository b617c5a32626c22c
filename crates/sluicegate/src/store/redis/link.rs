//! One connection that many calls share.
//!
//! Servers answer in order, so an answer to one call proves that all calls before it were answered too, even those
//! whose callers have gone. That is how the calls in flight are counted without anybody having to stay and count.

use super::super::ErrorClass;
use super::error::{Ran, Trouble};
use super::server_clock::ServerClock;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use std::sync::atomic::{AtomicU64, Ordering};
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
        let (sent, answered) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { connection, clock, sent, answered, broken: Notify::new() }
    }

    /// How many calls have no answer yet.
    pub(super) fn in_flight(&self) -> u64 {
        let answered = self.answered.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(answered)
    }

    /// Sends and waits for the answer until the deadline. An error reply is an answer, too.
    pub(super) async fn ask(&self, message: &Message, deadline: Instant) -> Result<Value, Trouble> {
        match timeout_at(deadline, self.exchange(message)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Trouble::broken(&error)),
            Err(_) => {
                Err(Trouble::with_server(ErrorClass::Timeout, Ran::Unknown, "no answer within the deadline"))
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
