//! Bodies of entries: converts a request's body to its stored form, and the stored form to a response.
//!
//! The shapes are those of the configuration file. Of an API key only the hash is stored and never shown. A key that
//! the server generates is sent once, in the response to its creation.

use std::fmt::Write as _;

use axum::http::StatusCode;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use sluicegate::response::ResponseClass;
use sluicegate::rules::RuleSet;
use sluicegate::rules::file::{Document, Environment, Problems, Reader};

use super::errors;
use crate::problem::Problem;
use crate::rule_documents::read::{self, UniqueNames};
use crate::rule_documents::{Entry, Kind, RuleDocuments, name_of};

/// The prefix of generated keys, by which scanners for leaked secrets recognise them.
const KEY_PREFIX: &str = "sg_";
/// The random bytes of a key.
const KEY_BYTES: usize = 32;

/// A validated body.
#[derive(Debug)]
pub(super) struct ValidBody {
    /// The name of the entry.
    pub(super) name: String,
    /// The stored form.
    pub(super) body: Value,
    /// The generated key, if there is one.
    pub(super) secret: Option<String>,
}

/// The body of a request that creates an entry.
pub(super) fn to_create(kind: Kind, bytes: &[u8], content: &RuleDocuments) -> Result<ValidBody, Problem> {
    let mut body = object(bytes)?;
    if kind == Kind::Key && !body.contains_key("name") {
        body.extend(body.get("identifier").cloned().map(|identifier| ("name".to_owned(), identifier)));
    }
    let mut secret = None;
    if kind == Kind::Key && !body.contains_key("sha256") {
        let key = new_key()?;
        body.insert("sha256".to_owned(), hash_of(&key).into());
        secret = Some(key);
    }
    let body = Value::Object(body);
    checked(kind, &body, content)?;
    let name = name_of(&body).ok_or_else(|| bad("the body has no `name`; give it one").field("name"))?;
    Ok(ValidBody { name, body, secret })
}

/// The body of a request that replaces the entry `name`.
pub(super) fn to_replace(kind: Kind, name: &str, bytes: &[u8], content: &RuleDocuments) -> Result<Value, Problem> {
    let mut body = object(bytes)?;
    let escaped = name.replace("${", "$${");
    let own = body.entry("name").or_insert_with(|| escaped.clone().into());
    if own.as_str().is_some_and(|own| own != escaped) {
        let detail =
            "`name` is another than in the path; an entry keeps its name, so make a new one and delete this";
        return Err(bad(detail).field("name"));
    }
    let kept = content.get(kind, name).map(Entry::value);
    let kept_hash = kept.as_ref().and_then(|kept| kept.get("sha256"));
    if let (Kind::Key, Some(hash)) = (kind, kept_hash) {
        body.entry("sha256").or_insert_with(|| hash.clone());
    }
    let body = Value::Object(body);
    checked(kind, &body, content)?;
    Ok(body)
}

/// The public form of an entry.
pub(super) fn shown(kind: Kind, mut body: Value) -> Value {
    if let (Kind::Key, Some(body)) = (kind, body.as_object_mut()) {
        body.remove("sha256");
    }
    body
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, Problem> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(bad("the body is not a JSON object; send one")),
        Err(error) => Err(bad(format!("the body is not JSON: {error}; send a JSON object"))),
    }
}

/// Validates an entry alone, so that errors name its own fields.
fn checked(kind: Kind, body: &Value, content: &RuleDocuments) -> Result<(), Problem> {
    if kind == Kind::Rule {
        let tiers = content.get(Kind::Setting, "tiers").map_or_else(|| Value::Array(Vec::new()), Entry::value);
        let alone = serde_json::json!({ "tiers": tiers, "rules": [body] });
        let read = RuleSet::from_yaml(alone.to_string(), "body", &Environment::new());
        return read.map(drop).map_err(|problems| errors::mistakes(&problems, "rules[0]"));
    }
    let read = alone(body, |reader| {
        let seen = &mut UniqueNames::default();
        match kind {
            Kind::Tenant => read::tenant(reader, seen).map(drop),
            Kind::Override => read::standalone_override(reader, seen).map(drop),
            Kind::Key => read::key(reader, seen).map(drop),
            Kind::Rule | Kind::Setting => Some(()),
        }
    });
    read.map_err(|problems| errors::mistakes(&problems, ""))
}

fn alone(body: &Value, read: impl FnOnce(&Reader<'_>) -> Option<()>) -> Result<(), Problems> {
    let environment = Environment::new();
    let document = Document::parse(body.to_string(), "body", &environment);
    let outcome = document.root().and_then(|root| read(&root));
    document.finish(outcome)
}

/// A random key.
fn new_key() -> Result<String, Problem> {
    let mut bytes = [0; KEY_BYTES];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    random.fill(&mut bytes).map_err(|_| {
        let detail = "the system has no randomness to generate a key; try again, or send the `sha256` of your own";
        ResponseClass::Unavailable.problem(detail)
    })?;
    Ok(format!("{KEY_PREFIX}{}", hex(&bytes)))
}

fn hash_of(key: &str) -> String {
    hex(&Sha256::digest(key.as_bytes()))
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn bad(detail: impl Into<std::borrow::Cow<'static, str>>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}
