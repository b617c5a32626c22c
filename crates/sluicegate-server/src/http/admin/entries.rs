//! Rules, tenants, overrides and keys: listed, read, made, changed and deleted, all in the same way.
//!
//! An answer with an entry carries its `ETag`. A change that sends it back in `If-Match` is refused with 412 if somebody
//! else was faster; one that sends none takes whatever is there.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::access::Role;
use super::{body, refused};
use crate::app::App;
use crate::content::change::{Changed, Refusal};
use crate::content::{Content, Entry, Kind};
use crate::http::json_body;
use crate::problem::Problem;

/// The routes of all kinds.
pub(super) fn routes() -> [(&'static str, MethodRouter<App>); 8] {
    [
        ("/admin/v1/rules", all(Kind::Rule)),
        ("/admin/v1/rules/{name}", one(Kind::Rule)),
        ("/admin/v1/tenants", all(Kind::Tenant)),
        ("/admin/v1/tenants/{name}", one(Kind::Tenant)),
        ("/admin/v1/overrides", all(Kind::Override)),
        ("/admin/v1/overrides/{name}", one(Kind::Override)),
        ("/admin/v1/keys", all(Kind::Key)),
        ("/admin/v1/keys/{name}", one(Kind::Key)),
    ]
}

/// What a change of this kind needs. Whoever operates makes exceptions; what applies to all is for administrators.
const fn role(kind: Kind) -> Role {
    match kind {
        Kind::Tenant | Kind::Override => Role::Operate,
        Kind::Rule | Kind::Key | Kind::Setting => Role::Admin,
    }
}

fn all(kind: Kind) -> MethodRouter<App> {
    get(move |State(app): State<App>, head: Parts| async move { list(kind, &app, &head) })
        .post(move |State(app): State<App>, request: Request| create(kind, app, request))
}

fn one(kind: Kind) -> MethodRouter<App> {
    get(move |State(app): State<App>, name: Name, head: Parts| async move { read(kind, &app, name, &head) })
        .put(move |State(app): State<App>, name: Name, request: Request| replace(kind, app, name, request))
        .delete(move |State(app): State<App>, name: Name, head: Parts| remove(kind, app, name, head))
}

fn list(kind: Kind, app: &App, head: &Parts) -> Result<Response, Problem> {
    app.admin_token().reader(head)?;
    let content = app.source().content();
    let entries: Vec<Value> = content.of(kind).map(|entry| body::shown(kind, entry.value())).collect();
    Ok(([no_store()], Json(entries)).into_response())
}

fn read(kind: Kind, app: &App, name: Name, head: &Parts) -> Result<Response, Problem> {
    app.admin_token().reader(head)?;
    answer(StatusCode::OK, &app.source().content(), kind, &named(name)?, None)
}

async fn create(kind: Kind, app: App, request: Request) -> Result<Response, Problem> {
    let (head, sent) = request.into_parts();
    let actor = app.admin_token().writer(&head, role(kind))?;
    let bytes = json_body::read_parts(&head.headers, sent).await?;
    let body::Sent { name, body, secret } = body::to_create(kind, &bytes, &app.source().content())?;
    let edit = |content: &mut Content| match content.get(kind, &name) {
        Some(_) => Err(Refusal::Exists { kind, name: name.clone() }),
        None => Ok(changed(content, kind, &name, Some(&body))),
    };
    let content = app.source().change(&app, actor, edit).await.map_err(refused::answer)?;
    answer(StatusCode::CREATED, &content, kind, &name, secret)
}

async fn replace(kind: Kind, app: App, name: Name, request: Request) -> Result<Response, Problem> {
    let (head, sent) = request.into_parts();
    let name = named(name)?;
    let actor = app.admin_token().writer(&head, role(kind))?;
    let bytes = json_body::read_parts(&head.headers, sent).await?;
    let content = app.source().content();
    expected(&content, kind, &name, &HeaderMap::new()).map_err(|absent| refused::answer(absent.into()))?;
    let body = body::to_replace(kind, &name, &bytes, &content)?;
    let edit = |content: &mut Content| {
        expected(content, kind, &name, &head.headers)?;
        Ok(changed(content, kind, &name, Some(&body)))
    };
    let content = app.source().change(&app, actor, edit).await.map_err(refused::answer)?;
    answer(StatusCode::OK, &content, kind, &name, None)
}

async fn remove(kind: Kind, app: App, name: Name, head: Parts) -> Result<Response, Problem> {
    let name = named(name)?;
    let actor = app.admin_token().writer(&head, role(kind))?;
    let edit = |content: &mut Content| {
        expected(content, kind, &name, &head.headers)?;
        if let Some(by) = user_of(content, kind, &name) {
            return Err(Refusal::InUse { kind, name: name.clone(), by });
        }
        Ok(changed(content, kind, &name, None))
    };
    app.source().change(&app, actor, edit).await.map_err(refused::answer)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn changed(content: &mut Content, kind: Kind, name: &str, body: Option<&Value>) -> Vec<Changed> {
    content.set(kind, name, body).into_iter().collect()
}

/// The name in the path, percent-decoded.
type Name = Result<Path<String>, PathRejection>;

fn named(name: Name) -> Result<String, Problem> {
    let undecodable = |_| body::bad("the name in the path is no text; percent-encode it as UTF-8").field("name");
    name.map(|Path(name)| name).map_err(undecodable)
}

/// Whether the entry is there, and as whoever wants to change it knows it.
fn expected(content: &Content, kind: Kind, name: &str, headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(entry) = content.get(kind, name) else {
        return Err(Refusal::Absent { kind, name: name.to_owned() });
    };
    let wanted: Vec<&HeaderValue> = headers.get_all(header::IF_MATCH).iter().collect();
    let tag = tag(entry);
    let fits = |value: &&HeaderValue| {
        value.to_str().is_ok_and(|list| list.split(',').map(str::trim).any(|each| each == "*" || each == tag))
    };
    if wanted.is_empty() || wanted.iter().any(fits) {
        return Ok(());
    }
    Err(Refusal::Stale { kind, name: name.to_owned() })
}

/// The override that a rule is needed by.
fn user_of(content: &Content, kind: Kind, name: &str) -> Option<String> {
    let uses = |entry: &&Entry| kind == Kind::Rule && entry.value()["rule"] == *name;
    content.of(Kind::Override).find(uses).map(|entry| entry.name.to_string())
}

/// Another one for every change of an entry, and for every body.
fn tag(entry: &Entry) -> String {
    let digest = Sha256::digest(entry.body.as_bytes());
    format!("\"{}-{}\"", entry.version, body::hex(&digest[..8]))
}

fn answer(
    status: StatusCode,
    content: &Content,
    kind: Kind,
    name: &str,
    secret: Option<String>,
) -> Result<Response, Problem> {
    let entry = content.get(kind, name).ok_or_else(|| {
        let detail = Refusal::Absent { kind, name: name.to_owned() }.to_string();
        Problem::new(StatusCode::NOT_FOUND, detail)
    })?;
    let mut shown = body::shown(kind, entry.value());
    if let (Some(secret), Some(shown)) = (secret, shown.as_object_mut()) {
        shown.insert("secret".to_owned(), secret.into());
    }
    let mut response = (status, [no_store()], Json(shown)).into_response();
    if let Ok(tag) = HeaderValue::from_str(&tag(entry)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

fn no_store() -> (header::HeaderName, HeaderValue) {
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))
}
