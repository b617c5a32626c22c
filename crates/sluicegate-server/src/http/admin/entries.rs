//! Rules, tenants, overrides and API keys: list, read, create, replace and delete, all by the same handlers.
//!
//! A response with an entry carries its `ETag`. A change with that tag in `If-Match` is rejected with 412 if another
//! change came first. A change without `If-Match` overwrites the current entry.

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

use super::{body, errors, no_store};
use crate::config::admin::Role;
use crate::engine::Engine;
use crate::http::json_body;
use crate::problem::Problem;
use crate::rule_documents::change::{AppliedChange, ChangeError};
use crate::rule_documents::{Entry, Kind, RuleDocuments};

/// The routes of all kinds.
pub(super) fn routes() -> [(&'static str, MethodRouter<Engine>); 8] {
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

/// The role that a change of this kind needs. Operators make exceptions; administrators change rules that apply to
/// all.
const fn role(kind: Kind) -> Role {
    match kind {
        Kind::Tenant | Kind::Override => Role::Operate,
        Kind::Rule | Kind::Key | Kind::Setting => Role::Admin,
    }
}

fn all(kind: Kind) -> MethodRouter<Engine> {
    get(move |State(engine): State<Engine>, head: Parts| async move { list(kind, &engine, &head).await })
        .post(move |State(engine): State<Engine>, request: Request| create(kind, engine, request))
}

fn one(kind: Kind) -> MethodRouter<Engine> {
    get(move |State(engine): State<Engine>, name: Name, head: Parts| async move {
        read(kind, &engine, name, &head).await
    })
    .put(move |State(engine): State<Engine>, name: Name, request: Request| replace(kind, engine, name, request))
    .delete(move |State(engine): State<Engine>, name: Name, head: Parts| remove(kind, engine, name, head))
}

async fn list(kind: Kind, engine: &Engine, head: &Parts) -> Result<Response, Problem> {
    engine.admin_tokens().reader(head).await?;
    let content = engine.source().content();
    let entries: Vec<Value> = content.of(kind).map(|entry| body::shown(kind, entry.value())).collect();
    Ok(([no_store()], Json(entries)).into_response())
}

async fn read(kind: Kind, engine: &Engine, name: Name, head: &Parts) -> Result<Response, Problem> {
    engine.admin_tokens().reader(head).await?;
    answer(StatusCode::OK, &engine.source().content(), kind, &named(name)?, None)
}

async fn create(kind: Kind, engine: Engine, request: Request) -> Result<Response, Problem> {
    let (head, sent) = request.into_parts();
    let actor = engine.admin_tokens().writer(&head, role(kind)).await?;
    let bytes = json_body::read_parts(&head.headers, sent).await?;
    let body::ValidBody { name, body, secret } = body::to_create(kind, &bytes, &engine.source().content())?;
    let edit = |content: &mut RuleDocuments| match content.get(kind, &name) {
        Some(_) => Err(ChangeError::Exists { kind, name: name.clone() }),
        None => Ok(changed(content, kind, &name, Some(&body))),
    };
    let content = engine.source().change(engine.gate(), actor, edit).await.map_err(errors::problem)?;
    answer(StatusCode::CREATED, &content, kind, &name, secret)
}

async fn replace(kind: Kind, engine: Engine, name: Name, request: Request) -> Result<Response, Problem> {
    let (head, sent) = request.into_parts();
    let name = named(name)?;
    let actor = engine.admin_tokens().writer(&head, role(kind)).await?;
    let bytes = json_body::read_parts(&head.headers, sent).await?;
    let content = engine.source().content();
    expected(&content, kind, &name, &HeaderMap::new()).map_err(|absent| errors::problem(absent.into()))?;
    let body = body::to_replace(kind, &name, &bytes, &content)?;
    let edit = |content: &mut RuleDocuments| {
        expected(content, kind, &name, &head.headers)?;
        Ok(changed(content, kind, &name, Some(&body)))
    };
    let content = engine.source().change(engine.gate(), actor, edit).await.map_err(errors::problem)?;
    answer(StatusCode::OK, &content, kind, &name, None)
}

async fn remove(kind: Kind, engine: Engine, name: Name, head: Parts) -> Result<Response, Problem> {
    let name = named(name)?;
    let actor = engine.admin_tokens().writer(&head, role(kind)).await?;
    let edit = |content: &mut RuleDocuments| {
        expected(content, kind, &name, &head.headers)?;
        if let Some(by) = user_of(content, kind, &name) {
            return Err(ChangeError::InUse { kind, name: name.clone(), by });
        }
        Ok(changed(content, kind, &name, None))
    };
    engine.source().change(engine.gate(), actor, edit).await.map_err(errors::problem)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn changed(content: &mut RuleDocuments, kind: Kind, name: &str, body: Option<&Value>) -> Vec<AppliedChange> {
    content.set(kind, name, body).into_iter().collect()
}

/// The name in the path, percent-decoded.
type Name = Result<Path<String>, PathRejection>;

fn named(name: Name) -> Result<String, Problem> {
    let undecodable = |_| body::bad("the name in the path is not text; percent-encode it as UTF-8").field("name");
    name.map(|Path(name)| name).map_err(undecodable)
}

/// Checks that the entry exists and matches the `If-Match` of the request.
fn expected(content: &RuleDocuments, kind: Kind, name: &str, headers: &HeaderMap) -> Result<(), ChangeError> {
    let Some(entry) = content.get(kind, name) else {
        return Err(ChangeError::Absent { kind, name: name.to_owned() });
    };
    let wanted: Vec<&HeaderValue> = headers.get_all(header::IF_MATCH).iter().collect();
    let tag = tag(entry);
    let fits = |value: &&HeaderValue| {
        value.to_str().is_ok_and(|list| list.split(',').map(str::trim).any(|each| each == "*" || each == tag))
    };
    if wanted.is_empty() || wanted.iter().any(fits) {
        return Ok(());
    }
    Err(ChangeError::Stale { kind, name: name.to_owned() })
}

/// An override that uses the rule.
fn user_of(content: &RuleDocuments, kind: Kind, name: &str) -> Option<String> {
    let uses = |entry: &&Entry| kind == Kind::Rule && entry.value()["rule"] == *name;
    content.of(Kind::Override).find(uses).map(|entry| entry.name.to_string())
}

/// The tag differs for every change of an entry and for every body.
fn tag(entry: &Entry) -> String {
    let digest = Sha256::digest(entry.body.as_bytes());
    format!("\"{}-{}\"", entry.version, body::hex(&digest[..8]))
}

fn answer(
    status: StatusCode,
    content: &RuleDocuments,
    kind: Kind,
    name: &str,
    secret: Option<String>,
) -> Result<Response, Problem> {
    let entry = content.get(kind, name).ok_or_else(|| {
        let detail = ChangeError::Absent { kind, name: name.to_owned() }.to_string();
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
