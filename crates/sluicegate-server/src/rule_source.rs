//! Where the rules in force come from: the configuration file, or a database, which this follows for news.
//!
//! A server with a database looks at its revision once in a [`ROUND`], and at once when PostgreSQL tells that there is a
//! new one. What is new is read and compiled as a whole, and takes effect as a whole. A database that is gone, slow or
//! holds what cannot be used changes nothing: what was in force stays in force, and log and metrics say so.
//!
//! Changes that are made through this server are in force on it when they are answered.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::core::Timestamp;
use sluicegate::identify::api_key::LiveKeys;
use sluicegate::rules::RuleSet;
use sqlx::postgres::PgListener;
use tokio::sync::Mutex;

use crate::app::App;
use crate::content::change::{Changed, Refusal};
use crate::content::{Compiled, Content, Kind};
use crate::database::url::DatabaseUrl;
use crate::database::{Database, DatabaseError};

/// How often the database is asked whether there is news: half of what a change may take to be seen.
const ROUND: Duration = Duration::from_secs(1);
/// Who brings a file into an empty database, in the audit.
const IMPORTER: &str = "start";

/// Where rules come from, and what they are. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSource(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    database: Option<Database>,
    content: ArcSwap<Content>,
    keys: Arc<LiveKeys>,
    /// Held from the question what is new until it is in force, so that nothing older comes after it.
    turn: Mutex<()>,
}

/// Why a server cannot start with its database.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {error}")]
pub(crate) struct RuleSourceError {
    url: String,
    error: DatabaseError,
}

impl RuleSource {
    fn with(database: Option<Database>, content: Content, compiled: &Compiled) -> Self {
        let shared = Shared { database, content: ArcSwap::from_pointee(content), ..Shared::default() };
        shared.keys.replace(compiled.keys.iter().cloned());
        Self(Arc::new(shared))
    }

    /// The database if there is one, else the file; and the rules to begin with.
    pub(crate) async fn at_start(
        database: Option<&DatabaseUrl>,
        file: Content,
        compiled: Compiled,
    ) -> Result<(Self, RuleSet), RuleSourceError> {
        let Some(url) = database else {
            return Ok((Self::with(None, file, &compiled), compiled.rules));
        };
        let (source, compiled) = Self::open(url, &file, millis(SystemClock::new().now())).await?;
        Ok((source, compiled.rules))
    }

    /// Opens the database. What the file holds is brought there if it is empty, and does not count otherwise.
    pub(crate) async fn open(
        url: &DatabaseUrl,
        file: &Content,
        now: i64,
    ) -> Result<(Self, Compiled), RuleSourceError> {
        let named = |error| RuleSourceError { url: url.to_string(), error };
        let database = Database::open(url).await.map_err(named)?;
        let import = |content: &mut Content| match content.revision {
            0 => Ok(content.take_over(file, |_| true)),
            _ => Err(Refusal::NotEmpty),
        };
        match database.change(IMPORTER, now, import).await {
            Ok(committed) => {
                let entries = committed.changed.len();
                tracing::info!(database = %url, entries, "the database was empty, and now holds what the file says");
                Ok((Self::with(Some(database), committed.content, &committed.compiled), committed.compiled))
            }
            Err(DatabaseError::Refused(Refusal::NotEmpty)) => {
                if file.of(Kind::Rule).next().is_some() {
                    let remedy = "change the rules there, or bring the file there with `sluicegate rules import`";
                    tracing::warn!(database = %url, remedy, "the rules of the file are ignored: the database has its own");
                }
                let content = database.content().await.map_err(named)?;
                let compiled = content.compile().map_err(|problems| named(Refusal::Invalid(problems).into()))?;
                Ok((Self::with(Some(database), content, &compiled), compiled))
            }
            Err(error) => Err(named(error)),
        }
    }

    /// The API keys in force.
    pub(crate) fn keys(&self) -> &Arc<LiveKeys> {
        &self.0.keys
    }

