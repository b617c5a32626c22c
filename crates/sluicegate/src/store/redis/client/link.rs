//! One multiplexed connection.
//!
//! A server answers in order. So the reply to one call proves that all earlier calls have been answered, even if
//! their waiters are gone. The count of calls in flight relies on this.
//!
//! A call that misses its deadline has met either an unavailable server or an overloaded one. The silence on the
//! connection tells the two apart: see [`Link::is_unresponsive`].

use crate::store::ErrorClass;
use crate::store::redis::client::call::LatePolicy;
use crate::store::redis::client::error::{CallError, Executed};
use crate::store::redis::client::server_clock::ServerClock;
use crate::store::redis::client::socket_activity::SocketActivity;
use futures_util::FutureExt as _;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

/// How often a late call checks whether the server is still responsive.
const LOOK: Duration = Duration::from_millis(5);
/// How long a call waits beyond its deadline at most, however responsive the server is.
const OVERDUE_MAX: Duration = Duration::from_secs(1);

/// An open connection to a server that has answered.
pub(crate) struct Link {
    connection: MultiplexedConnection,
    /// The estimate of the server's time.
    pub(crate) clock: ServerClock,
    sent: AtomicU64,
    answered: AtomicU64,
    activity: Arc<SocketActivity>,
    /// Unanswered probes in a row.
    missed_probes: AtomicU32,
    broken: Notify,
}

/// A command, with or without `ASKING`.
pub(crate) enum WireCommand {
    Plain(Cmd),
    /// A command preceded by `ASKING`, which allows one command on a slot that is being imported.
    Asking(Pipeline),
}

impl WireCommand {
    /// The command by itself, or after `ASKING`.
    pub(crate) fn new(command: Cmd, asking: bool) -> Self {
        if !asking {
            return Self::Plain(command);
        }
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command);
        Self::Asking(pipeline)
    }
}

impl Link {
    /// A link over an open connection.
    pub(crate) fn new(
        connection: MultiplexedConnection,
        clock: ServerClock,
        activity: Arc<SocketActivity>,
    ) -> Self {
        Self {
            connection,
            clock,
            sent: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            activity,
            missed_probes: AtomicU32::new(0),
            broken: Notify::new(),
        }
    }

    /// Whether the server has sent nothing after `since` and has had at least `patience` to answer. A server that
    /// sends anything is alive; calls that miss their deadline then wait behind too many others.
    pub(crate) fn is_unresponsive(&self, since: Instant, patience: Duration, now: Instant) -> bool {
        self.activity.is_silent(since, patience, now)
    }

    /// Records the result of a probe. Returns the number of unanswered probes in a row.
    pub(crate) fn record_probe(&self, answered: bool) -> u32 {
        if answered {
            self.missed_probes.store(0, Ordering::Relaxed);
            return 0;
        }
        self.missed_probes.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether the last probe was not answered.
    pub(crate) fn missed_last_probe(&self) -> bool {
        self.missed_probes.load(Ordering::Relaxed) > 0
    }

    /// How many calls have no reply yet.
    pub(crate) fn in_flight(&self) -> u64 {
        let answered = self.answered.load(Ordering::Relaxed);
        self.sent.load(Ordering::Relaxed).saturating_sub(answered)
    }

    /// Sends a call and waits for the reply until the deadline. An error reply is a reply. `first_sent` is the
    /// instant of the first attempt.
    pub(crate) async fn ask(
        &self,
        message: &WireCommand,
        first_sent: Instant,
        deadline: Instant,
        late_policy: LatePolicy<'_>,
    ) -> Result<Value, CallError> {
        let mut exchange = pin!(self.exchange(message));
        if let Ok(answer) = timeout_at(deadline, &mut exchange).await {
            return answer.map_err(|error| CallError::from_connection(&error));
        }
        // The reply may have arrived and not been read yet, because the task that reads it has to be scheduled, too.
        yield_now().await;
        if let Some(answer) = (&mut exchange).now_or_never() {
            return answer.map_err(|error| CallError::from_connection(&error));
        }
        loop {
            let now = Instant::now();
            let allowed = late_policy.keep_waiting.unwrap_or_else(|| deadline.duration_since(first_sent));
            let lately = || now.checked_sub(allowed).unwrap_or(first_sent);
            let since = if late_policy.keep_waiting.is_some() { lately() } else { first_sent };
            if self.is_unresponsive(since, late_policy.patience(allowed), now) {
                return Err(CallError::of_server(
                    ErrorClass::Timeout,
                    Executed::Unknown,
                    "no answer within the deadline",
                ));
            }
            if late_policy.keep_waiting.is_none() || now >= deadline + OVERDUE_MAX {
                return Err(CallError::overloaded(Executed::Unknown));
            }
            if let Ok(answer) = timeout_at(now + LOOK, &mut exchange).await {
                return answer.map_err(|error| CallError::from_connection(&error));
            }
        }
    }

    /// Sends a command that no request waits for.
    pub(crate) async fn ask_within(&self, command: Cmd, within: Duration) -> Result<Value, CallError> {
        match timeout(within, self.exchange(&WireCommand::Plain(command))).await {
            Ok(Ok(Value::ServerError(error))) => Err(CallError::from_reply(&error)),
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(CallError::from_connection(&error)),
            Err(_) => {
                let message = format!("no answer within {} ms", within.as_millis());
                Err(CallError::of_server(ErrorClass::Timeout, Executed::Unknown, message))
            }
        }
    }

    async fn exchange(&self, message: &WireCommand) -> Result<Value, RedisError> {
        let ticket = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        let mut connection = self.connection.clone();
        let value = match message {
            WireCommand::Plain(command) => connection.send_packed_command(command).await?,
            WireCommand::Asking(pipeline) => {
                let mut values = connection.send_packed_commands(pipeline, 0, 2).await?;
                values.pop().unwrap_or(Value::Nil)
            }
        };
        self.answered.fetch_max(ticket, Ordering::Relaxed);
        Ok(value)
    }

    /// Closes the connection. All calls in flight fail.
    pub(crate) fn break_off(&self) {
        self.broken.notify_one();
    }

    /// Returns when the connection is to be closed.
    pub(crate) async fn broken_off(&self) {
        self.broken.notified().await;
    }
}
