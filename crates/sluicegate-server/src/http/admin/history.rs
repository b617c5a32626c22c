//! `GET /admin/v1/history`: the last hour, step by step. Without a query it covers all requests, with `?rule=NAME` the
//! requests decided by one rule, and with `?rules=all` both all requests and every rule with a track, at one instant.
//!
//! `points` are the completed steps, the oldest first. Each is a list of four counts: allowed, denied, denied in shadow mode,
//! and of all these decided without the store. The last step ended at `until`.

use axum::Json;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use percent_encoding::percent_decode_str;

use super::no_store;
use crate::admin_api::{History, Point, RulePoints};
use crate::admin_tokens;
use crate::engine::Engine;
use crate::problem::Problem;
use crate::telemetry::history::{HistoryStep, Hour, STEP};

/// The tracks that a query selects.
enum Tracks {
    AllRequests,
    OneRule(String),
    AllRules,
}

/// Returns the selected tracks.
pub(super) async fn history(State(engine): State<Engine>, head: Parts) -> Result<Response, Problem> {
    admin_tokens::require_to_read(engine.admin_tokens(), &head).await?;
    let history = engine.history();
    match selected_tracks(&head.uri)? {
        Tracks::AllRequests => {
            let hour = history.hour(None);
            Ok(response(hour.as_ref(), None))
        }
        Tracks::OneRule(name) => {
            let hour = history.hour(Some(&name));
            // A rule without decisions so far has no track, and its hour is empty.
            let is_known = || engine.limiter().rules().rules().iter().any(|rule| rule.space.name() == name);
            if hour.is_none() && !is_known() {
                let detail = "no rule has the name in `rule`; `GET /admin/v1/rules` lists all names";
                return Err(Problem::new(StatusCode::NOT_FOUND, detail).field("rule"));
            }
            Ok(response(hour.as_ref(), None))
        }
        Tracks::AllRules => {
            let (rules, (all, tracks)) = (engine.limiter().rules(), history.whole());
            let listed = rules.rules().iter().filter_map(|rule| {
                let points = points(tracks.get(rule.space.name())?);
                Some(RulePoints { name: rule.space.name().to_owned(), mode: rule.mode.name().into(), points })
            });
            Ok(response(Some(&all), Some(listed.collect())))
        }
    }
}

fn response(hour: Option<&Hour>, rules: Option<Vec<RulePoints>>) -> Response {
    let until = hour.and_then(|hour| hour.until).map(|until| until.as_micros() / 1_000);
    let points = hour.map(points).unwrap_or_default();
    let history = History { until, step_seconds: STEP.as_secs(), points, rules };
    ([no_store()], Json(history)).into_response()
}

fn points(hour: &Hour) -> Vec<Point> {
    let point = |step: &HistoryStep| [step.allowed, step.denied, step.shadow_denied, step.degraded];
    hour.steps.iter().map(point).collect()
}

/// The tracks that the query selects.
fn selected_tracks(uri: &Uri) -> Result<Tracks, Problem> {
    let query = uri.query().unwrap_or_default();
    match query.split_once('=') {
        None if query.is_empty() => Ok(Tracks::AllRequests),
        Some(("rules", "all")) => Ok(Tracks::AllRules),
        Some(("rule", name)) if !name.contains('&') => {
            Ok(Tracks::OneRule(percent_decode_str(name).decode_utf8_lossy().into_owned()))
        }
        _ => {
            let detail = "the query is neither `rule=NAME` nor `rules=all`; give one of them or nothing";
            Err(Problem::new(StatusCode::BAD_REQUEST, detail))
        }
    }
}
