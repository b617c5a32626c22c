//! The configuration file, and the directory of `envoyproxy/ratelimit` if there is one, while the server runs: a good change
//! takes effect whole, a bad one not at all.
//!
//! One thread looks at the file: when something happens in its directory ([`watch`]), when somebody asks (SIGHUP,
//! `POST /admin/v1/reload`), and once in a [`ROUND`] whatever happens, so no change is missed for longer than that. A
//! content that was looked at before is not looked at again. The thread reads and compiles, so whoever serves requests
//! only ever sees finished rules: every request is decided by the old ones or by the new ones, and none waits.
//!
//! Rules, tiers and what happens to requests without a rule are exchanged. All other keys are settled at the start; a
//! change of them is named in the log and in the status, and takes effect with the next start.

pub(crate) mod file;
pub(crate) mod outline;
pub(crate) mod status;
#[cfg(test)]
mod tests;
mod watch;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use sluicegate::clock::Clock as _;
use sluicegate::core::Timestamp;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::app::App;
use crate::config::Config;
use crate::content::Compiled;
use file::{BadFile, ConfigFile, Loaded, Look, Seen};
use outline::{Changes, Outline};
use status::{Outcome, Refused, Status};
use watch::DirectoryWatch;

/// The longest time between two looks at the file. Half of what a change may take to be seen.
const ROUND: Duration = Duration::from_secs(1);

/// How long it must be quiet in the directory before the file is read: whoever writes it in several steps is mostly done
/// then.
const QUIET: Duration = Duration::from_millis(50);

/// How long quiet is waited for, in a directory that is never quiet.
const RESTLESS_MAX: Duration = Duration::from_millis(500);

/// How many may wait for a reload; one reload answers all of them.
const WAITING_MAX: usize = 64;

/// Asks for reloads and knows how the last one went. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Reload(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Absent where there is no file.
    asks: Option<SyncSender<Message>>,
    status: Mutex<Status>,
    /// What is wrong with the database, if rules are in one.
    trouble: Mutex<Option<String>>,
}

/// What wakes the thread.
#[derive(Debug)]
enum Message {
    /// Something happened in the directory.
    Happened,
    /// Somebody wants to know what the file is worth now.
    Asked(oneshot::Sender<Outcome>),
    /// The server ends.
    Stop,
}

/// Why there was no reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoReload {
    /// The server was started without a file.
    #[error("the server runs by its built-in configuration; start it with --config FILE to have one to reload")]
    NoFile,
    /// Too many wait already, or the server ends.
    #[error("no reload can be done now; ask again")]
    NotNow,
}

impl Default for Reload {
    /// Where there is no file.
    fn default() -> Self {
        Self::with(None)
    }
}

impl Reload {
    fn with(asks: Option<SyncSender<Message>>) -> Self {
        let status = Mutex::new(Status::started(Timestamp::now(0)));
        Self(Arc::new(Shared { asks, status, trouble: Mutex::default() }))
    }

    /// Takes note that the server starts with what it was given.
    pub(crate) fn started(&self, now: Timestamp) {
        *self.status_now() = Status::started(now);
    }

    /// How things stand.
    pub(crate) fn status(&self) -> Status {
        let status = self.status_now().clone();
        let trouble = self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        status.with_trouble(trouble)
    }

    /// Takes note of how it went to look for news in the database.
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

    /// Looks at the file now, and says what came of it.
    pub(crate) async fn now(&self) -> Result<Outcome, NoReload> {
        let asks = self.0.asks.as_ref().ok_or(NoReload::NoFile)?;
        let (answer, answered) = oneshot::channel();
        asks.try_send(Message::Asked(answer)).map_err(|_| NoReload::NotNow)?;
        answered.await.map_err(|_| NoReload::NotNow)
    }

    /// Wakes the thread, unless it has been told enough.
    fn wake(&self) {
        if let Some(asks) = &self.0.asks {
            // When there is no room, whatever waits there leads to a look as well.
            let _ = asks.try_send(Message::Happened);
        }
    }

    fn status_now(&self) -> MutexGuard<'_, Status> {
        self.0.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that a server starts with and follows from then on.
#[derive(Debug)]
pub(crate) struct Followed {
    file: ConfigFile,
    seen: Seen,
    outline: Outline,
    inbox: Receiver<Message>,
}

/// Reads the file for the start of a server.
pub(crate) fn open(file: ConfigFile) -> Result<(Config, Reload, Followed), BadFile> {
    let Loaded { config, seen, outline } = file.load()?;
    let (asks, inbox) = sync_channel(WAITING_MAX);
    Ok((config, Reload::with(Some(asks)), Followed { file, seen, outline, inbox }))
}

/// The thread that reloads; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Reloader {
    reload: Reload,
    thread: Option<JoinHandle<()>>,
}

impl Reloader {
    /// Starts to follow the file that the app was made from.
    pub(crate) fn start(followed: Followed, app: App) -> std::io::Result<Self> {
        let reload = app.reload().clone();
        let Followed { file, seen, outline, inbox } = followed;
        let work = Work { file, app, at_start: outline.clone(), in_force: outline, last: seen };
        let thread = Builder::new().name("reloader".to_owned()).spawn(move || work.run(&inbox))?;
        Ok(Self { reload, thread: Some(thread) })
    }
}

impl Drop for Reloader {
    fn drop(&mut self) {
        let Some(asks) = &self.reload.0.asks else { return };
        let mut message = Message::Stop;
        // A full inbox is emptied by the thread; one that is gone needs no message.
        while let Err(TrySendError::Full(back)) = asks.try_send(message) {
            message = back;
            std::thread::yield_now();
        }
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has been logged, and nobody depends on it.
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Work {
    file: ConfigFile,
    app: App,
    /// What holds for keys that are settled at the start.
    at_start: Outline,
    /// What holds for the others.
    in_force: Outline,
    /// What was last looked at.
    last: Seen,
}

impl Work {
    fn run(mut self, inbox: &Receiver<Message>) {
        let reload = self.app.reload().clone();
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
                // Whoever does not wait any longer has no use for it.
                waiting.into_iter().for_each(|each| _ = each.send(outcome.clone()));
            }
        }
    }

    /// Looks at the file, and makes it take effect if it is new and good.
    fn look(&mut self, is_asked_for: bool) -> Option<Outcome> {
        let outcome = match self.file.look(&self.last, is_asked_for) {
            Look::Same => return None,
            Look::Good(loaded) => Outcome::Applied(self.apply(*loaded)),
            Look::Bad(seen, bad) => {
                self.last = seen;
                Outcome::Refused(Refused::new(bad.lines()))
            }
        };
        let now = self.app.limiter().clock().now();
        self.app.reload().status_now().note(&outcome, now);
        // Whoever reads this line finds the status as it says.
        log(&outcome);
        Some(outcome)
    }

    fn apply(&mut self, loaded: Loaded) -> Changes {
        let changes = Changes {
            needs_restart: loaded.changes(&self.at_start).needs_restart,
            ..loaded.changes(&self.in_force)
        };
        let Loaded { config, seen, outline } = loaded;
        let compiled = Compiled { rules: config.rules, keys: config.keys };
        self.app.source().file_changed(&self.app, config.content, compiled);
        (self.last, self.in_force) = (seen, outline);
        changes
    }
}

/// Waits for the next reason to look, or until it is time to. Those who ask are put among `waiting`, all who did so before the
/// look. Breaks when there will be no more.
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
    // Who asks for it has finished writing.
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
