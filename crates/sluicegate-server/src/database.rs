//! Rules and what belongs to them in SQLite or PostgreSQL: the [`Content`] of one revision is read as a whole, and a
//! change is made as a whole, with its entries in the audit, or not at all.
//!
//! Nothing is written that could not be used: the content that a change would lead to is compiled within its transaction.
//! Writers wait for each other at the row that holds the revision, so no change is lost. Every operation ends within
//! [`OPERATION_TIME_MAX`].
//!
//! It does not decide who may change what, and does not tell the limiter.

mod error;
mod rows;
pub(crate) mod url;

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, SqlSafeStr as _};

use crate::content::change::{Changed, Refusal};
use crate::content::{Compiled, Content};
pub(crate) use error::DatabaseError;
pub(crate) use rows::AuditEntry;
use rows::Rows;
use url::DatabaseUrl;

/// How long any operation may take: an administrator waits for it, and the one who looks for news has others to try.
const OPERATION_TIME_MAX: Duration = Duration::from_secs(5);
/// How long to wait for a connection; less than an operation, so that the reason is told.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// Connections of one server: administrators are few, and their changes wait for each other anyway.
const CONNECTIONS_MAX: u32 = 4;
/// How often the tables are made before the fault is believed: servers that start at once may get in each other's way
/// on one file.
const MIGRATION_TRIES: usize = 20;
/// How long to leave the file to the others before the next try.
const MIGRATION_PAUSE: Duration = Duration::from_millis(50);
/// The channel on which PostgreSQL tells that there is a new revision.
const CHANNEL: &str = "sluicegate_revision";

/// A database that holds content.
#[derive(Clone, Debug)]
pub(crate) enum Database {
    /// A file.
    Sqlite(SqlitePool),
    /// PostgreSQL.
    Postgres(PgPool),
}

/// What a change came to.
#[derive(Debug)]
pub(crate) struct Committed {
    /// The content after it.
    pub(crate) content: Content,
    /// The same, ready to decide.
    pub(crate) compiled: Compiled,
    /// What was changed.
    pub(crate) changed: Vec<Changed>,
}

impl Database {
    /// Opens the database, and makes or changes its tables as this version of the server needs them.
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
                // Readers and the one writer do not wait for each other. The file remembers it, so no connection says it
                // again: this is the one statement that waits for nobody and fails while another has the file.
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

    /// Everything, as of one revision.
    pub(crate) async fn content(&self) -> Result<Content, DatabaseError> {
        in_time(async {
            let mut rows = Rows::begin_to_read(self).await?;
            rows.content().await
        })
        .await
    }

    /// The newest entries of the audit, newest first, from before this revision if one is given.
    pub(crate) async fn audit(&self, count: i64, before: Option<i64>) -> Result<Vec<AuditEntry>, DatabaseError> {
        in_time(async { Rows::of(self).await?.audit(count, before.unwrap_or(i64::MAX)).await }).await
    }

    /// Makes the change that `edit` makes of the newest content, if all of it can be used then. `actor` and `at`, in
    /// milliseconds since 1970, go to the audit.
    pub(crate) async fn change<F>(&self, actor: &str, at: i64, edit: F) -> Result<Committed, DatabaseError>
    where
        F: FnOnce(&mut Content) -> Result<Vec<Changed>, Refusal>,
    {
        in_time(async {
            let mut rows = Rows::begin_to_write(self).await?;
            let old = rows.content().await?;
            let mut new = old.clone();
            let changed = edit(&mut new)?;
            let is_news = !changed.is_empty() || new.entries != old.entries;
            if is_news {
                new.revision += 1;
            }
            // Large contents take a while, and other tasks must not wait for it.
            let compiled = tokio::task::spawn_blocking(move || (new.compile(), new)).await;
            let (compiled, content) = compiled.map_err(|_| DatabaseError::Stopping)?;
            let compiled = compiled.map_err(Refusal::Invalid)?;
            if is_news {
                rows.write(&old, &content).await?;
                rows.write_audit(&content, actor, at, &changed).await?;
                rows.commit(content.revision).await?;
            }
            Ok(Committed { content, compiled, changed })
        })
        .await
    }

    /// A connection on which news are told, if this database tells any.
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
        // What was acknowledged survives a power cut.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(CONNECT_TIME_MAX)
        .disable_statement_logging()
}

fn postgres_options(options: &PgConnectOptions) -> PgConnectOptions {
    let millis = OPERATION_TIME_MAX.as_millis().to_string();
    let options = options.clone().application_name("sluicegate");
    // A statement that nobody waits for any more must not hold the row that writers wait for.
    let timeouts = [("statement_timeout", &*millis), ("idle_in_transaction_session_timeout", &millis)];
    options.options(timeouts).disable_statement_logging()
}

/// The tables, from the first version to this one. A migration that was published is never changed.
fn migrator() -> Migrator {
    let content = include_str!("database/migrations/0001_content.sql");
    let first = Migration::new(1, Cow::Borrowed("content"), MigrationType::Simple, content.into_sql_str(), false);
    let mut migrator = Migrator::with_migrations(vec![first]);
    // The database may be shared with programs that have migrations of their own.
    migrator.dangerous_set_table_name("sluicegate_migrations");
    migrator
}

#[cfg(test)]
mod tests;
