//! Reloads the configuration file, and the directory of `envoyproxy/ratelimit` if there is one, while the server runs: a valid
//! change takes effect as a whole, an invalid one not at all.
//!
//! One thread checks the file: on events in its directory ([`watch`]), on requests (SIGHUP,
//! `POST /admin/v1/reload`), and at least once per [`ROUND`], which bounds the delay of a missed event. RuleDocuments that has
//! been checked before is skipped. The thread reads and compiles, so request handlers
//! only ever see complete rules: every request is decided by the old ones or by the new ones, and none waits.
//!
//! Rules, tiers and `unmatched` are exchanged. All other keys are fixed at start-up; a
//! change of them is reported in the log and in the status, and takes effect at the next start.

pub(crate) mod file;
pub(crate) mod outline;
pub(crate) mod status;
#[cfg(test)]
mod tests;
mod watch;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use sluicegate::clock::Clock as _;
use sluicegate::core::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::config::Config;
use crate::envoy_xds::status::XdsStatus;
use crate::limiter::ServerGate;
use crate::rule_documents::CompiledRules;
use crate::rule_source::RuleSource;
use file::{BadFile, ConfigFile, Loaded, Look, Seen};
use outline::{Changes, Outline};
use status::{Outcome, Refused, Status};
use watch::DirectoryWatch;

/// The longest time between two checks of the file: half of the promised delay of a change.
const ROUND: Duration = Duration::from_secs(1);

/// How long the directory must be quiet before the file is read, because a file may be written in several
/// steps.
const QUIET: Duration = Duration::from_millis(50);

/// The longest wait for quiet, in a directory that is never quiet.
const RESTLESS_MAX: Duration = Duration::from_millis(500);

/// The most concurrent reload requests; one reload answers all of them.
const WAITING_MAX: usize = 64;

/// Requests reloads, and has the status of the last one. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Reload(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Absent without a file.
    asks: Option<SyncSender<Message>>,
    status: Mutex<Status>,
    /// The error of the database, if it holds the rules.
    trouble: Mutex<Option<String>>,
    /// The control plane, if it has a part of the rules.
    control_plane: OnceLock<XdsStatus>,
}

/// A message to the thread.
#[derive(Debug)]
enum Message {
    /// An event in the directory.
    Happened,
    /// A request for a reload, with the channel for its result.
    Asked(oneshot::Sender<Outcome>),
    /// The server stops.
    Stop,
}

/// Why a reload is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoReload {
    /// The server was started without a file.
    #[error("the server runs by its built-in configuration; start it with --config FILE to have one to reload")]
    NoFile,
    /// Too many requests wait already, or the server stops.
    #[error("no reload can be done now; ask again")]
    NotNow,
}

impl Default for Reload {
    /// For a server without a file.
    fn default() -> Self {
        Self::with(None)
    }
}

impl Reload {
    fn with(asks: Option<SyncSender<Message>>) -> Self {
        let status = Mutex::new(Status::started(Timestamp::now(0)));
        Self(Arc::new(Shared { asks, status, trouble: Mutex::default(), control_plane: OnceLock::new() }))
    }

    /// Records that the server starts with its initial configuration.
    pub(crate) fn started(&self, now: Timestamp) {
        *self.status_now() = Status::started(now);
    }

    /// The current status.
    pub(crate) fn status(&self) -> Status {
        let status = self.status_now().clone();
        let trouble = self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        status.with_trouble(trouble).with_control_plane(self.control_plane().map(XdsStatus::current))
    }

    /// Adds a control plane to the status.
    pub(crate) fn follow_control_plane(&self, status: XdsStatus) {
        // There is one at most.
        let _ = self.0.control_plane.set(status);
    }

    /// The control plane, if it has a part of the rules.
    pub(crate) fn control_plane(&self) -> Option<&XdsStatus> {
        self.0.control_plane.get()
    }

    /// Records the result of polling the database.
    pub(crate) fn note_source(&self, outcome: Result<(), String>) {
        let mut trouble = self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match (&*trouble, outcome.err()) {
            (None, Some(problem)) => {
                tracing::error!(problem, "the database cannot be followed; what was in force stays in force");
                *trouble = Some(problem);
            }
            (Some(_), None) => {
                tracing::info!("the database is followed again");
                *trouble = None;
            }
            (_, problem) => *trouble = problem,
        }
    }

    /// Checks the file now, and returns the result.
    pub(crate) async fn now(&self) -> Result<Outcome, NoReload> {
        let asks = self.0.asks.as_ref().ok_or(NoReload::NoFile)?;
        let (answer, answered) = oneshot::channel();
        asks.try_send(Message::Asked(answer)).map_err(|_| NoReload::NotNow)?;
        answered.await.map_err(|_| NoReload::NotNow)
    }

    /// Wakes the thread, unless its inbox is full.
    fn wake(&self) {
        if let Some(asks) = &self.0.asks {
            // With a full inbox, the waiting messages lead to a check as well.
            let _ = asks.try_send(Message::Happened);
        }
    }

    fn status_now(&self) -> MutexGuard<'_, Status> {
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of the server's start, which is watched from then on.
#[derive(Debug)]
pub(crate) struct Followed {
    file: ConfigFile,
    seen: Seen,
    outline: Outline,
    inbox: Receiver<Message>,
}

/// Reads the file at start-up.
pub(crate) fn open(file: ConfigFile) -> Result<(Config, Reload, Followed), BadFile> {
    let Loaded { config, seen, outline } = file.load()?;
    let (asks, inbox) = sync_channel(WAITING_MAX);
    Ok((config, Reload::with(Some(asks)), Followed { file, seen, outline, inbox }))
}

/// The reload thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Reloader {
    reload: Reload,
    thread: Option<JoinHandle<()>>,
}

