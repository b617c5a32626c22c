//! Rule documents in SQLite or PostgreSQL: the [`RuleDocuments`] of one revision is read as a whole. A
//! change is one transaction with its audit entries.
//!
//! Nothing invalid is written: within the transaction, the content with the change is compiled.
//! Writers are serialised by a lock on the row of the revision, so no change is lost. Every operation ends within
//! [`OPERATION_TIME_MAX`].
//!
//! Authorisation and the update of the limiter are elsewhere.

mod error;
mod file;
mod rows;
pub(crate) mod url;

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, SqlSafeStr as _};

use crate::rule_documents::change::{AppliedChange, ChangeError};
use crate::rule_documents::{CompiledRules, RuleDocuments};
pub(crate) use error::DatabaseError;
use rows::Rows;
pub(crate) use rows::{AuditEntry, AuditPlace};
use url::DatabaseUrl;

/// The deadline of an operation: an administrator waits for it, and the poller can retry later.
const OPERATION_TIME_MAX: Duration = Duration::from_secs(5);
/// The deadline of a connection attempt; shorter than an operation, so that its error is reported.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// Connections per server: administrators are few, and their changes are serialised anyway.
const CONNECTIONS_MAX: u32 = 4;
/// Attempts to create the tables before the error is final: servers that start concurrently may conflict
/// on one file.
const MIGRATION_TRIES: usize = 20;
/// The pause before the next attempt.
const MIGRATION_PAUSE: Duration = Duration::from_millis(50);
/// The PostgreSQL channel that notifies of a new revision.
const CHANNEL: &str = "sluicegate_revision";

/// A database that holds content.
#[derive(Clone, Debug)]
pub(crate) enum Database {
    /// A file.
    Sqlite(SqlitePool),
    /// PostgreSQL.
    Postgres(PgPool),
}

/// The result of a change.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The content after it.
    pub(crate) content: RuleDocuments,
    /// The same, compiled.
    pub(crate) compiled: CompiledRules,
    /// The changed entries.
    pub(crate) changed: Vec<AppliedChange>,
}

impl Database {
    /// Opens the database, and creates or migrates its tables to this version of the server.
    pub(crate) async fn open(url: &DatabaseUrl) -> Result<Self, DatabaseError> {
        let database = in_time(Self::connect(url)).await?;
        let mut outcome = in_time(database.migrate()).await;
        for _ in 1..MIGRATION_TRIES {
            if !matches!(outcome, Err(DatabaseError::Unusable(_))) {
                break;
            }
            tokio::time::sleep(MIGRATION_PAUSE).await;
            outcome = in_time(database.migrate()).await;
        }
        outcome.map(|()| database)
    }

    async fn connect(url: &DatabaseUrl) -> Result<Self, DatabaseError> {
        match url {
            DatabaseUrl::Sqlite(path) => {
                file::prepare(path);
                let pool =
                    SqlitePoolOptions::new().max_connections(CONNECTIONS_MAX).acquire_timeout(CONNECT_TIME_MAX);
                Ok(Self::Sqlite(pool.connect_with(sqlite_options(path)).await?))
            }
            DatabaseUrl::Postgres(options) => {
                let pool = PgPoolOptions::new().max_connections(CONNECTIONS_MAX).acquire_timeout(CONNECT_TIME_MAX);
                Ok(Self::Postgres(pool.connect_with(postgres_options(options)).await?))
            }
        }
    }

    async fn migrate(&self) -> Result<(), DatabaseError> {
        match self {
            Self::Sqlite(pool) => {
                // Readers and the one writer do not block each other. The mode is stored in the file, so later connections need not
                // set it: this statement ignores the busy timeout and fails while another connection holds the file.
                sqlx::query("PRAGMA journal_mode = WAL").execute(pool).await?;
                migrator().run(pool).await?;
            }
            Self::Postgres(pool) => migrator().run(pool).await?,
        }
        Ok(())
    }

    /// The number of the newest revision.
    pub(crate) async fn revision(&self) -> Result<i64, DatabaseError> {
        in_time(async { Rows::of(self).await?.revision().await }).await
    }

    /// The whole content, as of one revision.
    pub(crate) async fn content(&self) -> Result<RuleDocuments, DatabaseError> {
        in_time(async {
            let mut rows = Rows::begin_to_read(self).await?;
            rows.content().await
        })
        .await
    }

    /// The newest audit entries, newest first, before the given place if there is one.
    pub(crate) async fn audit(
        &self,
        count: i64,
        before: Option<AuditPlace>,
    ) -> Result<Vec<AuditEntry>, DatabaseError> {
        in_time(async { Rows::of(self).await?.audit(count, before.unwrap_or(AuditPlace::END)).await }).await
    }

    /// Applies `edit` to the newest content, if the result is valid. `actor` and `at`, in
    /// milliseconds since 1970, go to the audit.
    pub(crate) async fn change<F>(&self, actor: &str, at: i64, edit: F) -> Result<Committed, DatabaseError>
    where
        F: FnOnce(&mut RuleDocuments) -> Result<Vec<AppliedChange>, ChangeError>,
    {
        in_time(async {
            let mut rows = Rows::begin_to_write(self).await?;
            let old = rows.content().await?;
            let mut new = old.clone();
            let changed = edit(&mut new)?;
            let has_changed = !changed.is_empty() || new.entries != old.entries;
            if has_changed {
                new.revision += 1;
            }
            // Compiling a large content takes a while, and must not block other tasks.
            let compiled = tokio::task::spawn_blocking(move || (new.compile(), new)).await;
            let (compiled, content) = compiled.map_err(|_| DatabaseError::Stopping)?;
            let compiled = compiled.map_err(ChangeError::Invalid)?;
            if has_changed {
                rows.write(&old, &content).await?;
                rows.write_audit(&content, actor, at, &changed).await?;
                rows.commit(content.revision).await?;
            }
            Ok(Committed { content, compiled, changed })
        })
        .await
    }

    /// A connection that receives notifications, if this database supports them.
    pub(crate) async fn listen(&self) -> Result<Option<PgListener>, DatabaseError> {
        let Self::Postgres(pool) = self else { return Ok(None) };
        in_time(async {
            let mut listener = PgListener::connect_with(pool).await?;
            listener.listen(CHANNEL).await?;
            Ok(Some(listener))
        })
        .await
    }
}

async fn in_time<T>(operation: impl Future<Output = Result<T, DatabaseError>>) -> Result<T, DatabaseError> {
    tokio::time::timeout(OPERATION_TIME_MAX, operation).await.unwrap_or(Err(DatabaseError::Slow))
}

fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        // Acknowledged changes survive a power failure.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(CONNECT_TIME_MAX)
        .disable_statement_logging()
}

fn postgres_options(options: &PgConnectOptions) -> PgConnectOptions {
    let millis = OPERATION_TIME_MAX.as_millis().to_string();
    let options = options.clone().application_name("sluicegate");
    // An abandoned statement must not hold the row lock that writers wait for.
    let timeouts = [("statement_timeout", &*millis), ("idle_in_transaction_session_timeout", &millis)];
    options.options(timeouts).disable_statement_logging()
}

/// The migrations from the first version to this one. A published migration never changes.
fn migrator() -> Migrator {
    let content = include_str!("database/migrations/0001_content.sql");
    let first = Migration::new(1, Cow::Borrowed("content"), MigrationType::Simple, content.into_sql_str(), false);
    let mut migrator = Migrator::with_migrations(vec![first]);
    // Other programs with their own migrations may share the database.
    migrator.dangerous_set_table_name("sluicegate_migrations");
    migrator
}

#[cfg(test)]
mod tests;
