//! `GET /admin/v1/history`: the last hour of all requests, or with `?rule=NAME` of the decisions of one rule's limits.
//!
//! `points` are the steps that were written down, the oldest first; each is a list of how many were allowed, denied, denied
//! had the rule not only watched, and of all these decided without the store.

use axum::Json;
use axum::extract::State;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::Dashboard;
use crate::http::admin_token;
use crate::problem::Problem;
use crate::telemetry::history::{STEP, Step};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Hour {
    step_seconds: u64,
    points: Vec<[u32; 4]>,
}

/// Answers.
pub(super) async fn history(State(dashboard): State<Dashboard>, head: Parts) -> Result<Response, Problem> {
    let app = &dashboard.app;
    admin_token::require_to_read(app.admin_token(), &head)?;
    let rule = rule(&head.uri)?;
    let steps = match app.history().steps(rule.as_deref()) {
        Some(steps) => steps,
        // A rule by which nothing was decided yet has been at rest.
        None if app.limiter().rules().rules().iter().any(|known| Some(known.space.name()) == rule.as_deref()) => {
            Vec::new()
        }
        None => {
            let detail = "no rule has the name in `rule`; `GET /admin/v1/rules` lists all names";
            return Err(Problem::new(StatusCode::NOT_FOUND, detail).field("rule"));
        }
    };
    let point = |step: &Step| [step.allowed, step.denied, step.shadow_denied, step.degraded];
    let hour = Hour { step_seconds: STEP.as_secs(), points: steps.iter().map(point).collect() };
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(([no_store], Json(hour)).into_response())
}

/// Which rule the query asks for.
fn rule(uri: &Uri) -> Result<Option<String>, Problem> {
    let Some(query) = uri.query().filter(|query| !query.is_empty()) else { return Ok(None) };
    let name = query.strip_prefix("rule=").filter(|name| !name.contains('&')).ok_or_else(|| {
        Problem::new(StatusCode::BAD_REQUEST, "the query is not `rule=NAME`; give that or nothing")
    })?;
    Ok(Some(percent_decode_str(name).decode_utf8_lossy().into_owned()))
}