impl Reloader {
    /// Starts to watch the file of the server's start. New rules take effect in `gate` by way of `source`.
    pub(crate) fn start(
        followed: Followed,
        reload: Reload,
        gate: Arc<ServerGate>,
        source: RuleSource,
    ) -> std::io::Result<Self> {
        let Followed { file, seen, outline, inbox } = followed;
        let work = Work {
            file,
            reload: reload.clone(),
            gate,
            source,
            at_start: outline.clone(),
            in_force: outline,
            last: seen,
        };
        let thread = Builder::new().name("reloader".to_owned()).spawn(move || work.run(&inbox))?;
        Ok(Self { reload, thread: Some(thread) })
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        let Some(asks) = &self.reload.0.asks else { return };
        let mut message = Message::Stop;
        // The thread empties a full inbox; a closed one needs no message.
        while let Err(TrySendError::Full(back)) = asks.try_send(message) {
            message = back;
            std::thread::yield_now();
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been logged, and no other part depends on it.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Work {
    file: ConfigFile,
    reload: Reload,
    gate: Arc<ServerGate>,
    source: RuleSource,
    /// The version in force for keys that are fixed at start-up.
    at_start: Outline,
    /// The version in force for all other keys.
    in_force: Outline,
    /// The content of the last check.
    last: Seen,
}

impl Work {
    fn run(mut self, inbox: &Receiver<Message>) {
        let reload = self.reload.clone();
        let watch = |file: PathBuf| {
            let reload = reload.clone();
            DirectoryWatch::start(&file, move || reload.wake())
        };
        let _watches: Vec<Option<DirectoryWatch>> = self.file.watched().map(watch).collect();
        loop {
            let mut waiting = Vec::new();
            if next(inbox, &mut waiting).is_break() {
                return;
            }
            if let Some(outcome) = self.look(!waiting.is_empty()) {
                // The requester may have given up.
                waiting.into_iter().for_each(|each| _ = each.send(outcome.clone()));
            }
        }
    }

    /// Checks the file, and puts it into force if it is new and valid.
    fn look(&mut self, is_asked_for: bool) -> Option<Outcome> {
        let outcome = match self.file.look(&self.last, is_asked_for) {
            Look::Same => return None,
            Look::Good(loaded) => match self.apply(*loaded) {
                Ok(changes) => Outcome::Applied(changes),
                Err(refused) => Outcome::Refused(refused),
            },
            Look::Bad(seen, bad) => {
                self.last = seen;
                Outcome::Refused(Refused::new(bad.lines()))
            }
        };
        let now = self.gate.limiter().clock().time_of_day();
        self.reload.status_now().note(&outcome, now);
        // The status is updated before this line is logged.
        log(&outcome);
        Some(outcome)
    }

    fn apply(&mut self, loaded: Loaded) -> Result<Changes, Refused> {
        let changes = Changes {
            needs_restart: loaded.changes(&self.at_start).needs_restart,
            ..loaded.changes(&self.in_force)
        };
        let Loaded { config, seen, outline } = loaded;
        let compiled = CompiledRules { rules: config.rules, keys: config.keys };
        self.last = seen;
        let applied = self.source.file_changed(&self.gate, config.content, compiled);
        applied.map_err(|error| {
            Refused::new(vec![format!("the rules do not go together with those of the control plane: {error}")])
        })?;
        self.in_force = outline;
        Ok(changes)
    }
}

/// Waits for the next message or until a check is due. Requests are added to `waiting`; all that arrived before the
/// check are included. Breaks when the server stops.
fn next(inbox: &Receiver<Message>, waiting: &mut Vec<oneshot::Sender<Outcome>>) -> ControlFlow<()> {
    let take = |message, waiting: &mut Vec<_>| {
        match message {
            Message::Happened => {}
            Message::Asked(answer) => waiting.push(answer),
            Message::Stop => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    };
    match inbox.recv_timeout(ROUND) {
        Ok(message) => take(message, waiting)?,
        Err(RecvTimeoutError::Timeout) => return ControlFlow::Continue(()),
        Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
    }
    // A request means that the file has been written completely.
    let restless_until = Instant::now() + RESTLESS_MAX;
    while waiting.is_empty() && Instant::now() < restless_until {
        match inbox.recv_timeout(QUIET) {
            Ok(message) => take(message, waiting)?,
            Err(_) => break,
        }
    }
    inbox.try_iter().try_for_each(|message| take(message, waiting))
}

fn log(outcome: &Outcome) {
    match outcome {
        Outcome::Applied(changes) => {
            let outline::RuleChanges { added, changed, removed } = &changes.rules;
            let (added, changed, removed) = (added.len(), changed.len(), removed.len());
            let keys = changes.keys.join(", ");
            tracing::info!(added, changed, removed, keys, "the configuration file is in force");
            if !changes.needs_restart.is_empty() {
                let keys = changes.needs_restart.join(", ");
                tracing::warn!(keys, "these keys take effect when the server is started again");
            }
        }
        Outcome::Refused(refused) => {
            for problem in &refused.problems {
                tracing::error!(problem, "a mistake in the configuration file");
            }
            let left_out = refused.left_out;
            tracing::error!(left_out, "the configuration file cannot be used; what was in force stays in force");
        }
    }
}