    /// What is in force.
    pub(crate) fn content(&self) -> Arc<Content> {
        self.0.content.load_full()
    }

    /// The database, if rules are in one.
    pub(crate) fn database(&self) -> Option<&Database> {
        self.0.database.as_ref()
    }

    /// Takes note of a file that has changed. Its rules are put in force unless a database has them.
    pub(crate) fn file_changed(&self, app: &App, content: Content, compiled: Compiled) {
        if self.0.database.is_none() {
            self.put(app, content, compiled);
        }
    }

    fn put(&self, app: &App, content: Content, compiled: Compiled) {
        let Compiled { rules, keys } = compiled;
        app.gate().replace_rules(rules);
        self.0.keys.replace(keys);
        self.0.content.store(Arc::new(content));
    }

    /// Makes a change in the database, and puts it in force here.
    pub(crate) async fn change<F>(&self, app: &App, actor: &str, edit: F) -> Result<Arc<Content>, DatabaseError>
    where
        F: FnOnce(&mut Content) -> Result<Vec<Changed>, Refusal>,
    {
        let database = self.0.database.as_ref().ok_or(DatabaseError::None)?;
        let _turn = self.0.turn.lock().await;
        let now = millis(app.limiter().clock().now());
        let committed = database.change(actor, now, edit).await?;
        self.put(app, committed.content, committed.compiled);
        Ok(self.content())
    }

    /// Follows the database, for ever, if there is one.
    pub(crate) async fn follow(&self, app: &App) {
        let Some(database) = &self.0.database else { return };
        let (mut listener, mut refused) = (None, None);
        loop {
            if listener.is_none() {
                // Without it, news are seen a little later.
                listener = database.listen().await.ok().flatten();
            }
            // What was told before anybody listened is seen by looking first.
            let outcome = self.look(app, database, &mut refused).await;
            app.reload().note_source(outcome);
            wait(&mut listener).await;
        }
    }

    /// Looks for news, and puts them in force. A revision that was refused is not read again.
    async fn look(
        &self,
        app: &App,
        database: &Database,
        refused: &mut Option<(i64, String)>,
    ) -> Result<(), String> {
        let _turn = self.0.turn.lock().await;
        let revision = database.revision().await.map_err(|error| error.to_string())?;
        if let Some((_, why)) = refused.as_ref().filter(|(bad, _)| *bad == revision) {
            return Err(why.clone());
        }
        *refused = None;
        if revision == self.content().revision {
            return Ok(());
        }
        let content = database.content().await.map_err(|error| error.to_string())?;
        // Large contents take a while, and other tasks must not wait for it.
        let compiled = tokio::task::spawn_blocking(move || (content.compile(), content)).await;
        let (compiled, content) = compiled.map_err(|_| DatabaseError::Stopping.to_string())?;
        match compiled {
            Ok(compiled) => {
                let revision = content.revision;
                self.put(app, content, compiled);
                tracing::info!(revision, "a new revision of the rules is in force");
                Ok(())
            }
            Err(problems) => {
                let why = format!("revision {} of the database cannot be used: {problems}", content.revision);
                *refused = Some((content.revision, why.clone()));
                Err(why)
            }
        }
    }
}

/// In milliseconds since 1970.
pub(crate) fn millis(now: Timestamp) -> i64 {
    i64::try_from(now.as_micros() / 1_000).unwrap_or(i64::MAX)
}

/// Waits for news, or until it is time to look.
async fn wait(listener: &mut Option<PgListener>) {
    let Some(listening) = listener else { return tokio::time::sleep(ROUND).await };
    tokio::select! {
        () = tokio::time::sleep(ROUND) => {}
        told = listening.recv() => {
            if told.is_err() {
                *listener = None;
                // A database that has just gone is not back at once.
                tokio::time::sleep(ROUND).await;
            }
        }
    }
}
