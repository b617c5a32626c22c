//! `database`: where rules and what belongs to them are kept, if not in the file.

use sluicegate::rules::file::{Reader, Wrong};

use super::without_secret;
use crate::database::url::DatabaseUrl;

/// Reads `database`, which stays as it was typed.
pub(super) fn read(reader: &Reader<'_>) -> Option<String> {
    let database = reader.text()?;
    match DatabaseUrl::parse(&database) {
        Ok(_) => Some(database),
        Err(problem) => {
            reader.report_as(Wrong::new("not a database", problem), Some(without_secret(reader)));
            None
        }
    }
}
