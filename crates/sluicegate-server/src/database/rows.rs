//! The tables, row by row, within one transaction or on one connection. Both databases understand the same statements;
//! only how a transaction begins and how news are told differs.

use std::collections::HashMap;

use serde_json::Value;
use sqlx::{Postgres, Sqlite, Transaction};

use super::{CHANNEL, Database, DatabaseError};
use crate::content::change::Changed;
use crate::content::{Content, Entry, Kind};

/// How many revisions the audit goes back: years of changes by people, weeks of changes by programs.
const AUDIT_REVISIONS_MAX: i64 = 100_000;

/// One entry of the audit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuditEntry {
    /// The revision that the change led to.
    pub(crate) revision: i64,
    /// When, in milliseconds since 1970.
    pub(crate) at: i64,
    /// Who.
    pub(crate) actor: String,
    /// In a word.
    pub(crate) action: String,
    /// What.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
    /// What it was.
    pub(crate) before: Option<Value>,
    /// What it is.
    pub(crate) after: Option<Value>,
}

/// A transaction.
pub(super) enum Rows {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

/// The same on either kind of connection.
macro_rules! on {
    ($rows:expr, $connection:ident => $do:expr) => {
        match $rows {
            Rows::Sqlite(transaction) => {
                let $connection = &mut **transaction;
                $do
            }
            Rows::Postgres(transaction) => {
                let $connection = &mut **transaction;
                $do
            }
        }
    };
}

impl Rows {
    /// For one statement.
    pub(super) async fn of(database: &Database) -> Result<Self, DatabaseError> {
        Ok(match database {
            Database::Sqlite(pool) => Self::Sqlite(pool.begin().await?),
            Database::Postgres(pool) => Self::Postgres(pool.begin().await?),
        })
    }

    /// For several statements that see one state.
    pub(super) async fn begin_to_read(database: &Database) -> Result<Self, DatabaseError> {
        Ok(match database {
            Database::Sqlite(pool) => Self::Sqlite(pool.begin().await?),
            Database::Postgres(pool) => {
                Self::Postgres(pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?)
            }
        })
    }

    /// For a change: all others wait until it ends.
    pub(super) async fn begin_to_write(database: &Database) -> Result<Self, DatabaseError> {
        Ok(match database {
            Database::Sqlite(pool) => Self::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await?),
            Database::Postgres(pool) => {
                let mut transaction = pool.begin().await?;
                sqlx::query("SELECT revision FROM sluicegate_revision WHERE id = 1 FOR UPDATE")
                    .execute(&mut *transaction)
                    .await?;
                Self::Postgres(transaction)
            }
        })
    }

    pub(super) async fn revision(&mut self) -> Result<i64, DatabaseError> {
        const SELECT: &str = "SELECT revision FROM sluicegate_revision WHERE id = 1";
        Ok(on!(self, connection => sqlx::query_scalar(SELECT).fetch_one(connection).await?))
    }

    pub(super) async fn content(&mut self) -> Result<Content, DatabaseError> {
        const SELECT: &str = "SELECT kind, name, position, version, body FROM sluicegate_entries";
        let revision = self.revision().await?;
        let rows: Vec<(String, String, i64, i64, String)> =
            on!(self, connection => sqlx::query_as(SELECT).fetch_all(connection).await?);
        let entry = |(kind, name, position, version, body): (String, String, i64, i64, String)| {
            let kind = Kind::from_word(&kind).ok_or_else(|| foreign("a kind of entry"))?;
            Ok(Entry { kind, name: name.into(), position, version, body: body.into() })
        };
        let mut entries = rows.into_iter().map(entry).collect::<Result<Vec<Entry>, DatabaseError>>()?;
        entries.sort_by(|one, other| {
            (one.kind, one.position, &one.name).cmp(&(other.kind, other.position, &other.name))
        });
        Ok(Content { revision, entries, silent_on: Vec::new() })
    }

