//! The tables, row by row, within one transaction or on one connection. Both databases support the same statements;
//! they differ only in how a transaction begins and how notifications work.

use std::collections::HashMap;

use serde_json::Value;
use sqlx::{Postgres, Sqlite, Transaction};

use super::{CHANNEL, Database, DatabaseError};
use crate::rule_documents::change::AppliedChange;
use crate::rule_documents::{Entry, Kind, RuleDocuments};

/// The number of revisions in the audit: years of manual changes, weeks of automated ones.
const AUDIT_REVISIONS_MAX: i64 = 100_000;

/// The position of an entry in the audit, which is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuditPlace {
    /// The revision after the change.
    pub(crate) revision: i64,
    /// The number of the entry within the revision.
    pub(crate) number: i64,
}

impl AuditPlace {
    /// After all entries.
    pub(super) const END: Self = Self { revision: i64::MAX, number: i64::MAX };
}

/// One entry of the audit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuditEntry {
    /// Its position.
    pub(crate) place: AuditPlace,
    /// The time in milliseconds since 1970.
    pub(crate) at: i64,
    /// The actor.
    pub(crate) actor: String,
    /// The action: create, update or delete.
    pub(crate) action: String,
    /// The kind of the object.
    pub(crate) kind: String,
    /// Its name.
    pub(crate) name: String,
    /// The body before the change.
    pub(crate) before: Option<Value>,
    /// The body after the change.
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

    /// For several statements on one snapshot.
    pub(super) async fn begin_to_read(database: &Database) -> Result<Self, DatabaseError> {
        Ok(match database {
            Database::Sqlite(pool) => Self::Sqlite(pool.begin().await?),
            Database::Postgres(pool) => {
                Self::Postgres(pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?)
            }
        })
    }

    /// For a change: other writers wait until it ends.
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

    pub(super) async fn content(&mut self) -> Result<RuleDocuments, DatabaseError> {
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
        Ok(RuleDocuments { revision, entries, absent_kinds: Vec::new() })
    }

    /// Writes the differences between the two.
    pub(super) async fn write(&mut self, old: &RuleDocuments, new: &RuleDocuments) -> Result<(), DatabaseError> {
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
        content: &RuleDocuments,
        actor: &str,
        at: i64,
        changed: &[AppliedChange],
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

    /// Commits, and notifies the other servers of the new revision.
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

    pub(super) async fn audit(
        &mut self,
        count: i64,
        before: AuditPlace,
    ) -> Result<Vec<AuditEntry>, DatabaseError> {
        const SELECT: &str = "SELECT revision, number, at, actor, action, kind, name, body_before, body_after \
                              FROM sluicegate_audit WHERE revision < $1 OR (revision = $1 AND number < $2) \
                              ORDER BY revision DESC, number DESC LIMIT $3";
        type Row = (i64, i64, i64, String, String, String, String, Option<String>, Option<String>);
        let rows: Vec<Row> = on!(self, connection => {
            let select = sqlx::query_as(SELECT).bind(before.revision).bind(before.number).bind(count);
            select.fetch_all(connection).await?
        });
        let body = |text: Option<String>| text.and_then(|text| serde_json::from_str(&text).ok());
        let entry = |(revision, number, at, actor, action, kind, name, before, after): Row| {
            let (before, after) = (body(before), body(after));
            let place = AuditPlace { revision, number };
            AuditEntry { place, at, actor, action, kind, name, before, after }
        };
        Ok(rows.into_iter().map(entry).collect())
    }
}

fn foreign(what: &str) -> DatabaseError {
    DatabaseError::Foreign(format!("{what} that this server does not know"))
}
