//! The source of the rules in force: the configuration file, or a database that this polls for changes.
//!
//! A server with a database checks its revision once per [`ROUND`], and at once when PostgreSQL sends a
//! notification. A new revision is read, compiled and put into force as a whole. A database that is down, slow or
//! has invalid rules changes nothing: the rules in force stay, and log and metrics report it.
//!
//! Changes through this server are in force on it when the response is sent.
//!
//! The limits of a control plane ([`crate::envoy_xds`]) are added to the rules of the file, and either part can change
//! without the other.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex as BlockingMutex;
use sluicegate::clock::{Clock as _, SystemClock};
use sluicegate::core::Timestamp;
use sluicegate::identify::api_key::LiveKeys;
use sluicegate::rules::envoy::EnvoyConfig;
use sluicegate::rules::{RuleSet, RuleSetError};
use sqlx::postgres::PgListener;
use tokio::sync::Mutex;

use crate::database::url::DatabaseUrl;
use crate::database::{Database, DatabaseError};
use crate::limiter::ServerGate;
use crate::rule_documents::change::{AppliedChange, ChangeError};
use crate::rule_documents::{CompiledRules, Kind, RuleDocuments};

/// The interval at which the database is polled: half of the promised delay of a change.
const ROUND: Duration = Duration::from_secs(1);
/// The actor in the audit for the import of a file into an empty database.
const IMPORTER: &str = "start";

/// The source and the content of the rules. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleSource(Arc<SourceState>);

#[derive(Debug, Default)]
struct SourceState {
    database: Option<Database>,
    content: ArcSwap<RuleDocuments>,
    keys: Arc<LiveKeys>,
    /// Held from reading a revision until it is in force, so that no older one follows it.
    turn: Mutex<()>,
    /// The parts of the rules, if a control plane has one of them. Held until a change is in force.
    parts: BlockingMutex<Option<RuleParts>>,
}

/// The rules of the file, and the limits of the control plane.
#[derive(Debug)]
struct RuleParts {
    own: RuleSet,
    envoy: EnvoyConfig,
}

impl RuleParts {
    fn joined(own: &RuleSet, envoy: &EnvoyConfig) -> Result<RuleSet, RuleSetError> {
        own.clone().with_envoy(envoy.clone())
    }
}

/// Why a server cannot start with its database.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {error}")]
pub(crate) struct RuleSourceError {
    url: String,
    error: DatabaseError,
}

impl RuleSource {
    fn with(database: Option<Database>, content: RuleDocuments, compiled: &CompiledRules) -> Self {
        let shared = SourceState { database, content: ArcSwap::from_pointee(content), ..SourceState::default() };
        shared.keys.replace(compiled.keys.iter().cloned());
        Self(Arc::new(shared))
    }

    /// The database if there is one, else the file; and the initial rules.
    pub(crate) async fn at_start(
        database: Option<&DatabaseUrl>,
        file: RuleDocuments,
        compiled: CompiledRules,
    ) -> Result<(Self, RuleSet), RuleSourceError> {
        let Some(url) = database else {
            return Ok((Self::with(None, file, &compiled), compiled.rules));
        };
        let (source, compiled) = Self::open(url, &file, millis(SystemClock::new().now())).await?;
        Ok((source, compiled.rules))
    }

    /// Opens the database. If it is empty, the content of the file is imported; otherwise the file is ignored.
    pub(crate) async fn open(
        url: &DatabaseUrl,
        file: &RuleDocuments,
        now: i64,
    ) -> Result<(Self, CompiledRules), RuleSourceError> {
        let named = |error| RuleSourceError { url: url.to_string(), error };
        let database = Database::open(url).await.map_err(named)?;
        let import = |content: &mut RuleDocuments| match content.revision {
            0 => Ok(content.take_over(file, |_| true)),
            _ => Err(ChangeError::NotEmpty),
        };
        match database.change(IMPORTER, now, import).await {
            Ok(committed) => {
                let entries = committed.changed.len();
                tracing::info!(database = %url, entries, "the database was empty, and now holds what the file says");
                Ok((Self::with(Some(database), committed.content, &committed.compiled), committed.compiled))
            }
            Err(DatabaseError::Refused(ChangeError::NotEmpty)) => {
                if file.of(Kind::Rule).next().is_some() {
                    let remedy = "change the rules there, or bring the file there with `sluicegate rules import`";
                    tracing::warn!(database = %url, remedy, "the rules of the file are ignored: the database has its own");
                }
                let content = database.content().await.map_err(named)?;
                let compiled =
                    content.compile().map_err(|problems| named(ChangeError::Invalid(problems).into()))?;
                Ok((Self::with(Some(database), content, &compiled), compiled))
            }
            Err(error) => Err(named(error)),
        }
    }

