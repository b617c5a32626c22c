//! Who may change things, and who may read them from afar: the bearer token of the administration.
//!
//! Whoever is on this machine may read without it. A request without the configured token is answered 401, and without a
//! configured token nothing can be changed at all: 403 with the remedy. The token itself is never part of an answer.

use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::request::Parts;

use super::admin::access::{Role, Tokens};
use crate::problem::Problem;

/// Lets whoever has a token change what needs no administrator.
pub(crate) fn require(tokens: &Tokens, headers: &HeaderMap) -> Result<(), Problem> {
    tokens.holder(headers, Role::Operate).map(|_| ())
}

/// Lets whoever has a token read, and whoever is on this machine.
pub(crate) fn require_to_read(tokens: &Tokens, head: &Parts) -> Result<(), Problem> {
    tokens.reader(head)
}

/// The answer to whoever has no token, or a wrong one.
pub(super) fn unauthorized() -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "this needs the admin token; send it as `Authorization: Bearer …`")
        .header(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))
}

/// The credentials of the only `Authorization` header, if its scheme is `Bearer`.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next()?.as_bytes();
    // Two of them may have been read differently by a proxy in front.
    if values.next().is_some() {
        return None;
    }
    let (scheme, credentials) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| credentials.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::extract::ConnectInfo;
    use axum::response::IntoResponse as _;

    use super::*;
    use crate::secret::Secret;

    fn tokens(token: Option<&str>) -> Tokens {
        Tokens::new(token.map(|text| Secret::new(text.to_owned())).as_ref(), Vec::new())
    }

    fn status(token: Option<&str>, authorization: &[&str]) -> u16 {
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).expect("valid"));
        }
        match require(&tokens(token), &headers) {
            Ok(()) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        }
    }

    #[test]
    fn only_the_token_opens() {
        let token = Some("correct-horse");
        for (authorization, expected) in [
            (&["Bearer correct-horse"][..], 200),
            (&["bearer correct-horse"], 200),
            (&["Bearer  correct-horse"], 200),
            (&[], 401),
            (&[""], 401),
            (&["Bearer"], 401),
            (&["Bearer "], 401),
            (&["Bearer correct-hors"], 401),
            (&["Bearer correct-horse2"], 401),
            (&["Basic correct-horse"], 401),
            (&["correct-horse"], 401),
            (&["Bearer correct-horse", "Bearer correct-horse"], 401),
        ] {
            assert_eq!(status(token, authorization), expected, "{authorization:?}");
        }
    }

    #[test]
    fn whoever_is_on_this_machine_reads_without_it() {
        let status = |peer: &str, token: Option<&str>, authorization: Option<&'static str>| {
            let mut head = axum::http::Request::new(()).into_parts().0;
            if let Ok(peer) = peer.parse::<SocketAddr>() {
                head.extensions.insert(ConnectInfo(peer));
            }
            if let Some(value) = authorization {
                head.headers.insert(header::AUTHORIZATION, HeaderValue::from_static(value));
            }
            match require_to_read(&tokens(token), &head) {
                Ok(()) => 200,
                Err(problem) => problem.into_response().status().as_u16(),
            }
        };
        for peer in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert_eq!((status(peer, None, None), status(peer, Some("t"), None)), (200, 200), "{peer}");
        }
        for peer in ["192.0.2.7:1", "[2001:db8::1]:1", "0.0.0.0:1", "nobody knows"] {
            assert_eq!((status(peer, None, None), status(peer, Some("t"), None)), (401, 401), "{peer}");
            assert_eq!(status(peer, None, Some("Bearer t")), 401, "{peer}");
            assert_eq!(status(peer, Some("t"), Some("Bearer u")), 401, "{peer}");
            assert_eq!(status(peer, Some("t"), Some("Bearer t")), 200, "{peer}");
        }
    }

    #[test]
    fn without_a_configured_token_nothing_opens() {
        assert_eq!(status(None, &["Bearer anything"]), 403);
        assert_eq!(status(None, &[]), 403);
    }
}
