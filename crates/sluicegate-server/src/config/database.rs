//! `database`: the URL of the database that stores rules, tenants, overrides and API keys instead of the file.

use sluicegate::rules::file::{Reader, ValueError};

use super::without_secret;
use crate::database::url::DatabaseUrl;

/// Checks the URL and keeps its text, because an environment variable can override it.
pub(super) fn read(reader: &Reader<'_>) -> Option<String> {
    let database = reader.text()?;
    match DatabaseUrl::parse(&database) {
        Ok(_) => Some(database),
        Err(problem) => {
            reader.report_as(ValueError::new("not a database", problem), Some(without_secret(reader)));
            None
        }
    }
}