    /// The API keys in force.
    pub(crate) fn keys(&self) -> &Arc<LiveKeys> {
        &self.0.keys
    }

    /// The content in force.
    pub(crate) fn content(&self) -> Arc<RuleDocuments> {
        self.0.content.load_full()
    }

    /// The database, if it holds the rules.
    pub(crate) fn database(&self) -> Option<&Database> {
        self.0.database.as_ref()
    }

    /// Prepares for the limits of a control plane beside `own`, the rules of the file. Returns the initial rules, in which
    /// every domain is unknown.
    pub(crate) fn expect_envoy(&self, own: RuleSet) -> Result<RuleSet, RuleSetError> {
        let envoy = EnvoyConfig::default();
        let rules = RuleParts::joined(&own, &envoy)?;
        *self.0.parts.lock() = Some(RuleParts { own, envoy });
        Ok(rules)
    }

    /// Puts the limits of the control plane into force.
    pub(crate) fn put_envoy(&self, gate: &ServerGate, envoy: EnvoyConfig) -> Result<(), RuleSetError> {
        let mut parts = self.0.parts.lock();
        if let Some(parts) = &mut *parts {
            gate.replace_rules(RuleParts::joined(&parts.own, &envoy)?);
            parts.envoy = envoy;
        }
        Ok(())
    }

    /// Handles a changed file. Its rules are put into force unless a database holds them, or they do not go together with
    /// the limits of the control plane.
    pub(crate) fn file_changed(
        &self,
        gate: &ServerGate,
        content: RuleDocuments,
        compiled: CompiledRules,
    ) -> Result<(), RuleSetError> {
        if self.0.database.is_some() {
            return Ok(());
        }
        let mut parts = self.0.parts.lock();
        let compiled = match &mut *parts {
            None => compiled,
            Some(parts) => {
                let rules = RuleParts::joined(&compiled.rules, &parts.envoy)?;
                parts.own = compiled.rules;
                CompiledRules { rules, ..compiled }
            }
        };
        self.put(gate, content, compiled);
        Ok(())
    }

    fn put(&self, gate: &ServerGate, content: RuleDocuments, compiled: CompiledRules) {
        let CompiledRules { rules, keys } = compiled;
        gate.replace_rules(rules);
        self.0.keys.replace(keys);
        self.0.content.store(Arc::new(content));
    }

    /// Makes a change in the database, and puts it into force here.
    pub(crate) async fn change<F>(
        &self,
        gate: &ServerGate,
        actor: &str,
        edit: F,
    ) -> Result<Arc<RuleDocuments>, DatabaseError>
    where
        F: FnOnce(&mut RuleDocuments) -> Result<Vec<AppliedChange>, ChangeError>,
    {
        let database = self.0.database.as_ref().ok_or(DatabaseError::None)?;
        let _turn = self.0.turn.lock().await;
        let now = millis(gate.limiter().clock().time_of_day());
        let committed = database.change(actor, now, edit).await?;
        self.put(gate, committed.content, committed.compiled);
        Ok(self.content())
    }

    /// Polls the database, if there is one, for as long as the server runs. `report` receives the result of each poll.
    pub(crate) async fn follow(&self, gate: &ServerGate, report: impl Fn(Result<(), String>)) {
        let Some(database) = &self.0.database else { return };
        let (mut listener, mut refused) = (None, None);
        loop {
            if listener.is_none() {
                // Without notifications, polling finds changes a little later.
                listener = database.listen().await.ok().flatten();
            }
            // A first poll finds changes from before the subscription.
            let outcome = self.look(gate, database, &mut refused).await;
            report(outcome);
            wait(&mut listener).await;
        }
    }

    /// Polls for a new revision and puts it into force. An invalid revision is not read again.
    async fn look(
        &self,
        gate: &ServerGate,
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
        // Compiling a large content takes a while, and must not block other tasks.
        let compiled = tokio::task::spawn_blocking(move || (content.compile(), content)).await;
        let (compiled, content) = compiled.map_err(|_| DatabaseError::Stopping.to_string())?;
        match compiled {
            Ok(compiled) => {
                let revision = content.revision;
                self.put(gate, content, compiled);
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

/// Waits for a notification, or until the next poll is due.
async fn wait(listener: &mut Option<PgListener>) {
    let Some(listening) = listener else { return tokio::time::sleep(ROUND).await };
    tokio::select! {
        () = tokio::time::sleep(ROUND) => {}
        notified = listening.recv() => {
            if notified.is_err() {
                *listener = None;
                // A database that has just gone down is not back at once.
                tokio::time::sleep(ROUND).await;
            }
        }
    }
}
