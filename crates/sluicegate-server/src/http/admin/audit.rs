//! `GET /admin/v1/audit`: the changes and their authors, newest first. `limit` bounds the number of entries. `before`
//! selects older entries: older than a revision, or than one entry of a revision. If there may be more, a `Link`
//! leads to the next page; page by page, every entry is listed once.

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::{self, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;

use super::{body, errors};
use crate::database::{AuditEntry, AuditPlace};
use crate::engine::Engine;
use crate::problem::Problem;
use crate::rule_documents::Kind;

/// The number of entries unless the request sets one.
const LIMIT_DEFAULT: i64 = 100;
/// The most entries of one response.
const LIMIT_MAX: i64 = 1_000;

#[derive(Serialize)]
struct Audit {
    entries: Vec<AuditEntryJson>,
}

#[derive(Serialize)]
struct AuditEntryJson {
    revision: i64,
    number: i64,
    at: i64,
    actor: String,
    action: String,
    kind: String,
    name: String,
    before: Option<Value>,
    after: Option<Value>,
}

impl From<AuditEntry> for AuditEntryJson {
    fn from(entry: AuditEntry) -> Self {
        let AuditEntry { place: AuditPlace { revision, number }, at, actor, action, kind, name, before, after } =
            entry;
        let shown = |value: Value| body::shown(Kind::from_word(&kind).unwrap_or(Kind::Setting), value);
        let (before, after) = (before.map(shown), after.map(shown));
        Self { revision, number, at, actor, action, kind, name, before, after }
    }
}

/// Lists the entries; without a database there are none.
pub(super) async fn list(State(engine): State<Engine>, head: Parts) -> Result<Response, Problem> {
    engine.admin_tokens().reader(&head).await?;
    let (limit, before) = query(&head.uri)?;
    let entries = match engine.source().database() {
        Some(database) => database.audit(limit, before).await.map_err(errors::problem)?,
        None => Vec::new(),
    };
    let next = entries.last().filter(|_| i64::try_from(entries.len()) == Ok(limit)).and_then(|last| {
        let AuditPlace { revision, number } = last.place;
        let next = format!("</admin/v1/audit?limit={limit}&before={revision}.{number}>; rel=\"next\"");
        HeaderValue::from_str(&next).ok()
    });
    let no_store = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    let answer = Json(Audit { entries: entries.into_iter().map(AuditEntryJson::from).collect() });
    let mut response = (no_store, answer).into_response();
    response.headers_mut().extend(next.map(|next| (header::LINK, next)));
    Ok(response)
}

fn query(uri: &Uri) -> Result<(i64, Option<AuditPlace>), Problem> {
    let (mut limit, mut before) = (None, None);
    for pair in uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let is_again = match pair.split_once('=') {
            Some(("limit", text)) => limit.replace(read_limit(text)?).is_some(),
            Some(("before", text)) => before.replace(read_place(text)?).is_some(),
            _ => return Err(body::bad("the query holds something other than `limit` and `before`; leave it out")),
        };
        if is_again {
            let field = if pair.starts_with("limit") { "limit" } else { "before" };
            return Err(body::bad(format!("`{field}` is given twice; give it once")).field(field));
        }
    }
    Ok((limit.unwrap_or(LIMIT_DEFAULT), before))
}

fn read_limit(text: &str) -> Result<i64, Problem> {
    let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
    let bad =
        || body::bad(format!("`limit` is not a whole number from 1 to {LIMIT_MAX}; give one")).field("limit");
    limit.ok_or_else(bad)
}

/// A revision, whose entries are all excluded, or the position of an entry.
fn read_place(text: &str) -> Result<AuditPlace, Problem> {
    let (revision, number) = text.split_once('.').unwrap_or((text, "0"));
    let place =
        revision.parse().ok().zip(number.parse().ok()).filter(|(revision, number)| *revision >= 1 && *number >= 0);
    let bad = || {
        let remedy =
            "give the `revision` of an entry, or its `revision` and `number` with a dot in between, such as 7.12";
        body::bad(format!("`before` is not a position in the audit; {remedy}")).field("before")
    };
    place.map(|(revision, number)| AuditPlace { revision, number }).ok_or_else(bad)
}
