//! What a request asks for: the host and the normalised path, or 400 where two readers could disagree about them.
//!
//! An upstream speaks another version of HTTP than the client perhaps, and reads the request by its own rules. So
//! nothing passes that has two hosts, none, one that is none, or a path that does not begin with `/`.

use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{Method, StatusCode, Version};

use sluicegate::path::Path;

use super::host::HOST_BYTES_MAX;
use crate::admit;
use crate::problem::Problem;

/// The longest host: a name, a colon and a port.
const AUTHORITY_BYTES_MAX: usize = HOST_BYTES_MAX + 6;

/// The methods of a gateway: all but those that are about the connection itself.
const ALLOWED: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Host and port as the client named them; only HTTP/1.0 may leave them out.
    pub(super) host: Option<HeaderValue>,
    /// Path and query as they came.
    asked: PathAndQuery,
}

impl Target {
    /// Reads the head of a request.
    pub(super) fn of(head: &Parts) -> Result<Self, Problem> {
        if head.method == Method::CONNECT || head.method == Method::TRACE {
            let detail = format!("{} is not for a gateway; `Allow` lists methods that are", head.method);
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail).header(header::ALLOW, ALLOWED));
        }
        let host = host(head)?;
        let Some(asked) = head.uri.path_and_query().filter(|asked| asked.path().starts_with('/')) else {
            return Err(bad("the request's target is no path; send one that begins with /"));
        };
        Ok(Self { host, asked: asked.clone() })
    }

    /// The host as text.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_ref()?.to_str().ok()
    }

    /// The path in its one form; what could be read in two ways is refused.
    pub(super) fn path(&self) -> Result<Path<'_>, Problem> {
        admit::path(self.asked.path())
    }

    /// What an upstream is asked for: `path`, without `prefix` if it begins with that, and the query as it came.
    pub(super) fn sent(&self, path: &Path<'_>, prefix: Option<&str>) -> Result<PathAndQuery, Problem> {
        let path = prefix.map_or(path.sent(), |prefix| without(path, prefix));
        // `http://host?query` has no slash of its own, and an upstream that speaks HTTP/2 would be sent none.
        if path == self.asked.path() && self.asked.as_str().starts_with('/') {
            return Ok(self.asked.clone());
        }
        let joined = self.asked.query().map(|query| format!("{path}?{query}"));
        // Normal forms hold only what a path may hold, so this does not fail.
        PathAndQuery::try_from(joined.as_deref().unwrap_or(path))
            .map_err(|_| bad("the path holds characters that no path may hold"))
    }
}

fn bad(detail: &'static str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

/// The path without its beginning, of which whole segments are taken: `/api` is none of `/apis`. The beginning is
/// looked for as routes look for theirs, so that a path which is written otherwise does not keep it.
fn without<'p>(path: &'p Path<'_>, prefix: &str) -> &'p str {
    let rest = path.matched().strip_prefix(prefix);
    if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
        return path.sent();
    }
    // Both forms of a path have the same segments, each of which begins with a slash.
    let mut slashes = path.sent().match_indices('/');
    slashes.nth(prefix.matches('/').count()).map_or("/", |(at, _)| &path.sent()[at..])
}

/// The one host of a request. In the URI it wins (RFC 9112 §3.2.2); on HTTP/2 both must be the same.
fn host(head: &Parts) -> Result<Option<HeaderValue>, Problem> {
    let is_http2 = head.version >= Version::HTTP_2;
    let field = only_host(&head.headers)?;
    let Some(authority) = head.uri.authority() else {
        return match field {
            Some(field) => checked(field).map(Some),
            None if head.version <= Version::HTTP_10 => Ok(None),
            None => Err(bad("the request names no host; send one `Host` header")),
        };
    };
    let named = HeaderValue::from_str(authority.as_str()).map_err(|_| bad_host())?;
    match field {
        None if !is_http2 && head.version > Version::HTTP_10 => {
            Err(bad("the request has no `Host` header; send one, also when the target names the host"))
        }
        Some(field) if is_http2 && !field.as_bytes().eq_ignore_ascii_case(named.as_bytes()) => {
            Err(bad("`Host` and `:authority` are not the same; send one of them"))
        }
        _ => checked(&named).map(Some),
    }
}

fn only_host(headers: &HeaderMap) -> Result<Option<&HeaderValue>, Problem> {
    let mut fields = headers.get_all(header::HOST).iter();
    match (fields.next(), fields.next()) {
        (only, None) => Ok(only),
        _ => Err(bad("the request names several hosts; send one `Host` header")),
    }
}

fn bad_host() -> Problem {
    bad("the request's host is none; send a name or an address, and a port if need be")
}

/// A host that can be nothing else: `name`, `name:port`, `[address]`, `[address]:port`.
fn checked(host: &HeaderValue) -> Result<HeaderValue, Problem> {
    let is_host = |text: &str| {
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (text, None),
        };
        let is_name = match name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !name.is_empty() && name.bytes().all(is_name_byte),
        };
        is_name && text.len() <= AUTHORITY_BYTES_MAX && port.is_none_or(|port| port.parse::<Port>().is_ok())
    };
    match host.to_str() {
        Ok(text) if is_host(text) => Ok(host.clone()),
        _ => Err(bad_host()),
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_')
}

