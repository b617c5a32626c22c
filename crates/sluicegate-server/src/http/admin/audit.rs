//! `GET /admin/v1/audit`: who changed what, newest first. `limit` says how many entries, and `before` a revision that only
//! older ones are wanted than.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;

use super::{body, refused};
use crate::app::App;
use crate::content::Kind;
use crate::database::AuditEntry;
use crate::problem::Problem;

/// How many entries are listed unless the request says otherwise.
const LIMIT_DEFAULT: i64 = 100;
/// The most entries of one answer.
const LIMIT_MAX: i64 = 1_000;

#[derive(Serialize)]
struct Audit {
    entries: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    revision: i64,
    at: i64,
    actor: String,
    action: String,
    kind: String,
    name: String,
    before: Option<Value>,
    after: Option<Value>,
}

impl From<AuditEntry> for Entry {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { revision, at, actor, action, kind, name, before, after } = entry;
        let shown = |value: Value| body::shown(Kind::from_word(&kind).unwrap_or(Kind::Setting), value);
        let (before, after) = (before.map(shown), after.map(shown));
        Self { revision, at, actor, action, kind, name, before, after }
    }
}

/// Lists the entries; without a database there are none.
pub(super) async fn list(State(app): State<App>, head: Parts) -> Result<Response, Problem> {
    app.admin_token().reader(&head)?;
    let (limit, before) = query(&head.uri)?;
    let entries = match app.source().database() {
        Some(database) => database.audit(limit, before).await.map_err(refused::answer)?,
        None => Vec::new(),
    };
    let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(([no_store], Json(Audit { entries: entries.into_iter().map(Entry::from).collect() })).into_response())
}

fn query(uri: &Uri) -> Result<(i64, Option<i64>), Problem> {
    let (mut limit, mut before) = (None, None);
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (field, number, place, highest) = match pair.split_once('=') {
            Some(("limit", number)) => ("limit", number, &mut limit, LIMIT_MAX),
            Some(("before", number)) => ("before", number, &mut before, i64::MAX),
            _ => return Err(body::bad("the query holds something other than `limit` and `before`; leave it out")),
        };
        let parsed = number.parse::<i64>().ok().filter(|number| (1..=highest).contains(number));
        let refused = |why: String| Err(body::bad(why).field(field));
        let Some(parsed) = parsed else {
            return refused(format!("`{field}` is not a whole number from 1 to {highest}; give one"));
        };
        if place.replace(parsed).is_some() {
            return refused(format!("`{field}` stands twice; give it once"));
        }
    }
    Ok((limit.unwrap_or(LIMIT_DEFAULT), before))
}
