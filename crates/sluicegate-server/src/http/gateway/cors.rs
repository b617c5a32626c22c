//! CORS for the gateway's own responses, and the detection of preflight requests.
//!
//! The application has its own policy, and its responses carry it. Without CORS fields a browser hides the gateway's
//! own responses, above all denials, from scripts of another origin, so these responses name the origin if the
//! configuration lists it. A browser sends a preflight before a request, and it cannot carry credentials.

use axum::http::Response;
use axum::http::header::{self, HeaderMap, HeaderValue};

use crate::config::gateway::{Cors, Origins};

/// The fields of our responses that scripts may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, \
     X-Request-Id",
);

impl Cors {
    /// The origin of a request, if its scripts may read our responses.
    pub(super) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let is_allowed = match &self.origins {
            Origins::Any => true,
            Origins::Listed(listed) => listed.iter().any(|each| each.as_bytes() == origin.as_bytes()),
        };
        is_allowed.then(|| origin.clone())
    }

    /// Lets scripts of `origin` read a response.
    pub(super) fn show<B>(&self, response: &mut Response<B>, origin: Option<HeaderValue>) {
        let headers = response.headers_mut();
        if self.origins != Origins::Any || self.credentials {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        let Some(origin) = origin else { return };
        let shown = match self.origins {
            // With credentials, browsers require the origin by name.
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
