//! Errors of database operations.

use sqlx::migrate::MigrateError;

use crate::rule_documents::change::ChangeError;

/// The kind of error.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DatabaseError {
    /// The change is invalid.
    #[error(transparent)]
    Refused(#[from] ChangeError),
    /// The operation timed out.
    #[error("the database did not answer in time; see whether it is up and can be reached")]
    Slow,
    /// The database is unreachable.
    #[error("the database cannot be used: {0}; see whether it is up, can be reached and lets this user in")]
    Unusable(String),
    /// The tables contain data that this server never writes.
    #[error("the database holds what no server wrote: {0}; restore it, or import a file into an empty one")]
    Foreign(String),
    /// The tables are of a newer version.
    #[error("the tables of the database are of a newer version; use that version of the server")]
    Newer,
    /// No database is configured.
    #[error(
        "the rules are in the configuration file; change it there, or name a database with `database` in the file or \
         in SLUICEGATE_DATABASE, and start the server again"
    )]
    None,
    /// The server is shutting down.
    #[error("the server is stopping")]
    Stopping,
}

impl From<sqlx::Error> for DatabaseError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::PoolTimedOut => Self::Slow,
            // Errors of the driver contain hosts, files and tables, but no passwords.
            error => Self::Unusable(error.to_string()),
        }
    }
}

impl From<MigrateError> for DatabaseError {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::VersionMissing(_) | MigrateError::VersionTooOld(..) => Self::Newer,
            MigrateError::VersionMismatch(version) => {
                Self::Foreign(format!("migration {version} is not the one of this server"))
            }
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error.into(),
            error => Self::Unusable(error.to_string()),
        }
    }
}
