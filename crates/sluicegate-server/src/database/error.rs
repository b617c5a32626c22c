//! Why a database did not do what it was asked for.

use sqlx::migrate::MigrateError;

use crate::content::change::Refusal;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DatabaseError {
    /// The change must not be made.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It took too long.
    #[error("the database did not answer in time; see whether it is up and can be reached")]
    Slow,
    /// It cannot be asked.
    #[error("the database cannot be used: {0}; see whether it is up, can be reached and lets this user in")]
    Unusable(String),
    /// It holds something that this server never writes.
    #[error("the database holds what no server wrote: {0}; restore it, or import a file into an empty one")]
    Foreign(String),
    /// It was made by a newer server.
    #[error("the tables of the database are of a newer version; use that version of the server")]
    Newer,
    /// The server is about to end.
    #[error("the server is stopping")]
    Stopping,
}

impl From<sqlx::Error> for DatabaseError {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::PoolTimedOut => Self::Slow,
            // Errors of the driver name hosts, files and tables; passwords are not part of any.
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
