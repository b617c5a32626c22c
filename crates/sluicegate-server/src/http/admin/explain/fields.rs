//! The other parts of an HTTP request to explain: its host, header fields and the claims of its token. Nothing is
//! verified here, because nothing is decided by it.

use std::collections::BTreeMap;

use axum::http::header::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use sluicegate::gate::Head;
use sluicegate::path::Path;

use super::ExplainRequest;
use crate::http::admin::body;
use crate::problem::Problem;

/// The most values of header fields, and of claims: more than the gateway accepts in a request.
const VALUES_MAX: usize = 128;

/// One value or several.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a header field is a text or a list of texts")]
pub(super) enum OneOrMany {
    Text(String),
    Texts(Vec<String>),
}

/// The types of claims that rules can compare. Rules do not see others.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a claim is a text, a list of texts, a whole number, true or false; leave out all others"
)]
pub(super) enum Claim {
    Text(String),
    Texts(Vec<String>),
    Whole(u64),
    Truth(bool),
}

impl Claim {
    fn texts(&self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::Texts(texts) => texts.clone(),
            Self::Whole(number) => vec![number.to_string()],
            Self::Truth(truth) => vec![truth.to_string()],
        }
    }
}

/// Host, header fields and claims, as rules see them.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) host: Option<String>,
    pub(super) headers: HeaderMap,
    /// `None` for a request without a token.
    pub(super) claims: Option<Vec<(String, String)>>,
}

impl Fields {
    /// The fields of a request with this path.
    pub(super) fn new(question: &ExplainRequest, path: &Path<'_>) -> Result<Self, Problem> {
        let headers = headers(question.headers.as_ref())?;
        let head = Head { method: "GET", path, authority: question.host.as_deref(), headers: &headers };
        let host = head.host().map(std::borrow::Cow::into_owned);
        let claims = question.claims.as_ref().map(claims).transpose()?;
        Ok(Self { host, headers, claims })
    }
}

fn headers(sent: Option<&BTreeMap<String, OneOrMany>>) -> Result<HeaderMap, Problem> {
    let mut headers = HeaderMap::new();
    for (name, values) in sent.into_iter().flatten() {
        let bad = |what: &str| body::bad(format!("`headers`: {name:?} {what}")).field("headers");
        let known = HeaderName::try_from(name).map_err(|_| bad("is not the name of a header field"))?;
        let values = match values {
            OneOrMany::Text(text) => std::slice::from_ref(text),
            OneOrMany::Texts(texts) => texts,
        };
        for value in values {
            let value = HeaderValue::from_str(value).map_err(|_| bad("has a value that no field can have"))?;
            if headers.len() == VALUES_MAX {
                return Err(too_many("headers"));
            }
            headers.append(known.clone(), value);
        }
    }
    Ok(headers)
}

fn claims(sent: &BTreeMap<String, Claim>) -> Result<Vec<(String, String)>, Problem> {
    let of_claim =
        |(name, claim): (&String, &Claim)| claim.texts().into_iter().map(|text| (name.clone(), text)).collect();
    let claims: Vec<Vec<(String, String)>> = sent.iter().map(of_claim).collect();
    let claims = claims.concat();
    if claims.len() > VALUES_MAX { Err(too_many("claims")) } else { Ok(claims) }
}

fn too_many(field: &'static str) -> Problem {
    body::bad(format!("`{field}`: more than {VALUES_MAX} values; send those that rules look at")).field(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_no_rule_can_compare_are_rejected_by_field() {
        let refused = |text: &str| serde_json::from_str::<ExplainRequest>(text).expect_err("refused").to_string();
        let claim = "a claim is a text, a list of texts, a whole number, true or false; leave out all others";
        for value in ["-1", "1.5", "null", "{}", "[1]"] {
            assert!(refused(&format!(r#"{{"claims":{{"a":{value}}}}}"#)).starts_with(claim), "{value}");
        }
        assert!(refused(r#"{"headers":{"a":1}}"#).starts_with("a header field is a text or a list of texts"));
    }
}
