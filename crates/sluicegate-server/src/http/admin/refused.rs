//! Why a change was not made, as an answer.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderValue};
use sluicegate::rules::file::{Problem as Mistake, Problems};

use crate::content::change::Refusal;
use crate::database::DatabaseError;
use crate::problem::Problem;

/// The most mistakes that an answer tells; the first are enough to begin with.
const TOLD_MAX: usize = 10;

/// The answer.
pub(super) fn answer(error: DatabaseError) -> Problem {
    match error {
        DatabaseError::Refused(refusal) => refused(&refusal),
        DatabaseError::None => Problem::new(StatusCode::CONFLICT, DatabaseError::None.to_string()),
        error => {
            // What the driver says is for whoever runs the server, not for whoever asks it.
            tracing::warn!(%error, "a change could not be made, or the audit not be read");
            let detail =
                "the database does not answer as it should; what was in force stays in force, try again later";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
                .header(header::RETRY_AFTER, HeaderValue::from_static("1"))
        }
    }
}

fn refused(refusal: &Refusal) -> Problem {
    let status = match refusal {
        Refusal::Exists { .. } | Refusal::InUse { .. } | Refusal::NotEmpty => StatusCode::CONFLICT,
        Refusal::Absent { .. } => StatusCode::NOT_FOUND,
        Refusal::Stale { .. } => StatusCode::PRECONDITION_FAILED,
        Refusal::Invalid(problems) => return mistakes(problems, ""),
    };
    Problem::new(status, refusal.to_string())
}

/// Mistakes in a body. Paths are told without `start`, which the client did not send.
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
