//! Admission of HTTP requests by the gateway and forward-auth.
//!
//! Both use the library's [`Gate`](sluicegate::gate::Gate) and its response table, so their responses agree. An exempt
//! request passes without identification. A request that may not pass yields the [`Problem`] to send to its client.
//! [`identity_headers`] yields the headers that describe the client to the upstream application.

use std::net::IpAddr;

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use sluicegate::Identity;
use sluicegate::gate::{Admission, Head, Refusal};
use sluicegate::headers::HeaderOptions;
use sluicegate::identify::Client;
use sluicegate::identity::IDENTIFIER_BYTES_MAX;
use sluicegate::path::{EncodedSlashes, Path, PathPattern};

use crate::api_response;
use crate::config::gateway::Preflights;
use crate::limiter::ServerGate;
use crate::problem::Problem;

/// The headers that carry the client's identity to an application.
const IDENTIFIER: HeaderName = HeaderName::from_static("x-sluicegate-identifier");
const TENANT: HeaderName = HeaderName::from_static("x-sluicegate-tenant");
const TIER: HeaderName = HeaderName::from_static("x-sluicegate-tier");

/// Requests that pass without a decision.
#[derive(Debug, Default)]
pub(crate) struct Exemptions {
    /// Paths, such as those of health checks.
    pub(crate) paths: Box<[PathPattern]>,
    /// The preflight requests of CORS.
    pub(crate) preflights: Preflights,
}

impl Exemptions {
    fn cover(&self, method: &str, path: &Path<'_>, headers: &HeaderMap) -> bool {
        covers_all_readings(&self.paths, path)
            || (self.preflights == Preflights::Exempt && is_preflight(method, headers))
    }
}

/// True if, for each reading of `path` that an application may choose, some pattern matches.
pub(crate) fn covers_all_readings(patterns: &[PathPattern], path: &Path<'_>) -> bool {
    path.readings().all(|reading| patterns.iter().any(|pattern| pattern.matches(reading)))
}

/// Parses the path of a request; an invalid path is a 400.
pub(crate) fn path(path: &str, slashes: EncodedSlashes) -> Result<Path<'_>, Problem> {
    Path::parse(path, slashes).map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))
}

/// Decides about a request from `peer`. Returns `None` for an exempt request, and the problem to send if the request may
/// not pass.
pub(crate) async fn admit(
    gate: &ServerGate,
    exemptions: &Exemptions,
    options: HeaderOptions,
    head: &Head<'_>,
    peer: IpAddr,
) -> Result<Option<Admission>, Problem> {
    if exemptions.cover(head.method, head.path, head.headers) {
        return Ok(None);
    }
    match gate.decide(head, peer).await {
        Ok(admission) if admission.decision.is_allowed() => Ok(Some(admission)),
        Ok(admission) => Err(api_response::denied(&admission.decision, options)),
        Err(refusal) => {
            if let Refusal::Unauthorized(error) = &refusal {
                gate.limiter().observer().unauthorized(error);
            }
            Err(api_response::refused(refusal, options))
        }
    }
}

/// Whether this is a CORS preflight request.
fn is_preflight(method: &str, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS.as_str()
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The headers that describe the client to an application. They contain only verified facts. An unknown fact is an empty
/// value, which replaces any header of that name from the client.
pub(crate) fn identity_headers(client: Option<&Client>) -> [(HeaderName, HeaderValue); 3] {
    let identifier = match client.map(Client::identity) {
        Some(Identity::Named(identifier)) => identifier,
        // An application would take such a name for a verified one.
        Some(Identity::Claimed(_) | Identity::Address(_)) | None => "",
    };
    let (tenant, tier) = (client.map_or("", Client::tenant), client.and_then(Client::tier).unwrap_or_default());
    [(IDENTIFIER, value(identifier)), (TENANT, value(tenant)), (TIER, value(tier))]
}

/// A text as a header value. The value is empty if the text is longer than any identifier, or begins or ends with a
/// blank: HTTP drops such blanks, and the application would see another name.
fn value(text: &str) -> HeaderValue {
    let is_kept = text.trim_matches([' ', '\t']) == text && text.len() <= IDENTIFIER_BYTES_MAX;
    let value = if is_kept { HeaderValue::from_bytes(text.as_bytes()).ok() } else { None };
    value.unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_http_would_alter_become_empty_values() {
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
    fn exempt_paths_match_in_any_spelling_and_preflights_only_if_configured() {
        let headers = |names: &[HeaderName]| {
            names.iter().map(|name| (name.clone(), HeaderValue::from_static("x"))).collect::<HeaderMap>()
        };
        let question = headers(&[header::ORIGIN, header::ACCESS_CONTROL_REQUEST_METHOD]);
        let paths = ["/healthz", "/assets/**"].map(|path| PathPattern::parse(path).expect("a pattern"));
        let paths = Box::from(paths);
        let mut exemptions = Exemptions { paths, preflights: Preflights::Count };
        let cover = |exemptions: &Exemptions, method: &str, text: &str, headers: &HeaderMap| {
            exemptions.cover(method, &path(text, EncodedSlashes::Keep).expect("a path"), headers)
        };
        assert!(cover(&exemptions, "GET", "//HealthZ/", &HeaderMap::new()));
        assert!(!cover(&exemptions, "GET", "/healthz/x", &HeaderMap::new()));
        // Only if it is, whichever way it is read.
        for (path, is_covered) in [
            ("/assets/a%2Fb", true),
            ("/assets/..%2Fhealthz", true),
            ("/assets/..%2Fadmin", false),
            ("/assets%2Fa", false),
            ("/admin/..%2Fassets%2fa", false),
        ] {
            assert_eq!(cover(&exemptions, "GET", path, &HeaderMap::new()), is_covered, "{path}");
        }
        assert!(!cover(&exemptions, "OPTIONS", "/", &question));
        exemptions.preflights = Preflights::Exempt;
        assert!(cover(&exemptions, "OPTIONS", "/", &question));
        assert!(!cover(&exemptions, "GET", "/", &question));
        assert!(!cover(&exemptions, "OPTIONS", "/", &headers(&[header::ORIGIN])));
    }
}