/// A port, in plain digits.
struct Port;

impl std::str::FromStr for Port {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        if is_plain && text.parse::<u16>().is_ok() { Ok(Self) } else { Err(()) }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use axum::response::IntoResponse as _;

    use super::*;

    fn target(version: Version, uri: &str, hosts: &[&str]) -> Result<Target, StatusCode> {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header("host", *host);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        Target::of(&head).map_err(|problem| problem.into_response().status())
    }

    fn host(version: Version, uri: &str, hosts: &[&str]) -> Result<Option<String>, u16> {
        let target = target(version, uri, hosts).map_err(|status| status.as_u16())?;
        Ok(target.host().map(str::to_owned))
    }

    #[test]
    fn there_is_one_host_and_everybody_agrees_on_it() {
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(host(Version::HTTP_11, "/a", &["t"]), some("t"));
        assert_eq!(host(Version::HTTP_11, "/a", &["api.example.com:8080"]), some("api.example.com:8080"));
        assert_eq!(host(Version::HTTP_11, "/a", &["[::1]:80"]), some("[::1]:80"));
        assert_eq!(host(Version::HTTP_11, "/a", &["[::1]"]), some("[::1]"));
        assert_eq!(host(Version::HTTP_10, "/a", &[]), Ok(None));
        assert_eq!(host(Version::HTTP_11, "/a", &[]), Err(400));
        assert_eq!(host(Version::HTTP_11, "/a", &["t", "t"]), Err(400));
        assert_eq!(host(Version::HTTP_11, "http://real/a", &["other"]), some("real"));
        assert_eq!(host(Version::HTTP_11, "http://real/a", &[]), Err(400));
        assert_eq!(host(Version::HTTP_11, "http://real/a", &["a", "b"]), Err(400));
        assert_eq!(host(Version::HTTP_2, "https://real/a", &[]), some("real"));
        assert_eq!(host(Version::HTTP_2, "https://real/a", &["REAL"]), some("real"));
        assert_eq!(host(Version::HTTP_2, "https://real/a", &["other"]), Err(400));
        assert_eq!(host(Version::HTTP_2, "https://real/a", &["real", "real"]), Err(400));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for name in
            ["", " ", "a b", "a/b", "u@h", "a,b", "a:x", "a:", "a:+1", "a:65536", "[::1", "[x]", "a\"b", "é"]
        {
            assert_eq!(host(Version::HTTP_11, "/a", &[name]), Err(400), "{name}");
        }
        assert_eq!(host(Version::HTTP_11, "/a", &[&"a".repeat(260)]), Err(400));
        assert_eq!(host(Version::HTTP_2, "http://user@real/a", &[]), Err(400));
    }

    #[test]
    fn the_path_has_one_form_and_the_query_is_untouched() {
        for (uri, sent, matched) in [
            ("/a?b=//%2f&c", "/a?b=//%2f&c", "/a"),
            ("//a/./B/../C;x/?%2e=..", "/a/C;x/?%2e=..", "/a/c"),
            ("/%61?", "/a?", "/a"),
            ("http://t?x=1", "/?x=1", "/"),
            ("http://t", "/", "/"),
        ] {
            let target = target(Version::HTTP_11, uri, &["t"]).expect("a target");
            let path = target.path().expect("a path");
            assert_eq!(
                (target.sent(&path, None).expect("valid").as_str(), path.matched()),
                (sent, matched),
                "{uri}"
            );
        }
        for uri in ["/a%2fb", "/a%5cb", "/a%00", "/a%", "/..;/a"] {
            assert!(target(Version::HTTP_11, uri, &["t"]).expect("a target").path().is_err(), "{uri}");
        }
    }

    #[test]
    fn whole_segments_are_taken_off_the_path() {
        for (uri, sent) in [
            ("/api/x?y", "/x?y"),
            ("/api", "/"),
            ("/api?y", "/?y"),
            ("/api/", "/"),
            ("/apis", "/apis"),
            ("/x/api", "/x/api"),
            ("/API/X?y", "/X?y"),
            ("/api;v=1/x", "/x"),
            ("/%61pi./x/", "/x/"),
            ("/API", "/"),
        ] {
            let target = target(Version::HTTP_11, uri, &["t"]).expect("a target");
            let path = target.path().expect("a path");
            assert_eq!(target.sent(&path, Some("/api")).expect("valid").as_str(), sent, "{uri}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        assert_eq!(target(Version::HTTP_11, "*", &["t"]), Err(StatusCode::BAD_REQUEST));
        for method in [Method::CONNECT, Method::TRACE] {
            let request = Request::builder().method(method).uri("/a").header("host", "t");
            let (head, ()) = request.body(()).expect("a request").into_parts();
            let response = Target::of(&head).unwrap_err().into_response();
            assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
            assert!(response.headers().contains_key("allow"));
        }
    }
}