    /// Writes what differs between the two.
    pub(super) async fn write(&mut self, old: &Content, new: &Content) -> Result<(), DatabaseError> {
        const DELETE: &str = "DELETE FROM sluicegate_entries WHERE kind = $1 AND name = $2";
        const WRITE: &str = "INSERT INTO sluicegate_entries (kind, name, position, version, body) \
                             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (kind, name) DO UPDATE \
                             SET position = excluded.position, version = excluded.version, body = excluded.body";
        let mut gone: HashMap<(Kind, &str), &Entry> =
            old.entries.iter().map(|entry| ((entry.kind, &*entry.name), entry)).collect();
        for entry in &new.entries {
            if gone.remove(&(entry.kind, &*entry.name)) == Some(entry) {
                continue;
            }
            let Entry { kind, name, position, version, body } = entry;
            on!(self, connection => {
                let write = sqlx::query(WRITE).bind(kind.word()).bind(&**name).bind(position).bind(version);
                write.bind(&**body).execute(connection).await?;
            });
        }
        for (kind, name) in gone.into_keys() {
            on!(self, connection => {
                sqlx::query(DELETE).bind(kind.word()).bind(name).execute(connection).await?;
            });
        }
        Ok(())
    }

    pub(super) async fn write_audit(
        &mut self,
        content: &Content,
        actor: &str,
        at: i64,
        changed: &[Changed],
    ) -> Result<(), DatabaseError> {
        const INSERT: &str = "INSERT INTO sluicegate_audit \
                              (revision, number, at, actor, action, kind, name, body_before, body_after) \
                              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        const FORGET: &str = "DELETE FROM sluicegate_audit WHERE revision <= $1";
        let revision = content.revision;
        for (each, number) in changed.iter().zip(0_i64..) {
            on!(self, connection => {
                let insert = sqlx::query(INSERT).bind(revision).bind(number).bind(at).bind(actor);
                let insert = insert.bind(each.action()).bind(each.kind.word()).bind(&*each.name);
                insert.bind(each.before.as_deref()).bind(each.after.as_deref()).execute(connection).await?;
            });
        }
        on!(self, connection => {
            sqlx::query(FORGET).bind(revision - AUDIT_REVISIONS_MAX).execute(connection).await?;
        });
        Ok(())
    }

    /// Makes it so, and tells everybody that there is a new revision.
    pub(super) async fn commit(mut self, revision: i64) -> Result<(), DatabaseError> {
        const RAISE: &str = "UPDATE sluicegate_revision SET revision = $1 WHERE id = 1";
        on!(&mut self, connection => {
            sqlx::query(RAISE).bind(revision).execute(connection).await?;
        });
        match self {
            Self::Sqlite(transaction) => transaction.commit().await?,
            Self::Postgres(mut transaction) => {
                let notify = sqlx::query("SELECT pg_notify($1, $2)").bind(CHANNEL).bind(revision.to_string());
                notify.execute(&mut *transaction).await?;
                transaction.commit().await?;
            }
        }
        Ok(())
    }

    pub(super) async fn audit(&mut self, count: i64, before: i64) -> Result<Vec<AuditEntry>, DatabaseError> {
        const SELECT: &str = "SELECT revision, at, actor, action, kind, name, body_before, body_after \
                              FROM sluicegate_audit WHERE revision < $1 ORDER BY revision DESC, number DESC LIMIT $2";
        type Row = (i64, i64, String, String, String, String, Option<String>, Option<String>);
        let rows: Vec<Row> =
            on!(self, connection => sqlx::query_as(SELECT).bind(before).bind(count).fetch_all(connection).await?);
        let body = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        let entry = |(revision, at, actor, action, kind, name, before, after): Row| {
            let (before, after) = (body(before), body(after));
            AuditEntry { revision, at, actor, action, kind, name, before, after }
        };
        Ok(rows.into_iter().map(entry).collect())
    }
}

fn foreign(what: &str) -> DatabaseError {
    DatabaseError::Foreign(format!("{what} that this server does not know"))
}
