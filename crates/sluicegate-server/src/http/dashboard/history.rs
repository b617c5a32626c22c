//! `GET /admin/v1/history`: the last hour of all requests, with `?rule=NAME` of those by one rule, and with `?rules=all` of
//! all requests and of every rule that has a track, as of one moment.
//!
//! `points` are the steps that were written down, the oldest first; each is a list of how many were allowed, denied, denied
//! had the rule not only watched, and of all these decided without the store. The last of them ended at `until`.

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
use crate::telemetry::history::{Hour, STEP, Step};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    /// Milliseconds since 1970; none if no step is over yet.
    until: Option<u64>,
    step_seconds: u64,
    points: Vec<[u32; 4]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<RulePoints<'a>>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RulePoints<'a> {
    name: &'a str,
    mode: &'static str,
    points: Vec<[u32; 4]>,
}

/// What is asked for.
enum Question {
    Requests,
    Rule(String),
    Rules,
}

/// Answers.
pub(super) async fn history(State(dashboard): State<Dashboard>, head: Parts) -> Result<Response, Problem> {
    let app = &dashboard.app;
    admin_token::require_to_read(app.admin_token(), &head)?;
    let history = app.history();
    match question(&head.uri)? {
        Question::Requests => {
            let hour = history.hour(None);
            Ok(answer(hour.as_ref(), None))
        }
        Question::Rule(name) => {
            let hour = history.hour(Some(&name));
            // A rule by which nothing was decided yet has been at rest.
            let is_known = || app.limiter().rules().rules().iter().any(|rule| rule.space.name() == name);
            if hour.is_none() && !is_known() {
                let detail = "no rule has the name in `rule`; `GET /admin/v1/rules` lists all names";
                return Err(Problem::new(StatusCode::NOT_FOUND, detail).field("rule"));
            }
            Ok(answer(hour.as_ref(), None))
        }
        Question::Rules => {
            let (rules, (all, tracks)) = (app.limiter().rules(), history.whole());
            let listed = rules.rules().iter().filter_map(|rule| {
                let (name, mode) = (rule.space.name(), rule.mode.name());
                Some(RulePoints { name, mode, points: points(tracks.get(name)?) })
            });
            Ok(answer(Some(&all), Some(listed.collect())))
        }
    }
}

fn answer(hour: Option<&Hour>, rules: Option<Vec<RulePoints<'_>>>) -> Response {
    let until = hour.and_then(|hour| hour.until).map(|until| until.as_micros() / 1_000);
    let points = hour.map(points).unwrap_or_default();
    let answer = Answer { until, step_seconds: STEP.as_secs(), points, rules };
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    ([no_store], Json(answer)).into_response()
}

fn points(hour: &Hour) -> Vec<[u32; 4]> {
    let point = |step: &Step| [step.allowed, step.denied, step.shadow_denied, step.degraded];
    hour.steps.iter().map(point).collect()
}

/// What the query asks for.
fn question(uri: &Uri) -> Result<Question, Problem> {
    let query = uri.query().unwrap_or_default();
    match query.split_once('=') {
        None if query.is_empty() => Ok(Question::Requests),
        Some(("rules", "all")) => Ok(Question::Rules),
        Some(("rule", name)) if !name.contains('&') => {
            Ok(Question::Rule(percent_decode_str(name).decode_utf8_lossy().into_owned()))
        }
        _ => {
            let detail = "the query is neither `rule=NAME` nor `rules=all`; give one of them or nothing";
            Err(Problem::new(StatusCode::BAD_REQUEST, detail))
        }
    }
}
