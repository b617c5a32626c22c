//! Whether an HTTP request may pass: what the gateway and forward-auth ask before anything else.
//!
//! It is the library's [`Gate`](sluicegate::gate::Gate) and its table of answers, so both answer alike. What is exempt
//! passes without being asked who it is. A request that is not let through comes back as the problem that its sender is
//! told. [`told`] is what an application hears of the caller.

use std::net::IpAddr;

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use sluicegate::Identity;
use sluicegate::gate::{Admission, Head, Refusal};
use sluicegate::identify::Caller;
use sluicegate::identity::IDENTIFIER_BYTES_MAX;
use sluicegate::path::{EncodedSlashes, Path, PathPattern};

use crate::app::App;
use crate::config::gateway::Preflights;
use crate::problem::Problem;
use crate::respond;

/// The fields in which an application is told who asks.
const IDENTIFIER: HeaderName = HeaderName::from_static("x-sluicegate-identifier");
const TENANT: HeaderName = HeaderName::from_static("x-sluicegate-tenant");
const TIER: HeaderName = HeaderName::from_static("x-sluicegate-tier");

/// What passes without a decision.
#[derive(Debug, Default)]
pub(crate) struct Exemptions {
    /// Paths, such as those of health checks.
    pub(crate) paths: Box<[PathPattern]>,
    /// The questions that browsers ask before a request.
    pub(crate) preflights: Preflights,
}

impl Exemptions {
    fn cover(&self, method: &str, path: &Path<'_>, headers: &HeaderMap) -> bool {
        self.paths.iter().any(|pattern| pattern.matches(path.matched()))
            || (self.preflights == Preflights::Exempt && is_preflight(method, headers))
    }
}

/// Reads the path of a request.
pub(crate) fn path(path: &str) -> Result<Path<'_>, Problem> {
    Path::parse(path, EncodedSlashes::Refuse)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Decides about a request that came from `peer`; what may not pass is a problem, and what is exempt is nothing.
pub(crate) async fn admit(app: &App, head: &Head<'_>, peer: IpAddr) -> Result<Option<Admission>, Problem> {
    if app.exemptions().cover(head.method, head.path, head.headers) {
        return Ok(None);
    }
    match app.gate().decide(head, peer).await {
        Ok(admission) if admission.decision.is_allowed() => Ok(Some(admission)),
        Ok(admission) => Err(respond::denied(&admission.decision, app.headers())),
        Err(refusal) => {
            if let Refusal::Unauthorized(error) = &refusal {
                app.limiter().observer().unauthorized(error);
            }
            Err(respond::refused(refusal, app.headers()))
        }
    }
}

/// Whether this is the question that a browser asks before it lets a script send a request.
fn is_preflight(method: &str, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS.as_str()
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// What the application is told of the caller: nothing that is not verified. What is not known is told as nothing, so
/// that it takes the place of what the client may have sent under that name.
pub(crate) fn told(caller: Option<&Caller>) -> [(HeaderName, HeaderValue); 3] {
    let identifier = match caller.map(Caller::identity) {
        Some(Identity::Named(identifier)) => identifier,
        // An application would take it for somebody who is known.
        Some(Identity::Claimed(_) | Identity::Address(_)) | None => "",
    };
    let (tenant, tier) = (caller.map_or("", Caller::tenant), caller.and_then(Caller::tier).unwrap_or_default());
    [(IDENTIFIER, value(identifier)), (TENANT, value(tenant)), (TIER, value(tier))]
}

/// A text as the value of a field. Blanks at its ends would be lost on the way and leave another name, so such a text
/// is not told at all; nor is one that is longer than any identifier.
fn value(text: &str) -> HeaderValue {
    let is_kept = text.trim_matches([' ', '\t']) == text && text.len() <= IDENTIFIER_BYTES_MAX;
    let value = if is_kept { HeaderValue::from_bytes(text.as_bytes()).ok() } else { None };
    value.unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_arrive_as_it_is_is_not_told() {
        let longest = "x".repeat(IDENTIFIER_BYTES_MAX);
        for text in ["alice", "a b", "名前", "", &longest] {
            assert_eq!(value(text).as_bytes(), text.as_bytes());
        }
        for text in [" alice", "alice\t", "a\r\nx-sluicegate-tier: gold", "a\0", "\u{7f}", &format!("{longest}x")]
        {
            assert_eq!(value(text), "", "{text:?}");
        }
    }

    /// Row 63: where every path is limited, probes from one address are denied and the server is restarted for it.
    #[test]
    fn exempt_are_paths_in_any_spelling_and_preflights_only_if_told() {
        let headers = |names: &[HeaderName]| {
            names.iter().map(|name| (name.clone(), HeaderValue::from_static("x"))).collect::<HeaderMap>()
        };
        let question = headers(&[header::ORIGIN, header::ACCESS_CONTROL_REQUEST_METHOD]);
        let paths = Box::from([PathPattern::parse("/healthz").expect("a pattern")]);
        let mut exemptions = Exemptions { paths, preflights: Preflights::Count };
        let cover = |exemptions: &Exemptions, method: &str, text: &str, headers: &HeaderMap| {
            exemptions.cover(method, &path(text).expect("a path"), headers)
        };
        assert!(cover(&exemptions, "GET", "//HealthZ/", &HeaderMap::new()));
        assert!(!cover(&exemptions, "GET", "/healthz/x", &HeaderMap::new()));
        assert!(!cover(&exemptions, "OPTIONS", "/", &question));
        exemptions.preflights = Preflights::Exempt;
        assert!(cover(&exemptions, "OPTIONS", "/", &question));
        assert!(!cover(&exemptions, "GET", "/", &question));
        assert!(!cover(&exemptions, "OPTIONS", "/", &headers(&[header::ORIGIN])));
    }
}
