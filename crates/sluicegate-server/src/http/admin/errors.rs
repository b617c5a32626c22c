//! Responses to changes that failed.

use axum::http::StatusCode;
use sluicegate::response::ResponseClass;
use sluicegate::rules::file::{Problem as Mistake, Problems};

use crate::database::DatabaseError;
use crate::problem::Problem;
use crate::rule_documents::change::ChangeError;

/// The most errors in one response.
const TOLD_MAX: usize = 10;

/// The response to a database error.
pub(super) fn problem(error: DatabaseError) -> Problem {
    match error {
        DatabaseError::Refused(refusal) => refused(&refusal),
        DatabaseError::None => Problem::new(StatusCode::CONFLICT, DatabaseError::None.to_string()),
        error => {
            // The error of the driver is for operators, not for clients.
            tracing::warn!(%error, "a change failed, or the audit could not be read");
            let detail =
                "the database does not answer as it should; the rules in force stay in force, try again later";
            ResponseClass::Unavailable.problem(detail)
        }
    }
}

fn refused(refusal: &ChangeError) -> Problem {
    let status = match refusal {
        ChangeError::Exists { .. } | ChangeError::InUse { .. } | ChangeError::NotEmpty => StatusCode::CONFLICT,
        ChangeError::Absent { .. } => StatusCode::NOT_FOUND,
        ChangeError::Stale { .. } => StatusCode::PRECONDITION_FAILED,
        ChangeError::Invalid(problems) => return mistakes(problems, ""),
    };
    Problem::new(status, refusal.to_string())
}

/// Lists the errors in a body. Paths are shown without `start`, which the client did not send.
pub(super) fn mistakes(problems: &Problems, start: &str) -> Problem {
    let told: Vec<String> = problems.list().iter().take(TOLD_MAX).map(|mistake| words(mistake, start)).collect();
    let more = problems.list().len().saturating_sub(TOLD_MAX);
    let more = (more > 0).then(|| format!("and {more} more"));
    let detail = told.into_iter().chain(more).collect::<Vec<_>>().join("\n");
    let problem = Problem::new(StatusCode::BAD_REQUEST, detail);
    match problems.list().first().map(|mistake| path(mistake, start)) {
        Some(path) if !path.is_empty() => problem.field(path.to_owned()),
        _ => problem,
    }
}

fn path<'m>(mistake: &'m Mistake, start: &str) -> &'m str {
    let rest = mistake.path.strip_prefix(start).unwrap_or(&mistake.path);
    rest.strip_prefix('.').unwrap_or(rest)
}

fn words(mistake: &Mistake, start: &str) -> String {
    let value = mistake.value.as_ref().map_or(String::new(), |value| format!(" (value {value})"));
    let path = path(mistake, start);
    let separator = if path.is_empty() { "" } else { ": " };
    format!("{path}{separator}{}{value}: {}", mistake.message, mistake.remedy)
}
