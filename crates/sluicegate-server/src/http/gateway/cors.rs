//! What browsers need to see of our own answers, and which requests they send by themselves.
//!
//! The application behind has its own policy and its answers carry it. What the gateway answers itself, a denial above
//! all, would be hidden from a script of another origin, which could not tell why it failed: so these answers name the
//! origin if the configuration does. A preflight is a question that a browser asks before a request; it cannot carry
//! credentials.

use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Method, Response};

/// What a script may read of our answers.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, \
     X-Request-Id",
);

/// Whose scripts may read our answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cors {
    /// Origins such as `https://app.example.com`.
    pub(crate) origins: Origins,
    /// Whether scripts may read answers to requests with cookies and the like.
    pub(crate) credentials: bool,
}

/// Origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origins {
    /// All there are.
    Any,
    /// These.
    Listed(Box<[Box<str>]>),
}

impl Cors {
    /// The origin of a request, if its scripts may read our answers.
    pub(super) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let is_allowed = match &self.origins {
            Origins::Any => true,
            Origins::Listed(listed) => listed.iter().any(|each| each.as_bytes() == origin.as_bytes()),
        };
        is_allowed.then(|| origin.clone())
    }

    /// Shows an answer of ours to scripts of `origin`.
    pub(super) fn show<B>(&self, response: &mut Response<B>, origin: Option<HeaderValue>) {
        let headers = response.headers_mut();
        if self.origins != Origins::Any || self.credentials {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        let Some(origin) = origin else { return };
        let shown = match self.origins {
            // With credentials browsers want the origin by name.
            Origins::Any if !self.credentials => HeaderValue::from_static("*"),
            _ => origin,
        };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, shown);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        if self.credentials {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

/// Whether a request is a browser's question before another one.
pub(super) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    *method == Method::OPTIONS
        && headers.contains_key(header::ORIGIN)
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(cors: &Cors, origin: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("origin", HeaderValue::from_static(origin));
        let mut response = Response::new(());
        cors.show(&mut response, cors.origin(&headers));
        response.into_parts().0.headers
    }

    #[test]
    fn a_listed_origin_is_named_and_another_is_not() {
        let origins = Origins::Listed(["https://app.example.com".into()].into());
        let cors = Cors { origins, credentials: true };
        let headers = shown(&cors, "https://app.example.com");
        assert_eq!(headers["access-control-allow-origin"], "https://app.example.com");
        assert_eq!(headers["access-control-allow-credentials"], "true");
        assert_eq!(headers["vary"], "Origin");
        assert!(headers["access-control-expose-headers"].to_str().expect("ASCII").contains("Retry-After"));
        for other in ["https://app.example.com.evil", "http://app.example.com", "null"] {
            let headers = shown(&cors, other);
            assert_eq!(headers.len(), 1, "{other}: {headers:?}");
            assert_eq!(headers["vary"], "Origin");
        }
    }

    #[test]
    fn any_origin_is_a_star_unless_there_are_credentials() {
        let headers = shown(&Cors { origins: Origins::Any, credentials: false }, "https://x");
        assert_eq!((headers.get("vary"), &headers["access-control-allow-origin"]), (None, &"*".parse().unwrap()));
        let headers = shown(&Cors { origins: Origins::Any, credentials: true }, "https://x");
        assert_eq!(headers["access-control-allow-origin"], "https://x");
    }
}
